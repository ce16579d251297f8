"""Some points of many: what a visit in training sees of a large mesh.

Of a grid, a coarser one. Of other point sets, points at random, or each as far from the others as
can be, which covers thin regions with few points too.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from funcattn.data.grids import grid_rows

Subset = Literal["random", "farthest"]
POOL = 4
"""Farthest points are chosen among so many times as many random ones: the cost does not depend on
the size of the mesh."""


def random_points(count: int, chosen: int, random: torch.Generator) -> Tensor:
    """Places (chosen,) of points among `count`."""
    return torch.randperm(count, generator=random)[:chosen]


def coarser_grid(
    grid: tuple[int, ...], most: int, random: torch.Generator
) -> tuple[Tensor, tuple[int, ...]]:
    """Places of a grid's points, every k-th along each axis from a random start, and their grid.

    k is the least with which `most` points suffice; an axis keeps two points at least.

    >>> places, coarse = coarser_grid((6, 4), 6, torch.Generator().manual_seed(0))
    >>> coarse
    (3, 2)
    """
    stride = 1
    while math.prod(_lengths(grid, stride)) > most and stride < max(grid):
        stride += 1
    steps = [max(min(stride, length // 2), 1) for length in grid]
    lengths = _lengths(grid, stride)
    places = []
    for length, step, coarse in zip(grid, steps, lengths, strict=True):
        spare = length - (coarse - 1) * step
        start = int(torch.randint(spare, (1,), generator=random))
        places.append(start + step * torch.arange(coarse))
    return grid_rows(grid, places), lengths


def _lengths(grid: tuple[int, ...], stride: int) -> tuple[int, ...]:
    """How many points are left of each axis, whatever the start."""
    return tuple(length // max(min(stride, length // 2), 1) for length in grid)


def farthest_points(
    positions: Tensor, chosen: int, random: torch.Generator, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Places (chosen,) of points that keep apart, and the weight (chosen,) that each stands for.

    Each next point is the farthest from those before. The weight of a point is that of the points
    to which it is the nearest, so that sums over the subset approximate sums over all points.

    >>> line = torch.linspace(0, 1, 5)[:, None]
    >>> places, weights = farthest_points(line, 2, torch.Generator().manual_seed(0))
    >>> weights.sum()
    tensor(5.)
    """
    pool = random_points(len(positions), POOL * chosen, random)
    among = positions[pool]
    mass = torch.ones(len(pool)) if weights is None else weights[pool]
    squares = torch.full((len(pool),), torch.inf)
    owner = torch.zeros(len(pool), dtype=torch.long)
    places = torch.zeros(chosen, dtype=torch.long)
    for number in range(chosen):
        # The pool is in random order, so that its first point is a random start.
        place = int(squares.argmax()) if number else 0
        away = (among - among[place]).square().sum(1)
        nearer = away < squares
        squares = torch.where(nearer, away, squares)
        owner[nearer] = number
        places[number] = place
    total = torch.zeros(chosen, dtype=mass.dtype).index_add_(0, owner, mass)
    return pool[places], total
