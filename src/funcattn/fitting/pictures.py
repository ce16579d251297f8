"""Pictures of people's cases."""

import io
from pathlib import Path

import numpy as np

from funcattn.arrays import Array
from funcattn.data.cases import Case, Cases
from funcattn.files import write_bytes
from funcattn.viz import Panel, Row, canvas, point_rows

MOST_FIELDS = 5


def draw_cases(path: Path, cases: Cases, count: int = 3) -> None:
    """Write a picture of the fields of some cases, spread over all of them."""
    places = np.unique(np.linspace(0, len(cases) - 1, min(count, len(cases))).astype(int))
    rows = []
    for place in places.tolist():
        try:
            case = cases[place]
        except ValueError:
            continue  # what cannot be read is told in words
        panels = [
            Panel(name, values)
            for name, values in list(_scalars(case).items())[:MOST_FIELDS]
            if np.isfinite(values).any()
        ]
        if panels:
            rows.append(
                Row(
                    case.name,
                    canvas(
                        case.positions,
                        case.grid,
                        corners=None if case.cells is None else case.cells.triangles(),
                    ),
                    panels,
                )
            )
    if not rows:
        return
    buffer = io.BytesIO()
    point_rows(rows).savefig(buffer, format="png", dpi=110, bbox_inches="tight")
    write_bytes(path, buffer.getvalue())


def _scalars(case: Case) -> dict[str, Array]:
    """One number per point of each field: its size where it is a vector, its last frame."""
    found: dict[str, Array] = {}
    for name, values in {**case.fields, **case.categories}.items():
        field = np.asarray(values, np.float64)
        if case.times is not None and name in case.fields:
            field = field[:, -1]
        if field.ndim == 2:
            found[f"|{name}|"] = np.linalg.norm(field, axis=1)
        else:
            found[name] = field
    return found
