"""What a layer may know of the points it works on, besides the features at them."""

import math
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Points:
    """A point set: all of it optional, nothing of it fixed at construction of a layer.

    positions (b n s); grid: axis lengths, points in row-major order; mask (b n), True at real
    points; weights (b n), quadrature weights or cell volumes.
    """

    positions: Tensor | None = None
    grid: tuple[int, ...] | None = None
    mask: Tensor | None = None
    weights: Tensor | None = None


def check_grid(grid: tuple[int, ...] | None, points: int, *, dims: int) -> tuple[int, ...]:
    """The grid, if it has that many axes and points."""
    if grid is None:
        raise ValueError(
            f"grid: expected {dims} axis lengths because the feature maps are stencils, got none; "
            "pass `grid=(...)` with the call, or build the layer with point-wise features"
        )
    if len(grid) != dims or math.prod(grid) != points:
        raise ValueError(
            f"grid: expected {dims} axis lengths whose product is the number of points {points}, "
            f"got {tuple(grid)}"
        )
    return tuple(grid)
