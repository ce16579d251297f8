"""Plasticity: from the shape of a die to the motion of the block that it forges.

A block of steel is squeezed by a rigid die of random shape that sinks at 3 m/s (Li et al. 2023).
The input is the height of the die above each column of the block's material grid; the output, at
each of twenty times, where the points of that grid are and how far they moved. The network takes
the time as an input and gives one frame a call.

Relative to the paper: its text has the bottom clamped, in the public files it slides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from funcattn.arrays import Array
from funcattn.data import Recipe, Sample
from funcattn.data.public_layouts import PLASTICITY
from funcattn.pde import plasticity
from funcattn.pde.plasticity_block import LENGTH
from funcattn.problem import Field, Problem
from funcattn.settings import Profile
from funcattn.tasks.base import Changes, Portrait, register_task
from funcattn.tasks.in_time import Timed
from funcattn.tasks.solved import LINE, PLANE, GridData, OnGrid
from funcattn.tasks.splitting import Part
from funcattn.tasks.symmetries import mirrored_block

CELLS = (100, 30)
"""Of the benchmark's material grid, along the block and down."""


@dataclass(frozen=True)
class PlasticityData(GridData):
    """Forged blocks."""

    train: int = 900
    validation: int = 80
    test: int = 80
    coarsening: int = 1
    """Cells of the benchmark's grid over those of the solver's, along both axes."""
    visits: int = 20
    """How often an epoch comes to each sample, at times drawn at random; 20 as in the public
    code."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.coarsening not in (1, 2, 5, 10):
            raise ValueError(
                "coarsening: expected 1, 2, 5 or 10, the common divisors of the grid's "
                f"{CELLS[0]} and {CELLS[1]} cells, got {self.coarsening}"
            )
        if self.visits < 1:
            raise ValueError(f"visits: expected at least 1, got {self.visits}")


def _reach(coarsening: int) -> tuple[float, ...]:
    """One step of a grid that is coarser than the benchmark's."""
    return tuple(coarsening / cells for cells in CELLS)


@register_task
class Plasticity(Timed[PlasticityData], OnGrid[PlasticityData]):
    """Die to motion, time by time.

    Most of a position is where the point was before, so that the error of all fields is small
    whatever is predicted, and that of the displacement says more.
    """

    name: ClassVar = "plasticity"
    title: ClassVar = "Plasticity: motion of a block forged by a die, at twenty times"
    problem = Problem(
        2,
        (Field("die height", unit="mm"),),
        (Field("position", 2, "mm"), Field("displacement", 2, "mm")),
        time=True,
        coefficients=False,
    )
    frames: ClassVar = 20
    data_settings = PlasticityData
    arrays: ClassVar = {"die": LINE, "motion": (*PLANE, "frames", "channels")}
    layout: ClassVar = PLASTICITY
    symmetries: ClassVar = {"mirrored along x": mirrored_block(LENGTH)}
    normalised: ClassVar = frozenset({"input"})
    profiles: ClassVar[Mapping[Profile, Changes]] = {
        "paper": {
            "network": {"reach": _reach(1)},
            "optimisation": {"batch": 8, "clip": 0.1, "reduction": "sum"},
        },
        "cpu": {
            "data": {"coarsening": 2, "visits": 3, "train": 300, "validation": 20, "test": 40},
            "network": {"width": 64, "layers": 4, "heads": 4, "bases": 32, "reach": _reach(2)},
            "optimisation": {"epochs": 15},
        },
        "smoke": {
            "data": {"coarsening": 10, "visits": 2, "train": 8, "validation": 2, "test": 2},
            "network": {"width": 16, "layers": 2, "heads": 2, "bases": 4, "reach": _reach(10)},
            "optimisation": {"epochs": 2, "batch": 4},
        },
    }

    def recipe(self) -> Recipe:
        """The benchmark's grid, or a coarser one."""
        along, down = (cells // self.data.coarsening + 1 for cells in CELLS)
        parameters = {"columns": along, "rows": down, "frames": self.frames}
        return Recipe(self.name, plasticity.sample, parameters)

    def cells(self, part: Part) -> int:  # noqa: ARG002
        """As the settings say."""
        return CELLS[0] // self.data.coarsening

    @property
    def grid(self) -> tuple[int, ...]:
        """Along the block, and down."""
        cells = self.cells("train")
        return (cells + 1, cells * CELLS[1] // CELLS[0] + 1)

    @property
    def visits(self) -> int:
        """As the settings say."""
        return self.data.visits

    def samples(self, fields: Mapping[str, Array]) -> Sequence[Sample]:
        """The die above each column in; places and displacements out."""
        motion = fields["motion"]
        die = np.repeat(fields["die"][:, :, None, None], motion.shape[2], axis=2)
        return self.on_grid(die, motion)

    def drawn_at(self, sample: Sample) -> Tensor:
        """On the block as it was at first."""
        return sample.target[:, 0, :2]

    def portrait(self, sample: Sample) -> Portrait:
        """The displacement, on the block as it is at last."""
        last = sample.target[:, -1]
        shown = {"displacement along x": last[:, 2], "displacement along y": last[:, 3]}
        return Portrait(last[:, :2], shown)
