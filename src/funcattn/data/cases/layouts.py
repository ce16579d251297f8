"""What the arrays of a file are: one case, many cases, or a collection of the field's own.

one case    `positions` (n s), fields (n) or (n c), numbers without axes; what `write_case` writes
stacked     arrays (N ...) of N cases, as `from_arrays` takes them
labelled    axes with names and coordinates, as of xarray, see `funcattn.data.cases.labelled`
PDEBench    `tensor` or fields (N t x ...), with `x-coordinate`, `t-coordinate`; or a group per case
rows        a table of Arrow or Parquet with a case per row, see `funcattn.data.cases.rows`
the_well    groups t0_fields, t1_fields, t2_fields (N t x ...), dimensions, scalars
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from funcattn.data.cases.array_files import ArrayFile, open_arrays
from funcattn.data.cases.case import Case
from funcattn.data.cases.collection import Cases
from funcattn.data.cases.from_arrays import from_arrays
from funcattn.data.cases.labelled import is_labelled, labelled_cases
from funcattn.data.cases.on_grid import on_grid
from funcattn.data.cases.one_case import POSITIONS, case_of, positions_in
from funcattn.data.cases.rows import SUFFIXES as ROWS
from funcattn.data.cases.rows import cases_of_rows
from funcattn.data.foreign import FileError, reading

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
    if path.suffix.lower() in ROWS:
        return cases_of_rows(path, inputs, outputs)
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


def _is_case(file: ArrayFile) -> bool:
    name = positions_in(file)
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
            arrays = {name: np.asarray(file.read(name)) for name in file}
            return case_of(arrays, file.path.stem, file.path, file.units())

    return Cases([file.path.stem], make, inputs=inputs, outputs=outputs)


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
            return on_grid(file, names[index], {"data": file.read(f"{group}/data")}, axes, time, {})

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
        return on_grid(file, names[index], values, axes, time, {})

    return Cases(names, by_row, inputs=inputs, outputs=outputs)


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
        return on_grid(file, names[index], values, axes, time, parameters)

    return Cases(names, make, inputs=inputs, outputs=outputs)


_Layout = tuple[
    Callable[[ArrayFile], bool], Callable[[ArrayFile, Sequence[str], Sequence[str]], Cases]
]
_LAYOUTS: tuple[_Layout, ...] = (
    (_is_the_well, _the_well),
    (_is_pdebench, _pdebench),
    (_is_case, _one_case),
    (is_labelled, labelled_cases),
    (_is_stacked, _stacked),
)
