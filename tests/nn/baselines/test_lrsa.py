from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from funcattn.nn.baselines.lrsa import LowRankSpatialAttention

HEADS = 2


def softmax_attention(query: Tensor, key: Tensor, value: Tensor, w: Tensor) -> Tensor:
    """Of all heads, side by side, each key counted w times."""
    parts = []
    for q, k, v in zip(*(t.chunk(HEADS, dim=-1) for t in (query, key, value)), strict=True):
        grown = (q @ k.T / q.shape[1] ** 0.5).exp() * w
        parts.append(grown / grown.sum(1, keepdim=True) @ v)
    return torch.cat(parts, dim=-1)


def obvious(
    x: Tensor, source: Tensor, weights: Tensor, *, layer: LowRankSpatialAttention, **_: object
) -> Tensor:
    alike = torch.ones(len(layer.latents), dtype=x.dtype)
    key, value = (
        F.linear(source, m.map.weight, m.map.bias) for m in (layer.to_key, layer.to_value)
    )
    z = layer.layer(softmax_attention(layer.latents, key, value, weights)[None])[0]
    z = layer.latent_norm(z)
    key, value = layer.latent_key(z), layer.latent_value(z)
    query = F.linear(x, layer.to_query.map.weight, layer.to_query.map.bias)
    return softmax_attention(query, key, value, alike)


def test_agrees_with_the_obvious_form_in_value_and_every_gradient(compared: Any, made: Any) -> None:
    # That bias shifts all scores of a latent alike.
    compared.by_samples(made(LowRankSpatialAttention, latents=5), obvious, idle=["to_key.map.bias"])


def test_what_reaches_the_points_has_the_rank_of_the_latents(made: Any, random: Any) -> None:
    layer = made(LowRankSpatialAttention, latents=3)
    seen: list[Tensor] = []
    layer.to_output.register_forward_hook(lambda _, given, __: seen.append(given[0]))
    layer(random(1, 20, 8))
    for head in seen[0][0].chunk(HEADS, dim=-1):  # (n d), d = 4
        assert torch.linalg.matrix_rank(head, rtol=1e-9) == 3


def test_there_is_a_latent() -> None:
    with pytest.raises(ValueError, match="latents: expected at least 1, got 0"):
        LowRankSpatialAttention(8, latents=0)
