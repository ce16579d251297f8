"""Plasticity: the outline of the die, through handles along the block."""

from typing import Any, ClassVar

import numpy as np

from funcattn.arrays import Floats
from funcattn.pde import plasticity
from funcattn.pde.plasticity_block import HEIGHT, LENGTH
from funcattn.serve.drawn.base import (
    Drawing,
    Editor,
    Parameters,
    Progress,
    counted,
    only,
    register_editor,
    unit_grid,
)

KNOTS = 8
MOST = 8.0
CELLS = (100, 30)
FRAMES = 20


@register_editor
class PlasticityEditor(Editor):
    """Heights of the die at equal distances, from any level."""

    task: ClassVar = "plasticity"

    def form(self) -> dict[str, Any]:
        """Handles that move up and down."""
        return {
            "kind": "handles",
            "shape": "columns",
            "parameter": "heights",
            "at": np.linspace(0.0, LENGTH, KNOTS).tolist(),
            "min": 0.0,
            "max": MOST,
            "unit": "mm",
            "random": True,
        }

    def default(self) -> dict[str, Any]:
        """A bump in the middle."""
        return {"heights": MOST * abs(np.linspace(-1.0, 1.0, KNOTS))}

    def random(self, rng: np.random.Generator) -> dict[str, Any]:
        """Uniform heights."""
        return {"heights": rng.uniform(0.0, MOST, KNOTS)}

    def draw(self, parameters: Parameters, refine: int) -> Drawing:
        """The height of the die above each column of the block."""
        grid = self._grid(refine)
        positions = unit_grid(grid)
        profile = plasticity.die_profile(_heights(parameters))
        places = np.stack([LENGTH * positions[:, 0], HEIGHT * (1.0 - positions[:, 1])], axis=-1)
        return Drawing(positions, profile(places[:, :1]), grid=grid, places=places)

    def warm_up(self) -> None:
        """A tiny block."""
        plasticity.solve(np.zeros(2), columns=11, rows=4, frames=2)

    def solve(self, parameters: Parameters, refine: int, progress: Progress) -> dict[str, Floats]:
        """On the grid of the input."""
        columns, rows = self._grid(refine)
        motion = plasticity.solve(
            _heights(parameters), columns=columns, rows=rows, frames=FRAMES, progress=progress
        )["motion"]
        frames = motion.reshape(columns * rows, FRAMES, 4).swapaxes(0, 1)  # (t n 4)
        return {"position": frames[..., :2], "displacement": frames[..., 2:]}

    def _grid(self, refine: int) -> tuple[int, int]:
        along, down = (cells // int(self.data["coarsening"]) * refine + 1 for cells in CELLS)
        return along, down


def _heights(parameters: Parameters) -> Floats:
    only(parameters, ["heights"])
    return counted(parameters, "heights", KNOTS, -10 * MOST, 10 * MOST)
