"""What the arrays of a file are: one case, many cases, or a collection of the field's own.

one case    `positions` (n s), fields (n) or (n c), numbers without axes; what `write_case` writes
stacked     arrays (N ...) of N cases, as `from_arrays` takes them
PDEBench    `tensor` or fields (N t x ...), with `x-coordinate`, `t-coordinate`; or a group per case
the_well    groups t0_fields, t1_fields, t2_fields (N t x ...), dimensions, scalars
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from funcattn.arrays import Array
from funcattn.data.cases.array_files import ArrayFile, open_arrays
from funcattn.data.cases.case import Case, Cells, grid_weights
from funcattn.data.cases.collection import Cases
from funcattn.data.cases.from_arrays import from_arrays
from funcattn.data.foreign import FileError, reading

POSITIONS = ("positions", "points", "coordinates", "pos", "xyz", "nodes", "coords")
_CELLS = ("connectivity", "offsets", "types")
_FACES = ("face_connectivity", "face_offsets", "location_connectivity", "location_offsets")
_PDEBENCH_AXES = ("x-coordinate", "y-coordinate", "z-coordinate")


def cases_in(path: str | Path, inputs: Sequence[str] = (), outputs: Sequence[str] = ()) -> Cases:
    """The cases in a file of arrays.

    Args:
        path: the file.
        inputs: names of arrays that go in, where there are others too.
        outputs: names of arrays that come out, where there are others too.

    Raises:
        FileNotFoundError: there is no such file.
        FileError: it cannot be read, or its arrays fit no layout.
    """
    path = Path(path)
    file = open_arrays(path)
    for fits, cases in _LAYOUTS:
        if fits(file):
            with reading(
                path, "arrays that fit together", "say by inputs and outputs which to use"
            ):
                return cases(file, inputs, outputs)
    raise FileError(
        path,
        "arrays of one case with positions (n, 1 to 3), or arrays that all begin with the cases",
        ", ".join(f"{name} {each.shape}" for name, each in list(file.items())[:20]) or "none",
        "see the documentation of own data, or convert it by funcattn.data.cases.from_arrays",
    )


def _positions(file: Mapping[str, Any]) -> str | None:
    """The array of positions of a file with one case."""
    for name in POSITIONS:
        if name in file and len(file[name].shape) == 2 and 1 <= file[name].shape[1] <= 3:
            return name
    return None


def _is_case(file: ArrayFile) -> bool:
    name = _positions(file)
    if name is None:
        return False
    points = file[name].shape[0]
    others = [
        each
        for key, each in file.items()
        if key not in (name, "times", "grid") and not key.startswith("cells.")
    ]
    return all(each.ndim == 0 or each.shape[0] == points or each.shape == (1, 1) for each in others)


def _one_case(file: ArrayFile, inputs: Sequence[str], outputs: Sequence[str]) -> Cases:
    def make(index: int) -> Case:
        del index
        with reading(file.path, "arrays of one case"):
            return _read_case(file)

    return Cases([file.path.stem], make, inputs=inputs, outputs=outputs)


def _read_case(file: ArrayFile) -> Case:
    arrays = {name: np.asarray(file.read(name)) for name in file}
    name = _positions(file)
    assert name is not None
    positions = arrays.pop(name).astype(np.float64)
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
            column = file.path.suffix == ".mat" and values.shape == (points, 1)
            fields[key] = values[:, 0] if column else values
    lengths = None if grid is None else tuple(int(length) for length in np.ravel(grid))
    if weights is None and lengths is not None:
        weights = grid_weights(positions, lengths)
    return Case(
        name=file.path.stem,
        positions=positions,
        fields=fields,
        parameters=parameters,
        categories=categories,
        times=None if times is None else np.ravel(times).astype(np.float64),
        grid=lengths,
        weights=None if weights is None else np.ravel(weights).astype(np.float64),
        surface=None if surface is None else np.ravel(surface).astype(np.float64),
        units=file.units(),
        cells=cells,
        cell_fields=cell_fields,
        file_positions=file_positions,
        source=file.path,
    )


def _is_stacked(file: ArrayFile) -> bool:
    return bool(file)


def _stacked(file: ArrayFile, inputs: Sequence[str], outputs: Sequence[str]) -> Cases:
    """Rows of arrays; without names, all that have the commonest number of rows are inputs."""
    arrays = {
        name: each for name, each in file.items() if each.ndim and name not in ("times", "grid")
    }
    position = next((name for name in POSITIONS if name in arrays), None)
    positions = None if position is None else arrays.pop(position)
    wanted = [*inputs, *outputs]
    for name in wanted:
        if name not in arrays:
            raise FileError(
                file.path, f"the array {name}", ", ".join(arrays) or "none", "name one of these"
            )
    if not wanted:
        rows = [each.shape[0] for each in arrays.values()]
        usual = max(set(rows), key=rows.count) if rows else 0
        arrays = {name: each for name, each in arrays.items() if each.shape[0] == usual}
    # MATLAB's columns are numbers per case.
    given = {
        name: np.ravel(each) if 1 in each.shape and each.ndim == 2 else each
        for name, each in arrays.items()
        if not wanted or name in wanted
    }
    grid = [int(length) for length in np.ravel(file["grid"])] if "grid" in file else None
    cases = from_arrays(
        {name: each for name, each in given.items() if name not in outputs} or None,
        {name: given[name] for name in outputs} or None,
        positions=positions,
        grid=grid,
        times=np.ravel(file["times"]) if "times" in file else None,
    )
    named = [f"{file.path.stem}_{number}" for number in range(len(cases))]
    return Cases(
        named,
        lambda index: _called(cases[index], named[index], file),
        inputs=cases.inputs if wanted else (),
        outputs=cases.outputs,
    )


def _called(case: Case, name: str, file: ArrayFile) -> Case:
    return replace(case, name=name, source=file.path, units=file.units())


def _is_pdebench(file: ArrayFile) -> bool:
    groups = {name.partition("/")[0] for name in file}
    by_case = bool(groups) and all(group.isdigit() and f"{group}/data" in file for group in groups)
    return by_case or "x-coordinate" in file


def _pdebench(file: ArrayFile, inputs: Sequence[str], outputs: Sequence[str]) -> Cases:
    """Each case is a series of fields on a regular grid."""
    groups = sorted({name.partition("/")[0] for name in file if name.endswith("/data")})
    if groups:
        names = [f"{file.path.stem}_{group}" for group in groups]

        def by_group(index: int) -> Case:
            group = groups[index]
            axes = [
                np.asarray(file[f"{group}/grid/{axis}"])
                for axis in "xyz"
                if f"{group}/grid/{axis}" in file
            ]
            time = np.asarray(file[f"{group}/grid/t"]) if f"{group}/grid/t" in file else None
            return _on_grid(
                file, names[index], {"data": file.read(f"{group}/data")}, axes, time, {}
            )

        return Cases(names, by_group, inputs=inputs, outputs=outputs)
    axes = [np.asarray(file[axis]) for axis in _PDEBENCH_AXES if axis in file]
    time = np.asarray(file["t-coordinate"]) if "t-coordinate" in file else None
    fields = [name for name, each in file.items() if each.ndim > len(axes)]
    if not fields:
        raise ValueError("no field on the grid of its coordinates")
    count = file[fields[0]].shape[0]
    names = [f"{file.path.stem}_{number}" for number in range(count)]

    def by_row(index: int) -> Case:
        values = {name: file.read(name, index) for name in fields}
        if "tensor" in values and values["tensor"].shape[0] == 1 and "nu" in values:
            values["tensor"] = values["tensor"][0]  # Darcy flow, which is steady
        return _on_grid(file, names[index], values, axes, time, {})

    return Cases(names, by_row, inputs=inputs, outputs=outputs)


def _on_grid(
    file: ArrayFile,
    name: str,
    values: Mapping[str, Array],
    axes: Sequence[Array],
    time: Array | None,
    parameters: Mapping[str, float],
) -> Case:
    """A case of fields (*grid [c]) or (t *grid [c]) on a grid of straight lines."""
    grid = tuple(len(axis) for axis in axes)
    positions = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    positions = positions.reshape(-1, len(axes)).astype(np.float64)
    points, steps = len(positions), 0
    turned: dict[str, Array] = {}
    steady: dict[str, Array] = {}
    for label, each in values.items():
        if each.shape[: len(grid)] == grid and each.ndim <= len(grid) + 1:
            steady[label] = each.reshape(points, *each.shape[len(grid) :])
            continue
        if each.shape[1 : 1 + len(grid)] != grid or each.ndim > len(grid) + 2:
            raise ValueError(f"{label} of shape {each.shape} on a grid {grid}")
        steps = steps or each.shape[0]
        # (t *grid ...) -> (n t ...)
        turned[label] = np.moveaxis(
            each.reshape(len(each), points, *each.shape[1 + len(grid) :]), 0, 1
        )
    times = None
    if turned:
        # PDEBench has one time more than frames in some files: the ends of its intervals.
        times = np.arange(steps) if time is None or len(time) < steps else np.ravel(time)[:steps]
        for label, each in steady.items():
            turned[label] = np.broadcast_to(each[:, None], (points, steps, *each.shape[1:]))
    return Case(
        name=name,
        positions=positions,
        fields=turned or steady,
        parameters=parameters,
        grid=grid,
        times=None if times is None else times.astype(np.float64),
        weights=grid_weights(positions, grid),
        source=file.path,
    )


def _is_the_well(file: ArrayFile) -> bool:
    return any(name.startswith(("t0_fields/", "t1_fields/")) for name in file) and any(
        name.startswith("dimensions/") for name in file
    )


def _the_well(file: ArrayFile, inputs: Sequence[str], outputs: Sequence[str]) -> Cases:
    """Each case is a trajectory; tensors have their components in one axis."""
    spatial = [
        name
        for name in ("x", "y", "z", "r", "theta", "phi", "log_r")
        if f"dimensions/{name}" in file
    ]
    axes = [np.ravel(file[f"dimensions/{name}"]) for name in spatial]
    time = np.ravel(file["dimensions/time"]) if "dimensions/time" in file else None
    grid = tuple(len(axis) for axis in axes)
    order = {
        name: int(name[1]) for name in file if name[:2] in ("t0", "t1", "t2") and "_fields/" in name
    }
    whole = {
        name: rank
        for name, rank in order.items()
        if file[name].ndim == 2 + len(grid) + rank and file[name].shape[2 : 2 + len(grid)] == grid
    }
    if not whole:
        raise ValueError(f"no field (trajectories, times, *{grid}) in it")
    count = file[next(iter(whole))].shape[0]
    names = [f"{file.path.stem}_{number}" for number in range(count)]
    scalars = {
        name.partition("/")[2]: np.ravel(file[name])
        for name in file
        if name.startswith("scalars/") and np.size(file[name]) in (1, count)
    }

    def make(index: int) -> Case:
        values = {}
        for name, rank in whole.items():
            each = file.read(name, index)
            # (t *grid d d) -> (t *grid d^2)
            flat = each.reshape(*each.shape[: 1 + len(grid)], -1) if rank else each
            values[name.partition("/")[2]] = flat
        parameters = {
            name: float(each[index] if len(each) == count else each[0])
            for name, each in scalars.items()
        }
        return _on_grid(file, names[index], values, axes, time, parameters)

    return Cases(names, make, inputs=inputs, outputs=outputs)


_Layout = tuple[
    Callable[[ArrayFile], bool], Callable[[ArrayFile, Sequence[str], Sequence[str]], Cases]
]
_LAYOUTS: tuple[_Layout, ...] = (
    (_is_the_well, _the_well),
    (_is_pdebench, _pdebench),
    (_is_case, _one_case),
    (_is_stacked, _stacked),
)
