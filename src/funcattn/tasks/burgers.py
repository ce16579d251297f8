"""Burgers' equation: from the velocity at time 0 to the velocity at time 1, on a circle.

u_t + u u_x = 0.1 u_xx on a circle of length 2 pi, u(., 0) a Gaussian random field (Li et al.
2020); positions are fractions of the circle. Trained on a coarse grid and tested on a fine one: the
paper's super-resolution.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from funcattn.arrays import Array
from funcattn.data import Batch, Recipe, Sample
from funcattn.data.public_files import BURGERS
from funcattn.pde import burgers
from funcattn.problem import Field, Problem
from funcattn.settings import Profile
from funcattn.tasks.base import BOTH, Changes, register_task
from funcattn.tasks.losses import relative_l2, relative_periodic_derivative
from funcattn.tasks.solved import LINE, NestedGridData, OnGrid
from funcattn.tasks.splitting import Part
from funcattn.tasks.symmetries import reversed_circle, shifted


@dataclass(frozen=True)
class BurgersData(NestedGridData):
    """Burgers samples on a circle."""

    train: int = 1024
    test: int = 100
    nodes: int = 8192
    use_every: int = 4
    """Stride in training and validation: 2 uses every second node."""
    test_every: int = 1
    """The same in the test."""
    viscosity: float = 0.1
    length: float = 2 * math.pi
    """Of the circle. With 1, the set of earlier versions, the answer is nearly one sine."""

    periodic: ClassVar = True
    old_names: ClassVar[Mapping[str, str]] = {"stride": "use_every", "test_stride": "test_every"}
    before: ClassVar[Mapping[str, Any]] = {"length": 1.0}


@register_task
class Burgers(OnGrid[BurgersData]):
    """Velocity to velocity, one unit of time later.

    Relative to the paper: its public code ends this one network in two spectral convolutions and
    leaves out layer norms; ours is the network of all other tasks, with its width, layers, head and
    bases. It normalises nothing; here both sides are.
    """

    name: ClassVar = "burgers"
    title: ClassVar = "Burgers' equation: velocity at time 0 to time 1, tested on a finer grid"
    problem = Problem(1, (Field("initial velocity"),), (Field("final velocity"),), periodic=True)
    data_settings = BurgersData
    arrays: ClassVar = {"initial": LINE, "final": LINE}
    layout: ClassVar = BURGERS
    symmetries: ClassVar = {
        "shifted": shifted({0: 1}),
        "mirrored, with the other sign": reversed_circle,
    }
    normalised: ClassVar = BOTH
    profiles: ClassVar[Mapping[Profile, Changes]] = {
        "paper": {
            "network": {
                "width": 92,
                "layers": 4,
                "heads": 1,
                "bases": 64,
                "mlp_ratio": 200 / 92,
                "ridge": 0.88,
            },
            "optimisation": {
                "optimiser": "adam",
                "epochs": 100,
                "batch": 8,
                "weight_decay": 0.0,
                "start_divisor": 1e4,
                "end_divisor": 1.0,
            },
        },
        "cpu": {
            "data": {"nodes": 1024, "train": 1000, "validation": 100, "test": 100},
            "network": {"width": 64, "layers": 4, "heads": 4, "bases": 32, "reach": 1 / 64},
            "optimisation": {"epochs": 40},
        },
        "smoke": {
            "data": {"nodes": 128, "train": 12, "validation": 4, "test": 4},
            "network": {"width": 16, "layers": 2, "heads": 2, "bases": 4, "reach": 1 / 16},
            "optimisation": {"epochs": 3},
        },
    }

    def recipe(self) -> Recipe:
        """Solved and stored on all nodes."""
        data = self.data
        law = {"points": data.nodes, "viscosity": data.viscosity, "length": data.length}
        return Recipe(self.name, burgers.sample, law, version=2)

    def cells(self, part: Part) -> int:
        """More for the test."""
        every = self.data.test_every if part == "test" else self.data.use_every
        return self.data.cells // every

    def samples(self, fields: Mapping[str, Array]) -> Sequence[Sample]:
        """Initial velocity in, final velocity out."""
        return self.on_grid(fields["initial"][..., None], fields["final"][..., None])

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Relative L2 error, and a tenth of the derivative's."""
        return relative_l2(prediction, batch.target) + 0.1 * relative_periodic_derivative(
            prediction, batch.target
        )
