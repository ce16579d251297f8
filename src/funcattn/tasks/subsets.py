"""Some points of many: what a visit in training sees of a large mesh.

At random, or each as far from the others as can be, which covers thin regions with few points too.
"""

from typing import Literal

import torch
from torch import Tensor

Subset = Literal["random", "farthest"]
POOL = 4
"""Farthest points are chosen among so many times as many random ones: the cost does not depend on
the size of the mesh."""


def random_points(count: int, chosen: int, random: torch.Generator) -> Tensor:
    """Places (chosen,) of points among `count`."""
    return torch.randperm(count, generator=random)[:chosen]


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
