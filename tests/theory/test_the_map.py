"""C as the ridge solution: its two forms, what it minimises, what it becomes in special cases."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from funcattn.ops import Additive, Convex, functional_attention, projector, ridge_system, transport

EITHER_SIDE = {"g<d": (3, 7), "g=d": (5, 5), "g>d": (8, 4)}
either_side = pytest.mark.parametrize(("g", "d"), EITHER_SIDE.values(), ids=EITHER_SIDE)
real_or_complex = pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
RIDGES = {"additive": Additive(0.3), "convex": Convex(0.2)}
either_ridge = pytest.mark.parametrize("ridge", RIDGES.values(), ids=RIDGES)
either_form = pytest.mark.parametrize("form", ["primal", "dual"])


def random(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=dtype)


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    """Relative to the largest entry; 1e-16 times condition numbers of 1e2 or 1e3."""
    scale = expected.abs().max().item()
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance * scale)


@real_or_complex
@either_ridge
@either_side
def test_primal_equals_dual(generator, g, d, ridge, dtype) -> None:
    """q~ k~^H (k~ k~^H + lambda I_g)^-1 v~ = q~ (k~^H k~ + lambda I_d)^-1 k~^H v~"""
    query, key = random(generator, 2, 2, 3, g, d, dtype=dtype)
    value = random(generator, 2, 3, g, 2, dtype=dtype)
    primal, dual = (
        transport(query, key, value, ridge=ridge, form=form) for form in ("primal", "dual")
    )
    close(primal, dual)


@either_form
def test_a_full_orthonormal_basis_recovers_intention(generator, form) -> None:
    """Q (K^T K + lambda I)^-1 K^T V. The two sides' bases need not be the same one."""
    n, d = 9, 4
    query, key, value = random(generator, 3, 1, 1, n, d)
    phi, psi = torch.linalg.qr(random(generator, 2, 1, 1, n, n)).Q
    out = functional_attention(
        query, key, value, phi, psi, ridge=0.3, projection="transpose", form=form
    )
    system = key.mT @ key + 0.3 * torch.eye(d, dtype=torch.float64)
    close(out, query @ torch.linalg.inv(system) @ key.mT @ value)


def coefficients_and_map(
    generator: torch.Generator, dtype: torch.dtype, **options
) -> tuple[Tensor, Tensor, Tensor]:
    """q~, k~ and the C that the operator reports."""
    query, key, value = random(generator, 3, 1, 1, 20, 5)
    phi, psi = random(generator, 2, 1, 1, 20, 4, dtype=dtype)
    _, c = functional_attention(
        query, key, value, phi, psi, projection="inner_product", return_map=True, **options
    )
    project_query, project_key = (projector(basis, "inner_product") for basis in (phi, psi))
    return project_query(query), project_key(key), c


def objective(c: Tensor, query: Tensor, key: Tensor, strength: float) -> Tensor:
    """||q~ - C k~||^2 + lambda ||C||^2"""
    squares = (query - c @ key).abs().square().sum() + strength * c.abs().square().sum()
    return squares.real


@real_or_complex
@either_form
def test_the_gradient_of_the_ridge_objective_vanishes_at_the_map(generator, dtype, form) -> None:
    query, key, c = coefficients_and_map(generator, dtype, ridge=0.3, form=form)
    c.requires_grad_()
    (slope,) = torch.autograd.grad(objective(c, query, key, 0.3), c)
    (elsewhere,) = torch.autograd.grad(objective(1.01 * c, query, key, 0.3), c)
    assert slope.norm() < 1e-13
    assert elsewhere.norm() > 1e-3


@real_or_complex
def test_every_other_map_has_a_larger_ridge_objective(generator, dtype) -> None:
    """The excess of C + D is ||D k~||^2 + lambda ||D||^2 exactly, as nothing is left to gain."""
    query, key, c = coefficients_and_map(generator, dtype, ridge=0.3)
    least = objective(c, query, key, 0.3)
    for size in (1e-3, 1e-1, 1e1):
        for _ in range(10):
            change = size * random(generator, *c.shape, dtype=dtype)
            excess = objective(c + change, query, key, 0.3) - least
            expected = objective(change, torch.zeros_like(query), key, 0.3)
            assert excess > 0
            # Two sums near `least` are subtracted: an absolute error of 1e-16 times their size.
            assert excess == pytest.approx(expected.item(), rel=1e-12, abs=1e-14 * least.item())


def test_a_convex_ridge_is_an_additive_one_towards_a_longer_query(generator) -> None:
    """(1 - a) G + a I = (1 - a) (G + a / (1 - a) I), so its C is 1 / (1 - a) times the other's."""
    query, key, value = random(generator, 3, 1, 2, 6, 6)
    a = 0.2
    mixed = transport(query, key, value, ridge=Convex(a))
    added = transport(query, key, value, ridge=Additive(a / (1 - a)))
    close(mixed, added / (1 - a))


def test_a_convex_ridge_of_one_is_linear_attention_of_the_coefficients(generator) -> None:
    query, key, value = random(generator, 3, 1, 2, 6, 6)
    close(transport(query, key, value, ridge=Convex(1.0)), query @ key.mT @ value)


@either_form
@either_side
@pytest.mark.parametrize(
    ("kind", "strengths"),
    [(Additive, [10.0**p for p in range(-3, 4)]), (Convex, [0.001, 0.01, 0.1, 0.3, 0.6, 0.9, 1.0])],
    ids=["additive", "convex"],
)
def test_the_condition_number_falls_as_the_ridge_grows(
    generator, kind, strengths, g, d, form
) -> None:
    key = random(generator, 1, 1, g, d)
    systems = [ridge_system(key, ridge=kind(strength), form=form) for strength in strengths]
    condition = [torch.linalg.cond(system).item() for system in systems]
    assert all(after < before for before, after in pairwise(condition))


@either_form
@either_side
def test_the_condition_number_is_that_of_the_shifted_squared_singular_values(
    generator, g, d, form
) -> None:
    key = random(generator, 1, 1, g, d)
    squares = torch.linalg.svdvals(key[0, 0]).square()
    size = g if form == "primal" else d
    smallest = squares.min().item() if size <= min(g, d) else 0.0
    expected = (squares.max().item() + 0.3) / (smallest + 0.3)
    found = torch.linalg.cond(ridge_system(key, ridge=0.3, form=form)).item()
    assert found == pytest.approx(expected, rel=1e-12)
