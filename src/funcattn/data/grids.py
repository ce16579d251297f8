"""Regular grids on the unit box, both ends of every axis included, points in row-major order."""

import functools
import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def grid_positions(grid: Sequence[int]) -> Float[Tensor, "n s"]:
    """The coordinates of the points, first axis slowest ("ij" order).

    >>> grid_positions((2, 3))
    tensor([[0.0000, 0.0000],
            [0.0000, 0.5000],
            [0.0000, 1.0000],
            [1.0000, 0.0000],
            [1.0000, 0.5000],
            [1.0000, 1.0000]])
    """
    axes = [torch.linspace(0, 1, length) for length in grid]
    return torch.cartesian_prod(*axes).reshape(-1, len(grid))


def trapezoid_weights(grid: Sequence[int]) -> Float[Tensor, " n"]:
    """Quadrature weights of the trapezoid rule, which sum to one.

    With them, sums over points are integrals that hardly change when the grid is refined; without
    them, boundary points count for more on coarse grids than on fine ones.

    >>> trapezoid_weights((3,))
    tensor([0.2500, 0.5000, 0.2500])
    """
    axes = []
    for length in grid:
        weights = torch.ones(length)
        weights[[0, -1]] = 0.5 if length > 1 else 1.0
        axes.append(weights / weights.sum())
    product = functools.reduce(lambda a, b: a.unsqueeze(-1) * b, axes)
    return product.reshape(math.prod(grid))
