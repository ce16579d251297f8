"""The fast transform against the matrix of the same functions."""

import math

import pytest
import torch
from torch import Tensor

from funcattn.ops import (
    BasisFunctions,
    GridFourier,
    analyse,
    dense,
    fourier_values,
    functional_attention,
    lift,
    projector,
)

CPU = torch.device("cpu")
GRIDS = {
    "1d-odd": ((9,), (4,)),
    "1d-even": ((12,), (3,)),
    "2d-odd-even": ((5, 8), (2, 3)),
    "2d-no-waves-on-one-axis": ((6, 4), (2, 0)),
    "3d": ((3, 4, 7), (1, 1, 2)),
}
every_grid = pytest.mark.parametrize(("grid", "modes"), GRIDS.values(), ids=GRIDS)


def grid_points(grid: tuple[int, ...], dtype: torch.dtype = torch.float64) -> Tensor:
    """The points i/N in row-major order, (n, s)."""
    axes = [torch.arange(points, dtype=dtype) / points for points in grid]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).flatten(0, -2)


def both(grid: tuple[int, ...], modes: tuple[int, ...]) -> tuple[GridFourier, Tensor]:
    """By the transform, and as a matrix (1 1 n g)."""
    matrix = fourier_values(grid_points(grid), modes)[None, None]
    return GridFourier(grid, modes, torch.float64, CPU), matrix


def random(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-13) -> None:
    """Within the rounding of sums over less than a hundred points."""
    scale = expected.abs().max().item()
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance * scale)


def test_the_functions_are_the_constant_cosines_and_sines() -> None:
    x, y = 0.3, 0.8
    values = fourier_values(torch.tensor([[x, y]], dtype=torch.float64), (1, 1))[0]
    waves = [(0, 1), (1, -1), (1, 0), (1, 1)]
    phases = [2 * math.pi * (k * x + j * y) for k, j in waves]
    expected = [1.0]
    expected += [math.sqrt(2) * math.cos(phase) for phase in phases]
    expected += [math.sqrt(2) * math.sin(phase) for phase in phases]
    close(values, torch.tensor(expected, dtype=torch.float64))


@every_grid
def test_it_has_the_shape_of_the_matrix(grid, modes) -> None:
    fast, matrix = both(grid, modes)
    assert isinstance(fast, BasisFunctions)
    assert fast.shape == tuple(matrix.shape)
    assert fast.shape[-1] == math.prod(2 * m + 1 for m in modes)


@every_grid
def test_analyse_and_synthesise_are_the_products_with_the_matrix(generator, grid, modes) -> None:
    fast, matrix = both(grid, modes)
    field = random(generator, 2, 3, matrix.shape[2], 4)
    coefficients = random(generator, 2, 3, matrix.shape[3], 4)
    close(analyse(fast, field), matrix.mT @ field)
    close(lift(fast, coefficients), matrix @ coefficients)
    close(dense(fast), matrix)


@every_grid
def test_analyse_is_the_adjoint_of_synthesise(generator, grid, modes) -> None:
    """<Phi c, f> = <c, Phi^T f>"""
    fast, matrix = both(grid, modes)
    field = random(generator, 2, 3, matrix.shape[2], 4)
    coefficients = random(generator, 2, 3, matrix.shape[3], 4)
    close((fast.synthesise(coefficients) * field).sum(), (coefficients * fast.analyse(field)).sum())


@every_grid
def test_the_functions_are_orthonormal_under_inner_product(generator, grid, modes) -> None:
    fast, _ = both(grid, modes)
    gram = projector(fast, "inner_product")(dense(fast))
    torch.testing.assert_close(
        gram[0, 0], torch.eye(fast.shape[-1], dtype=torch.float64), rtol=0, atol=1e-14
    )
    coefficients = random(generator, 1, 1, fast.shape[-1], 2)
    close(projector(fast, "inner_product")(lift(fast, coefficients)), coefficients)


