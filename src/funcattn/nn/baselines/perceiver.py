"""The Perceiver's attention through a few learned latents.

Jaegle, Gimeno, Brock, Zisserman, Vinyals and Carreira, Perceiver: General Perception with Iterative
Attention, ICML 2021.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn.attentions import ATTENTIONS, AttentionEntry, layer_of
from funcattn.nn.baselines.base import QueriesKeysValues, measure
from funcattn.nn.bases import split_heads
from funcattn.nn.feature_maps import FeatureMap, Pointwise, linear
from funcattn.nn.points import Points
from funcattn.settings import DEEPEST, SizedAttentionSettings


class PerceiverAttention(QueriesKeysValues):
    """Latents read the points, work among themselves, and the points read the latents.

        z = l + softmax(q(l) k^T / sqrt d + log w) v W              read: l (g x c) is learned
        z = z + attention(norm z),  z = z + mlp(norm z)             `depth` times
        out = softmax(q k(z)^T / sqrt d) v(z)                       written back to the points

    with q, k, v of the points, q(l), k(z), v(z) linear maps of normalised latents, and w the
    measure of the points. Linear in n, with n g in place of n^2. latents: g.

    Relative to the paper: the points read the latents back, which makes it a layer (as in its
    successor, Perceiver IO); one layer reads once, with no network right after reading, and its six
    latent layers are `depth`, none by default, as depth comes from stacking layers; latents are as
    wide as the points; masks, weights and a context, which is what the latents read, are ours.

    >>> import torch
    >>> PerceiverAttention(width=64, heads=4, latents=32, depth=1)(torch.randn(2, 1000, 64)).shape
    torch.Size([2, 1000, 64])
    """

    def __init__(
        self,
        width: int,
        heads: int = 8,
        latents: int = 512,
        depth: int = 0,
        *,
        features: FeatureMap = Pointwise,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, features=features, dropout=dropout)
        if latents < 1:
            raise ValueError(f"latents: expected at least 1, got {latents}")
        if depth < 0:
            raise ValueError(f"depth: expected 0 or more latent layers, got {depth}")
        self.latents = nn.Parameter(torch.empty(latents, width))
        nn.init.trunc_normal_(self.latents, std=0.02)
        self.start_norm = nn.LayerNorm(width)
        self.latent_query, self.to_latents = linear(width, width), linear(width, width)
        self.layers = nn.ModuleList(LatentLayer(width, heads) for _ in range(depth))
        self.latent_norm = nn.LayerNorm(width)
        # A bias of the keys would shift all scores of a query alike, and softmax forget it.
        self.latent_key, self.latent_value = linear(width, width, bias=False), linear(width, width)

    def combine(
        self,
        query: Float[Tensor, "b h n d"],
        key: Float[Tensor, "b h m d"],
        value: Float[Tensor, "b h m d"],
        here: Points,  # noqa: ARG002
        there: Points,
    ) -> Float[Tensor, "b h n d"]:
        """Points to latents, latents to latents, latents to points."""
        weights = measure(there, key)
        bias = None if weights is None else weights.log().mT  # (b, 1, m, 1) -> (b, 1, 1, m)
        start = self.latents.expand(len(key), -1, -1)
        asked = split_heads(self.latent_query(self.start_norm(start)), self.heads)
        z = start + self.to_latents(attended(asked, key, value, bias))
        for layer in self.layers:
            z = layer(z)
        z = self.latent_norm(z)
        latent_key, latent_value = (
            split_heads(of(z), self.heads) for of in (self.latent_key, self.latent_value)
        )
        return F.scaled_dot_product_attention(query, latent_key, latent_value)


class LatentLayer(nn.Module):
    """Pre-norm softmax attention between the latents, then a network at each, as wide as they."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.to_query, self.to_value = linear(width, width), linear(width, width)
        self.to_key, self.to_output = linear(width, width, bias=False), linear(width, width)
        self.mlp = nn.Sequential(linear(width, width), nn.GELU(), linear(width, width))

    def forward(self, z: Float[Tensor, "b g c"]) -> Float[Tensor, "b g c"]:
        """Between the latents, then at each."""
        u = self.attention_norm(z)
        query, key, value = (
            split_heads(of(u), self.heads) for of in (self.to_query, self.to_key, self.to_value)
        )
        z = z + self.to_output(attended(query, key, value))
        return z + self.mlp(self.mlp_norm(z))


def attended(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
    """Softmax attention with its heads side by side, (b g c)."""
    out = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
    return out.transpose(1, 2).flatten(2)  # (b, h, g, d) -> (b, g, h d)


@dataclass(frozen=True)
class PerceiverSettings(SizedAttentionSettings):
    """A transformer with this attention; `bases` is the number of latents."""

    depth: int = 0
    """Layers between the latents."""

    bounds: ClassVar = {"depth": (0, DEEPEST)}


ATTENTIONS.register(
    "perceiver",
    AttentionEntry(
        "Transformer with attention to learned latents and back",
        "Jaegle et al., Perceiver, ICML 2021",
        when="Many points, of which a few latents can hold what matters.",
        settings=PerceiverSettings,
        layer=layer_of(PerceiverAttention, latents="bases", depth="depth"),
    ),
)
