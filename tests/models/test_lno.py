import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from funcattn.models.lno import LNO, LNOSettings, cross_attention
from funcattn.models.registry import build_model
from funcattn.nn.points import Points
from funcattn.problem import Field, Problem


class TestCrossAttention:
    def test_sums_to_one_over_points_one_way_and_latent_points_the_other(
        self, uniform: Any, assert_equal_to_rounding: Any
    ) -> None:
        scores = 5 * uniform(2, 9, 4)
        mask = torch.arange(9) < torch.tensor([[9], [6]])
        weights = uniform(2, 9)
        to_latent, to_points = cross_attention(scores, Points(mask=mask, weights=weights))
        ones = torch.ones(2, 9, dtype=torch.float64)
        assert_equal_to_rounding(to_latent.sum(1), ones[:, :4])
        assert_equal_to_rounding(to_points.sum(2), ones)
        assert not to_latent[1, 6:].any()
        expected = torch.where(mask, weights, 0)[..., None] * scores.exp()
        assert_equal_to_rounding(to_latent, expected / expected.sum(1, keepdim=True))

    def test_constants_pass_both_ways(self, uniform: Any, assert_equal_to_rounding: Any) -> None:
        scores = 5 * uniform(1, 9, 4)
        to_latent, to_points = cross_attention(scores, Points())
        constant = torch.full((1, 9, 1), 2.5, dtype=torch.float64)
        assert_equal_to_rounding(to_points @ (to_latent.mT @ constant), constant)


def test_is_encode_transformer_decode(
    made: Any, uniform: Any, assert_equal_to_rounding: Any
) -> None:
    """Point by point and head by head, for one sample."""
    model = made("lno", time=True)
    positions, values = uniform(1, 7, 2), uniform(1, 7, 1)
    time = uniform(1)

    def perceptron(layer: torch.nn.Module, x: Tensor) -> Tensor:
        x = F.gelu(layer.lift(x))
        return layer.head(x + F.gelu(layer.layers[0](x)))

    scaled = (positions[0] - 0.5) / math.sqrt(1 / 12)
    coordinates = torch.cat([scaled, time.expand(7, 1)], dim=-1)
    scores = perceptron(model.attention, perceptron(model.trunk, coordinates))
    features = perceptron(model.branch, torch.cat([coordinates, values[0]], dim=-1))
    latent = torch.stack([scores[:, g].softmax(0) @ features for g in range(5)])
    for block in model.blocks:
        y = block.attention_norm(latent)
        heads = []
        for head in (slice(0, 4), slice(4, 8)):
            query, key, value = (
                of(y)[:, head] for of in (block.to_query, block.to_key, block.to_value)
            )
            heads.append((query @ key.T / math.sqrt(4)).softmax(-1) @ value)
        latent = latent + block.to_output(torch.cat(heads, dim=-1))
        expand, _, contract = block.mlp
        latent = latent + contract(F.gelu(expand(block.mlp_norm(latent))))
    expected = perceptron(model.head, scores.softmax(-1) @ latent)
    assert_equal_to_rounding(model(positions, values, time=time)[0], expected)


def test_positions_beyond_the_unit_box_stay_as_they_are(
    made: Any, uniform: Any, assert_equal_to_rounding: Any
) -> None:
    positions, values = uniform(1, 7, 2), uniform(1, 7, 1)
    scaled = (positions - 0.5) * math.sqrt(12)
    as_they_are = made("lno", unit_box=False)(scaled, values)
    assert_equal_to_rounding(made("lno")(positions, values), as_they_are)


@pytest.mark.parametrize(("upper", "unit_box"), [(1.0, True), ((1.0, 2.0), False)])
def test_the_box_is_that_of_the_task(upper: Any, unit_box: bool) -> None:
    problem = Problem(2, (Field("a"),), (Field("u"),), upper=upper)
    network = build_model("lno", LNOSettings(width=16, layers=2, heads=2, bases=8), problem)
    assert isinstance(network, LNO)
    assert network.unit_box == unit_box


def test_points_see_each_other(made: Any, uniform: Any) -> None:
    model = made("lno")
    positions, values = uniform(1, 6, 2), uniform(1, 6, 1)
    jacobian = torch.autograd.functional.jacobian(lambda u: model(positions, u), values)
    assert (jacobian.abs() > 1e-8).all()


def test_gives_nearly_the_same_field_on_more_points(made: Any) -> None:
    """With quadrature weights, what changes with the resolution falls as the spacing squared."""
    model = made("lno", 1)

    def on(points: int) -> Tensor:
        x = torch.linspace(0, 1, points, dtype=torch.float64).view(1, -1, 1)
        weights = torch.ones(1, points, dtype=torch.float64)
        weights[:, [0, -1]] = 0.5
        return model(x, torch.sin(3 * x), weights=weights).detach()[0, :, 0]

    differences = [(on(n) - on(2 * n - 1)[::2]).abs().max().item() for n in (65, 129, 257)]
    assert differences[0] < 0.05
    assert math.log2(differences[0] / differences[1]) == pytest.approx(2, abs=0.25)
    assert math.log2(differences[1] / differences[2]) == pytest.approx(2, abs=0.25)


def test_has_the_parameters_of_the_published_network_for_darcy_flow() -> None:
    """762 113 in the public code, less the biases of the keys."""
    model = LNO(2, 1, 1)
    c, latents, blocks = 128, 256, 4
    residual = 2 * (c + 1) * c
    trunk, branch = ((k + 1) * c + residual + (c + 1) * c for k in (2, 3))
    attention, head = ((c + 1) * c + residual + (c + 1) * o for o in (latents, 1))
    block = 4 * (c + 1) * c + 2 * 2 * c + (c + 1) * 2 * c + (2 * c + 1) * c
    expected = trunk + branch + attention + head + blocks * block
    assert expected == 762_113
    assert sum(p.numel() for p in model.parameters()) == expected - blocks * c


def test_width_is_a_multiple_of_the_heads(made: Any) -> None:
    with pytest.raises(ValueError, match="width: expected a multiple of heads=3, got 8"):
        made("lno", heads=3)