@pytest.mark.parametrize("projection", ["transpose", "inner_product", "pinv"])
@every_grid
def test_attention_and_its_gradients_equal_those_with_the_matrix(
    generator, grid, modes, projection
) -> None:
    fast, matrix = both(grid, modes)
    n = matrix.shape[2]
    fields = [random(generator, 2, 3, n, d) for d in (5, 5, 2)]
    weights = 0.5 + torch.rand(2, n, generator=generator, dtype=torch.float64)
    mask = torch.arange(n) < torch.tensor([[n], [n - 1]])
    cotangent = random(generator, 2, 3, n, 2)

    def run(basis: BasisFunctions | Tensor) -> list[Tensor]:
        leaves = [tensor.clone().requires_grad_() for tensor in (*fields, weights)]
        query, key, value, point_weights = leaves
        out = functional_attention(
            query,
            key,
            value,
            basis,
            basis,
            ridge=0.1,
            projection=projection,
            weights=point_weights,
            mask=mask,
        )
        (out * cotangent).sum().backward()
        return [out.detach(), *(leaf.grad for leaf in leaves)]

    for actual, expected in zip(run(fast), run(matrix), strict=True):
        close(actual, expected, tolerance=1e-10)


def test_queries_by_the_transform_may_attend_to_keys_anywhere(generator) -> None:
    fast, matrix = both((5, 8), (1, 1))
    elsewhere = torch.rand(1, 1, 23, 2, generator=generator, dtype=torch.float64)
    key_basis = fourier_values(elsewhere, (1, 1))
    query, key = random(generator, 2, 3, 40, 4), random(generator, 2, 3, 23, 4)
    out, expected = (
        functional_attention(query, key, key, basis, key_basis, ridge=0.1, projection="pinv")
        for basis in (fast, matrix)
    )
    close(out, expected, tolerance=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("projection", ["transpose", "inner_product", "pinv"])
def test_dtype_is_kept(generator, dtype, projection) -> None:
    basis = GridFourier((5, 8), (1, 2), dtype, CPU)
    x = random(generator, 1, 2, 40, 3).to(dtype)
    assert basis.analyse(x).dtype == dtype
    assert dense(basis).dtype == dtype
    assert functional_attention(x, x, x, basis, basis, ridge=0.1, projection=projection).dtype == (
        dtype
    )


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("projection", ["transpose", "inner_product", "pinv"])
def test_half_precision_fields_are_transformed_in_float32(generator, half, projection) -> None:
    basis = GridFourier((5, 8), (1, 2), half, CPU)
    x = random(generator, 1, 2, 40, 3).to(half)
    out = functional_attention(x, x, x, basis, basis, ridge=0.1, projection=projection)
    exact, double = GridFourier((5, 8), (1, 2), torch.float64, CPU), x.double()
    expected = functional_attention(
        double, double, double, exact, exact, ridge=0.1, projection=projection
    )
    assert out.dtype == half
    assert (out.double() - expected).norm() < torch.finfo(half).eps * expected.norm()


@pytest.mark.parametrize("grid", [(9,), (12,), (16,)], ids=str)
@pytest.mark.parametrize("kind", ["transform", "matrix"])
def test_average_refuses_waves_whose_mass_vanishes(generator, grid, kind) -> None:
    """Dividing by such a mass would give coefficients of 1e8 without a word."""
    fast, matrix = both(grid, (3,))
    basis = fast if kind == "transform" else matrix
    x = random(generator, 1, 1, *grid, 2)
    error = TypeError if kind == "transform" else ValueError
    with pytest.raises(error, match=r"projection 'average'.*inner_product"):
        functional_attention(x, x, x, basis, basis, ridge=0.1, projection="average")


@pytest.mark.usefixtures("as_a_user")
def test_complex_fields_are_refused_by_the_real_transform(generator) -> None:
    fast, _ = both((9,), (2,))
    field = torch.randn(1, 1, 9, 2, generator=generator, dtype=torch.complex128)
    with pytest.raises((TypeError, ValueError), match="real"):
        functional_attention(field, field, field, fast, fast, ridge=0.1, projection="transpose")


def test_a_grid_too_coarse_for_the_modes_is_refused() -> None:
    message = r"at least \(5, 7\) points to carry the modes \(2, 3\), got \(8, 6\)"
    with pytest.raises(ValueError, match=message):
        GridFourier((8, 6), (2, 3), torch.float64, CPU)
    assert GridFourier((5, 7), (2, 3), torch.float64, CPU).shape == (1, 1, 35, 35)


def test_modes_are_one_number_for_each_axis() -> None:
    with pytest.raises(ValueError, match=r"modes: expected one number a grid axis \(8, 8\)"):
        GridFourier((8, 8), (2,), torch.float64, CPU)
