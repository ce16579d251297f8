"""Navier-Stokes in two dimensions: ten frames of vorticity to the next ten.

w_t + u . grad w = nu Laplace w + f on the periodic unit square, nu = 1e-5, from a random field (Li
et al. 2020); a frame a unit of time. The network gives one frame after another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from funcattn.arrays import Array
from funcattn.data import Batch, Recipe, Sample
from funcattn.data.public_files import NAVIER_STOKES
from funcattn.pde import navier_stokes
from funcattn.problem import Field, Problem
from funcattn.settings import Profile
from funcattn.tasks.base import Changes, register_task
from funcattn.tasks.in_time import Autoregressive
from funcattn.tasks.losses import relative_l2
from funcattn.tasks.solved import PLANE, NestedGridData, OnGrid
from funcattn.tasks.splitting import Part
from funcattn.tasks.symmetries import reversed_vorticity, shifted


@dataclass(frozen=True)
class NavierStokesData(NestedGridData):
    """Flows on the periodic square."""

    nodes: int = 256
    use_every: int = 4
    store_every: int = 4
    """Stride along each axis of what is stored; a divisor of `use_every`."""
    viscosity: float = 1e-5

    periodic: ClassVar = True
    old_names: ClassVar[Mapping[str, str]] = {"stride": "use_every", "keep": "store_every"}

    def from_old_names(self, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Changes of these settings that may use old names, by today's.

        `keep` was the number of nodes per axis that are stored, `stride` counted in those.
        """
        if not {"keep", "stride"} & changes.keys():
            return changes
        changes = dict(changes)
        nodes, kept = changes.get("nodes", self.nodes), changes.pop("keep", None)
        stored = self.store_every if kept is None else nodes // max(1, kept)
        if kept is not None and stored * kept != nodes:
            raise ValueError(f"keep: expected a divisor of nodes = {nodes}, got {kept}")
        stride = changes.pop("stride", self.use_every // self.store_every)
        return changes | {"store_every": stored, "use_every": stored * stride}


@register_task
class NavierStokes(Autoregressive[NavierStokesData], OnGrid[NavierStokesData]):
    """Vorticity to vorticity, frame by frame."""

    name: ClassVar = "navier_stokes"
    title: ClassVar = "Navier-Stokes: ten frames of vorticity to the next ten"
    problem = Problem(2, (Field("vorticity", 10),), (Field("vorticity"),), periodic=True)
    frames: ClassVar = 10
    data_settings = NavierStokesData
    arrays: ClassVar = {"vorticity": ("frames", *PLANE)}
    layout: ClassVar = NAVIER_STOKES
    # The force sin(2 pi (x + y)) + cos(2 pi (x + y)) stays where it is.
    symmetries: ClassVar = {
        "shifted along the diagonal": shifted({0: 1, 1: -1}),
        "x and y exchanged, half a period, with the other sign": reversed_vorticity,
    }
    profiles: ClassVar[Mapping[Profile, Changes]] = {
        "paper": {
            "network": {"width": 256, "bases": 32, "lattice": 8, "reach": 1 / 64},
            "optimisation": {"batch": 2, "clip": 0.1, "reduction": "sum"},
        },
        "cpu": {
            "data": {"nodes": 128, "train": 200, "validation": 20, "test": 40},
            "network": {"width": 48, "layers": 4, "heads": 4, "bases": 24, "reach": 1 / 32},
            "optimisation": {"epochs": 12, "batch": 4},
        },
        "smoke": {
            "data": {
                "nodes": 16,
                "use_every": 2,
                "store_every": 2,
                "train": 4,
                "validation": 2,
                "test": 2,
            },
            "network": {"width": 16, "layers": 2, "heads": 2, "bases": 4, "reach": 1 / 8},
            "optimisation": {"epochs": 2},
        },
    }

    def recipe(self) -> Recipe:
        """Solved on all nodes, some of them stored, for twenty units of time."""
        return Recipe(
            self.name,
            navier_stokes.sample,
            {
                "points": self.data.nodes,
                "keep": self.data.nodes // self.data.store_every,
                "frames": self.problem.input_channels + self.frames,
                "viscosity": self.data.viscosity,
            },
        )

    def cells(self, part: Part) -> int:  # noqa: ARG002
        """As the settings say."""
        return self.data.cells // self.data.use_every

    def samples(self, fields: Mapping[str, Array]) -> Sequence[Sample]:
        """The first frames in, the others out, as channels."""
        frames = np.ascontiguousarray(np.moveaxis(fields["vorticity"], 1, -1))
        given = self.problem.input_channels
        return self.on_grid(frames[..., :given], frames[..., given:])

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
