"""Airfoil: from the shape of a wing section to the Mach number of the flow past it, on a C-grid.

Steady Euler equations at Mach 0.8 past a NACA 0012 that was bent at random (Li et al. 2023). The
input is where the points of the grid lie. Shocks are what makes it hard.

Relative to the paper: its table speaks of density, its text and the public files of Mach number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from funcattn.data import Batch, Recipe, Sample, StackedSamples, trapezoid_weights
from funcattn.data.public_layouts import AIRFOIL
from funcattn.pde import airfoil
from funcattn.settings import (
    DataSettings,
    NetworkSettings,
    OptimisationSettings,
    Preset,
    Profile,
    RunSettings,
)
from funcattn.tasks.base import modern
from funcattn.tasks.losses import relative_l2
from funcattn.tasks.solved import Array, Part, Solved

CELLS = (220, 50)
"""Of the benchmark's grid, along the airfoil and its wake, and away from them."""
MACH = 4
"""Its channel among those of the flow."""


@dataclass(frozen=True)
class AirfoilData(DataSettings):
    """Flows past airfoils; of the solver's nodes along both axes every `stride`-th is kept."""

    stride: int = 1
    coarsening: int = 1
    """Of the solver's grid. Only to try things: forces on coarser grids are far off."""

    def __post_init__(self) -> None:
        super().__post_init__()
        both = self.stride * self.coarsening
        if both not in (1, 2, 5, 10) or self.coarsening not in (1, 2, 5):
            raise ValueError(
                "stride times coarsening: expected 1, 2, 5 or 10, the common divisors of the "
                f"grid's {CELLS[0]} and {CELLS[1]} cells, with coarsening up to 5, got "
                f"{self.stride} times {self.coarsening}"
            )


@dataclass(frozen=True)
class AirfoilSettings(RunSettings):
    """A run of Airfoil."""

    data: AirfoilData = field(default_factory=AirfoilData)


class Airfoil(Solved):
    """Points of the grid to Mach number."""

    name: ClassVar = "airfoil"
    title: ClassVar = "Airfoil: Mach number past a wing section, on a C-grid"
    space: ClassVar = 2
    inputs: ClassVar = 0
    outputs: ClassVar = 1
    lower: ClassVar = (-39.0, -40.0)
    upper: ClassVar = (40.0, 40.0)
    headline: ClassVar = "relative_l2"
    normalised: ClassVar[frozenset[Literal["input", "output"]]] = frozenset({"output"})
    picture: ClassVar[Literal["grid", "line", "cloud", "frames"]] = "grid"
    layout: ClassVar = AIRFOIL
    public_samples: ClassVar = 1200

    @classmethod
    def defaults(cls, profile: Profile, preset: Preset) -> AirfoilSettings:
        """The paper's settings, smaller ones for two cores, and tiny ones for tests."""

        def reach(stride: int) -> tuple[float, ...]:
            return tuple(stride / cells for cells in CELLS)

        settings = AirfoilSettings(
            task=cls.name,
            network=NetworkSettings(share_basis=True, reach=reach(1)),
            optimisation=OptimisationSettings(clip=0.1, reduction="sum"),
        )
        if profile == "cpu":
            settings = replace(
                settings,
                data=AirfoilData(stride=2, train=300, validation=40, test=60),
                network=NetworkSettings(width=64, layers=4, heads=4, bases=32, reach=reach(2)),
                optimisation=replace(settings.optimisation, epochs=15),
            )
        if profile == "smoke":
            settings = replace(
                settings,
                data=AirfoilData(stride=5, coarsening=2, train=3, validation=1, test=2),
                network=NetworkSettings(width=16, layers=2, heads=2, bases=4, reach=reach(10)),
                optimisation=replace(settings.optimisation, epochs=3),
            )
        return modern(settings) if preset == "modern" else settings

    def recipe(self) -> Recipe:
        """Solved on the benchmark's grid, some of it stored."""
        how = self.settings.data
        assert isinstance(how, AirfoilData)
        return Recipe(
            self.name,
            airfoil.sample,
            {
                "wake_cells": 50 // how.coarsening,
                "surface_cells": 120 // how.coarsening,
                "normal_cells": 50 // how.coarsening,
                "stride": how.stride,
            },
        )

    def cells(self, part: Part) -> int:  # noqa: ARG002
        """As the settings say."""
        how = self.settings.data
        assert isinstance(how, AirfoilData)
        return CELLS[0] // (how.coarsening * how.stride)

    @property
    def grid(self) -> tuple[int, ...]:
        """Along the airfoil and its wake, and away from them."""
        cells = self.cells("train")
        return (cells + 1, cells * CELLS[1] // CELLS[0] + 1)

    def samples(self, fields: Mapping[str, Array]) -> Sequence[Sample]:
        """Points in, Mach number out."""
        positions = np.stack([fields["x"], fields["y"]], axis=-1)
        grid = (positions.shape[1], positions.shape[2])
        return StackedSamples(
            positions.reshape(len(positions), -1, 2),
            None,
            fields["flow"][:, MACH, ..., None],
            grid=grid,
            weights=trapezoid_weights(grid),
        )

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Relative L2 error."""
        return relative_l2(prediction, batch.target)

    def metrics(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Relative L2 error."""
        return {"relative_l2": relative_l2(prediction, batch.target)}
