from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn.baselines.flare import routed
from funcattn.nn.baselines.linear_no import LinearNOAttention
from funcattn.ops import Average, lift, projector

WIDTH, HEADS = 8, 2


def obvious(
    x: Tensor, source: Tensor, weights: Tensor, *, layer: LinearNOAttention, **_: object
) -> Tensor:
    """One head at a time, with the matrices of the equation."""
    features = layer.features.map
    parts = []
    for h in range(HEADS):
        of_query, of_key = (
            F.linear(p, features.weight, features.bias).chunk(HEADS, dim=-1)[h] for p in (x, source)
        )
        phi, psi = (of_query @ layer.query_map.T).exp(), (of_key @ layer.key_map.T).exp()
        phi = phi / phi.sum(1, keepdim=True)
        psi = torch.diag(weights) @ psi
        psi = psi / psi.sum(0, keepdim=True)
        parts.append((phi @ psi.T) @ of_key)
    return torch.cat(parts, dim=-1)


def test_agrees_with_the_obvious_form_in_value_and_every_gradient(compared: Any, made: Any) -> None:
    compared.by_samples(made(LinearNOAttention, bases=5), obvious)


def test_constant_fields_pass_through(
    made: Any, random: Any, assert_equal_to_rounding: Any
) -> None:
    """With features that differ from point to point in one channel of a head only."""
    layer, x = made(LinearNOAttention, bases=5), random(2, 20, WIDTH)
    varying = torch.tensor([True, False, False, False] * HEADS)
    with torch.no_grad():
        layer.features.map.weight[~varying] = 0
    layer.to_output = nn.Identity()
    out = layer(x)
    constant = layer.features.map.bias[~varying]
    assert_equal_to_rounding(out[..., ~varying], constant.expand(2, 20, -1))
    assert out[..., varying].std(1).min() > 1e-3


def test_one_map_on_both_sides_is_transolver_with_point_weights(
    random: Any, assert_equal_to_rounding: Any
) -> None:
    """The weights are the sums over the basis that softmax over the points does not divide by."""
    features, value = random(2, 2, 1, 15, 4)
    latents = random(1, 6, 4)
    scores = features @ latents.mT
    phi, sums = scores.softmax(-1), scores.exp().sum(-1, keepdim=True)

    def transolver(weights: Tensor) -> Tensor:
        """Its averages and back, without attention between them."""
        return lift(phi, projector(phi, Average(epsilon=0.0), weights=weights[:, 0, :, 0])(value))

    out = routed(latents, latents, features, features, value)
    assert_equal_to_rounding(out, transolver(sums))
    plain = transolver(torch.ones_like(sums))
    assert (out - plain).abs().max() > 1e-3
    weighted = routed(latents, latents, features, features, value, weights=1 / sums)
    assert_equal_to_rounding(weighted, plain)


def test_the_two_sides_have_maps_of_their_own(made: Any, random: Any) -> None:
    layer, x = made(LinearNOAttention, bases=5), random(2, 20, WIDTH)
    out = layer(x)
    with torch.no_grad():
        layer.query_map.copy_(layer.key_map)
    assert (layer(x) - out).abs().max() > 1e-3


def test_both_maps_start_orthogonal() -> None:
    layer = LinearNOAttention(64, heads=4, bases=16)
    for start in (layer.query_map, layer.key_map):
        torch.testing.assert_close(start @ start.T, torch.eye(16), rtol=0, atol=1e-5)


def test_there_is_a_basis() -> None:
    with pytest.raises(ValueError, match="bases: expected at least 1, got 0"):
        LinearNOAttention(8, bases=0)
