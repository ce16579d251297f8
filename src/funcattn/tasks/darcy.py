"""Darcy flow: from a two-valued permeability to the pressure, on a square grid.

-div(a grad u) = 1 on the unit square, u = 0 on the boundary, a = 12 or 3 by the sign of a Gaussian
random field (Li et al. 2020). Solved on a fine grid, kept on a coarser one that is nested in it.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal, overload
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from funcattn.data import Batch, Sample, grid_positions, trapezoid_weights, worker_pool
from funcattn.pde import darcy
from funcattn.settings import (
    DataSettings,
    NetworkSettings,
    OptimisationSettings,
    Preset,
    Profile,
    RunSettings,
)
from funcattn.tasks.base import Advance, Splits, Task
from funcattn.tasks.losses import relative_gradient, relative_l2

Fields = npt.NDArray[np.float32]


@dataclass(frozen=True)
class DarcyData(DataSettings):
    """Darcy samples: solved on `nodes` points an axis, every `stride`-th of them kept."""

    nodes: int = 421
    stride: int = 5
    workers: int = 2
    """Processes that solve; they change nothing in the result."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stride < 1 or (self.nodes - 1) % self.stride:
            raise ValueError(
                f"stride: expected a divisor of nodes - 1 = {self.nodes - 1}, so that the coarse "
                f"grid is nested in the fine one, got {self.stride}"
            )


@dataclass(frozen=True)
class DarcySettings(RunSettings):
    """A run of Darcy flow."""

    data: DarcyData = field(default_factory=DarcyData)


class GridSamples(Sequence[Sample]):
    """Samples from stacked input and target fields (samples, *grid)."""

    def __init__(self, inputs: Fields, targets: Fields) -> None:
        self.inputs, self.targets = inputs, targets
        self.grid = tuple(inputs.shape[1:])
        self.positions, self.weights = grid_positions(self.grid), trapezoid_weights(self.grid)

    def __len__(self) -> int:
        return len(self.inputs)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> "GridSamples": ...
    def __getitem__(self, index: int | slice) -> "Sample | GridSamples":
        if isinstance(index, slice):
            return GridSamples(self.inputs[index], self.targets[index])
        return Sample(
            positions=self.positions,
            values=torch.from_numpy(self.inputs[index]).reshape(-1, 1),
            target=torch.from_numpy(self.targets[index]).reshape(-1, 1),
            grid=self.grid,
            weights=self.weights,
        )


class Darcy(Task):
    """Permeability to pressure."""

    name: ClassVar = "darcy"
    title: ClassVar = "Darcy flow: permeability to pressure on a square grid"
    space: ClassVar = 2
    inputs: ClassVar = 1
    outputs: ClassVar = 1
    headline: ClassVar = "relative_l2"
    normalised: ClassVar[frozenset[Literal["input", "output"]]] = frozenset({"input", "output"})
    picture: ClassVar[Literal["grid", "line", "cloud", "frames"]] = "grid"

    @classmethod
    def defaults(cls, profile: Profile, preset: Preset) -> DarcySettings:
        """The paper's settings, smaller ones for two cores, and tiny ones for tests."""
        settings = DarcySettings(
            task=cls.name,
            network=NetworkSettings(share_basis=True, lattice=8, reach=1 / 84),
            optimisation=OptimisationSettings(clip=0.1, reduction="sum"),
        )
        if profile == "cpu":
            settings = replace(
                settings,
                data=DarcyData(nodes=211, stride=10, train=1000, validation=100, test=100),
                network=NetworkSettings(width=64, layers=4, heads=4, bases=32, reach=1 / 21),
                optimisation=replace(settings.optimisation, epochs=30, batch=8),
            )
        if profile == "smoke":
            settings = replace(
                settings,
                data=DarcyData(nodes=17, stride=2, train=12, validation=4, test=4),
                network=NetworkSettings(width=16, layers=2, heads=2, bases=4, reach=1 / 8),
                optimisation=replace(settings.optimisation, epochs=3),
            )
        if preset == "modern":
            settings = replace(
                settings,
                optimisation=replace(
                    settings.optimisation, optimiser="muon", clip=1.0, reduction="mean"
                ),
            )
        return settings

    def splits(self, cache: Path, advance: Advance) -> Splits:
        """Samples in their order: training, validation, test."""
        how = self.settings.data
        assert isinstance(how, DarcyData)
        inputs, targets = darcy_fields(how, cache, advance)
        samples = GridSamples(inputs, targets)
        chosen = how.train + how.validation
        return Splits(
            samples[: how.train],
            samples[how.train : chosen],
            samples[chosen:],
            hashlib.sha256(inputs.tobytes() + targets.tobytes()).hexdigest(),
        )

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Relative L2 error, and a tenth of the gradient's."""
        assert batch.grid is not None
        return relative_l2(prediction, batch.target) + 0.1 * relative_gradient(
            prediction, batch.target, batch.grid
        )

    def metrics(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Relative L2 error."""
        return {"relative_l2": relative_l2(prediction, batch.target)}


def darcy_fields(how: DarcyData, cache: Path, advance: Advance) -> tuple[Fields, Fields]:
    """Permeability and pressure of all samples; solved once, then kept in the cache folder."""
    if how.path is not None:
        raise ValueError("data.path: Darcy flow is made, not read; leave the path out")
    count = how.train + how.validation + how.test
    cache.mkdir(parents=True, exist_ok=True)
    # A file with more points of the same grid serves as well.
    kept = {
        cache / f"darcy-{how.nodes}-{stride}-seed{how.seed}-{count}.npz": how.stride // stride
        for stride in range(how.stride, 0, -1)
        if how.stride % stride == 0
    }
    path, every = next(((p, k) for p, k in kept.items() if p.exists()), next(iter(kept.items())))
    if not path.exists():
        made = []
        with worker_pool(how.workers) as pool:
            for pair in pool.imap(partial(_sample, how=how), range(count), chunksize=4):
                made.append(pair)
                advance(len(made), count)
        permeability, pressure = (np.stack(fields) for fields in zip(*made, strict=True))
        aside = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with aside.open("wb") as file:
                np.savez(file, permeability=permeability, pressure=pressure)
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return file["permeability"][:, ::every, ::every], file["pressure"][:, ::every, ::every]
    except (ValueError, KeyError, EOFError, BadZipFile) as error:
        raise ValueError(f"{path} is damaged ({error}); delete it, to make it again") from error


def _sample(index: int, how: DarcyData) -> tuple[Fields, Fields]:
    a, u = darcy.sample(how.nodes, seed=how.seed, index=index)
    every = slice(None, None, how.stride)
    return a[every, every].astype(np.float32), u[every, every].astype(np.float32)
