from typing import Any

import pytest
import torch
from torch import Tensor, nn

from funcattn.nn.baselines.perceiver import PerceiverAttention

WIDTH, HEADS = 8, 2


def affine(layer: nn.Linear, x: Tensor) -> Tensor:
    return x @ layer.weight.T + layer.bias


def softmax_attention(query: Tensor, key: Tensor, value: Tensor, w: Tensor) -> Tensor:
    """Of all heads, side by side, each key counted w times."""
    parts = []
    for q, k, v in zip(*(t.chunk(HEADS, dim=-1) for t in (query, key, value)), strict=True):
        grown = (q @ k.T / q.shape[1] ** 0.5).exp() * w
        parts.append(grown / grown.sum(1, keepdim=True) @ v)
    return torch.cat(parts, dim=-1)


def normalised(layer: nn.LayerNorm, z: Tensor) -> Tensor:
    centred = z - z.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer.weight + (
        layer.bias
    )


def obvious(
    x: Tensor, source: Tensor, weights: Tensor, *, layer: PerceiverAttention, **_: object
) -> Tensor:
    alike = torch.ones(len(layer.latents), dtype=x.dtype)
    asked = affine(layer.latent_query, normalised(layer.start_norm, layer.latents))
    key, value = (affine(m.map, source) for m in (layer.to_key, layer.to_value))
    z = layer.latents + affine(layer.to_latents, softmax_attention(asked, key, value, weights))
    for inner in layer.layers:
        u = normalised(inner.attention_norm, z)
        query, key = affine(inner.to_query, u), u @ inner.to_key.weight.T
        value = affine(inner.to_value, u)
        z = z + affine(inner.to_output, softmax_attention(query, key, value, alike))
        hidden = affine(inner.mlp[0], normalised(inner.mlp_norm, z))
        hidden = hidden * (1 + torch.erf(hidden / 2**0.5)) / 2
        z = z + affine(inner.mlp[2], hidden)
    z = normalised(layer.latent_norm, z)
    key, value = z @ layer.latent_key.weight.T, affine(layer.latent_value, z)
    return softmax_attention(affine(layer.to_query.map, x), key, value, alike)


@pytest.mark.parametrize("depth", [0, 2], ids=["no latent layers", "two latent layers"])
def test_agrees_with_the_obvious_form_in_value_and_every_gradient(
    depth: int, compared: Any, made: Any
) -> None:
    layer = made(PerceiverAttention, latents=5, depth=depth)
    # That bias shifts all scores of a latent alike.
    compared.by_samples(layer, obvious, idle=["to_key.map.bias"])


def test_points_that_ask_alike_receive_alike(
    made: Any, random: Any, assert_equal_to_rounding: Any
) -> None:
    """All that reaches a point goes through the latents and its own query."""
    layer, x = made(PerceiverAttention, latents=5, depth=1), random(2, 20, WIDTH)
    x[:, 7] = x[:, 3]
    out = layer(x)
    assert_equal_to_rounding(out[:, 7], out[:, 3])
    moved = x.clone()
    moved[:, 0] += 1
    assert ((layer(moved) - out)[:, 1:].abs().amax(-1) > 1e-6).all()


def test_the_latents_start_apart_and_read_differently(generator: torch.Generator) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = PerceiverAttention(32, heads=2, latents=6)
    assert layer.latents.std().item() == pytest.approx(0.02, rel=0.3)
    seen = []
    layer.to_latents.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    layer(torch.randn(1, 50, 32, generator=generator))
    assert torch.pdist(seen[0][0]).min() > 1e-3


class TestErrors:
    def test_there_is_a_latent(self) -> None:
        with pytest.raises(ValueError, match="latents: expected at least 1, got 0"):
            PerceiverAttention(8, latents=0)

    def test_depth_is_not_negative(self) -> None:
        with pytest.raises(ValueError, match="depth: expected 0 or more latent layers, got -1"):
            PerceiverAttention(8, depth=-1)
