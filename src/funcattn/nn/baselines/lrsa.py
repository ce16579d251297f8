"""Low-rank spatial attention: through latents that gather, talk and scatter.

Yang, Xin, Du and Liu, Simple yet Effective: Low-Rank Spatial Attention for Neural Operators, ICML
2026.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn.attentions import ATTENTIONS, AttentionEntry, layer_of
from funcattn.nn.baselines.base import QueriesKeysValues, measure
from funcattn.nn.baselines.perceiver import LatentLayer, attended
from funcattn.nn.bases import split_heads
from funcattn.nn.feature_maps import FeatureMap, Pointwise, linear
from funcattn.nn.points import Points
from funcattn.settings import SizedAttentionSettings


class LowRankSpatialAttention(QueriesKeysValues):
    """A factorised map between points, K = U G V^T, each factor a standard attention.

        z = softmax(l k^T / sqrt d + log w) v                       V^T: latents l (g x c) gather
        z = z + attention(norm z),  z = z + mlp(norm z)             G: between the latents
        out = softmax(q k(z)^T / sqrt d) v(z)                       U: the points ask the latents

    with q, k, v of the points, k(z), v(z) of the normalised latents, and w the measure of the
    points. Gathering and scattering have maps of their own: tied ones, as in Transolver, were worse
    in the paper. Linear in n. latents: g.

    Relative to the paper: its code was not at hand, and this is its text. The text does not say
    whether latents keep their own value when they gather (here they do not, which is what a
    factorised map does), how wide their network is (here as wide as they are) or how they start
    (here at deviation 0.02). Masks, weights and a context, which is what the latents gather from,
    are ours. The sizes of its benchmarks are not known to us either: they are those of the task.

    >>> import torch
    >>> LowRankSpatialAttention(width=64, heads=4, latents=32)(torch.randn(2, 1000, 64)).shape
    torch.Size([2, 1000, 64])
    """

    def __init__(
        self,
        width: int,
        heads: int = 8,
        latents: int = 64,
        *,
        features: FeatureMap = Pointwise,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, features=features, dropout=dropout)
        if latents < 1:
            raise ValueError(f"latents: expected at least 1, got {latents}")
        self.latents = nn.Parameter(torch.empty(latents, width))
        nn.init.trunc_normal_(self.latents, std=0.02)
        self.layer, self.latent_norm = LatentLayer(width, heads), nn.LayerNorm(width)
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
        """Gather, talk, scatter."""
        weights = measure(there, key)
        bias = None if weights is None else weights.log().mT  # (b, 1, m, 1) -> (b, 1, 1, m)
        asked = split_heads(self.latents.expand(len(key), -1, -1), self.heads)
        z = self.latent_norm(self.layer(attended(asked, key, value, bias)))
        latent_key, latent_value = (
            split_heads(of(z), self.heads) for of in (self.latent_key, self.latent_value)
        )
        return F.scaled_dot_product_attention(query, latent_key, latent_value)


ATTENTIONS.register(
    "lrsa",
    AttentionEntry(
        "Transformer with attention through latents that gather, talk and scatter",
        "Yang et al., Low-Rank Spatial Attention, ICML 2026",
        when="The least error reported on the standard benchmarks; standard attention throughout.",
        settings=SizedAttentionSettings,
        layer=layer_of(LowRankSpatialAttention, latents="bases"),
    ),
)
