"""Transolver++: Transolver's attention with slices that each point sharpens for itself.

Luo, Wu, Zhou, Xing, Di, Wang and Long, Transolver++: An Accurate Neural Solver for PDEs on
Million-Scale Geometries, ICML 2025.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn.attentions import ATTENTIONS, AttentionEntry, layer_of
from funcattn.nn.baselines.base import Baseline
from funcattn.nn.bases import split_heads
from funcattn.nn.feature_maps import FeatureMap, Pointwise, linear
from funcattn.nn.points import Points
from funcattn.ops import lift, projector
from funcattn.settings import SizedAttentionSettings

_COLDEST = 0.01
"""No temperature is lower."""


class TransolverPlusAttention(Baseline):
    """Softmax attention between averages over slices of a temperature that varies in space.

        f = features(x)                                                        (n x d) per head
        t = max(t_0 + gelu(W_2 gelu(W_1 f)), 0.01)                             one number per point
        Phi = softmax((S f + noise) / t),   noise = -log(-log u), u uniform    (n x g)
        f~ = P(Phi) f,   q~, k~, v~ = f~ W_q, f~ W_k, f~ W_v                   (g x d)
        out = Phi softmax(q~ k~^T / sqrt d) v~                                 (n x d)

    The paper calls the noise the reparametrisation of a slice that is drawn. It keeps slices from
    becoming equal, as does the temperature. Unlike in Transolver, slices and averages are made of
    the same features. S starts orthogonal, t_0 at 0.5.

    bases: g. noise: whether there is noise in training.

    Relative to the paper: its code has the noise in evaluation too, where predictions would not be
    repeatable; averages are over the mass of each slice alone, not over mass + 1e-5; on grids the
    neighbours are at a fixed distance (`Stencil`); masks, weights and a context, whose coefficients
    are then keys and values, are ours.

    >>> import torch
    >>> TransolverPlusAttention(width=64, heads=4, bases=16)(torch.randn(2, 1000, 64)).shape
    torch.Size([2, 1000, 64])
    """

    def __init__(
        self,
        width: int,
        heads: int = 8,
        bases: int = 64,
        *,
        features: FeatureMap = Pointwise,
        noise: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, dropout=dropout)
        self.noise, channels = noise, width // heads
        self.features = features(width, width)
        self.scores = nn.Linear(channels, bases)
        nn.init.orthogonal_(self.scores.weight)
        nn.init.zeros_(self.scores.bias)
        self.temperature = nn.Parameter(torch.full((heads, 1, 1), 0.5))
        self.warm, self.warmth = linear(channels, bases), linear(bases, 1)
        self.to_query, self.to_key, self.to_value = (
            linear(channels, channels, bias=False) for _ in range(3)
        )

    def attend(
        self, x: Tensor, source: Tensor, here: Points, there: Points
    ) -> Float[Tensor, "b h n d"]:
        """Slice, attend, spread."""
        basis, of_query = self._sliced(x, here)
        of_key = of_query if there is here else self._sliced(source, there)[1]
        query, key, value = self.to_query(of_query), self.to_key(of_key), self.to_value(of_key)
        return lift(basis, F.scaled_dot_product_attention(query, key, value), mask=here.mask)

    def _sliced(
        self, x: Tensor, points: Points
    ) -> tuple[Float[Tensor, "b h n g"], Float[Tensor, "b h g d"]]:
        """The slices, and the averages over them."""
        field = split_heads(self.features(x, points), self.heads)
        warmth = F.gelu(self.warmth(F.gelu(self.warm(field))))
        scores = self.scores(field)
        if self.noise and self.training:
            scores = scores - torch.empty_like(scores).exponential_().log()
        basis = (scores / (self.temperature + warmth).clamp(min=_COLDEST)).softmax(-1)
        project = projector(basis, "average", weights=points.weights, mask=points.mask)
        return basis, project(field).to(field.dtype)


ATTENTIONS.register(
    "transolver_plus",
    AttentionEntry(
        "Transformer with softmax attention between averages over slices sharpened at each point",
        "Luo et al., Transolver++, ICML 2025",
        when="As Transolver, where its slices become alike: many points, fine details.",
        settings=SizedAttentionSettings,
        layer=layer_of(TransolverPlusAttention, bases="bases"),
    ),
)
