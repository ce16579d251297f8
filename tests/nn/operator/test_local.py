"""Stencils of one channel each, beside those of all channels."""

from typing import Any

import pytest
import torch

from funcattn.nn import Points, Stencil
from funcattn.nn.operator import LocalStencil


@pytest.mark.parametrize("periodic", [False, True], ids=["box", "torus"])
@pytest.mark.parametrize("reach", [0.25, 0.3], ids=["on points", "between points"])
@pytest.mark.parametrize("grid", [(9,), (9, 13), (5, 9, 5)], ids=str)
def test_it_is_the_stencil_whose_matrices_are_diagonal(
    grid: tuple[int, ...],
    reach: float,
    periodic: bool,
    uniform: Any,
    assert_equal_to_rounding: Any,
) -> None:
    dims = len(grid)
    layer = LocalStencil(3, reach=reach, dims=dims, periodic=periodic).double()
    whole = Stencil(3, 3, reach=reach, dims=dims, periodic=periodic).double()
    with torch.no_grad():
        whole.weight.zero_()
        for channel in range(3):
            whole.weight[channel, channel] = layer.weight[channel, 0]
    points = Points(grid=grid)
    x = uniform(2, torch.tensor(grid).prod(), 3)
    assert_equal_to_rounding(layer(x, points), whole(x, points))


def test_its_reach_is_the_same_on_nested_grids(uniform: Any, assert_equal_to_rounding: Any) -> None:
    layer = LocalStencil(2, reach=1 / 8, dims=1).double()
    fine = uniform(1, 33, 2)
    on_fine, on_coarse = (
        layer(field, Points(grid=(field.shape[1],))) for field in (fine, fine[:, ::4])
    )
    assert_equal_to_rounding(on_fine[:, ::4], on_coarse)


@pytest.mark.parametrize("reach", [0.0, -1.0, 1.5])
def test_the_reach_is_a_fraction_of_the_axis(reach: float) -> None:
    with pytest.raises(ValueError, match="reach: expected fractions of the axis in"):
        LocalStencil(2, reach=reach)


def test_space_has_at_most_three_dimensions() -> None:
    with pytest.raises(ValueError, match="dims: expected 1, 2 or 3, got 4"):
        LocalStencil(2, dims=4)
