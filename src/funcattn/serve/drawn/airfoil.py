"""Airfoil: a NACA 0012, bent by seven numbers."""

import math
from typing import Any, ClassVar

import numpy as np

from funcattn.arrays import Floats
from funcattn.pde import airfoil
from funcattn.pde.airfoil_mesh import HALF_HEIGHT, c_grid
from funcattn.serve.drawn.base import (
    Drawing,
    Editor,
    Parameters,
    Progress,
    number,
    only,
    register_editor,
    slider,
)

AMPLITUDE = 0.05
CELLS = {"wake_cells": 50, "surface_cells": 120, "normal_cells": 50}
SLIDERS = {
    "lower_front": "lower side, quarter of the chord",
    "lower_rear": "lower side, three quarters of the chord",
    "lower_tail": "lower side, behind the tail",
    "upper_tail": "upper side, behind the tail",
    "upper_rear": "upper side, three quarters of the chord",
    "upper_front": "upper side, quarter of the chord",
    "upper_nose": "upper side, before the nose",
}
"""In the order of the design, whose first number is 0."""


@register_editor
class AirfoilEditor(Editor):
    """How far the stations of a box around the airfoil move up."""

    task: ClassVar = "airfoil"
    view: ClassVar = (-0.6, -0.9, 1.6, 0.9)

    def form(self) -> dict[str, Any]:
        """Seven sliders."""
        sliders = [
            slider(name, label, -AMPLITUDE, AMPLITUDE, 0.0, "chord")
            for name, label in SLIDERS.items()
        ]
        return {"kind": "sliders", "sliders": sliders, "random": True}

    def default(self) -> dict[str, Any]:
        """The airfoil as it was."""
        return dict.fromkeys(SLIDERS, 0.0)

    def random(self, rng: np.random.Generator) -> dict[str, Any]:
        """Uniform numbers."""
        return dict(
            zip(SLIDERS, rng.uniform(-AMPLITUDE, AMPLITUDE, len(SLIDERS)).tolist(), strict=True)
        )

    def draw(self, parameters: Parameters, refine: int) -> Drawing:
        """The points of the C-grid."""
        cells, stride = self._cells(refine)
        x, y = c_grid(_design(parameters), **cells)
        places = np.stack([x, y], axis=-1)[::stride, ::stride]
        return Drawing(places.reshape(-1, 2), grid=places.shape[:2])

    def warm_up(self) -> None:
        """A tiny grid."""
        small = {"wake_cells": 8, "surface_cells": 24, "normal_cells": 8}
        airfoil.solve(*c_grid(np.zeros(8), **small), wake_cells=8)

    def solve(self, parameters: Parameters, refine: int, progress: Progress) -> dict[str, Floats]:
        """On the grid of the training set, or a finer one."""
        cells, stride = self._cells(refine)
        x, y = c_grid(_design(parameters), **cells)
        found = airfoil.solve(x, y, wake_cells=cells["wake_cells"], progress=progress)
        return {"Mach number": found.flow[4, ::stride, ::stride].ravel()}

    def _cells(self, refine: int) -> tuple[dict[str, int], int]:
        """Cells of the solve, and the stride of the points that are asked for."""
        every = int(self.data["use_every"])
        common = math.gcd(every, refine)
        finer, coarser = refine // common, int(self.data["coarsening"])
        return {name: count // coarser * finer for name, count in CELLS.items()}, every // common


def _design(parameters: Parameters) -> Floats:
    only(parameters, list(SLIDERS))
    design = np.array([0.0, *(number(parameters, name, 0.0) for name in SLIDERS)])
    if abs(design).max() >= HALF_HEIGHT:
        raise ValueError(
            f"parameters: expected numbers between {-HALF_HEIGHT} and {HALF_HEIGHT}, which do not "
            f"turn the airfoil inside out, got up to {abs(design).max():g}"
        )
    return design
