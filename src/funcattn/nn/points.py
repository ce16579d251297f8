"""What a layer may know of the points it works on, besides the features at them."""

import math
from collections.abc import Sequence
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


def per_dimension(value: float | Sequence[float], dims: int) -> tuple[float, ...]:
    """One number a dimension, from one for all or a sequence of the right length."""
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
