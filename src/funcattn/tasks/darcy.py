"""Darcy flow: from a two-valued permeability to the pressure, on a square grid.

-div(a grad u) = 1 on the unit square, u = 0 on the boundary, a = 12 or 3 by the sign of a Gaussian
random field (Li et al. 2020). Solved on a fine grid, kept on a coarser one that is nested in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from torch import Tensor

from funcattn.data import Batch, Recipe, Sample
from funcattn.data.public_files import DARCY
from funcattn.pde import darcy
from funcattn.settings import (
    NetworkSettings,
    OptimisationSettings,
    Preset,
    Profile,
    RunSettings,
)
from funcattn.tasks.base import modern
from funcattn.tasks.losses import relative_gradient, relative_l2
from funcattn.tasks.solved import Array, GridData, Part, Solved, on_grid


@dataclass(frozen=True)
class DarcyData(GridData):
    """Darcy samples: solved on `nodes` points an axis, every `stride`-th of them used."""

    nodes: int = 421
    stride: int = 5
    keep: int = 1
    """Every so-many-th node is stored; a divisor of the stride."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stride < 1 or (self.nodes - 1) % self.stride:
            raise ValueError(
                f"stride: expected a divisor of nodes - 1 = {self.nodes - 1}, so that the coarse "
                f"grid is nested in the fine one, got {self.stride}"
            )
        if self.keep < 1 or self.stride % self.keep:
            raise ValueError(
                f"keep: expected a divisor of the stride, {self.stride}, got {self.keep}"
            )


@dataclass(frozen=True)
class DarcySettings(RunSettings):
    """A run of Darcy flow."""

    data: DarcyData = field(default_factory=DarcyData)


class Darcy(Solved):
    """Permeability to pressure."""

    name: ClassVar = "darcy"
    title: ClassVar = "Darcy flow: permeability to pressure on a square grid"
    space: ClassVar = 2
    inputs: ClassVar = 1
    outputs: ClassVar = 1
    headline: ClassVar = "relative_l2"
    normalised: ClassVar[frozenset[Literal["input", "output"]]] = frozenset({"input", "output"})
    picture: ClassVar[Literal["grid", "line", "cloud", "frames"]] = "grid"
    layout: ClassVar = DARCY

    @classmethod
    def defaults(cls, profile: Profile, preset: Preset) -> DarcySettings:
        """The paper's settings, smaller ones for two cores, and tiny ones for tests."""
        settings = DarcySettings(
            task=cls.name,
            network=NetworkSettings(share_basis=True, lattice=8, reach=1 / 84),
            optimisation=OptimisationSettings(clip=0.1, reduction="sum"),
        )
        if profile == "cpu":
            settings = replace(
                settings,
                data=DarcyData(nodes=211, stride=10, keep=5, train=1000, validation=100, test=100),
                network=NetworkSettings(width=64, layers=4, heads=4, bases=32, reach=1 / 21),
                optimisation=replace(settings.optimisation, epochs=30, batch=8),
            )
        if profile == "smoke":
            settings = replace(
                settings,
                data=DarcyData(nodes=17, stride=2, train=12, validation=4, test=4),
                network=NetworkSettings(width=16, layers=2, heads=2, bases=4, reach=1 / 8),
                optimisation=replace(settings.optimisation, epochs=3),
            )
        return modern(settings) if preset == "modern" else settings

    def recipe(self) -> Recipe:
        """Solved on all nodes, some of them stored."""
        how = self.settings.data
        assert isinstance(how, DarcyData)
        return Recipe(self.name, darcy.sample, {"nodes": how.nodes, "keep": how.keep})

    def cells(self, part: Part) -> int:  # noqa: ARG002
        """As the settings say."""
        how = self.settings.data
        assert isinstance(how, DarcyData)
        return (how.nodes - 1) // how.stride

    def samples(self, fields: Mapping[str, Array]) -> Sequence[Sample]:
        """Permeability in, pressure out."""
        return on_grid(self, fields["permeability"][..., None], fields["pressure"][..., None])

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Relative L2 error, and a tenth of the gradient's."""
        assert batch.grid is not None
        return relative_l2(prediction, batch.target) + 0.1 * relative_gradient(
            prediction, batch.target, batch.grid
        )

    def metrics(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Relative L2 error."""
        return {"relative_l2": relative_l2(prediction, batch.target)}
