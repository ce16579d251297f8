"""Meshes and surfaces in the files of VTK and its relatives, read through PyVista.

PyVista runs in a process of its own, because damaged files may end it; see `funcattn.data.sandbox`.
"""

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from funcattn.arrays import Array
from funcattn.data.cases.case import Case, Cells, mesh_weights
from funcattn.data.foreign import FileError, check_file, reading
from funcattn.data.sandbox import read_apart, seconds_for

ONE_TIME = (
    *(".vtu", ".vtk", ".vtp", ".vts", ".vtr", ".vti", ".vtm", ".vtkhdf"),
    *(".pvtu", ".pvts", ".pvtr", ".stl", ".ply", ".obj", ".msh", ".inp"),
)
SERIES = (".pvd", ".series", ".xdmf", ".xmf", ".e", ".ex2", ".exo", ".exii", ".g", ".cgns", ".case")
SUFFIXES = (*ONE_TIME, *SERIES, ".foam")
_NAMING = (*SERIES, ".vtm", ".pvtu", ".pvts", ".pvtr", ".foam", "")
"""Files whose numbers may lie in other files; the last are those of OpenFOAM."""
_MOST_BESIDE = 10_000
_EXPECTED = "a mesh that PyVista reads"


def is_openfoam(path: Path) -> bool:
    """Whether a folder is an OpenFOAM case."""
    return (path / "system" / "controlDict").is_file()


def read_mesh(path: str | Path, *, series: bool | None = None, name: str | None = None) -> Case:
    """Read a mesh file, or an OpenFOAM case by its folder, with all fields on its points.

    Cell data is brought to the points by the mean over the cells around each, whole numbers by the
    largest; where point data has the same name, that is kept. Whole numbers and logicals are
    categories. Field data of one number are parameters.

    Args:
        path: the file; of OpenFOAM, the folder or its .foam file.
        series: whether to read all times of a file that has several; otherwise the last. By default
            yes, but the last of OpenFOAM, whose times often are steps towards a steady flow.
        name: of the case; by default that of the file.

    Raises:
        FileNotFoundError: there is no such file.
        FileError: it is no mesh, is damaged, or PyVista is not there.
    """
    path = Path(path)
    name = path.stem if name is None else name
    openfoam = path.suffix == ".foam" or is_openfoam(path)
    file = path
    if path.is_dir() and openfoam:
        file = path / "system" / "controlDict"
    if path.suffix == ".series":
        parts = _paraview_series(path)[0 if series is not False else -1 :]
        return read_mesh_series([each for each, _ in parts], name, [time for _, time in parts])
    if path.suffix not in SERIES and not openfoam:
        return _case(path, name, *_step(file, None))
    facts, _ = read_apart(file, "mesh_times", expected=_EXPECTED, seconds=_seconds(file))
    times: list[float] = facts["times"]
    if not times:
        return _case(path, name, *_step(file, None))
    if series is None:
        series = not openfoam
    steps = range(len(times)) if series and len(times) > 1 else range(len(times) - 1, len(times))
    return _stacked(
        path,
        name,
        [_case(path, name, *_step(file, step)) for step in steps],
        [times[step] for step in steps],
    )


def read_mesh_series(
    paths: Sequence[Path], name: str, times: Sequence[float] | None = None
) -> Case:
    """Files of one mesh at different times, in their order, as one case."""
    frames = [read_mesh(path, series=False) for path in paths]
    if times is None:
        kept = [frame.parameters.get("TimeValue") for frame in frames]
        times = [
            float(number) if each is None else each
            for number, each in enumerate(kept if None not in kept else [None] * len(kept))
        ]
    return _stacked(paths[0], name, frames, times)


def _paraview_series(path: Path) -> list[tuple[Path, float]]:
    """The files and times in ParaView's list of a series."""
    check_file(path)
    with reading(path, "ParaView's list of files and times in JSON"):
        files = json.loads(path.read_bytes())["files"]
        parts = [(path.parent / str(each["name"]), float(each["time"])) for each in files]
        if not parts:
            raise ValueError("no files")
    return parts


