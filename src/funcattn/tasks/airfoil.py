"""Airfoil: from the shape of a wing section to the Mach number of the flow past it, on a C-grid.

Steady Euler equations at Mach 0.8 past a NACA 0012 that was bent at random (Li et al. 2023). The
input is where the points of the grid lie. Shocks are what makes it hard.

Relative to the paper: its table speaks of density, its text and the public files of Mach number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from funcattn.arrays import Array
from funcattn.data import Recipe, Sample, StackedSamples, trapezoid_weights
from funcattn.data.public_layouts import AIRFOIL
from funcattn.pde import airfoil
from funcattn.problem import Field, Problem
from funcattn.settings import DataSettings, Profile
from funcattn.tasks.base import Changes, register_task
from funcattn.tasks.solved import PLANE, Solved
from funcattn.tasks.splitting import Part

CELLS = (220, 50)
"""Of the benchmark's grid, along the airfoil and its wake, and away from them."""
MACH = 4
"""Its channel among those of the flow."""


@dataclass(frozen=True)
class AirfoilData(DataSettings):
    """Flows past airfoils; the nodes that are used are those stored."""

    use_every: int = 1
    """Stride along both axes: 2 uses every second node of the solver."""
    coarsening: int = 1
    """Cells of the benchmark's grid over those of the solver's, along both axes. Only to try
    things: forces on coarser grids are far off."""

    old_names: ClassVar[Mapping[str, str]] = {"stride": "use_every"}

    def __post_init__(self) -> None:
        super().__post_init__()
        both = self.use_every * self.coarsening
        if both not in (1, 2, 5, 10) or self.coarsening not in (1, 2, 5):
            raise ValueError(
                "use_every times coarsening: expected 1, 2, 5 or 10, the common divisors of the "
                f"grid's {CELLS[0]} and {CELLS[1]} cells, with coarsening up to 5, got "
                f"{self.use_every} times {self.coarsening}"
            )


def _reach(every: int) -> tuple[float, ...]:
    """One step of the grid that is left of the benchmark's by a stride."""
    return tuple(every / cells for cells in CELLS)


@register_task
class Airfoil(Solved[AirfoilData]):
    """Points of the grid to Mach number."""

    name: ClassVar = "airfoil"
    title: ClassVar = "Airfoil: Mach number past a wing section, on a C-grid"
    problem = Problem(2, (), (Field("Mach number"),), lower=(-39.0, -40.0), upper=(40.0, 40.0))
    data_settings = AirfoilData
    arrays: ClassVar = {"x": PLANE, "y": PLANE, "flow": ("channels", *PLANE)}
    layout: ClassVar = AIRFOIL
    public_samples: ClassVar = 1200
    weighted: ClassVar = True
    normalised: ClassVar = frozenset({"output"})
    profiles: ClassVar[Mapping[Profile, Changes]] = {
        "paper": {
            "network": {"share_basis": True, "reach": _reach(1)},
            "optimisation": {"clip": 0.1, "reduction": "sum"},
        },
        "cpu": {
            "data": {"use_every": 2, "train": 300, "validation": 40, "test": 60},
            "network": {"width": 64, "layers": 4, "heads": 4, "bases": 32, "reach": _reach(2)},
            "optimisation": {"epochs": 15},
        },
        "smoke": {
            "data": {"use_every": 5, "coarsening": 2, "train": 3, "validation": 1, "test": 2},
            "network": {"width": 16, "layers": 2, "heads": 2, "bases": 4, "reach": _reach(10)},
            "optimisation": {"epochs": 3},
        },
    }

    def recipe(self) -> Recipe:
        """Solved on the benchmark's grid, some of it stored."""
        coarsening = self.data.coarsening
        return Recipe(
            self.name,
            airfoil.sample,
            {
                "wake_cells": 50 // coarsening,
                "surface_cells": 120 // coarsening,
                "normal_cells": 50 // coarsening,
                "stride": self.data.use_every,
            },
        )

    def cells(self, part: Part) -> int:  # noqa: ARG002
        """As the settings say."""
        return CELLS[0] // (self.data.coarsening * self.data.use_every)

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
