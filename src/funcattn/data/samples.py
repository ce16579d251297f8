"""Samples on their point sets, and batches of them.

Samples of different sizes go into one batch by padding, with a mask; a network that keeps to the
mask then gives each sample the result it would have had alone.

Axes: b sample of the batch, n point, s space dimension, i input channel, o output channel.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, overload

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor


@dataclass(frozen=True)
class Sample:
    """One input and what should come out, on one point set.

    positions (n s); values (n i), or None where the geometry is the input; target: first axis n,
    any others after it; grid: axis lengths where the points form a grid, row-major; weights (n).
    context (m k): observations at other points, where a task has them. times (t): those of the
    target's frames, where it has some, (n t o). surface (n): how much of a body's surface belongs
    to a point on it, 0 at points off it.
    """

    positions: Float[Tensor, "n s"]
    values: Float[Tensor, "n i"] | None
    target: Shaped[Tensor, "n *o"]
    grid: tuple[int, ...] | None = None
    weights: Float[Tensor, " n"] | None = None
    context: Float[Tensor, "m k"] | None = None
    times: Float[Tensor, " t"] | None = None
    surface: Float[Tensor, " n"] | None = None

    def __post_init__(self) -> None:
        points = len(self.positions)
        for field in ("values", "target", "weights", "surface"):
            tensor = getattr(self, field)
            if tensor is not None and len(tensor) != points:
                raise ValueError(
                    f"{field}: expected one row for each of {points} positions, got {len(tensor)}"
                )
        if self.grid is not None and math.prod(self.grid) != points:
            raise ValueError(
                f"grid: expected axis lengths whose product is the number of positions, {points}, "
                f"got {self.grid}"
            )


class LazySamples(Sequence[Sample], ABC):
    """Samples that are made, or read, when they are asked for."""

    @abstractmethod
    def sample(self, index: int) -> Sample:
        """The one at an index."""

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...
    def __getitem__(self, index: int | slice) -> Sample | list[Sample]:
        if isinstance(index, slice):
            return [self.sample(i) for i in range(*index.indices(len(self)))]
        return self.sample(index)


@dataclass(frozen=True)
class Batch:
    """Samples stacked along a first axis; mask is True at real points, None where all are.

    Contexts and times are not padded: those of one batch are of one size.
    """

    positions: Float[Tensor, "b n s"]
    values: Float[Tensor, "b n i"] | None
    target: Shaped[Tensor, "b n *o"]
    grid: tuple[int, ...] | None = None
    weights: Float[Tensor, "b n"] | None = None
    mask: Bool[Tensor, "b n"] | None = None
    context: Float[Tensor, "b m k"] | None = None
    times: Float[Tensor, "b t"] | None = None
    surface: Float[Tensor, "b n"] | None = None

    def __len__(self) -> int:
        return len(self.positions)

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "Batch":
        """The batch on a device, floating point tensors in that dtype."""
        moved: dict[str, Any] = {}
        for field in fields(self):
            tensor = getattr(self, field.name)
            if isinstance(tensor, Tensor):
                moved[field.name] = tensor.to(
                    device, dtype if tensor.is_floating_point() else None, non_blocking=True
                )
        return replace(self, **moved)


def collate(samples: Sequence[Sample]) -> Batch:
    """A batch of samples, padded with zeros where their sizes differ."""
    if not samples:
        raise ValueError("samples: expected at least one for a batch, got none")
    sizes = [len(sample.positions) for sample in samples]
    ragged = len(set(sizes)) > 1
    grids = {sample.grid for sample in samples}
    if len(grids) > 1:
        raise ValueError(f"grid: expected one for all samples of a batch, got {grids}")

    def stacked(name: str) -> Tensor | None:
        tensors = [getattr(sample, name) for sample in samples]
        if any(tensor is None for tensor in tensors):
            if all(tensor is None for tensor in tensors):
                return None
            raise ValueError(f"{name}: expected it in all samples of a batch or in none")
        whole = name in ("context", "times")  # points are padded, these are not
        first, where = (0, "") if whole else (1, " after the first axis")
        if len({t.shape[first:] for t in tensors}) > 1:
            raise ValueError(
                f"{name}: expected one shape{where} in all samples of a batch, got "
                f"{[tuple(t.shape) for t in tensors]}"
            )
        if whole:
            return torch.stack(tensors)
        return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True)

    positions, target = stacked("positions"), stacked("target")
    assert positions is not None
    assert target is not None
    places = torch.arange(max(sizes))
    return Batch(
        positions=positions,
        values=stacked("values"),
        target=target,
        grid=grids.pop(),
        weights=stacked("weights"),
        mask=places < torch.tensor(sizes)[:, None] if ragged else None,
        context=stacked("context"),
        times=stacked("times"),
        surface=stacked("surface"),
    )
