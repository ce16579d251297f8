"""What a layer may know of the points it works on, besides the features at them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from torch import Tensor

from funcattn.ops import Sided, both_sides, without_padding
from funcattn.ops.checks import check_point_weights


class PointArguments(TypedDict):
    """Points as the public calls take them."""

    positions: Tensor | None
    grid: tuple[int, ...] | None
    mask: Tensor | None
    weights: Tensor | None


@dataclass(frozen=True)
class Points:
    """A point set: all of it optional, nothing of it fixed at construction of a layer.

    positions (b n s); grid: axis lengths, points in row-major order; mask (b n), True at real
    points; weights (b n), quadrature weights or cell volumes.

    It is made at the door of a public call, which takes its parts by name, and travels as one.

    >>> import torch
    >>> points = Points(mask=torch.tensor([[True, False]]))
    >>> points.cleared(torch.ones(1, 2, 3))[0, :, 0]
    tensor([1., 0.])
    """

    positions: Tensor | None = None
    grid: tuple[int, ...] | None = None
    mask: Tensor | None = None
    weights: Tensor | None = None

    @property
    def arguments(self) -> PointArguments:
        """The parts by name, for the call of any layer: `layer(x, **points.arguments)`."""
        return PointArguments(
            positions=self.positions, grid=self.grid, mask=self.mask, weights=self.weights
        )

    def cleared(self, field: Tensor) -> Tensor:
        """A field (b n k) with 0 at masked points."""
        return without_padding(field, self.mask)

    def on_grid(self, field: Tensor, *, dims: int) -> Tensor:
        """A field (b n k) as (b *grid k), with 0 at masked points, so that no neighbour sees them.

        dims: axes that the grid must have.
        """
        grid = check_grid(self.grid, field.shape[1], dims=dims)
        check_point_weights(None, self.mask, field.shape[1])
        return self.cleared(field).unflatten(1, grid)

    def without_padding(self) -> "Points":
        """The same points with 0 for the positions and weights of masked ones."""
        positions, weights = (
            without_padding(part, self.mask) for part in (self.positions, self.weights)
        )
        return Points(positions, self.grid, self.mask, weights)

    def counted(self, x: Tensor) -> Tensor:
        """A weight for each point of each sample of x (b n c), 1 where none are given.

        Where points are spread over ranks, sums then have one shape on all of them, also where some
        ranks have weights or masks and others none.
        """
        weights = x.new_ones(()) if self.weights is None else self.weights
        return weights.expand(x.shape[:2])

    def at(self, rows: slice) -> "Points":
        """Some of them, which do not form a grid any more."""
        return Points(
            None if self.positions is None else self.positions[:, rows],
            None,
            None if self.mask is None else self.mask[..., rows],
            None if self.weights is None else self.weights[..., rows],
        )


def two_sides(
    positions: Sided, grid: tuple[int, ...] | None, mask: Sided, weights: Sided
) -> tuple[Points, Points]:
    """The points of x and those of its context, whose parts may be given once for both.

    The grid is that of x.
    """
    (x_positions, context_positions), (x_mask, context_mask) = (
        both_sides(positions),
        both_sides(mask),
    )
    x_weights, context_weights = both_sides(weights)
    return (
        Points(x_positions, grid, x_mask, x_weights),
        Points(context_positions, None, context_mask, context_weights),
    )


def per_dimension(value: float | Sequence[float], dims: int) -> tuple[float, ...]:
    """One number per dimension, from one for all or a sequence of the right length."""
    values = tuple(value) if isinstance(value, Sequence) else (value,) * dims
    if len(values) != dims:
        raise ValueError(
            f"expected one number, or one for each of {dims} axes, got {len(values)} of them"
        )
    return tuple(float(v) for v in values)


def check_grid(grid: tuple[int, ...] | None, points: int, *, dims: int) -> tuple[int, ...]:
    """The grid, if it has that many axes and points."""
    if grid is None:
        raise ValueError(
            f"grid: expected {dims} axis lengths because the layer's features or basis need a "
            "grid, got none; pass `grid=(...)` with the call; where it is a context that has no "
            "grid, build the layer with point-wise features and a basis for any points"
        )
    if len(grid) != dims or math.prod(grid) != points:
        raise ValueError(
            f"grid: expected {dims} axis lengths whose product is the number of points {points}, "
            f"got {tuple(grid)}"
        )
    return tuple(grid)
