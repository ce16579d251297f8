"""AirfRANS: a NACA airfoil of four or five digits, its Reynolds number and incidence."""

from typing import Any, ClassVar

import numpy as np
from scipy.spatial import Delaunay

from funcattn.arrays import Array, Floats
from funcattn.pde import panel
from funcattn.pde.airfrans import Design, draw_design, outline
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

PANELS = 200
SLIDERS: tuple[dict[str, Any], ...] = (
    {"name": "family", "label": "digits", "choices": [4, 5], "default": 4, "unit": None},
    slider("camber", "first digit: camber, or design lift", 0.0, 7.0, 2.0),
    slider("position", "second digit: where the camber is largest", 0.0, 8.0, 4.0),
    {"name": "reflex", "label": "tail turned up", "choices": [0, 1], "default": 0, "unit": None},
    slider("thickness", "thickness", 5.0, 20.0, 12.0, "% of the chord"),
    slider("reynolds", "Reynolds number", 2e6, 6e6, 4e6),
    slider("incidence", "incidence", -5.0, 15.0, 4.0, "degrees"),
)
DEFAULT: dict[str, Any] = {each["name"]: each["default"] for each in SLIDERS}


@register_editor
class AirfransEditor(Editor):
    """The points are scattered as in the training set of panels, always in the same way."""

    task: ClassVar = "airfrans"
    view: ClassVar = (-0.5, -0.7, 1.5, 0.7)

    @property
    def solver(self) -> bool:
        """The panel method, where the training set is its."""
        return self.data["source"] == "panel" and self.data.get("path") is None

    def form(self) -> dict[str, Any]:
        """Sliders and two choices."""
        return {"kind": "sliders", "sliders": [dict(each) for each in SLIDERS], "random": True}

    def default(self) -> dict[str, Any]:
        """NACA 2412."""
        return dict(DEFAULT)

    def random(self, rng: np.random.Generator) -> dict[str, Any]:
        """As the benchmark draws them."""
        drawn = draw_design(rng)
        first, position, reflex, thickness = drawn.digits.tolist()
        return {
            "family": drawn.family,
            "camber": first,
            "position": position,
            "reflex": int(reflex),
            "thickness": thickness,
            "reynolds": drawn.reynolds,
            "incidence": drawn.incidence,
        }

    def draw(self, parameters: Parameters, refine: int) -> Drawing:
        """The points, the stream, the distance to the airfoil and its normal."""
        design = _design(parameters)
        features = self._case(design, refine)["features"]
        positions = features[:, :2]
        return Drawing(positions, features, triangles=_triangles(design, positions))

    def solve(self, parameters: Parameters, refine: int, progress: Progress) -> dict[str, Floats]:
        """By panels."""
        progress(0.0)
        target = self._case(_design(parameters), refine)["target"]
        return {
            "velocity": target[:, :2],
            "pressure over density": target[:, 2],
            "eddy viscosity": target[:, 3],
        }

    def _case(self, design: Design, refine: int) -> dict[str, Any]:
        points = int(self.data["field_points"]) * refine**2
        return panel.case(design, panels=PANELS, field_points=points, rng=np.random.default_rng(0))


def _design(parameters: Parameters) -> Design:
    only(parameters, list(DEFAULT))
    found = {name: number(parameters, name, float(default)) for name, default in DEFAULT.items()}
    if found["family"] not in (4, 5) or found["reflex"] not in (0, 1):
        raise ValueError("parameters: expected family 4 or 5 and reflex 0 or 1, got others")
    if not (1e4 <= found["reynolds"] <= 1e8 and abs(found["incidence"]) <= 45.0):
        raise ValueError(
            "parameters: expected a Reynolds number from 1e4 to 1e8 and an incidence of at most "
            f"45 degrees, got {found['reynolds']:g} and {found['incidence']:g}"
        )
    digits = [found[name] for name in ("camber", "position", "reflex", "thickness")]
    return Design(found["reynolds"], found["incidence"], int(found["family"]), np.array(digits))


def _triangles(design: Design, positions: Floats) -> Array:
    """Delaunay's, without those inside the airfoil."""
    found = Delaunay(positions).simplices
    middle = positions[found].mean(axis=1)
    outside = panel.signed_distance(outline(design, panels=PANELS), middle) > 0.0
    return found[outside]
