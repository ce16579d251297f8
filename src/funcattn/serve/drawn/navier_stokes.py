"""Navier-Stokes: vortices that are stirred into a fluid at rest."""

from typing import Any, ClassVar

import numpy as np

from funcattn.arrays import Floats
from funcattn.pde import navier_stokes
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

GIVEN, SOUGHT = 10, 10
"""Frames, one per unit of time."""
MOST = 32
STRENGTH = 1.5
THIN, WIDE = 0.04, 0.25


@register_editor
class NavierStokesEditor(Editor):
    """The network is given ten frames, which the solver makes from the vortices at time 0."""

    task: ClassVar = "navier_stokes"

    def form(self) -> dict[str, Any]:
        """Vortices by place, strength and radius."""
        return {
            "kind": "stir",
            "parameter": "vortices",
            "max_count": MOST,
            "strength": [-STRENGTH, STRENGTH],
            "radius": [THIN, WIDE],
            "random": True,
        }

    def default(self) -> dict[str, Any]:
        """A pair."""
        return {"vortices": np.array([[0.35, 0.5, 1.0, 0.12], [0.65, 0.5, -1.0, 0.12]])}

    def random(self, rng: np.random.Generator) -> dict[str, Any]:
        """Some of both signs."""
        count = 12
        places = rng.uniform(0.0, 1.0, (count, 2))
        strength = rng.uniform(-STRENGTH / 2, STRENGTH / 2, (count, 1))
        return {"vortices": np.hstack([places, strength, rng.uniform(0.08, 0.2, (count, 1))])}

    def draw(self, parameters: Parameters, refine: int) -> Drawing:
        """The frames before those that are sought."""
        points = self._points(refine)
        frames = self._frames(parameters, refine, GIVEN)
        values = frames.reshape(GIVEN, -1).T
        return Drawing(unit_grid((points, points), periodic=True), values, grid=(points, points))

    def solve(self, parameters: Parameters, refine: int, progress: Progress) -> dict[str, Floats]:
        """The frames that follow."""
        frames = self._frames(parameters, refine, GIVEN + SOUGHT, progress)[GIVEN:]
        return {"vorticity": frames.reshape(SOUGHT, -1)}

    def _points(self, refine: int) -> int:
        return int(self.data["nodes"]) // int(self.data["use_every"]) * refine

    def _frames(
        self, parameters: Parameters, refine: int, count: int, progress: Progress | None = None
    ) -> Floats:
        points = self._points(refine)
        stride = nested(points, int(self.data["nodes"]))
        fine = points * stride
        frames = navier_stokes.solve(
            _stirred(_vortices(parameters), fine),
            navier_stokes.diagonal_forcing(fine),
            viscosity=float(self.data["viscosity"]),
            times=[float(t) for t in range(1, count + 1)],
            max_steps=20_000,
            progress=progress,
        )
        return frames[:, ::stride, ::stride]


def _vortices(parameters: Parameters) -> Floats:
    only(parameters, ["vortices"])
    vortices = array(parameters, "vortices", 2)
    if vortices.shape[1] != 4 or len(vortices) > MOST:
        raise ValueError(
            f"parameters, vortices: expected up to {MOST} rows x, y, strength, radius, got shape "
            f"{vortices.shape}"
        )
    radius, strength = vortices[:, 3], vortices[:, 2]
    if radius.min() < THIN or radius.max() > WIDE or abs(strength).max() > 10 * STRENGTH:
        raise ValueError(
            f"parameters, vortices: expected radii from {THIN} to {WIDE} and strengths up to "
            f"{10 * STRENGTH}, got {radius.min():g} to {radius.max():g} and up to "
            f"{abs(strength).max():g}"
        )
    return vortices


def _stirred(vortices: Floats, points: int) -> Floats:
    """Bells on the periodic square, with mean zero."""
    x = np.arange(points) / points
    total = np.zeros((points, points))
    for u, v, strength, radius in vortices:
        bells = []
        for centre in (u, v):
            away = (x - centre + 0.5) % 1.0 - 0.5
            images = away[:, None] + np.array([-1.0, 0.0, 1.0])
            bells.append(np.exp(-0.5 * (images / radius) ** 2).sum(axis=1))
        total += strength * np.outer(*bells)
    return total - total.mean()
