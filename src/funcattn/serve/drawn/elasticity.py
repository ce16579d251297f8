"""Elasticity: the outline of the void, through handles around it."""

from typing import Any, ClassVar

import numpy as np

from funcattn.arrays import Array, Floats
from funcattn.pde import elasticity
from funcattn.pde.elasticity_mesh import void_mesh, void_radius, void_through
from funcattn.serve.drawn.base import (
    Drawing,
    Editor,
    Parameters,
    Progress,
    counted,
    only,
    register_editor,
)

HANDLES = 11
"""As many as determine a mean and the five waves of the training set."""
ANGLES = 2 * np.pi * np.arange(HANDLES) / HANDLES
LOW, HIGH = 0.2, 0.4
AROUND, RADIAL = 36, 3


@register_editor
class ElasticityEditor(Editor):
    """The radius of the void at equal angles."""

    task: ClassVar = "elasticity"

    def form(self) -> dict[str, Any]:
        """Handles on rays from the centre."""
        return {
            "kind": "handles",
            "shape": "polar",
            "parameter": "radii",
            "centre": [0.5, 0.5],
            "angles": ANGLES.tolist(),
            "min": LOW,
            "max": HIGH,
            "random": True,
        }

    def default(self) -> dict[str, Any]:
        """A round void."""
        return {"radii": np.full(HANDLES, 0.3)}

    def random(self, rng: np.random.Generator) -> dict[str, Any]:
        """Five random waves."""
        return {"radii": void_radius(rng.standard_normal(HANDLES - 1), ANGLES)}

    def draw(self, parameters: Parameters, refine: int) -> Drawing:
        """The points in which the elements of the solve know the stress."""
        around, radial = AROUND * refine, RADIAL * refine
        mesh = void_mesh(void_through(_radii(parameters)), around=around, radial=radial)
        points = elasticity.evaluate(*mesh).points.reshape(-1, 2)
        return Drawing(points, triangles=_triangles(around, radial))

    def solve(self, parameters: Parameters, refine: int, progress: Progress) -> dict[str, Floats]:
        """On the mesh of the input."""
        progress(0.0)
        sheet = elasticity.solve(
            void_through(_radii(parameters)), around=AROUND * refine, radial=RADIAL * refine
        )
        return {"von Mises stress": sheet["stress"]}


def _radii(parameters: Parameters) -> Floats:
    only(parameters, ["radii"])
    return counted(parameters, "radii", HANDLES, LOW, HIGH)


def _triangles(around: int, radial: int) -> Array:
    """The Gauss points as rings, joined by triangles."""
    numbers = np.arange(around * radial * 9).reshape(around, radial, 3, 3)
    # (around, radial, outwards, along) -> (along the ring, outwards)
    rings = numbers.transpose(0, 3, 1, 2).reshape(3 * around, 3 * radial)
    here, there = rings[:, :-1], rings[:, 1:]
    beside, across = np.roll(here, -1, axis=0), np.roll(there, -1, axis=0)
    corners = [(here, there, across), (here, across, beside)]
    return np.concatenate([np.stack(each, axis=-1).reshape(-1, 3) for each in corners])
