"""What the rival attentions share: the call of `FunctionalAttention`, its checks, the heads.

Axes: b batch, h head, n query point, m key point, d channel of a head, c width.
"""

from abc import ABC, abstractmethod

from jaxtyping import Float
from torch import Tensor, nn

from funcattn.nn.bases import split_heads
from funcattn.nn.feature_maps import FeatureMap, Pointwise, linear
from funcattn.nn.points import Points
from funcattn.ops import Sided, both_sides
from funcattn.ops.checks import check_batch, check_finite, check_point_weights
from funcattn.ops.linalg import at_least_float32


class Attention(nn.Module, ABC):
    """Attention between the points of x, or from the points of x to those of a context.

    A method fills in `attend`, which returns the heads before they are mixed. What a method cannot
    do it refuses when it is built, or here, at the call, where only the call shows it.
    """

    takes_context = True
    """Whether the method can attend to other points than its own."""

    def __init__(self, width: int, heads: int = 8, *, dropout: float = 0.0) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width: expected a multiple of heads={heads}, got {width}")
        self.heads = heads
        self.to_output = linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "b n c"],
        context: Float[Tensor, "b m c"] | None = None,
        *,
        positions: Sided = None,
        grid: tuple[int, ...] | None = None,
        mask: Sided = None,
        weights: Sided = None,
    ) -> Float[Tensor, "b n c"]:
        """Attend from x to itself, or to `context` where one is given.

        With a context, `positions`, `mask` and `weights` may be pairs (of x, of the context);
        `grid` is the one of x.
        """
        if context is not None and not self.takes_context:
            raise ValueError(
                f"context: {type(self).__name__} attends from points to themselves only; leave the "
                "context out, or take an attention that has queries of its own"
            )
        (x_positions, context_positions) = both_sides(positions)
        (x_mask, context_mask), (x_weights, context_weights) = both_sides(mask), both_sides(weights)
        here = Points(x_positions, grid, x_mask, x_weights)
        source, there = x, here
        if context is not None:
            source, there = context, Points(context_positions, None, context_mask, context_weights)
            if len(context) != len(x):
                raise ValueError(
                    f"context: expected one for each of {len(x)} samples, got {len(context)}"
                )
        for field, points in ((x, here), (source, there)):
            check_point_weights(points.weights, points.mask, field.shape[1])
            check_batch(len(x), weights=points.weights, mask=points.mask)
        check_finite(x=x, context=context)
        out = self.attend(x, source, here, there)
        out = out.transpose(1, 2).flatten(2)  # (b, h, n, d) -> (b, n, h d)
        return self.dropout(self.to_output(out.to(x.dtype)))

    @abstractmethod
    def attend(
        self, x: Tensor, source: Tensor, here: Points, there: Points
    ) -> Float[Tensor, "b h n d"]:
        """From the points of x to those of the source, which may be the same."""


class QueriesKeysValues(Attention):
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
