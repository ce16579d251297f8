"""Regular grids on the unit box, points in row-major order, and samples from stacked fields.

Both ends of every axis are grid points; of a periodic axis, which is a circle, the first one only.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from funcattn.data.samples import LazySamples, Sample


def grid_positions(grid: Sequence[int], *, periodic: bool = False) -> Float[Tensor, "n s"]:
    """The coordinates of the points, first axis slowest ("ij" order).

    >>> grid_positions((2, 3))
    tensor([[0.0000, 0.0000],
            [0.0000, 0.5000],
            [0.0000, 1.0000],
            [1.0000, 0.0000],
            [1.0000, 0.5000],
            [1.0000, 1.0000]])
    >>> grid_positions((4,), periodic=True).flatten()
    tensor([0.0000, 0.2500, 0.5000, 0.7500])
    """
    axes = [
        torch.arange(length) / length if periodic else torch.linspace(0, 1, length)
        for length in grid
    ]
    return torch.cartesian_prod(*axes).reshape(-1, len(grid))


def grid_rows(grid: Sequence[int], places: Sequence[Tensor]) -> Shaped[Tensor, " n"]:
    """Which points of a grid are at these places of its axes.

    >>> grid_rows((2, 3), [torch.tensor([1]), torch.tensor([0, 2])])
    tensor([3, 5])
    """
    rows = torch.zeros(1, dtype=torch.long)
    for length, along in zip(grid, places, strict=True):
        rows = (rows[:, None] * length + along).flatten()
    return rows


def public_positions(grid: Sequence[int]) -> Float[Tensor, "n s"]:
    """The coordinates that public loaders give with fields on a grid.

    They enumerate the points with the first axis fastest while the fields have it slowest, and put
    0 and 1 at the ends of a periodic axis too. On square grids this only exchanges the axes.

    >>> public_positions((2, 3))[1]
    tensor([1., 0.])
    """
    reversed_axes = grid_positions(tuple(reversed(grid)))
    return reversed_axes.flip(-1)


def trapezoid_weights(grid: Sequence[int], *, periodic: bool = False) -> Float[Tensor, " n"]:
    """Quadrature weights of the trapezoid rule, which sum to one.

    With them, sums over points are integrals that hardly change when the grid is refined; without
    them, boundary points count for more on coarse grids than on fine ones.

    >>> trapezoid_weights((3,))
    tensor([0.2500, 0.5000, 0.2500])
    """
    axes = []
    for length in grid:
        weights = torch.ones(length)
        if length > 1 and not periodic:
            weights[[0, -1]] = 0.5
        axes.append(weights / weights.sum())
    product = functools.reduce(lambda a, b: a.unsqueeze(-1) * b, axes)
    return product.reshape(math.prod(grid))


class StackedSamples(LazySamples):
    """Samples of one size, from stacked fields.

    targets (samples *grid *o), and inputs (samples *grid i) where the task has some; positions
    (samples n s) or, where they are the same for all, (n s); grid: axis lengths, None where the
    points form none, and *grid then is n; weights (n), the same for all.
    """

    def __init__(
        self,
        positions: npt.NDArray[Any] | Tensor,
        inputs: npt.NDArray[Any] | None,
        targets: npt.NDArray[Any],
        *,
        grid: tuple[int, ...] | None = None,
        weights: Tensor | None = None,
    ) -> None:
        self.positions = torch.as_tensor(positions)
        self.inputs, self.targets, self.grid, self.weights = inputs, targets, grid, weights

    def __len__(self) -> int:
        return len(self.targets)

    def sample(self, index: int) -> Sample:
        """The one at an index."""
        return Sample(
            positions=self.positions if self.positions.ndim == 2 else self.positions[index],
            values=None if self.inputs is None else self._points(self.inputs[index]),
            target=self._points(self.targets[index]),
            grid=self.grid,
            weights=self.weights,
        )

    def _points(self, field: npt.NDArray[Any]) -> Tensor:
        """(*grid *o) -> (n *o)."""
        return torch.from_numpy(field).flatten(0, len(self.grid or (0,)) - 1)
