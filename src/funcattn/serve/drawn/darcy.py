"""Darcy: a permeability of two values, painted on squares of its own."""

from typing import Any, ClassVar

import numpy as np

from funcattn.arrays import Floats
from funcattn.pde import darcy
from funcattn.pde.random_fields import neumann_field
from funcattn.serve.drawn.base import (
    Drawing,
    Editor,
    Parameters,
    Progress,
    array,
    nested,
    only,
    register_editor,
    unit_grid,
)

SIDE = 64
LEAST, MOST = 2, 512
LOW, HIGH = 3.0, 12.0


@register_editor
class DarcyEditor(Editor):
    """The permeability at a node is that of the square it lies in."""

    task: ClassVar = "darcy"

    def form(self) -> dict[str, Any]:
        """A brush with the two values of the training set."""
        return {
            "kind": "paint",
            "parameter": "permeability",
            "shape": [SIDE, SIDE],
            "values": [LOW, HIGH],
            "random": True,
        }

    def default(self) -> dict[str, Any]:
        """A field as in the training set, always the same."""
        return self.random(np.random.default_rng(3))

    def random(self, rng: np.random.Generator) -> dict[str, Any]:
        """The sign of a random field."""
        return {"permeability": darcy.permeability(neumann_field(SIDE, rng=rng), LOW, HIGH)}

    def draw(self, parameters: Parameters, refine: int) -> Drawing:
        """The permeability at the nodes."""
        nodes = self._cells(refine) + 1
        values = _at_nodes(_painted(parameters), nodes)
        return Drawing(unit_grid((nodes, nodes)), values.reshape(-1, 1), grid=(nodes, nodes))

    def solve(self, parameters: Parameters, refine: int, progress: Progress) -> dict[str, Floats]:
        """Solved on a grid at least as fine as that of the training set."""
        cells = self._cells(refine)
        stride = nested(cells, int(self.data["nodes"]) - 1)
        fine = _at_nodes(_painted(parameters), cells * stride + 1)
        pressure = darcy.solve(fine, max_iterations=2000, progress=progress)
        return {"pressure": pressure[::stride, ::stride].ravel()}

    def _cells(self, refine: int) -> int:
        return (int(self.data["nodes"]) - 1) // int(self.data["use_every"]) * refine


def _painted(parameters: Parameters) -> Floats:
    only(parameters, ["permeability"])
    painted = array(parameters, "permeability", 2)
    if min(painted.shape) < LEAST or max(painted.shape) > MOST:
        raise ValueError(
            f"parameters, permeability: expected {LEAST} to {MOST} squares along each axis, got "
            f"{painted.shape}"
        )
    if painted.min() <= 0.0 or painted.max() > 1e4 * painted.min():
        raise ValueError(
            "parameters, permeability: expected positive numbers whose ratio is at most 10000, "
            f"got {painted.min():g} to {painted.max():g}"
        )
    return painted


def _at_nodes(painted: Floats, nodes: int) -> Floats:
    """At the nodes of the unit square; on an edge of squares, of the one above."""
    i, j = (
        np.minimum(np.arange(nodes) * count // (nodes - 1), count - 1) for count in painted.shape
    )
    return painted[np.ix_(i, j)]
