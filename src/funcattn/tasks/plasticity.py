"""Plasticity: from the shape of a die to the motion of the block that it forges.

A block of steel is squeezed by a rigid die of random shape that sinks at 3 m/s (Li et al. 2023).
The input is the height of the die above each column of the block's material grid; the output, at
each of twenty times, where the points of that grid are and how far they moved. The network takes
the time as an input and gives one frame a call.

Relative to the paper: its text has the bottom clamped, in the public files it slides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from funcattn.data import Batch, Recipe, Sample
from funcattn.data.public_layouts import PLASTICITY
from funcattn.pde import plasticity
from funcattn.settings import (
    NetworkSettings,
    OptimisationSettings,
    Preset,
    Profile,
    RunSettings,
)
from funcattn.tasks.base import Portrait, modern
from funcattn.tasks.in_time import Timed
from funcattn.tasks.losses import relative_l2
from funcattn.tasks.solved import Array, GridData, Part, Solved, on_grid

CELLS = (100, 30)
"""Of the benchmark's material grid, along the block and down."""


@dataclass(frozen=True)
class PlasticityData(GridData):
    """Forged blocks, solved on the benchmark's material grid over `coarsening` along both axes."""

    train: int = 900
    validation: int = 80
    test: int = 80
    coarsening: int = 1
    visits: int = 20
    """Times an epoch visits each sample, at times drawn at random; 20 as in the public code."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.coarsening not in (1, 2, 5, 10):
            raise ValueError(
                "coarsening: expected 1, 2, 5 or 10, the common divisors of the grid's "
                f"{CELLS[0]} and {CELLS[1]} cells, got {self.coarsening}"
            )
        if self.visits < 1:
            raise ValueError(f"visits: expected at least 1, got {self.visits}")


@dataclass(frozen=True)
class PlasticitySettings(RunSettings):
    """A run of Plasticity."""

    data: PlasticityData = field(default_factory=PlasticityData)


class Plasticity(Timed, Solved):
    """Die to motion, time by time."""

    name: ClassVar = "plasticity"
    title: ClassVar = "Plasticity: motion of a block forged by a die, at twenty times"
    space: ClassVar = 2
    inputs: ClassVar = 1
    outputs: ClassVar = 4
    frames: ClassVar = 20
    headline: ClassVar = "relative_l2"
    normalised: ClassVar[frozenset[Literal["input", "output"]]] = frozenset({"input"})
    picture: ClassVar[Literal["grid", "line", "cloud", "frames"]] = "frames"
    layout: ClassVar = PLASTICITY

    @classmethod
    def defaults(cls, profile: Profile, preset: Preset) -> PlasticitySettings:
        """The paper's settings, smaller ones for two cores, and tiny ones for tests."""

        def reach(coarsening: int) -> tuple[float, ...]:
            return tuple(coarsening / cells for cells in CELLS)

        settings = PlasticitySettings(
            task=cls.name,
            network=NetworkSettings(reach=reach(1)),
            optimisation=OptimisationSettings(batch=8, clip=0.1, reduction="sum"),
        )
        if profile == "cpu":
            settings = replace(
                settings,
                data=PlasticityData(coarsening=2, visits=3, train=300, validation=20, test=40),
                network=NetworkSettings(width=64, layers=4, heads=4, bases=32, reach=reach(2)),
                optimisation=replace(settings.optimisation, epochs=15),
            )
        if profile == "smoke":
            settings = replace(
                settings,
                data=PlasticityData(coarsening=10, visits=2, train=8, validation=2, test=2),
                network=NetworkSettings(width=16, layers=2, heads=2, bases=4, reach=reach(10)),
                optimisation=replace(settings.optimisation, epochs=2, batch=4),
            )
        return modern(settings) if preset == "modern" else settings

    def recipe(self) -> Recipe:
        """The benchmark's grid, or a coarser one."""
        how = self.settings.data
        assert isinstance(how, PlasticityData)
        along, down = (cells // how.coarsening + 1 for cells in CELLS)
        parameters = {"columns": along, "rows": down, "frames": self.frames}
        return Recipe(self.name, plasticity.sample, parameters)

    def cells(self, part: Part) -> int:  # noqa: ARG002
        """As the settings say."""
        how = self.settings.data
        assert isinstance(how, PlasticityData)
        return CELLS[0] // how.coarsening

    @property
    def grid(self) -> tuple[int, ...]:
        """Along the block, and down."""
        cells = self.cells("train")
        return (cells + 1, cells * CELLS[1] // CELLS[0] + 1)

    @property
    def visits(self) -> int:
        """As the settings say."""
        how = self.settings.data
        assert isinstance(how, PlasticityData)
        return how.visits

    def samples(self, fields: Mapping[str, Array]) -> Sequence[Sample]:
        """The die above each column in; places and displacements out."""
        motion = fields["motion"]
        die = np.repeat(fields["die"][:, :, None, None], motion.shape[2], axis=2)
        return on_grid(self, die, motion)

    def drawn_at(self, sample: Sample) -> Tensor:
        """On the block as it was at first."""
        return sample.target[:, 0, :2]

    def portrait(self, sample: Sample) -> Portrait:
        """The displacement, on the block as it is at last."""
        last = sample.target[:, -1]
        shown = {"displacement along x": last[:, 2], "displacement along y": last[:, 3]}
        return Portrait(last[:, :2], shown)

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Relative L2 error."""
        return relative_l2(prediction, batch.target)

    def metrics(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Relative L2 error of all channels, as everybody reports it, and of the displacements.

        Most of a place is where it was before, so that the first is small whatever is predicted.
        """
        moved, truth = prediction[..., 2:], batch.target[..., 2:]
        return {
            "relative_l2": relative_l2(prediction, batch.target),
            "relative_l2_displacement": relative_l2(moved, truth),
        }
