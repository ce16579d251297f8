"""Darcy flow in a triangle with a notch: from boundary values to the pressure.

-Laplace(u) = 10 in a triangle without a thin notch, u given on the outer edges as a function of x,
u = 0 on the notch (Tripura and Chakraborty 2022). Fields are images of the unit square: beyond the
triangle, which is more than half of it, stands the value of the nearest node, and counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from funcattn.data import Batch, Recipe, Sample
from funcattn.data.public_files import DARCY_NOTCH
from funcattn.pde import darcy_notch
from funcattn.settings import (
    NetworkSettings,
    OptimisationSettings,
    Preset,
    Profile,
    RunSettings,
)
from funcattn.tasks.base import modern
from funcattn.tasks.losses import relative_l2
from funcattn.tasks.solved import Array, GridData, Part, Solved, on_grid


@dataclass(frozen=True)
class DarcyNotchData(GridData):
    """Samples on `nodes` points an axis of the unit square, every `stride`-th of them used."""

    train: int = 1800
    validation: int = 100
    test: int = 100
    nodes: int = 101
    stride: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stride < 1 or (self.nodes - 1) % self.stride:
            raise ValueError(
                f"stride: expected a divisor of nodes - 1 = {self.nodes - 1}, got {self.stride}"
            )


@dataclass(frozen=True)
class DarcyNotchSettings(RunSettings):
    """A run of Darcy flow with a notch."""

    data: DarcyNotchData = field(default_factory=DarcyNotchData)


class DarcyNotch(Solved):
    """Boundary values to pressure."""

    name: ClassVar = "darcy_notch"
    title: ClassVar = "Darcy flow in a triangle with a notch: boundary values to pressure"
    space: ClassVar = 2
    inputs: ClassVar = 1
    outputs: ClassVar = 1
    headline: ClassVar = "relative_l2"
    normalised: ClassVar[frozenset[Literal["input", "output"]]] = frozenset({"input", "output"})
    picture: ClassVar[Literal["grid", "line", "cloud", "frames"]] = "grid"
    layout: ClassVar = DARCY_NOTCH

    @classmethod
    def defaults(cls, profile: Profile, preset: Preset) -> DarcyNotchSettings:
        """The paper's settings, smaller ones for two cores, and tiny ones for tests.

        Relative to the paper: of the 1900 training samples the last 100 validate. It does not say
        what this network shares, clips or sees of its positions; here it is as in Darcy flow.
        """
        settings = DarcyNotchSettings(
            task=cls.name,
            network=NetworkSettings(share_basis=True, reach=1 / 50),
            optimisation=OptimisationSettings(batch=25, clip=0.1, reduction="sum"),
        )
        if profile == "cpu":
            settings = replace(
                settings,
                data=DarcyNotchData(stride=4, train=1000),
                network=NetworkSettings(width=64, layers=4, heads=4, bases=32, reach=1 / 25),
                optimisation=replace(settings.optimisation, epochs=20, batch=8),
            )
        if profile == "smoke":
            settings = replace(
                settings,
                data=DarcyNotchData(nodes=41, stride=4, train=12, validation=4, test=4),
                network=NetworkSettings(width=16, layers=2, heads=2, bases=4, reach=1 / 10),
                optimisation=replace(settings.optimisation, epochs=3, batch=4),
            )
        return modern(settings) if preset == "modern" else settings

    def recipe(self) -> Recipe:
        """Solved on one mesh, stored on all nodes of the square."""
        how = self.settings.data
        assert isinstance(how, DarcyNotchData)
        return Recipe(self.name, darcy_notch.sample, {"nodes": how.nodes})

    def cells(self, part: Part) -> int:  # noqa: ARG002
        """As the settings say."""
        how = self.settings.data
        assert isinstance(how, DarcyNotchData)
        return (how.nodes - 1) // how.stride

    def samples(self, fields: Mapping[str, Array]) -> Sequence[Sample]:
        """Boundary values in, at every y; pressure out. The first axis is x, in files it is y."""
        solution = np.ascontiguousarray(fields["solution"].swapaxes(1, 2))
        boundary = np.repeat(fields["boundary"][:, :, None], solution.shape[2], axis=2)
        return on_grid(self, boundary[..., None], solution[..., None])

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Relative L2 error over the whole square."""
        return relative_l2(prediction, batch.target)

    def metrics(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Relative L2 error over the whole square, as in the paper, and inside the domain alone."""
        assert batch.grid is not None
        inside = torch.from_numpy(darcy_notch.inside(batch.grid[0]).T.copy()).flatten()
        inside = inside.to(prediction.device).expand(len(batch), -1)
        return {
            "relative_l2": relative_l2(prediction, batch.target),
            "relative_l2_inside": relative_l2(prediction, batch.target, inside),
        }
