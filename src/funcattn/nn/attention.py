"""What all attentions share: the call, its checks, looking inside, and the heads.

Axes: b batch, h head, n query point, m key point, d channel of a head, c width.
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from funcattn.nn.feature_maps import linear
from funcattn.nn.inspection import Inspectable, Inspection, inspect
from funcattn.nn.points import Points, two_sides
from funcattn.ops import Sided
from funcattn.ops.checks import check_batch, check_finite, check_point_weights


class Attention(Inspectable, ABC):
    """Attention between the points of x, or from the points of x to those of a context.

    A method fills in `attend`, which returns the heads before they are mixed. What a method cannot
    do it refuses when it is built, or here, at the call, where only the call shows it.
    """

    takes_context = True
    """Whether the method can attend to other points than its own."""
    to_output: nn.Module
    dropout: nn.Module

    def __init__(self, width: int, heads: int = 8) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width: expected a multiple of heads={heads}, got {width}")
        self.heads = heads

    def add_output(self, width: int, dropout: float) -> None:
        """Make the map that mixes the heads; to be called once by the constructor of a method."""
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

        With a context, `positions`, `mask` and `weights` may be pairs (of x, of the context).
        `grid` is the one of x; stencil features therefore do not go with a context.
        """
        sides = self._at_the_door(x, context, *two_sides(positions, grid, mask, weights))
        return self.dropout(self.mixed(x, *sides))

    @torch.no_grad()
    def inspect(
        self,
        x: Float[Tensor, "b n c"],
        context: Float[Tensor, "b m c"] | None = None,
        *,
        positions: Sided = None,
        grid: tuple[int, ...] | None = None,
        mask: Sided = None,
        weights: Sided = None,
    ) -> Inspection:
        """Look inside a call: its basis, coefficients, map and system; see `funcattn.inspect`."""
        sides = self._at_the_door(x, context, *two_sides(positions, grid, mask, weights))
        with inspect(self) as seen:
            self.mixed(x, *sides)
        if not seen:
            raise ValueError(
                f"inspect: expected a layer with a basis or a system to show, got "
                f"{type(self).__name__}, which has neither"
            )
        return seen[-1]

    def mixed(
        self, x: Tensor, source: Tensor, here: Points, there: Points
    ) -> Float[Tensor, "b n c"]:
        """From the points of x to those of the source, heads mixed."""
        return self.mix(self.attend(x, source, here, there), x.dtype)

    def mix(self, out: Float[Tensor, "b h n d"], dtype: torch.dtype) -> Float[Tensor, "b n c"]:
        """The heads side by side, through the output's map."""
        out = out.transpose(1, 2).flatten(2)  # (b, h, n, d) -> (b, n, h d)
        return self.to_output(out.to(dtype))

    @abstractmethod
    def attend(
        self, x: Tensor, source: Tensor, here: Points, there: Points
    ) -> Float[Tensor, "b h n d"]:
        """From the points of x to those of the source, which may be the same."""

    def check_points(self, x: Tensor, source: Tensor, here: Points, there: Points) -> None:
        """Weights and masks at the door."""
        for field, points in ((x, here), (source, there)):
            check_point_weights(points.weights, points.mask, field.shape[1])
            check_batch(len(x), weights=points.weights, mask=points.mask)

    def _at_the_door(
        self, x: Tensor, context: Tensor | None, here: Points, there: Points
    ) -> tuple[Tensor, Points, Points]:
        """What x attends to, and the points of both; of self-attention these are one object."""
        if context is None:
            source, there = x, here
        elif not self.takes_context:
            raise ValueError(
                f"context: {type(self).__name__} attends from points to themselves only; leave the "
                "context out, or take an attention that has queries of its own"
            )
        elif len(context) != len(x):
            raise ValueError(
                f"context: expected one for each of {len(x)} samples, got {len(context)}"
            )
        else:
            source = context
        self.check_points(x, source, here, there)
        check_finite(x=x, context=context)
        return source, here, there
