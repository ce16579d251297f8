"""FLARE: attention routed through a few latents of each head.

Puri, Joglekar, Ferguson, Chen, Zhang and Kara, FLARE: Fast Low-rank Attention Routing Engine, 2025
(arXiv 2508.12594).
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn.attentions import ATTENTIONS, AttentionEntry, layer_of
from funcattn.nn.baselines.base import Baseline, measure
from funcattn.nn.bases import split_heads
from funcattn.nn.feature_maps import FeatureMap, Pointwise, linear
from funcattn.nn.points import Points
from funcattn.settings import DEEPEST, SizedAttentionSettings


def routed(
    gather: Float[Tensor, "h g d"],
    scatter: Float[Tensor, "h g d"],
    points: Float[Tensor, "b h n d"],
    key: Float[Tensor, "b h m d"],
    value: Float[Tensor, "b h m e"],
    *,
    weights: Float[Tensor, "b 1 m 1"] | None = None,
) -> Float[Tensor, "b h n e"]:
    """W v with W = W_dec W_enc, an n x m matrix of rank g at most that is never formed.

        W_enc = softmax over m of (l k^T + log w)        (g x m)     the latents l gather
        W_dec = softmax over g of p l'^T                 (n x g)     the latents l' scatter

    The rows of W sum to one. Two fused attentions, linear in n and m. In FLARE l = l', and points p
    and keys k are the same features. weights: w, a factor of each key in the sum over m.

    >>> import torch
    >>> latents, key = torch.randn(4, 8, 16), torch.randn(2, 4, 100, 16)
    >>> ones = torch.ones(2, 4, 100, 1)
    >>> routed(latents, latents, key, key, ones).allclose(ones)
    True
    """
    gather, scatter = (latents.expand(len(key), -1, -1, -1) for latents in (gather, scatter))
    bias = None if weights is None else weights.log().mT  # (b, 1, m, 1) -> (b, 1, 1, m)
    gathered = F.scaled_dot_product_attention(gather, key, value, attn_mask=bias, scale=1.0)
    return F.scaled_dot_product_attention(points, scatter, gathered, scale=1.0)


class FlareAttention(Baseline):
    """`routed` between the points, with deep residual networks for keys and values.

    Each head has g latents of its own. The same keys gather and scatter: there are no queries. Time
    and memory are linear in n. latents: g. depth: hidden layers of the two networks.

    features: the first map of either network.

    Relative to the paper: masks, weights and cross-attention, where keys of x scatter what keys of
    the context gathered, are ours; so is the choice of `features`.

    >>> import torch
    >>> FlareAttention(width=64, heads=4)(torch.randn(2, 1000, 64)).shape
    torch.Size([2, 1000, 64])
    """

    for_adamw: ClassVar = ("latents",)

    def __init__(
        self,
        width: int,
        heads: int = 8,
        latents: int = 32,
        depth: int = 3,
        *,
        features: FeatureMap = Pointwise,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, dropout=dropout)
        if latents < 1:
            raise ValueError(f"latents: expected at least 1 per head, got {latents}")
        if depth < 0:
            raise ValueError(f"depth: expected 0 or more hidden layers, got {depth}")
        self.latents = nn.Parameter(torch.empty(heads, latents, width // heads))
        # As published, wider than the start of the linear maps.
        nn.init.normal_(self.latents, std=0.1)
        self.to_key, self.to_value = (ResidualMlp(width, depth, features) for _ in range(2))

    def attend(
        self, x: Tensor, source: Tensor, here: Points, there: Points
    ) -> Float[Tensor, "b h n d"]:
        """Keys and values, then gather and scatter."""
        points = key = split_heads(self.to_key(x, here), self.heads)
        if there is not here:
            key = split_heads(self.to_key(source, there), self.heads)
        value = split_heads(self.to_value(source, there), self.heads)
        weights = measure(there, key)
        return routed(self.latents, self.latents, points, key, value, weights=weights)


class ResidualMlp(nn.Module):
    """x + GELU(first(x)), `depth` times x + GELU(hidden(x)), then x + last(x); all as wide as x."""

    def __init__(self, width: int, depth: int, features: FeatureMap) -> None:
        super().__init__()
        self.first = features(width, width)
        self.hidden = nn.ModuleList(linear(width, width) for _ in range(depth))
        self.last = linear(width, width)

    def forward(self, x: Float[Tensor, "b n c"], points: Points) -> Float[Tensor, "b n c"]:
        """Each point by itself, but for neighbours that the first map may see."""
        x = x + F.gelu(self.first(x, points), approximate="tanh")
        for layer in self.hidden:
            x = x + F.gelu(layer(x), approximate="tanh")
        return x + self.last(x)


@dataclass(frozen=True)
class FlareSettings(SizedAttentionSettings):
    """A transformer with this attention; `bases` is the number of latents."""

    depth: int = 3
    """Hidden layers of the networks that make keys and values."""

    bounds: ClassVar = {"depth": (0, DEEPEST)}


ATTENTIONS.register(
    "flare",
    AttentionEntry(
        "Transformer with two attentions by way of learned latents, the same keys both ways",
        "Puri et al., FLARE, 2025",
        when="Many points; deeper maps to keys and values than the others have.",
        settings=FlareSettings,
        layer=layer_of(FlareAttention, latents="bases", depth="depth"),
    ),
)
