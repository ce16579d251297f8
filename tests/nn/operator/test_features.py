"""Positions as waves."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from funcattn.nn.operator import FourierFeatures, spread_on_grid
from funcattn.nn.points import Points


def test_they_are_scaled_coordinates_and_waves(uniform: Any, assert_equal_to_rounding: Any) -> None:
    layer = FourierFeatures(2, waves=5, lower=(-1.0, 2.0), upper=(3.0, 4.0)).double()
    p = uniform(3, 7, 2)
    position = p * torch.tensor([4.0, 2.0]).double() + torch.tensor([-1.0, 2.0]).double()
    features = layer(position)
    assert features.shape[-1] == layer.channels == 12
    assert_equal_to_rounding(features[..., :2], 2 * p - 1)
    for j in range(5):
        phase = 2 * math.pi * (p * layer.waves[:, j]).sum(-1)
        assert_equal_to_rounding(features[..., 2 + j], phase.sin())
        assert_equal_to_rounding(features[..., 7 + j], phase.cos())


def test_on_a_torus_both_ends_of_an_axis_have_the_same(assert_equal_to_rounding: Any) -> None:
    layer = FourierFeatures(2, periodic=True).double()
    ends = torch.tensor([[[0.0, 0.3], [1.0, 0.3], [0.2, 1.0], [0.2, 0.0]]]).double()
    features = layer(ends)[0]
    assert features.shape[-1] == layer.channels == 4
    assert_equal_to_rounding(features[0], features[1])
    assert_equal_to_rounding(features[2], features[3])


def test_waves_are_the_same_in_every_network_and_saved_with_it() -> None:
    one, two = FourierFeatures(2), FourierFeatures(2)
    assert torch.equal(one.waves, two.waves)
    assert "waves" in one.state_dict()


def test_a_wave_that_fades_is_its_mean_around_the_point(
    uniform: Any, assert_equal_to_rounding: Any
) -> None:
    layer = FourierFeatures(2, waves=5, lower=(-1.0, 2.0), upper=(3.0, 4.0)).double()
    position, root = uniform(3, 7, 2), 0.3 * uniform(3, 7, 2, 2)
    nodes, weights = np.polynomial.hermite_e.hermegauss(30)  # exact for normal numbers
    mean = torch.zeros(())
    for (a, p), (b, q) in itertools.product(zip(nodes, weights, strict=True), repeat=2):
        off = root @ torch.tensor([a, b]).double()
        mean = mean + p * q / (2 * math.pi) * layer(position + off)
    faded = layer(position, root @ root.mT)
    assert_equal_to_rounding(faded, mean)
    assert (faded - layer(position)).abs().max() > 0.1


def test_without_spread_nothing_fades(uniform: Any) -> None:
    layer = FourierFeatures(3)
    position = uniform(2, 5, 3).float()
    assert torch.equal(layer(position, torch.zeros(2, 5, 3, 3)), layer(position))


@pytest.mark.parametrize("reach", [(1 / 6, 1 / 4), (0.13, 0.4), (1.0, 0.05)])
def test_the_spread_is_that_of_steps_of_the_reach(
    uniform: Any, assert_equal_to_rounding: Any, reach: tuple[float, float]
) -> None:
    grid = (7, 5)
    field = uniform(1, *grid, 2)[0]

    def at(x: float, y: float) -> Tensor:
        lines = np.array(
            [np.interp(y * 4, range(5), field[i, :, c]) for c in (0, 1) for i in range(7)]
        )
        return torch.tensor([np.interp(x * 6, range(7), part) for part in lines.reshape(2, 7)])

    wanted = torch.zeros(*grid, 2, 2).double()
    for i, j in np.ndindex(grid):
        x, y = i / 6, j / 4
        for low in (min(x, 1 - reach[0]), max(x - reach[0], 0)):
            step = at(low + reach[0], y) - at(low, y)
            wanted[i, j] += 0.5 * torch.outer(step, step)
        for low in (min(y, 1 - reach[1]), max(y - reach[1], 0)):
            step = at(x, low + reach[1]) - at(x, low)
            wanted[i, j] += 0.5 * torch.outer(step, step)
    found = spread_on_grid(Points(field.flatten(0, 1)[None], grid), reach)
    assert_equal_to_rounding(found[0].view_as(wanted), wanted)


def test_the_spread_is_the_same_on_a_nested_grid(
    uniform: Any, assert_equal_to_rounding: Any
) -> None:
    field = uniform(2, 13, 9, 2)
    fine = spread_on_grid(Points(field.flatten(1, 2), (13, 9)), (1 / 6, 1 / 2))
    coarse = spread_on_grid(Points(field[:, ::2, ::2].flatten(1, 2), (7, 5)), (1 / 6, 1 / 2))
    assert_equal_to_rounding(fine.view(2, 13, 9, 2, 2)[:, ::2, ::2].flatten(1, 2), coarse)


def test_masked_points_spread_nothing(uniform: Any) -> None:
    positions, mask = uniform(1, 6, 1), torch.tensor([[True, True, True, False, True, True]])
    found = spread_on_grid(Points(positions, (6,), mask), (1 / 5,)).flatten()
    steps = positions.flatten().diff().square()
    assert found[1].item() == pytest.approx(((steps[0] + steps[1]) / 2).item())
    assert found[2].item() == pytest.approx((steps[1] / 2).item())
    assert found[5].item() == pytest.approx(steps[4].item())
