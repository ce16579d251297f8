"""One case from its arrays by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from funcattn.arrays import Array
from funcattn.data.cases.case import Case, Cells, grid_weights

POSITIONS = ("positions", "points", "coordinates", "pos", "xyz", "nodes", "coords")
_CELLS = ("connectivity", "offsets", "types")
_FACES = ("face_connectivity", "face_offsets", "location_connectivity", "location_offsets")


def positions_in(file: Mapping[str, Any]) -> str | None:
    """The name of the array of positions (n, 1 to 3); None where there is none."""
    for name in POSITIONS:
        if name in file and len(file[name].shape) == 2 and 1 <= file[name].shape[1] <= 3:
            return name
    return None


def case_of(
    given: Mapping[str, Array],
    name: str,
    source: Path,
    units: Mapping[str, str] | None = None,
) -> Case:
    """A case from its arrays, as `write_case` names them; numbers without axes are parameters."""
    arrays = dict(given)
    places = positions_in(arrays)
    assert places is not None
    positions = arrays.pop(places).astype(np.float64)
    grid, times = arrays.pop("grid", None), arrays.pop("times", None)
    weights, surface = (arrays.pop(key, None) for key in ("weights", "surface"))
    cells = None
    if all(f"cells.{key}" in arrays for key in _CELLS):
        parts = {
            key: arrays.pop(f"cells.{key}").astype(np.int64)
            for key in (*_CELLS, *_FACES)
            if f"cells.{key}" in arrays
        }
        connectivity, offsets, types = (parts.pop(key) for key in _CELLS)
        cells = Cells(connectivity, offsets, types, parts)
        bound = cells.connectivity
        if bound.size and not 0 <= bound.min() <= bound.max() < len(positions):
            raise ValueError("cells with points that are not there")
        if cells.types.size and not 0 <= cells.types.min() <= cells.types.max() < 256:
            raise ValueError("cells of unknown types")
    file_positions = arrays.pop("cells.positions", None)
    cell_fields = {
        key.removeprefix("cells.field."): arrays.pop(key)
        for key in list(arrays)
        if key.startswith("cells.field.")
    }
    points = len(positions)
    parameters: dict[str, float] = {}
    fields: dict[str, Array] = {}
    categories: dict[str, Array] = {}
    for key, values in arrays.items():
        if points != 1 and values.shape in ((), (1, 1)):
            parameters[key] = float(values.reshape(()))
        elif values.ndim == 0:
            parameters[key] = float(values)
        elif values.ndim == 1 and values.dtype.kind in "iub":
            categories[key] = values.astype(np.int64)
        else:
            # MATLAB has no vectors, so that a field is a column there.
            column = source.suffix == ".mat" and values.shape == (points, 1)
            fields[key] = values[:, 0] if column else values
    lengths = None if grid is None else tuple(int(length) for length in np.ravel(grid))
    if weights is None and lengths is not None:
        weights = grid_weights(positions, lengths)
    return Case(
        name=name,
        positions=positions,
        fields=fields,
        parameters=parameters,
        categories=categories,
        times=None if times is None else np.ravel(times).astype(np.float64),
        grid=lengths,
        weights=None if weights is None else np.ravel(weights).astype(np.float64),
        surface=None if surface is None else np.ravel(surface).astype(np.float64),
        units=units or {},
        cells=cells,
        cell_fields=cell_fields,
        file_positions=file_positions,
        source=source,
    )
