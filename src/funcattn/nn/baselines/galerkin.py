"""Galerkin-type and Fourier-type attention (Cao, Choose a Transformer, NeurIPS 2021).

Attention without softmax: the mean over the key points is a Monte-Carlo integral, or a quadrature
where the points have weights.
"""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn.attentions import ATTENTIONS, AttentionEntry, layer_of
from funcattn.nn.baselines.base import QueriesKeysValues, measure
from funcattn.nn.feature_maps import FeatureMap, Pointwise, linear
from funcattn.nn.points import Points
from funcattn.settings import AttentionSettings


def integral_attention(
    query: Float[Tensor, "b h n d"],
    key: Float[Tensor, "b h m d"],
    value: Float[Tensor, "b h m e"],
    weights: Float[Tensor, "#b 1 m 1"] | None = None,
    *,
    scale: float = 1.0,
) -> Float[Tensor, "b h n e"]:
    """out_i = scale * mean over j of (q_i . k_j) v_j, with weights w_j a weighted mean.

    Linear in each of queries, keys and values while the other two stay. Summed over j first, which
    makes it linear in n + m.

    >>> import torch
    >>> query, key, value = torch.randn(3, 2, 4, 100, 16)  # 2 samples, 4 heads, 100 points
    >>> integral_attention(query, key, value).shape
    torch.Size([2, 4, 100, 16])
    """
    if weights is None:
        moments = key.mT @ value * (scale / key.shape[-2])
    else:
        weights = weights.to(value.dtype)
        moments = key.mT @ (weights * value) * (scale / weights.sum(-2, keepdim=True))
    return query @ moments


def diagonally_dominant(
    inputs: int, outputs: int, *, gain: float = 1e-2, diagonal: float = 1e-2
) -> Pointwise:
    """Point-wise maps that start as the paper's do: a small multiple of the identity and noise.

    The weight is Xavier-uniform noise of that gain plus `diagonal` times the identity, the bias 0.
    """
    layer = Pointwise(inputs, outputs)
    nn.init.xavier_uniform_(layer.map.weight, gain=gain)
    with torch.no_grad():
        layer.map.weight += diagonal * torch.eye(outputs, inputs)
    return layer


class HeadNorm(nn.Module):
    """Layer norm over the d channels of each head, with a scale and a shift for each of them."""

    def __init__(self, heads: int, channels: int, *, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(heads, 1, channels))
        self.bias = nn.Parameter(torch.zeros(heads, 1, channels))

    def forward(self, x: Float[Tensor, "b h n d"]) -> Float[Tensor, "b h n d"]:
        """Each point and head by itself."""
        return F.layer_norm(x, x.shape[-1:], eps=self.epsilon) * self.weight + self.bias


class _WithoutSoftmax(QueriesKeysValues):
    """What the two types share: norms of two of the three fields, positions, the integral."""

    normed: ClassVar[tuple[Literal["query", "key", "value"], ...]]

    def __init__(
        self,
        width: int,
        heads: int = 8,
        *,
        positions_dims: int = 0,
        features: FeatureMap = diagonally_dominant,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, features=features, dropout=dropout)
        channels = width // heads
        if channels < 2:
            raise ValueError(
                "width: expected at least 2 channels per head, as one channel is 0 after its "
                f"norm, got width={width} for heads={heads}"
            )
        self.positions_dims = positions_dims
        self.norms = nn.ModuleDict({field: HeadNorm(heads, channels) for field in self.normed})
        if positions_dims:
            self.to_output = linear(width + heads * positions_dims, width)

    def scale(self, channels: int) -> float:  # noqa: ARG002
        """A factor of the integral, for that many channels of queries and keys."""
        return 1.0

    def combine(
        self,
        query: Float[Tensor, "b h n d"],
        key: Float[Tensor, "b h m d"],
        value: Float[Tensor, "b h m d"],
        here: Points,
        there: Points,
    ) -> Float[Tensor, "b h n e"]:
        """Norms, positions, integral."""
        fields = {"query": query, "key": key, "value": value}
        for name, norm in self.norms.items():
            fields[name] = norm(fields[name])
        query, key, value = (
            self._with_positions(fields[name], points)
            for name, points in (("query", here), ("key", there), ("value", there))
        )
        return integral_attention(
            query, key, value, measure(there, key), scale=self.scale(query.shape[-1])
        )

    def _with_positions(self, field: Tensor, points: Points) -> Tensor:
        """The coordinates in front of the channels of every head, (b h n p+d)."""
        if not self.positions_dims:
            return field
        positions = points.positions
        if positions is None or positions.shape[-1] != self.positions_dims:
            raise ValueError(
                f"positions: expected (b, n, {self.positions_dims}), as the layer was built with "
                f"positions_dims={self.positions_dims}, got "
                f"{None if positions is None else tuple(positions.shape)}"
            )
        in_heads = positions.to(field.dtype).unsqueeze(1).expand(*field.shape[:-1], -1)
        return torch.cat([in_heads, field], dim=-1)


