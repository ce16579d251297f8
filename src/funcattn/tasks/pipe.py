"""Pipe: from the shape of a channel to the velocity along it.

Steady Navier-Stokes equations at Reynolds number 50 in a channel of width 1 whose centre line winds
at random (Li et al. 2023). The network is given the grid of the unit square as positions, and where
its points lie in the plane as values, as in the paper's public code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from funcattn.data import Batch, Recipe, Sample
from funcattn.data.public_layouts import PIPE
from funcattn.pde import pipe
from funcattn.settings import (
    NetworkSettings,
    OptimisationSettings,
    Preset,
    Profile,
    RunSettings,
)
from funcattn.tasks.base import Portrait, modern
from funcattn.tasks.losses import relative_l2
from funcattn.tasks.solved import Array, GridData, Part, Solved, on_grid


@dataclass(frozen=True)
class PipeData(GridData):
    """Flows solved on `nodes` points an axis, of which every `stride`-th is kept."""

    nodes: int = 129
    stride: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stride < 1 or (self.nodes - 1) % self.stride:
            raise ValueError(
                f"stride: expected a divisor of nodes - 1 = {self.nodes - 1}, so that both walls "
                f"and both ends are kept, got {self.stride}"
            )


@dataclass(frozen=True)
class PipeSettings(RunSettings):
    """A run of Pipe."""

    data: PipeData = field(default_factory=PipeData)


class Pipe(Solved):
    """Points of the grid to the velocity along x."""

    name: ClassVar = "pipe"
    title: ClassVar = "Pipe: velocity in a winding channel, on a grid that follows it"
    space: ClassVar = 2
    inputs: ClassVar = 2
    outputs: ClassVar = 1
    headline: ClassVar = "relative_l2"
    picture: ClassVar[Literal["grid", "line", "cloud", "frames"]] = "grid"
    layout: ClassVar = PIPE

    @classmethod
    def defaults(cls, profile: Profile, preset: Preset) -> PipeSettings:
        """The paper's settings, smaller ones for two cores, and tiny ones for tests."""
        settings = PipeSettings(
            task=cls.name,
            network=NetworkSettings(reach=1 / 128),
            optimisation=OptimisationSettings(clip=1.0, reduction="sum"),
        )
        if profile == "cpu":
            settings = replace(
                settings,
                data=PipeData(stride=4, train=500, validation=50, test=100),
                network=NetworkSettings(width=64, layers=4, heads=4, bases=32, reach=1 / 32),
                optimisation=replace(settings.optimisation, epochs=25),
            )
        if profile == "smoke":
            settings = replace(
                settings,
                data=PipeData(nodes=17, stride=2, train=12, validation=4, test=4),
                network=NetworkSettings(width=16, layers=2, heads=2, bases=4, reach=1 / 8),
                optimisation=replace(settings.optimisation, epochs=3),
            )
        return modern(settings) if preset == "modern" else settings

    def recipe(self) -> Recipe:
        """Solved on all nodes, some of them stored."""
        how = self.settings.data
        assert isinstance(how, PipeData)
        return Recipe(self.name, pipe.sample, {"nodes": how.nodes, "stride": how.stride})

    def cells(self, part: Part) -> int:  # noqa: ARG002
        """As the settings say."""
        how = self.settings.data
        assert isinstance(how, PipeData)
        return (how.nodes - 1) // how.stride

    def samples(self, fields: Mapping[str, Array]) -> Sequence[Sample]:
        """Points in, velocity along x out."""
        places = np.stack([fields["x"], fields["y"]], axis=-1)
        return on_grid(self, places, fields["flow"][:, 0, ..., None])

    def drawn_at(self, sample: Sample) -> Tensor:
        """In the plane."""
        assert sample.values is not None
        return sample.values

    def portrait(self, sample: Sample) -> Portrait:
        """The output alone: the input is where the points are."""
        return Portrait(self.drawn_at(sample), {"velocity along x": sample.target[:, 0]})

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Relative L2 error."""
        return relative_l2(prediction, batch.target)

    def metrics(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Relative L2 error."""
        return {"relative_l2": relative_l2(prediction, batch.target)}
