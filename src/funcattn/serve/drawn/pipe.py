"""Pipe: the centre line of the channel, through handles along it."""

from typing import Any, ClassVar

import numpy as np

from funcattn.arrays import Floats
from funcattn.pde import pipe
from funcattn.serve.drawn.base import (
    Drawing,
    Editor,
    Parameters,
    Progress,
    counted,
    nested,
    only,
    register_editor,
    unit_grid,
)

KNOTS = np.linspace(0.0, pipe.LENGTH, pipe.PIECES + 1)


@register_editor
class PipeEditor(Editor):
    """Heights at four knots, and slopes at five; without slopes, the line is smooth."""

    task: ClassVar = "pipe"

    def form(self) -> dict[str, Any]:
        """Handles that move up and down; the channel begins at height 0."""
        slopes = {"parameter": "slopes", "at": KNOTS.tolist(), "min": -1.0, "max": 1.0, "count": 5}
        return {
            "kind": "handles",
            "shape": "columns",
            "parameter": "heights",
            "at": KNOTS[1:].tolist(),
            "min": -1.0,
            "max": 1.0,
            "more": [slopes],
            "random": True,
        }

    def default(self) -> dict[str, Any]:
        """A wave."""
        return {"heights": np.array([0.6, -0.6, 0.6, 0.0])}

    def random(self, rng: np.random.Generator) -> dict[str, Any]:
        """Uniform heights and slopes."""
        return {"heights": rng.uniform(-1, 1, 4), "slopes": rng.uniform(-1, 1, 5)}

    def draw(self, parameters: Parameters, refine: int) -> Drawing:
        """Where the points of the grid lie."""
        x, y, _, stride = self._channel(parameters, refine)
        places = np.stack([x, y], axis=-1)[::stride, ::stride]
        grid = (len(places), len(places))
        places = places.reshape(-1, 2)
        return Drawing(unit_grid(grid), places, grid=grid, places=places)

    def solve(self, parameters: Parameters, refine: int, progress: Progress) -> dict[str, Floats]:
        """Solved on a grid at least as fine as that of the training set."""
        x, y, start, stride = self._channel(parameters, refine)
        flow = pipe.solve(x, y, start, progress=progress)
        return {"velocity along x": flow.velocity[0, ::stride, ::stride].ravel()}

    def _channel(self, parameters: Parameters, refine: int) -> tuple[Floats, Floats, Floats, int]:
        """Nodes and start of the solve, and the stride of the points that are asked for."""
        fine = int(self.data["nodes"]) - 1
        cells = fine // int(self.data["use_every"]) * refine
        stride = nested(cells, fine)
        stride += cells * stride % 2  # elements have three nodes along each side
        x, y, start = pipe.channel(_design(parameters), cells * stride + 1)
        return x, y, start, stride


def _design(parameters: Parameters) -> Floats:
    only(parameters, ["heights", "slopes"])
    heights = counted(parameters, "heights", pipe.PIECES, -5.0, 5.0)
    if "slopes" in parameters:
        return np.concatenate([heights, counted(parameters, "slopes", len(KNOTS), -5.0, 5.0)])
    # Level at both ends, and towards the neighbours between them.
    line = np.concatenate([[0.0], heights])
    slopes = np.zeros(len(KNOTS))
    slopes[1:-1] = (line[2:] - line[:-2]) / (KNOTS[2:] - KNOTS[:-2])
    return np.concatenate([heights, slopes])