def _step(file: Path, step: int | None) -> tuple[dict[str, Any], dict[str, Array]]:
    return read_apart(file, "mesh_read", step, expected=_EXPECTED, seconds=_seconds(file))


def _seconds(file: Path) -> float:
    """How long reading may compute: many a file only names others, in its folder or below."""
    if file.suffix not in _NAMING:
        return seconds_for(file.stat().st_size)
    folder = file.parents[1] if file.name == "controlDict" else file.parent
    beside = itertools.islice(folder.rglob("*"), _MOST_BESIDE)
    return seconds_for(sum(each.stat().st_size for each in beside if each.is_file()))


def _case(path: Path, name: str, facts: dict[str, Any], arrays: dict[str, Array]) -> Case:
    """A case from what the reader gave."""
    positions = arrays["positions"]
    points = len(positions)
    fields: dict[str, Array] = {}
    categories: dict[str, Array] = {}
    parameters: dict[str, float] = {}
    cell_fields: dict[str, Array] = {}
    cells = weights = surface = None
    with reading(path, _EXPECTED):
        if "types" in arrays:
            cells = Cells(
                arrays["connectivity"].astype(np.int64),
                arrays["offsets"].astype(np.int64),
                arrays["types"],
                {key: arrays[key].astype(np.int64) for key in _FACES if key in arrays},
            )
            weights, surface = mesh_weights(cells, arrays, points)
        for key, values in arrays.items():
            kind, _, label = key.partition(":")
            if kind == "cell":
                cell_fields[label] = values
            elif kind == "number" and values.size == 1:
                parameters[label] = float(values.reshape(()))
        for kind in ("cell", "point"):  # point data comes last and wins
            for key, values in arrays.items():
                label = key.removeprefix(f"{kind}:")
                if label == key:
                    continue
                at_points = cells.to_points(values, points) if kind == "cell" and cells else values
                fields.pop(label, None)
                categories.pop(label, None)
                if at_points.ndim == 1 and at_points.dtype.kind in "iub":
                    categories[label] = at_points.astype(np.int64)
                else:
                    fields[label] = at_points
        grid = tuple(facts["grid"]) if facts["grid"] else None
        return Case(
            name=name,
            positions=positions.astype(np.float64),
            fields=fields,
            parameters=parameters,
            categories=categories,
            grid=grid,
            weights=weights,
            surface=surface,
            units=facts["units"],
            cells=cells,
            cell_fields=cell_fields,
            source=path,
        )


_FACES = ("face_connectivity", "face_offsets", "location_connectivity", "location_offsets")


def _stacked(path: Path, name: str, frames: list[Case], times: Sequence[float]) -> Case:
    """One case from its frames, which have to be on one mesh; a single one is no series."""
    first = frames[0]
    if len(frames) == 1:
        return replace(first, name=name, source=path)
    for frame, time in zip(frames, times, strict=True):
        if frame.positions.shape != first.positions.shape or not np.array_equal(
            frame.positions, first.positions
        ):
            raise FileError(
                path,
                "one mesh at all times",
                f"other points at time {time}",
                "give the files as cases of their own, or interpolate them to one mesh",
            )
        if frame.fields.keys() != first.fields.keys():
            raise FileError(
                path,
                f"the fields {', '.join(first.fields)} at all times",
                f"{', '.join(frame.fields)} at time {time}",
                "write the same fields at all times",
            )
    if np.diff(times).min() <= 0:
        raise FileError(path, "rising times", str(list(times)[:20]), "put them in order")
    with reading(path, "fields of one shape at all times"):
        fields = {
            label: np.stack([frame.fields[label] for frame in frames], axis=1)
            for label in first.fields
        }
    parameters = {label: value for label, value in first.parameters.items() if label != "TimeValue"}
    return replace(
        first,
        name=name,
        source=path,
        fields=fields,
        parameters=parameters,
        cell_fields={},
        times=np.asarray(times, np.float64),
    )
