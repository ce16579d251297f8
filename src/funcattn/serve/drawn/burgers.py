"""Burgers: the initial velocity as a curve over the circle."""

from typing import Any, ClassVar

import numpy as np
from scipy.fft import irfft, rfft

from funcattn.arrays import Floats
from funcattn.pde import burgers
from funcattn.pde.random_fields import periodic_line
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

POINTS = 64
LEAST, MOST = 3, 1024


@register_editor
class BurgersEditor(Editor):
    """The curve is the trigonometric polynomial through its values."""

    task: ClassVar = "burgers"

    def form(self) -> dict[str, Any]:
        """Values at equal distances."""
        return {
            "kind": "curve",
            "parameter": "initial",
            "points": POINTS,
            "min": -2.0,
            "max": 2.0,
            "periodic": True,
            "random": True,
        }

    def default(self) -> dict[str, Any]:
        """Two waves."""
        x = 2 * np.pi * np.arange(POINTS) / POINTS
        return {"initial": 0.8 * np.sin(x) + 0.4 * np.cos(2 * x)}

    def random(self, rng: np.random.Generator) -> dict[str, Any]:
        """A random field."""
        return {"initial": periodic_line(POINTS, rng=rng)}

    def draw(self, parameters: Parameters, refine: int) -> Drawing:
        """The velocity at the points of the grid."""
        points = self._points(refine)
        initial = _sampled(_curve(parameters), points)
        return Drawing(unit_grid((points,), periodic=True), initial[:, None], grid=(points,))

    def solve(self, parameters: Parameters, refine: int, progress: Progress) -> dict[str, Floats]:
        """Solved on a grid at least as fine as that of the training set."""
        points = self._points(refine)
        stride = nested(points, int(self.data["nodes"]))
        progress(0.0)
        final = burgers.solve(
            _sampled(_curve(parameters), points * stride),
            viscosity=float(self.data["viscosity"]),
            length=float(self.data["length"]),
        )
        return {"final velocity": final[::stride]}

    def _points(self, refine: int) -> int:
        return int(self.data["nodes"]) // int(self.data["use_every"]) * refine


def _curve(parameters: Parameters) -> Floats:
    only(parameters, ["initial"])
    curve = array(parameters, "initial", 1)
    if not LEAST <= len(curve) <= MOST:
        raise ValueError(
            f"parameters, initial: expected {LEAST} to {MOST} numbers, got {len(curve)}"
        )
    return curve


def _sampled(curve: Floats, points: int) -> Floats:
    """The polynomial at so many points, which may be fewer than it has values."""
    every = nested(points, len(curve))
    modes = rfft(curve, norm="forward")
    if len(curve) % 2 == 0 and points * every > len(curve):
        modes[-1] /= 2  # the shortest wave is a conjugate pair on more points
    fine: Floats = irfft(modes, points * every, norm="forward")
    return fine[::every]
