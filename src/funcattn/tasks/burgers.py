"""Burgers' equation: from the velocity at time 0 to the velocity at time 1, on a circle.

u_t + u u_x = 0.1 u_xx on the periodic unit interval, u(., 0) a Gaussian random field (Li et al.
2020). Trained on a coarse grid and tested on a fine one: the paper's super-resolution.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from torch import Tensor

from funcattn.data import Batch, Recipe, Sample
from funcattn.data.public_files import BURGERS
from funcattn.pde import burgers
from funcattn.settings import (
    NetworkSettings,
    OptimisationSettings,
    Preset,
    Profile,
    RunSettings,
)
from funcattn.tasks.base import modern
from funcattn.tasks.losses import relative_l2, relative_periodic_derivative
from funcattn.tasks.solved import Array, GridData, Part, Solved, on_grid


@dataclass(frozen=True)
class BurgersData(GridData):
    """Burgers samples on `nodes` points; every `stride`-th of them trains and validates."""

    train: int = 1024
    test: int = 100
    nodes: int = 8192
    stride: int = 4
    test_stride: int = 1
    viscosity: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("stride", "test_stride"):
            got = getattr(self, name)
            if got < 1 or self.nodes % got:
                raise ValueError(f"{name}: expected a divisor of nodes = {self.nodes}, got {got}")


@dataclass(frozen=True)
class BurgersSettings(RunSettings):
    """A run of Burgers' equation."""

    data: BurgersData = field(default_factory=BurgersData)


class Burgers(Solved):
    """Velocity to velocity, one unit of time later."""

    name: ClassVar = "burgers"
    title: ClassVar = "Burgers' equation: velocity at time 0 to time 1, tested on a finer grid"
    space: ClassVar = 1
    inputs: ClassVar = 1
    outputs: ClassVar = 1
    periodic: ClassVar = True
    headline: ClassVar = "relative_l2"
    normalised: ClassVar[frozenset[Literal["input", "output"]]] = frozenset({"input", "output"})
    picture: ClassVar[Literal["grid", "line", "cloud", "frames"]] = "line"
    layout: ClassVar = BURGERS

    @classmethod
    def defaults(cls, profile: Profile, preset: Preset) -> BurgersSettings:
        """The paper's settings, smaller ones for two cores, and tiny ones for tests.

        Relative to the paper: its public code ends this one network in two spectral convolutions
        and leaves out layer norms; ours is the network of all other tasks, with its width, layers,
        head and bases. It normalises nothing; the output here is about 0.03, so both sides are.
        """
        settings = BurgersSettings(
            task=cls.name,
            network=NetworkSettings(
                width=92, layers=4, heads=1, bases=64, mlp_ratio=200 / 92, ridge=0.88
            ),
            optimisation=OptimisationSettings(
                optimiser="adam",
                epochs=100,
                batch=8,
                weight_decay=0.0,
                start_divisor=1e4,
                end_divisor=1.0,
            ),
        )
        if profile == "cpu":
            settings = replace(
                settings,
                data=BurgersData(nodes=1024, train=1000, validation=100, test=100),
                network=NetworkSettings(width=64, layers=4, heads=4, bases=32, reach=1 / 64),
                optimisation=replace(settings.optimisation, epochs=40),
            )
        if profile == "smoke":
            settings = replace(
                settings,
                data=BurgersData(nodes=128, train=12, validation=4, test=4),
                network=NetworkSettings(width=16, layers=2, heads=2, bases=4, reach=1 / 16),
                optimisation=replace(settings.optimisation, epochs=3),
            )
        return modern(settings) if preset == "modern" else settings

    def recipe(self) -> Recipe:
        """Solved and stored on all nodes."""
        how = self.settings.data
        assert isinstance(how, BurgersData)
        return Recipe(self.name, burgers.sample, {"points": how.nodes, "viscosity": how.viscosity})

    def cells(self, part: Part) -> int:
        """More for the test."""
        how = self.settings.data
        assert isinstance(how, BurgersData)
        return how.nodes // (how.test_stride if part == "test" else how.stride)

    def samples(self, fields: Mapping[str, Array]) -> Sequence[Sample]:
        """Initial velocity in, final velocity out."""
        return on_grid(self, fields["initial"][..., None], fields["final"][..., None])

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Relative L2 error, and a tenth of the derivative's."""
        return relative_l2(prediction, batch.target) + 0.1 * relative_periodic_derivative(
            prediction, batch.target
        )

    def metrics(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Relative L2 error."""
        return {"relative_l2": relative_l2(prediction, batch.target)}
