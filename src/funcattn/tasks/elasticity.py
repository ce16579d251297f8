"""Elasticity: from the shape of a void to the stress in the sheet around it, on a point cloud.

A square sheet of an incompressible rubber-like solid, clamped below and pulled up at its top, with
a void of random shape in its middle (Li et al. 2023). The points are those in which the finite
elements of the solve know the stress; the input is where they lie, the output von Mises' stress.

Relative to the paper: its text and table speak of displacement; the public files, and the numbers
that everybody compares, are of stress.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from funcattn.data import Batch, Recipe, Sample, StackedSamples
from funcattn.data.public_layouts import ELASTICITY
from funcattn.pde import elasticity
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


class Elasticity(Solved):
    """Points to stress."""

    name: ClassVar = "elasticity"
    title: ClassVar = "Elasticity: stress round a void of random shape, on 972 points"
    space: ClassVar = 2
    inputs: ClassVar = 0
    outputs: ClassVar = 1
    headline: ClassVar = "relative_l2"
    normalised: ClassVar[frozenset[Literal["input", "output"]]] = frozenset({"output"})
    picture: ClassVar[Literal["grid", "line", "cloud", "frames"]] = "cloud"
    layout: ClassVar = ELASTICITY

    @classmethod
    def defaults(cls, profile: Profile, preset: Preset) -> RunSettings:
        """The paper's settings, smaller ones for two cores, and tiny ones for tests."""
        settings = RunSettings(
            task=cls.name,
            network=NetworkSettings(
                mlp_ratio=2.0, share_basis=True, ridge=float(torch.tensor(1e-3).sigmoid())
            ),
            optimisation=OptimisationSettings(batch=1, warm_up=0.1, reduction="sum"),
        )
        if profile == "cpu":
            settings = replace(
                settings,
                data=DataSettings(train=1000, validation=100, test=200),
                network=NetworkSettings(width=64, layers=4, heads=4, bases=32, mlp_ratio=2.0),
                optimisation=replace(settings.optimisation, epochs=30, batch=4),
            )
        if profile == "smoke":
            settings = replace(
                settings,
                data=DataSettings(train=12, validation=4, test=4),
                network=NetworkSettings(width=32, layers=2, heads=2, bases=8),
                optimisation=replace(settings.optimisation, epochs=3, batch=4),
            )
        return modern(settings) if preset == "modern" else settings

    def recipe(self) -> Recipe:
        """The mesh of the benchmark in every profile: it costs next to nothing."""
        return Recipe(self.name, elasticity.sample, {})

    def cells(self, part: Part) -> None:
        """Points without a grid."""

    @property
    def points(self) -> int:
        """Those of the benchmark's mesh."""
        return 972

    def samples(self, fields: Mapping[str, Array]) -> Sequence[Sample]:
        """Points in, stress out."""
        return StackedSamples(fields["points"], None, fields["stress"][..., None])

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Relative L2 error."""
        return relative_l2(prediction, batch.target)

    def metrics(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Relative L2 error."""
        return {"relative_l2": relative_l2(prediction, batch.target)}
