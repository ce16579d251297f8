"""Positions as waves."""

import math
from typing import Any

import torch

from funcattn.nn.operator import FourierFeatures


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
