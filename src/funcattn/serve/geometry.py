"""Where the points of an answer are, and what is drawn between them."""

from dataclasses import fields
from typing import Any

import numpy as np

from funcattn.arrays import Array
from funcattn.data.cases import Case
from funcattn.data.cases.case import Cells
from funcattn.serve.drawn import Drawing

_FACES = {
    5: ((0, 1, 2),),
    9: ((0, 1, 2), (0, 2, 3)),
    10: ((0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)),
}
"""Triangles of VTK's triangle, quadrilateral and tetrahedron, by corners."""


def of_drawing(drawing: Drawing) -> dict[str, Any]:
    """A drawing as part of a reply."""
    found = {each.name: getattr(drawing, each.name) for each in fields(drawing)}
    grid = found.pop("grid")
    return {
        **{name: array for name, array in found.items() if array is not None},
        "grid": None if grid is None else list(grid),
    }


def of_case(case: Case) -> dict[str, Any]:
    """A mesh of one's own as part of a reply."""
    found = {
        "positions": case.positions,
        "grid": None if case.grid is None else list(case.grid),
    }
    between = None if case.cells is None else triangles(case.cells)
    return found | ({"triangles": between} if between is not None and len(between) else {})


def triangles(cells: Cells) -> Array:
    """(k 3): what is drawn of cells: plane ones, and the outside of tetrahedra."""
    starts = cells.offsets[:-1]
    found = [np.empty((0, 3), np.int32)]
    for kind, faces in _FACES.items():
        corners = starts[cells.types == kind][:, None, None] + np.array(faces)
        some = np.asarray(cells.connectivity)[corners].reshape(-1, 3)
        if kind == 10 and len(some):
            # A face between two tetrahedra is not seen.
            _, first, count = np.unique(
                np.sort(some, axis=1), axis=0, return_index=True, return_counts=True
            )
            some = some[first[count == 1]]
        found.append(some)
    return np.concatenate(found).astype(np.int32)
