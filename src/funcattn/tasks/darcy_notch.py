"""Darcy flow in a triangle with a notch: from boundary values to the pressure.

-Laplace(u) = 10 in a triangle without a thin notch, u given on the outer edges as a function of x,
u = 0 on the notch (Tripura and Chakraborty 2022). Fields are images of the unit square: beyond the
triangle, which is more than half of it, stands the value of the nearest node, and counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from funcattn.arrays import Array
from funcattn.data import Batch, Recipe, Sample
from funcattn.data.public_files import DARCY_NOTCH
from funcattn.pde import darcy_notch
from funcattn.problem import Field, Problem
from funcattn.settings import Profile
from funcattn.tasks.base import BOTH, Changes, register_task
from funcattn.tasks.losses import relative_l2
from funcattn.tasks.solved import LINE, NestedGridData, OnGrid
from funcattn.tasks.splitting import Part
from funcattn.tasks.symmetries import mirrored


@dataclass(frozen=True)
class DarcyNotchData(NestedGridData):
    """Samples on the grid of the unit square."""

    train: int = 1800
    validation: int = 100
    test: int = 100
    nodes: int = 101
    use_every: int = 2


@register_task
class DarcyNotch(OnGrid[DarcyNotchData]):
    """Boundary values to pressure.

    Relative to the paper: of the 1900 training samples the last 100 validate. It does not say what
    this network shares, clips or sees of its positions; here it is as in Darcy flow.
    """

    name: ClassVar = "darcy_notch"
    title: ClassVar = "Darcy flow in a triangle with a notch: boundary values to pressure"
    problem = Problem(2, (Field("boundary pressure"),), (Field("pressure"),), coefficients=False)
    data_settings = DarcyNotchData
    arrays: ClassVar = {"boundary": LINE, "solution": ("y", "x")}
    layout: ClassVar = DARCY_NOTCH
    symmetries: ClassVar = {"mirrored along x": mirrored(0)}
    normalised: ClassVar = BOTH
    profiles: ClassVar[Mapping[Profile, Changes]] = {
        "paper": {
            "network": {"share_basis": True, "reach": 1 / 50},
            "optimisation": {"batch": 25, "clip": 0.1, "reduction": "sum"},
        },
        "cpu": {
            "data": {"use_every": 4, "train": 1000},
            "network": {"width": 64, "layers": 4, "heads": 4, "bases": 32, "reach": 1 / 25},
            "optimisation": {"epochs": 20, "batch": 8},
        },
        "smoke": {
            "data": {"nodes": 41, "use_every": 4, "train": 12, "validation": 4, "test": 4},
            "network": {"width": 16, "layers": 2, "heads": 2, "bases": 4, "reach": 1 / 10},
            "optimisation": {"epochs": 3, "batch": 4},
        },
    }

    def recipe(self) -> Recipe:
        """Solved on one mesh, stored on all nodes of the square."""
        return Recipe(self.name, darcy_notch.sample, {"nodes": self.data.nodes})

    def cells(self, part: Part) -> int:  # noqa: ARG002
        """As the settings say."""
        return self.data.cells // self.data.use_every

    def samples(self, fields: Mapping[str, Array]) -> Sequence[Sample]:
        """Boundary values in, at every y; pressure out. The first axis is x, in files it is y."""
        solution = np.ascontiguousarray(fields["solution"].swapaxes(1, 2))
        boundary = np.repeat(fields["boundary"][:, :, None], solution.shape[2], axis=2)
        return self.on_grid(boundary[..., None], solution[..., None])

    def metrics(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Relative L2 error over the whole square, as in the paper, and inside the domain alone."""
        assert batch.grid is not None
        inside = torch.from_numpy(darcy_notch.inside(batch.grid[0]).T.copy()).flatten()
        inside = inside.to(prediction.device).expand(len(batch), -1)
        return {
            "relative_l2": relative_l2(prediction, batch.target),
            "relative_l2_inside": relative_l2(prediction, batch.target, inside),
        }
