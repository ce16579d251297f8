"""Darcy flow: from a two-valued permeability to the pressure, on a square grid.

-div(a grad u) = 1 on the unit square, u = 0 on the boundary, a = 12 or 3 by the sign of a Gaussian
random field (Li et al. 2020). Solved on a fine grid, kept on a coarser one that is nested in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from funcattn.arrays import Array
from funcattn.data import Batch, Recipe, Sample
from funcattn.data.public_files import DARCY
from funcattn.pde import darcy
from funcattn.problem import Field, Problem
from funcattn.settings import Profile
from funcattn.tasks.base import BOTH, Changes, register_task
from funcattn.tasks.losses import relative_gradient, relative_l2
from funcattn.tasks.solved import PLANE, NestedGridData, OnGrid
from funcattn.tasks.splitting import Part
from funcattn.tasks.symmetries import exchanged, mirrored


@dataclass(frozen=True)
class DarcyData(NestedGridData):
    """Darcy samples on a square grid."""

    nodes: int = 421
    use_every: int = 5
    store_every: int = 1
    """Stride along each axis of what is stored; a divisor of `use_every`."""

    old_names: ClassVar[Mapping[str, str]] = {"stride": "use_every", "keep": "store_every"}


@register_task
class Darcy(OnGrid[DarcyData]):
    """Permeability to pressure."""

    name: ClassVar = "darcy"
    title: ClassVar = "Darcy flow: permeability to pressure on a square grid"
    problem = Problem(2, (Field("permeability"),), (Field("pressure"),), coefficients=True)
    data_settings = DarcyData
    arrays: ClassVar = {"permeability": PLANE, "pressure": PLANE}
    layout: ClassVar = DARCY
    symmetries: ClassVar = {
        "mirrored along x": mirrored(0),
        "mirrored along y": mirrored(1),
        "x and y exchanged": exchanged,
    }
    normalised: ClassVar = BOTH
    profiles: ClassVar[Mapping[Profile, Changes]] = {
        "paper": {
            "network": {"share_basis": True, "lattice": 8, "reach": 1 / 84},
            "optimisation": {"clip": 0.1, "reduction": "sum"},
        },
        "cpu": {
            "data": {
                "nodes": 211,
                "use_every": 10,
                "store_every": 5,
                "train": 1000,
                "validation": 100,
                "test": 100,
            },
            "network": {"width": 64, "layers": 4, "heads": 4, "bases": 32, "reach": 1 / 21},
            "optimisation": {"epochs": 30, "batch": 8},
        },
        "smoke": {
            "data": {"nodes": 17, "use_every": 2, "train": 12, "validation": 4, "test": 4},
            "network": {"width": 16, "layers": 2, "heads": 2, "bases": 4, "reach": 1 / 8},
            "optimisation": {"epochs": 3},
        },
    }

    def recipe(self) -> Recipe:
        """Solved on all nodes, some of them stored."""
        return Recipe(
            self.name, darcy.sample, {"nodes": self.data.nodes, "keep": self.data.store_every}
        )

    def cells(self, part: Part) -> int:  # noqa: ARG002
        """As the settings say."""
        return self.data.cells // self.data.use_every

    def samples(self, fields: Mapping[str, Array]) -> Sequence[Sample]:
        """Permeability in, pressure out."""
        return self.on_grid(fields["permeability"][..., None], fields["pressure"][..., None])

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Relative L2 error, and a tenth of the gradient's."""
        assert batch.grid is not None
        return relative_l2(prediction, batch.target) + 0.1 * relative_gradient(
            prediction, batch.target, batch.grid
        )
