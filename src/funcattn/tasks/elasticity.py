"""Elasticity: from the shape of a void to the stress in the sheet around it, on a point cloud.

A square sheet of an incompressible rubber-like solid, clamped below and pulled up at its top, with
a void of random shape in its middle (Li et al. 2023). The points are those in which the finite
elements of the solve know the stress; the input is where they lie, the output von Mises' stress.

Relative to the paper: its text and table speak of displacement; the public files, and the numbers
that everybody compares, are of stress.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch

from funcattn.arrays import Array
from funcattn.data import Recipe, Sample, StackedSamples
from funcattn.data.public_layouts import ELASTICITY
from funcattn.pde import elasticity
from funcattn.problem import Field, Problem
from funcattn.settings import DataSettings, Profile
from funcattn.tasks.base import Changes, register_task
from funcattn.tasks.solved import Solved
from funcattn.tasks.splitting import Part
from funcattn.tasks.symmetries import mirrored_points


@register_task
class Elasticity(Solved[DataSettings]):
    """Points to stress."""

    name: ClassVar = "elasticity"
    title: ClassVar = "Elasticity: stress round a void of random shape, on 972 points"
    problem = Problem(2, (), (Field("von Mises stress"),), points=972)
    arrays: ClassVar = {"points": ("points", "coordinates"), "stress": ("points",)}
    layout: ClassVar = ELASTICITY
    symmetries: ClassVar = {"mirrored along x": mirrored_points(0, 0.5)}
    normalised: ClassVar = frozenset({"output"})
    profiles: ClassVar[Mapping[Profile, Changes]] = {
        "paper": {
            "network": {
                "mlp_ratio": 2.0,
                "share_basis": True,
                "ridge": float(torch.tensor(1e-3).sigmoid()),
            },
            "optimisation": {"batch": 1, "warm_up": 0.1, "reduction": "sum"},
        },
        "cpu": {
            "data": {"train": 1000, "validation": 100, "test": 200},
            "network": {"width": 64, "layers": 4, "heads": 4, "bases": 32, "mlp_ratio": 2.0},
            "optimisation": {"epochs": 30, "batch": 4},
        },
        "smoke": {
            "data": {"train": 12, "validation": 4, "test": 4},
            "network": {"width": 32, "layers": 2, "heads": 2, "bases": 8},
            "optimisation": {"epochs": 3, "batch": 4},
        },
    }

    def recipe(self) -> Recipe:
        """The mesh of the benchmark in every profile: it costs next to nothing."""
        return Recipe(self.name, elasticity.sample, {})

    def cells(self, part: Part) -> None:
        """Points without a grid."""

    @property
    def points(self) -> int | None:
        """Those of the benchmark's mesh."""
        return type(self).problem.points

    def samples(self, fields: Mapping[str, Array]) -> Sequence[Sample]:
        """Points in, stress out."""
        return StackedSamples(fields["points"], None, fields["stress"][..., None])