class GalerkinAttention(_WithoutSoftmax):
    """out_i = mean over j of (q_i . k~_j) v~_j, ~ a layer norm over the channels of each head.

    The columns of k~ and v~ are test and trial functions, k~^T v~ / m their inner products. Linear
    in the queries. Time and memory grow with n + m. Repeating all points changes nothing; with
    quadrature weights it converges as the mesh is refined.

    positions_dims: so many coordinates are put in front of the channels of q, k~ and v~ in each
        head; 0: none.
    features: starts as the paper's do (`diagonally_dominant`); `Pointwise` starts as the other
        layers of this package.

    Relative to the paper: the heads are mixed by a linear map also without positions; no dropout
    within k~^T v~; weights and masks are ours.

    >>> import torch
    >>> GalerkinAttention(width=64, heads=4)(torch.randn(2, 1000, 64)).shape
    torch.Size([2, 1000, 64])
    >>> layer = GalerkinAttention(width=64, heads=4, positions_dims=2)
    >>> layer(torch.randn(2, 1000, 64), positions=torch.rand(2, 1000, 2)).shape
    torch.Size([2, 1000, 64])
    """

    normed = ("key", "value")


class FourierAttention(_WithoutSoftmax):
    """out_i = mean over j of (q~_i . k~_j) v_j / sqrt d, ~ a layer norm over a head's channels.

    An integral operator with the kernel q~ . k~. Linear in the values. Parameters as of
    `GalerkinAttention`; d counts the coordinates where there are any.

    Relative to the paper: the sum over j is done first, so that time and memory grow with n + m
    instead of n m; 1 / sqrt d is in the public code but not in the paper's equation; and what is
    said at `GalerkinAttention`.

    >>> import torch
    >>> FourierAttention(width=64, heads=4)(torch.randn(2, 1000, 64)).shape
    torch.Size([2, 1000, 64])
    """

    normed = ("query", "key")

    def scale(self, channels: int) -> float:
        """1 / sqrt d, as in softmax attention."""
        return channels**-0.5


ATTENTIONS.register(
    "galerkin",
    AttentionEntry(
        "Transformer with attention without softmax, keys and values normalised",
        "Cao, Choose a Transformer: Fourier or Galerkin, NeurIPS 2021",
        when="Linear attention that reads as a Petrov-Galerkin projection.",
        settings=AttentionSettings,
        layer=layer_of(GalerkinAttention),
    ),
)
ATTENTIONS.register(
    "fourier",
    AttentionEntry(
        "Transformer with attention without softmax, queries and keys normalised",
        "Cao, Choose a Transformer: Fourier or Galerkin, NeurIPS 2021",
        when="Linear attention that reads as an integral operator.",
        settings=AttentionSettings,
        layer=layer_of(FourierAttention),
    ),
)
