"""The Cholesky that is written out for ONNX, against LAPACK's."""

import pytest
import torch

from funcattn.ops.linalg import UNROLLED_UP_TO, solve_positive, solve_positive_unrolled

FAMILIES = {"random": 1.0, "ill_conditioned": 1e-6, "nearly_singular": 1e-12}
"""Smallest over largest eigenvalue."""


def system(k: int, smallest: float, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Matrices (2 3 k k) with eigenvalues from `smallest` to 1, and right sides (2 3 k 4)."""
    square = torch.randn(2, 3, k, k, dtype=torch.float64, generator=generator)
    orthogonal = torch.linalg.qr(square).Q
    values = torch.logspace(0, 1, k, base=smallest, dtype=torch.float64)
    if smallest == 1.0:
        values = 1 + torch.rand(k, dtype=torch.float64, generator=generator)
    matrix = (orthogonal * values) @ orthogonal.mT
    right = torch.randn(2, 3, k, 4, dtype=torch.float64, generator=generator)
    return (matrix + matrix.mT) / 2, right


@pytest.mark.parametrize("k", [1, 2, 5, 16, 33], ids=lambda k: f"k{k}")
@pytest.mark.parametrize("family", FAMILIES)
def test_the_unrolled_solve_is_as_good_as_lapack(
    family: str, k: int, generator: torch.Generator
) -> None:
    matrix, right = system(k, FAMILIES[family], generator)
    ours, theirs = solve_positive_unrolled(matrix, right), solve_positive(matrix, right)
    # Cholesky is backward stable: the residual is small next to matrix and solution, whatever the
    # condition. The solutions themselves may differ by rounding times the condition.
    scale = torch.linalg.matrix_norm(matrix) * torch.linalg.matrix_norm(ours)
    residual = torch.linalg.matrix_norm(matrix @ ours - right)
    assert (residual <= 4 * k * torch.finfo(torch.float64).eps * scale).all()
    apart = torch.linalg.matrix_norm(ours - theirs) / torch.linalg.matrix_norm(theirs)
    condition = torch.linalg.cond(matrix)
    assert (apart <= 4 * k * torch.finfo(torch.float64).eps * condition).all()


def test_the_unrolled_solve_has_the_same_gradients(generator: torch.Generator) -> None:
    matrix, right = system(5, 1e-2, generator)
    found = []
    for solve in (solve_positive, solve_positive_unrolled):
        a, r = matrix.clone().requires_grad_(), right.clone().requires_grad_()
        of_matrix, of_right = torch.autograd.grad(solve(a, r).square().sum(), (a, r))
        # Only changes that keep the matrix symmetric mean something.
        found.append((of_matrix + of_matrix.mT, of_right))
    for theirs, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_one_matrix_serves_many_right_sides(generator: torch.Generator) -> None:
    matrix, right = system(5, 1.0, generator)
    ours = solve_positive_unrolled(matrix[:1, :1], right)
    torch.testing.assert_close(ours, torch.linalg.solve(matrix[:1, :1], right))


def test_a_matrix_that_is_not_positive_gives_nan_not_a_number_that_looks_right() -> None:
    matrix = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
    assert solve_positive_unrolled(matrix, torch.ones(2, 1)).isnan().any()


@pytest.mark.parametrize("smallest", [1.0, 1e-3, 1e-6])
def test_a_large_system_is_solved_by_iteration(smallest: float, generator: torch.Generator) -> None:
    k = UNROLLED_UP_TO + 1
    matrix, right = system(k, smallest, generator)
    ours = solve_positive_unrolled(matrix, right)
    scale = torch.linalg.matrix_norm(matrix) * torch.linalg.matrix_norm(ours)
    residual = torch.linalg.matrix_norm(matrix @ ours - right)
    assert (residual <= 4 * k * torch.finfo(torch.float64).eps * scale).all()


def test_a_large_system_in_single_precision_is_as_good_as_its_condition_allows(
    generator: torch.Generator,
) -> None:
    matrix, right = system(UNROLLED_UP_TO + 36, 1e-3, generator)
    exact = solve_positive(matrix, right)
    ours = solve_positive_unrolled(matrix.float(), right.float())
    apart = torch.linalg.matrix_norm(ours - exact) / torch.linalg.matrix_norm(exact)
    assert (apart <= 4 * torch.finfo(torch.float32).eps * 1e3).all()
