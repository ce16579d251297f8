"""Sines, cosines and waves on grids, beside sums written out."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from funcattn.nn import Points
from funcattn.nn.operator import FourierMap, ModewiseMap
from funcattn.nn.operator.spectral import (
    Family,
    GridFunctions,
    axis_functions,
    axis_weights,
    carried,
)

every_family = pytest.mark.parametrize("family", ["sine", "cosine", "fourier"])


@every_family
@pytest.mark.parametrize("points", [3, 8, 9])
def test_what_a_line_carries_is_orthonormal_on_it_and_one_more_is_not(
    family: Family, points: int
) -> None:
    count = carried(family, points)
    weights = axis_weights(family, points)
    assert weights.sum() == pytest.approx(1)
    more = axis_functions(family, points, count + 2)
    gram = more.T @ (weights[:, None] * more)
    identity = torch.eye(count + 2).double()
    torch.testing.assert_close(gram[:count, :count], identity[:count, :count], rtol=0, atol=1e-12)
    assert not torch.allclose(gram, identity)


@every_family
def test_slopes_are_derivatives(family: Family) -> None:
    """By differences of the functions on a fine line."""
    n = 4001
    values, slopes = (axis_functions(family, n, 5, slope=s) for s in (False, True))
    step = 1 / (n if family == "fourier" else n - 1)
    differences = (values[2:] - values[:-2]) / (2 * step)
    torch.testing.assert_close(slopes[1:-1], differences, rtol=0, atol=1e-2)


def sums(family: Family, grid: tuple[int, ...], counts: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """All functions at all points (n, k), and the weights (n,), by Kronecker products."""
    phi, weights = torch.ones(1, 1).double(), torch.ones(1).double()
    for points, count in zip(grid, counts, strict=True):
        phi = torch.kron(phi, axis_functions(family, points, count))
        weights = torch.kron(weights, axis_weights(family, points))
    return phi, weights


@every_family
@pytest.mark.parametrize(
    ("grid", "counts"), [((9,), (4,)), ((7, 9), (3, 4)), ((5, 6, 7), (2, 3, 2))], ids=str
)
def test_axis_by_axis_is_the_whole_sum(
    family: Family,
    grid: tuple[int, ...],
    counts: tuple[int, ...],
    uniform: Any,
    assert_equal_to_rounding: Any,
) -> None:
    phi, weights = sums(family, grid, counts)
    field = uniform(2, math.prod(grid), 3)
    functions = GridFunctions(family, grid, counts)
    c = functions.coefficients(field.unflatten(1, grid))
    expected = torch.einsum("nk,n,bnc->kbc", phi, weights, field)
    assert_equal_to_rounding(c.flatten(0, -3), expected)
    lifted = functions.fields(c)
    assert_equal_to_rounding(lifted.flatten(1, -2), torch.einsum("nk,kbc->bnc", phi, expected))


@pytest.mark.parametrize("decay", [0.0, 1.5])
@pytest.mark.parametrize("family", ["sine", "cosine"])
def test_each_function_has_its_matrix(
    family: Family, decay: float, uniform: Any, assert_equal_to_rounding: Any
) -> None:
    layer = ModewiseMap(3, 2, (3, 4), family, decay=decay).double()
    phi, weights = sums(family, (7, 9), (3, 4))
    x = uniform(2, 63, 3)
    c = torch.einsum("nk,n,bnc->bkc", phi, weights, x)
    first = 1 if family == "sine" else 0
    squares = [(i + first) ** 2 + (j + first) ** 2 for i in range(3) for j in range(4)]
    scale = (1 + torch.tensor(squares).double()) ** (-decay / 2)
    z = torch.einsum("bkc,k,kce->bke", c, scale, layer.weight.flatten(0, 1))
    assert_equal_to_rounding(layer(x, Points(grid=(7, 9))), phi @ z)


@pytest.mark.parametrize(
    ("grid", "modes"), [((16,), (4,)), ((8, 9), (3, 4)), ((6, 7, 8), (2, 2, 3))], ids=str
)
def test_waves_have_theirs_as_by_the_fast_transform(
    grid: tuple[int, ...], modes: tuple[int, ...], uniform: Any, assert_equal_to_rounding: Any
) -> None:
    layer = FourierMap(3, 2, modes).double()
    x = uniform(2, math.prod(grid), 3)
    axes = tuple(range(1, 1 + len(grid)))
    spectrum = torch.fft.rfftn(x.unflatten(1, grid), dim=axes, norm="forward")
    out = torch.zeros(2, *spectrum.shape[1:-1], 2, dtype=torch.complex128)
    weight = torch.view_as_complex(layer.weight)
    ranges = [range(-m, m) for m in modes[:-1]] + [range(modes[-1])]
    for k in itertools.product(*ranges):
        if all(2 * abs(one) < n for one, n in zip(k, grid, strict=True)):
            out[:, *k] = spectrum[:, *k] @ weight[k]
    expected = torch.fft.irfftn(out, s=grid, dim=axes, norm="forward").flatten(1, -2)
    assert_equal_to_rounding(layer(x, Points(grid=grid)), expected)


@pytest.mark.parametrize(
    ("grid", "modes"),
    [((6, 7), (None, 3)), ((6, 7), (2, None)), ((4, 5, 6), (None, 2, None)),
     ((4, 5, 6), (2, None, 3)), ((4, 5, 6), (None, 2, 2)), ((4, 5, 6), (2, 2, None))],
    ids=str,
)  # fmt: skip
def test_axes_without_waves_are_left_as_they_are(
    grid: tuple[int, ...],
    modes: tuple[int | None, ...],
    uniform: Any,
    assert_equal_to_rounding: Any,
) -> None:
    """The same map of the other axes at every place."""
    layer = FourierMap(3, 2, modes).double()
    alone = FourierMap(3, 2, [m for m in modes if m is not None]).double()
    alone.load_state_dict(layer.state_dict())
    x = uniform(2, *grid, 3)
    left = [range(n) if m is None else [slice(None)] for n, m in zip(grid, modes, strict=True)]
    expected = torch.empty(2, *grid, 2, dtype=torch.float64)
    for place in itertools.product(*left):
        part = x[:, *place]
        out = alone(part.flatten(1, -2), Points(grid=part.shape[1:-1]))
        expected[:, *place] = out.unflatten(1, part.shape[1:-1])
    assert_equal_to_rounding(layer(x.flatten(1, -2), Points(grid=grid)), expected.flatten(1, -2))


LAYERS = {
    "sine": lambda: ModewiseMap(2, 2, (3,), "sine"),
    "cosine": lambda: ModewiseMap(2, 2, (3,), "cosine"),
    "fourier": lambda: FourierMap(2, 2, (3,)),
}


@pytest.mark.parametrize("family", LAYERS)
def test_a_field_of_few_functions_is_mapped_alike_on_every_grid(
    family: Family, assert_equal_to_rounding: Any
) -> None:
    layer = LAYERS[family]().double()
    fine, coarse = (33, 9) if family != "fourier" else (32, 8)
    wave = axis_functions(family, fine, 3)
    x = torch.stack([wave[:, 1] + wave[:, 2], wave[:, 0] - wave[:, 2]], -1)[None]
    on_fine = layer(x, Points(grid=(fine,)))
    on_coarse = layer(x[:, ::4], Points(grid=(coarse,)))
    assert_equal_to_rounding(on_fine[:, ::4], on_coarse)


@pytest.mark.parametrize("family", LAYERS)
@pytest.mark.parametrize("points", [1, 2, 3, 4])
def test_a_grid_that_carries_few_functions_uses_those(family: str, points: int) -> None:
    out = LAYERS[family]()(torch.randn(2, points, 2), Points(grid=(points,)))
    assert out.shape == (2, points, 2)
    assert out.isfinite().all()


def test_waves_move_with_the_field_on_a_circle(uniform: Any, assert_equal_to_rounding: Any) -> None:
    layer, x = FourierMap(2, 2, (4,)).double(), uniform(1, 20, 2)
    points = Points(grid=(20,))
    assert_equal_to_rounding(layer(x.roll(7, 1), points), layer(x, points).roll(7, 1))


def test_a_map_of_low_rank_is_one_whose_matrices_are_sums() -> None:
    torch.manual_seed(0)
    low = ModewiseMap(3, 2, (3, 4), "cosine", decay=1.0, rank=2).double()
    full = ModewiseMap(3, 2, (3, 4), "cosine", decay=1.0).double()
    assert low.shares is not None
    with torch.no_grad():
        shares = low.shares.view(3, 4, 2)
        full.weight.copy_(torch.einsum("ijr,rce->ijce", shares, low.weight))
    for grid in ((6, 7), (3, 4)):  # the coarser one carries fewer functions
        x = torch.randn(2, grid[0] * grid[1], 3, dtype=torch.float64)
        torch.testing.assert_close(low(x, Points(grid=grid)), full(x, Points(grid=grid)))


@pytest.mark.parametrize("rank", [None, 3])
def test_gains_are_what_the_map_makes_of_a_wave_at_most(rank: int | None) -> None:
    torch.manual_seed(0)
    layer = ModewiseMap(4, 5, (3, 2), "cosine", decay=1.0, rank=rank).double()
    functions = GridFunctions("cosine", (8, 9), (3, 2))
    gains = layer.gains()
    for i, j in ((0, 0), (2, 1)):
        # The columns of the matrix of this wave, from what becomes of the wave in each channel.
        alone = torch.zeros(3, 2, 4, 4).double()
        alone[i, j] = torch.eye(4)
        out = layer(functions.fields(alone).flatten(1, 2), Points(grid=(8, 9)))
        matrix = functions.coefficients(out.unflatten(1, (8, 9)))[i, j]
        torch.testing.assert_close(torch.linalg.matrix_norm(matrix, 2), gains[i, j])


def test_gains_of_waves_on_a_torus_go_from_negative_to_positive() -> None:
    layer = FourierMap(4, 4, (3, 2))
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[-1, 1, 0, 0, 1] = 7.0  # the wave (-1, 1)
    gains = layer.gains()
    assert gains.shape == (6, 2)
    assert gains.nonzero().tolist() == [[2, 1]]
    assert gains[2, 1] == 7.0
