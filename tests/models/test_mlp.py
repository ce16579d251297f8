from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812


def test_is_linear_maps_with_gelu_between_them(
    made: Any, uniform: Any, assert_equal_to_rounding: Any
) -> None:
    model = made("mlp", time=True)
    positions, values = uniform(2, 5, 2), uniform(2, 5, 1)
    time = uniform(2)
    x = torch.cat([positions, time.view(2, 1, 1).expand(2, 5, 1), values], dim=-1)
    first, second, last = (module for module in model.network if hasattr(module, "weight"))
    expected = last(F.gelu(second(F.gelu(first(x)))))
    assert_equal_to_rounding(model(positions, values, time=time), expected)


def test_nothing_travels_between_points(made: Any, uniform: Any) -> None:
    model = made("mlp")
    positions, values = uniform(2, 9, 2), uniform(2, 9, 1)
    jacobian = torch.autograd.functional.jacobian(lambda u: model(positions, u), values)
    here = torch.eye(18, dtype=torch.bool).view(2, 9, 1, 2, 9, 1)
    assert torch.equal(jacobian != 0, here)


def test_neither_grid_nor_weights_nor_mask_nor_batch_change_a_point(
    made: Any, uniform: Any, assert_equal_to_rounding: Any
) -> None:
    model = made("mlp")
    positions, values = uniform(2, 9, 2), uniform(2, 9, 1)
    out = model(positions, values)
    assert torch.equal(model(positions, values, grid=(3, 3), weights=uniform(2, 9)), out)
    mask = uniform(2, 9) < 0.6
    assert_equal_to_rounding(model(positions, values, mask=mask), out * mask[..., None])
    for b in range(2):
        for n in range(9):
            alone = model(positions[b : b + 1, n : n + 1], values[b : b + 1, n : n + 1])
            assert_equal_to_rounding(alone[0, 0], out[b, n])


def test_has_as_many_parameters_as_its_maps(made: Any) -> None:
    model = made("mlp", 3, 2, 4, width=64, layers=5, time=True)
    expected = (6 + 1) * 64 + 4 * (64 + 1) * 64 + (64 + 1) * 4
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


def test_there_is_a_hidden_layer(made: Any) -> None:
    with pytest.raises(ValueError, match="layers: expected at least 1 hidden layer, got 0"):
        made("mlp", layers=0)
