"""What the baseline attentions share beyond the call: queries, keys, values, and a measure.

Axes: b batch, h head, n query point, m key point, d channel of a head, c width.
"""

from abc import abstractmethod

from jaxtyping import Float
from torch import Tensor

from funcattn.nn.attention import Attention
from funcattn.nn.bases import split_heads
from funcattn.nn.feature_maps import FeatureMap, Pointwise
from funcattn.nn.points import Points
from funcattn.ops.linalg import at_least_float32


class Baseline(Attention):
    """An attention that functional attention is compared with. It does not go over ranks."""

    def __init__(self, width: int, heads: int = 8, *, dropout: float = 0.0) -> None:
        super().__init__(width, heads)
        self.add_output(width, dropout)


class QueriesKeysValues(Baseline):
    """A method that is a function of queries, keys and values at the points.

    features: point-wise maps, or stencils for points that form a grid (`Stencil`).
    """

    def __init__(
        self, width: int, heads: int = 8, *, features: FeatureMap = Pointwise, dropout: float = 0.0
    ) -> None:
        super().__init__(width, heads, dropout=dropout)
        self.to_query, self.to_key, self.to_value = (features(width, width) for _ in range(3))

    def attend(
        self, x: Tensor, source: Tensor, here: Points, there: Points
    ) -> Float[Tensor, "b h n d"]:
        """Make queries, keys and values, then `combine` them."""
        return self.combine(
            split_heads(self.to_query(x, here), self.heads),
            split_heads(self.to_key(source, there), self.heads),
            split_heads(self.to_value(source, there), self.heads),
            here,
            there,
        )

    @abstractmethod
    def combine(
        self,
        query: Float[Tensor, "b h n d"],
        key: Float[Tensor, "b h m d"],
        value: Float[Tensor, "b h m d"],
        here: Points,
        there: Points,
    ) -> Float[Tensor, "b h n d"]:
        """The method's equation."""


def measure(points: Points, like: Float[Tensor, "b h m d"]) -> Float[Tensor, "#b 1 m 1"] | None:
    """How much each point counts in a sum over points, 1 on average over the real ones, or None.

    Masked points count 0. Methods as published count all points alike, which is what None and
    equal weights mean; with quadrature weights their sums become integrals.
    """
    weights, dtype = points.weights, at_least_float32(like.dtype)  # half cannot count the points
    if points.mask is not None:
        real = points.mask.to(dtype)
        weights = real if weights is None else weights.to(dtype) * real
        counted = real.sum(-1, keepdim=True)
    elif weights is None:
        return None
    else:
        weights = weights.to(dtype)
        counted = weights.new_tensor(float(weights.shape[-1]))
    # (b, m) or (m,) -> (b, 1, m, 1)
    scaled = weights * (counted / weights.sum(-1, keepdim=True))
    return scaled.reshape(-1, 1, scaled.shape[-1], 1).to(like.dtype)
