"""Navier-Stokes in two dimensions: ten frames of vorticity to the next ten.

w_t + u . grad w = nu Laplace w + f on the periodic unit square, nu = 1e-5, from a random field (Li
et al. 2020); a frame a unit of time. The network gives one frame after another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from funcattn.data import Batch, Recipe, Sample
from funcattn.data.public_files import NAVIER_STOKES
from funcattn.pde import navier_stokes
from funcattn.settings import (
    NetworkSettings,
    OptimisationSettings,
    Preset,
    Profile,
    RunSettings,
)
from funcattn.tasks.base import modern
from funcattn.tasks.in_time import Autoregressive
from funcattn.tasks.losses import relative_l2
from funcattn.tasks.solved import Array, GridData, Part, Solved, on_grid


@dataclass(frozen=True)
class NavierStokesData(GridData):
    """Flows solved on `nodes` points an axis; `keep` are stored, every `stride`-th of them used."""

    nodes: int = 256
    keep: int = 64
    stride: int = 1
    viscosity: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stride < 1 or self.keep % self.stride:
            raise ValueError(f"stride: expected a divisor of keep = {self.keep}, got {self.stride}")


@dataclass(frozen=True)
class NavierStokesSettings(RunSettings):
    """A run of Navier-Stokes."""

    data: NavierStokesData = field(default_factory=NavierStokesData)


class NavierStokes(Autoregressive, Solved):
    """Vorticity to vorticity, frame by frame."""

    name: ClassVar = "navier_stokes"
    title: ClassVar = "Navier-Stokes: ten frames of vorticity to the next ten"
    space: ClassVar = 2
    inputs: ClassVar = 10
    outputs: ClassVar = 1
    frames: ClassVar = 10
    periodic: ClassVar = True
    headline: ClassVar = "relative_l2"
    picture: ClassVar[Literal["grid", "line", "cloud", "frames"]] = "frames"
    layout: ClassVar = NAVIER_STOKES

    @classmethod
    def defaults(cls, profile: Profile, preset: Preset) -> NavierStokesSettings:
        """The paper's settings, smaller ones for two cores, and tiny ones for tests."""
        settings = NavierStokesSettings(
            task=cls.name,
            network=NetworkSettings(width=256, bases=32, lattice=8, reach=1 / 64),
            optimisation=OptimisationSettings(batch=2, clip=0.1, reduction="sum"),
        )
        if profile == "cpu":
            settings = replace(
                settings,
                data=NavierStokesData(nodes=128, keep=32, train=200, validation=20, test=40),
                network=NetworkSettings(width=48, layers=4, heads=4, bases=24, reach=1 / 32),
                optimisation=replace(settings.optimisation, epochs=12, batch=4),
            )
        if profile == "smoke":
            settings = replace(
                settings,
                data=NavierStokesData(nodes=16, keep=8, train=4, validation=2, test=2),
                network=NetworkSettings(width=16, layers=2, heads=2, bases=4, reach=1 / 8),
                optimisation=replace(settings.optimisation, epochs=2),
            )
        return modern(settings) if preset == "modern" else settings

    def recipe(self) -> Recipe:
        """Solved on all nodes, some of them stored, for twenty units of time."""
        how = self.settings.data
        assert isinstance(how, NavierStokesData)
        return Recipe(
            self.name,
            navier_stokes.sample,
            {
                "points": how.nodes,
                "keep": how.keep,
                "frames": self.inputs + self.frames,
                "viscosity": how.viscosity,
            },
        )

    def cells(self, part: Part) -> int:  # noqa: ARG002
        """As the settings say."""
        how = self.settings.data
        assert isinstance(how, NavierStokesData)
        return how.keep // how.stride

    def samples(self, fields: Mapping[str, Array]) -> Sequence[Sample]:
        """The first frames in, the others out, as channels."""
        frames = np.ascontiguousarray(np.moveaxis(fields["vorticity"], 1, -1))
        return on_grid(self, frames[..., : self.inputs], frames[..., self.inputs :])

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Relative L2 error of each frame, a mean over the frames."""
        errors = [
            relative_l2(prediction[..., t : t + 1], batch.target[..., t : t + 1])
            for t in range(prediction.shape[-1])
        ]
        return sum(errors[1:], start=errors[0]) / len(errors)

    def metrics(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Relative L2 error over all frames together, and of the last one."""
        return {
            "relative_l2": relative_l2(prediction, batch.target),
            "relative_l2_last_frame": relative_l2(prediction[..., -1:], batch.target[..., -1:]),
        }
