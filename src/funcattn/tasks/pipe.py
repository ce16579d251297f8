"""Pipe: from the shape of a channel to the velocity along it.

Steady Navier-Stokes equations at Reynolds number 50 in a channel of width 1 whose centre line winds
at random (Li et al. 2023). The network is given the grid of the unit square as positions, and where
its points lie in the plane as values, as in the paper's public code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from funcattn.arrays import Array
from funcattn.data import Recipe, Sample
from funcattn.data.public_layouts import PIPE
from funcattn.pde import pipe
from funcattn.problem import Field, Problem
from funcattn.settings import Profile
from funcattn.tasks.base import Changes, Portrait, register_task
from funcattn.tasks.solved import PLANE, NestedGridData, OnGrid
from funcattn.tasks.splitting import Part
from funcattn.tasks.symmetries import mirrored_channel


@dataclass(frozen=True)
class PipeData(NestedGridData):
    """Flows on a grid that follows the channel; the nodes that are used are those stored."""

    nodes: int = 129


@register_task
class Pipe(OnGrid[PipeData]):
    """Points of the grid to the velocity along x."""

    name: ClassVar = "pipe"
    title: ClassVar = "Pipe: velocity in a winding channel, on a grid that follows it"
    problem = Problem(2, (Field("place", 2),), (Field("velocity along x"),), coefficients=False)
    data_settings = PipeData
    arrays: ClassVar = {"x": PLANE, "y": PLANE, "flow": ("channels", *PLANE)}
    layout: ClassVar = PIPE
    symmetries: ClassVar = {"upside down": mirrored_channel}
    profiles: ClassVar[Mapping[Profile, Changes]] = {
        "paper": {
            "network": {"reach": 1 / 128},
            "optimisation": {"clip": 1.0, "reduction": "sum"},
        },
        "cpu": {
            "data": {"use_every": 4, "train": 500, "validation": 50, "test": 100},
            "network": {"width": 64, "layers": 4, "heads": 4, "bases": 32, "reach": 1 / 32},
            "optimisation": {"epochs": 25},
        },
        "smoke": {
            "data": {"nodes": 17, "use_every": 2, "train": 12, "validation": 4, "test": 4},
            "network": {"width": 16, "layers": 2, "heads": 2, "bases": 4, "reach": 1 / 8},
            "optimisation": {"epochs": 3},
        },
    }

    def recipe(self) -> Recipe:
        """Solved on all nodes, some of them stored."""
        parameters = {"nodes": self.data.nodes, "stride": self.data.use_every}
        return Recipe(self.name, pipe.sample, parameters)

    def cells(self, part: Part) -> int:  # noqa: ARG002
        """As the settings say."""
        return self.data.cells // self.data.use_every

    def samples(self, fields: Mapping[str, Array]) -> Sequence[Sample]:
        """Points in, velocity along x out."""
        places = np.stack([fields["x"], fields["y"]], axis=-1)
        return self.on_grid(places, fields["flow"][:, 0, ..., None])

    def drawn_at(self, sample: Sample) -> Tensor:
        """In the plane."""
        assert sample.values is not None
        return sample.values

    def portrait(self, sample: Sample) -> Portrait:
        """The output alone: the input is where the points are."""
        return Portrait(self.drawn_at(sample), {"velocity along x": sample.target[:, 0]})
