"""A case written to a file, with new fields beside the old."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from funcattn.arrays import Array
from funcattn.data.cases.case import Case
from funcattn.data.foreign import FileError, write_hdf5, write_npz
from funcattn.data.vtk_xml import VtkGrid, write_grid

_VERTEX = 1


def write_case(path: str | Path, case: Case, new_fields: Mapping[str, Array] | None = None) -> None:
    """Write a case with the same points and cells; the file appears whole or not at all.

    Args:
        path: ends in .vtu, which PyVista and ParaView open; or in .npz, .h5 or .hdf5, which have
            positions (n s), the fields by name, and the cells as `cells.connectivity` and so on.
        case: what to write. Of a series, a .vtu can hold one time only: write it time by time.
        new_fields: further fields, (n) or (n c); they replace those of the same name.

    Raises:
        FileError, ValueError: the file cannot hold this case, or a field does not fit its points.
    """
    path = Path(path)
    new = {name: np.asarray(each) for name, each in (new_fields or {}).items()}
    for name, each in new.items():
        leading = (len(case),) if case.times is None else (len(case), len(case.times))
        if each.shape[: len(leading)] != leading or each.ndim > len(leading) + 1:
            raise ValueError(
                f"{name}: expected shape {leading}, or one axis more, for the points and times of "
                f"{case.name}, got {each.shape}"
            )
    fields = {**case.fields, **new}
    categories = {name: each for name, each in case.categories.items() if name not in new}
    suffix = path.suffix.lower()
    if suffix == ".vtu":
        _write_vtu(path, case, {**fields, **categories})
    elif suffix in (".npz", ".h5", ".hdf5"):
        arrays = _arrays(path, case, {**fields, **categories})
        if suffix == ".npz":
            write_npz(path, arrays)
        else:
            write_hdf5(path, arrays, units=case.units)
    else:
        raise FileError(
            path,
            "a name that ends in .vtu, .npz, .h5 or .hdf5",
            path.suffix or "no ending",
            "choose one of these",
        )


def _write_vtu(path: Path, case: Case, fields: Mapping[str, Array]) -> None:
    if case.times is not None:
        raise FileError(
            path, "one time in a .vtu", f"{len(case.times)} times", "write an .npz or .h5 file"
        )
    cells = case.cells
    numbers = np.arange(len(case))
    # A cloud has a cell at every point, so that it can be seen.
    connectivity, offsets, types = (
        (numbers, np.arange(len(case) + 1), np.full(len(case), _VERTEX, np.uint8))
        if cells is None
        else (cells.connectivity, cells.offsets, cells.types.astype(np.uint8))
    )
    in_file = case.file_positions
    missing = 3 - case.positions.shape[1]
    points = np.pad(case.positions, ((0, 0), (0, missing))) if in_file is None else in_file
    if in_file is not None:
        # The axes that the case leaves out are those along which it does not extend.
        fields = {name: _spatial(each, case, in_file) for name, each in fields.items()}
    write_grid(
        path,
        VtkGrid(
            points=np.asarray(points, np.float64),
            connectivity=connectivity,
            offsets=offsets,
            types=types,
            polyhedra={} if cells is None else cells.polyhedra,
            point_data={name: _plain(each) for name, each in fields.items()},
            cell_data={name: _plain(each) for name, each in case.cell_fields.items()},
            numbers={name: np.array([value]) for name, value in case.parameters.items()},
        ),
    )


def _spatial(field: Array, case: Case, in_file: Array) -> Array:
    """Vectors in the axes of a case as vectors in three dimensions."""
    kept = case.positions.shape[1]
    if field.ndim != 2 or field.shape[1] != kept or kept == 1 or field.dtype.kind != "f":
        return field
    places = [
        next(
            axis for axis in range(3) if np.array_equal(in_file[:, axis], case.positions[:, place])
        )
        for place in range(kept)
    ]
    vectors = np.zeros((len(field), 3), field.dtype)
    vectors[:, places] = field
    return vectors


def _plain(values: Array) -> Array:
    """In a type that VTK has."""
    if values.dtype.kind == "b":
        return values.astype(np.uint8)
    return values.astype(np.float32) if values.dtype == np.float16 else values


def _arrays(path: Path, case: Case, fields: Mapping[str, Array]) -> dict[str, Array]:
    reserved: dict[str, Array] = {"positions": case.positions}
    optional = {
        "grid": None if case.grid is None else np.array(case.grid),
        "times": case.times,
        "weights": case.weights,
        "surface": case.surface,
        "cells.positions": case.file_positions,
    }
    reserved |= {name: each for name, each in optional.items() if each is not None}
    if case.cells is not None:
        reserved |= {
            "cells.connectivity": case.cells.connectivity,
            "cells.offsets": case.cells.offsets,
            "cells.types": case.cells.types,
            **{f"cells.{name}": each for name, each in case.cells.polyhedra.items()},
            **{f"cells.field.{name}": each for name, each in case.cell_fields.items()},
        }
    given = {**fields, **{name: np.asarray(each) for name, each in case.parameters.items()}}
    if clash := sorted(name for name in given if name in reserved or "/" in name):
        raise FileError(
            path,
            "fields of other names than positions, grid, times, weights, surface, without a slash",
            ", ".join(clash),
            "rename them",
        )
    return {**reserved, **given}
