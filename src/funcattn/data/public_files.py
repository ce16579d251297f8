"""The public files of eight benchmarks: read them, or write one's own samples in their layout.

A path is the file, or the folder that has it under its public name; where there are several files,
the folder or any of them, beside the others. Any number of samples and any resolution is read, as
long as the arrays agree; variables and files beside those of the layout are left alone. Both MATLAB
formats are read; see `funcattn.data.matlab` for their cost in memory. Of .npy files nothing but the
selection is read.
"""

from collections.abc import Iterable, Mapping
from math import gcd
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from funcattn.data.matlab import (
    ALL_ROWS,
    Format,
    describe,
    list_matlab,
    read_matlab,
    write_matlab,
)
from funcattn.data.npy import open_npy, write_npy
from funcattn.data.public_layouts import (
    AIRFOIL,
    BURGERS,
    DARCY,
    DARCY_NOTCH,
    ELASTICITY,
    NAVIER_STOKES,
    PIPE,
    PLASTICITY,
    SPACE,
    Fields,
    PublicArray,
    PublicLayout,
)

__all__ = [
    "AIRFOIL",
    "BURGERS",
    "DARCY",
    "DARCY_NOTCH",
    "ELASTICITY",
    "NAVIER_STOKES",
    "PIPE",
    "PLASTICITY",
    "Fields",
    "PublicArray",
    "PublicLayout",
    "measure_public",
    "read_public",
    "write_public",
]


def measure_public(layout: PublicLayout, path: str | Path) -> dict[str, dict[str, int]]:
    """The lengths of all axes in each part of a benchmark; raises as `read_public`."""
    path = Path(path)
    _check_existing(layout, path)
    return {part: _described(layout, path, part)[0] for part in layout.files}


def read_public(
    layout: PublicLayout,
    path: str | Path,
    part: str = "all",
    *,
    rows: slice = ALL_ROWS,
    stride: int = 1,
) -> Fields:
    """Read the arrays of a benchmark, by our names and with our axes.

    Args:
        layout: whose.
        path: the file, or the folder that has it under its public name. Where there are several
            files, any of them, beside the others.
        part: which part, where there are two: "train" or "test".
        rows: samples to read, all within the file; a negative start counts from the end.
        stride: keep every stride-th point of space; a divisor of the points of each axis where
            space is periodic, of one less where the grid has both ends; 1 where there is no grid.

    Returns:
        Arrays in the precision of the file, whole numbers as float64. All are finite.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not what its name says, is damaged, or has values that are not
            finite; or rows or stride do not fit. The message says which, and what to do.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> wave = np.sin(2 * np.pi * np.arange(8) / 8) * np.ones((3, 1))
        >>> with TemporaryDirectory() as folder:
        ...     files = write_public(BURGERS, folder, {"initial": wave, "final": 0.1 * wave})
        ...     read_public(BURGERS, folder, rows=slice(-2, None), stride=4)["final"].shape
        (2, 2)
    """
    path = Path(path)
    _check_part(layout, part)
    _check_existing(layout, path)
    sizes, grids = _described(layout, path, part)
    points = [sizes[axis] for axis in SPACE if axis in sizes]
    cells = gcd(*(count if layout.periodic else count - 1 for count in points))
    if points and (stride < 1 or cells % stride):
        raise ValueError(
            f"stride: expected a divisor of {cells}, so that what is kept of the "
            f"{' x '.join(map(str, points))} points in {path} is a grid of the same domain, got "
            f"{stride}"
        )
    for grid in grids:
        file = _file(layout, path, part, grid)
        values = _ours(file, grid, _stored(layout, file, grid, slice(0, 1), 1))
        count = sizes[grid.axes[0]]
        # A hundredth of a cell is far above rounding, and far below any other grid.
        if abs(values - np.linspace(0.0, 1.0, count)).max() > 0.01 / count:
            raise ValueError(
                f"{file}: expected {grid.variable} from 0 to 1 in equal steps, got {values.min()} "
                f"to {values.max()} or other steps: these samples lie on another grid; "
                "interpolate them to the unit square"
            )
    arrays = {}
    for name in layout.needed:
        array = layout.arrays[name]
        file = _file(layout, path, part, array)
        arrays[name] = _ours(file, array, _stored(layout, file, array, rows, stride))
    if layout.check is not None:
        layout.check(str(path), arrays)
    return arrays


def write_public(
    layout: PublicLayout,
    path: str | Path,
    arrays: Mapping[str, npt.NDArray[np.floating]],
    part: str = "all",
    *,
    format: Format = "5",  # noqa: A002
) -> list[Path]:
    """Write arrays, as `read_public` returns them, in the layout of a benchmark; returns the files.

    Arrays that have another origin in the file are written as float64, all others in the type that
    they have.

    Args:
        layout: whose.
        path: a folder, for files of the public names in it, or one of these files. A MATLAB file
            that is alone may have any name ending in .mat.
        arrays: by our names; finite.
        part: which part, where there are two: "train" or "test".
        format: MATLAB's, "5" or "7.3"; the latter for more than 2 GiB a variable. It does not
            matter to .npy files.

    Raises:
        ValueError: names, shapes or values are not those of the benchmark.
    """
    path = Path(path)
    _check_part(layout, part)
    files = {name: _file(layout, path, part, array) for name, array in layout.arrays.items()}
    first = next(iter(files.values()))
    if not layout.apart and first.suffix != ".mat":
        raise ValueError(f"{first}: expected a folder that exists, or a file name ending in .mat")
    if not set(layout.needed) <= set(arrays) <= set(layout.arrays):
        raise ValueError(
            f"{path}: expected the arrays {', '.join(sorted(layout.needed))} and at most "
            f"{', '.join(layout.arrays)}, got {', '.join(arrays) or 'none'}: name them so"
        )
    sizes = dict(layout.lengths)
    for name, values in arrays.items():
        _agree(layout, f"{files[name]}: {name}", layout.arrays[name].axes, values.shape, sizes)
        _check_finite(files[name], name, values)
    if not sizes["samples"]:
        raise ValueError(f"{path}: expected at least one sample to write, got none")
    if layout.check is not None:
        layout.check(str(path), arrays)
    stored = {layout.arrays[name]: values for name, values in arrays.items()}
    stored |= {grid: np.linspace(0.0, 1.0, sizes["x"]) for grid in layout.coordinates}
    theirs = {array.variable: _theirs(array, values, sizes) for array, values in stored.items()}
    if layout.apart:
        left = [file.name for file in files.values() if file.name not in theirs and file.exists()]
        if left:
            raise ValueError(
                f"{path}: expected no {' or '.join(left)}, which is not written now and has other "
                "samples: give that array too, delete the file, or write to another folder"
            )
        written = {first.with_name(name): values for name, values in theirs.items()}
        write_npy(written)
        return list(written)
    write_matlab(first, theirs, format=format)
    return [first]


def _check_part(layout: PublicLayout, part: str) -> None:
    if part not in layout.files:
        raise ValueError(f"part: expected one of {', '.join(layout.files)}, got {part!r}")


def _names(layout: PublicLayout, arrays: Iterable[PublicArray]) -> list[str]:
    """The public names of the files, of all parts, that have some arrays."""
    return [array.variable for array in arrays] if layout.apart else list(layout.files.values())


def _file(layout: PublicLayout, path: Path, part: str, array: PublicArray) -> Path:
    """The file of an array, by its folder or by any file of the layout."""
    name = array.variable if layout.apart else layout.files[part]
    if path.is_dir():
        return path / name
    names = _names(layout, layout.arrays.values())
    if len(names) == 1:
        return path
    if path.name not in names:
        raise ValueError(
            f"{path}: expected a folder that exists, or {' or '.join(names)} in it: the names tell "
            "the files apart; rename the file"
        )
    return path.with_name(name)


def _check_existing(layout: PublicLayout, path: Path) -> None:
    """Check that all files to read are there: a benchmark needs every part."""
    needed = [layout.arrays[name] for name in layout.needed]
    for file in (_file(layout, path, part, array) for part in layout.files for array in needed):
        if not file.is_file():
            kind = ".npy" if layout.apart else ".mat"
            beside = sorted(other.name for other in file.parent.glob(f"*{kind}"))
            raise FileNotFoundError(
                f"{file}: expected {' and '.join(_names(layout, needed))}, got no such file, but "
                f"{', '.join(beside) or f'no {kind} file'} in its folder: put it there"
            )


def _described(
    layout: PublicLayout, path: Path, part: str
) -> tuple[dict[str, int], list[PublicArray]]:
    """The lengths of the axes, and the coordinates that are there, if the files are as named."""
    needed = [layout.arrays[name] for name in layout.needed]
    files = {each: _file(layout, path, part, each) for each in (*needed, *layout.coordinates)}
    found = {file: _listed(layout, file) for file in dict.fromkeys(files.values())}
    checked = [
        each for each in files if each in needed or each.variable in found[files[each]].shapes
    ]
    sizes = dict(layout.lengths)
    for array in checked:
        file = files[array]
        shape = found[file].shapes.get(array.variable, ())
        if len(shape) != len(array.stored):
            expected = [
                f"{each.variable} ({', '.join(each.stored)})"
                for each in checked
                if files[each] == file
            ]
            raise ValueError(
                f"{file}: expected {' and '.join(expected)}, got {found[file].words}: this is not "
                f"a {file.name if layout.apart else layout.files[part]}; take another file"
            )
        _agree(layout, f"{file}: {array.variable}", array.stored, shape, sizes)
    return sizes, [grid for grid in layout.coordinates if grid in checked]


class _Found(NamedTuple):
    """What a file has: the shapes of its variables, and all of it in words, for messages."""

    shapes: dict[str, tuple[int, ...]]
    words: str


def _listed(layout: PublicLayout, file: Path) -> _Found:
    if layout.apart:
        values = open_npy(file)
        return _Found({file.name: values.shape}, f"{values.dtype} {values.shape}")
    variables = list_matlab(file)
    return _Found({name: each.shape for name, each in variables.items()}, describe(variables))


def _stored(
    layout: PublicLayout, file: Path, array: PublicArray, rows: slice, stride: int
) -> npt.NDArray[Any]:
    """The finite values of a variable, every stride-th in space, as an array of its own."""
    steps = layout.steps(array.stored, stride)
    if layout.apart:
        mapped, samples = open_npy(file), array.stored.index("samples")
        _check_rows(file, rows, mapped.shape[samples])
        selection = [slice(None, None, step) for step in steps]
        selection[samples] = rows
        values = np.array(mapped[tuple(selection)], mapped.dtype.newbyteorder("="), order="C")
    else:
        # In all MATLAB files the samples come first.
        name = array.variable
        values = read_matlab(file, [name], rows=rows, stride=steps[1:])[name]
    _check_finite(file, array.variable, values)
    return values


def _ours(file: Path, array: PublicArray, values: npt.NDArray[Any]) -> npt.NDArray[np.floating]:
    """Stored values, which may be changed, with our axes in our order, and our origin."""
    values = _turned(array, values)
    left_out = [array.stored.index(axis) for axis in array.stored if axis not in array.axes]
    for place in left_out:
        first = values.take([0], place)
        if (values != first).any():
            raise ValueError(
                f"{file}: expected {array.variable} ({', '.join(array.stored)}) to be constant "
                f"along {array.stored[place]}, got changes up to {abs(values - first).max():.2g}: "
                "if x and y are exchanged, permute the axes; otherwise take another file"
            )
        values = first
    kept = [axis for axis in array.stored if axis in array.axes]
    values = values.squeeze(tuple(left_out)).transpose([kept.index(axis) for axis in array.axes])
    values = np.ascontiguousarray(values, None if values.dtype.kind == "f" else np.float64)
    if array.shift:
        values -= array.shift
    return values


def _theirs(
    array: PublicArray, values: npt.NDArray[np.floating], sizes: Mapping[str, int]
) -> npt.NDArray[np.floating]:
    """Our values with the axes and the origin that the file has; a view if the origin is ours."""
    values = values.transpose(
        [array.axes.index(axis) for axis in array.stored if axis in array.axes]
    )
    left_out = tuple(array.stored.index(axis) for axis in array.stored if axis not in array.axes)
    values = np.broadcast_to(
        np.expand_dims(values, left_out), [sizes[axis] for axis in array.stored]
    )
    values = _turned(array, values)
    # In the order of MATLAB's files, which spares format 7.3 another copy.
    return np.add(values, array.shift, dtype=np.float64, order="F") if array.shift else values


def _turned(array: PublicArray, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Values with the axes that the file has, those reversed that it lists from the other end."""
    return np.flip(values, tuple(array.stored.index(axis) for axis in array.reversed))


def _agree(
    layout: PublicLayout,
    what: str,
    axes: tuple[str, ...],
    shape: tuple[int, ...],
    sizes: dict[str, int],
) -> None:
    """Check a shape against the sizes known from other arrays, and add its own to them."""
    expected = ", ".join(f"{axis} {sizes[axis]}" if axis in sizes else axis for axis in axes)
    if len(shape) == len(axes):
        for axis, size in zip(axes, shape, strict=True):
            for same in SPACE if layout.square and axis in SPACE else (axis,):
                sizes.setdefault(same, size)
    if shape != tuple(sizes.get(axis) for axis in axes):
        square, kind = (", x and y of one length", " square") if layout.square else ("", "")
        raise ValueError(
            f"{what}: expected shape ({expected}){square}, got {shape}: "
            f"the arrays of a set have the same samples on one{kind} grid"
        )


def _check_rows(file: Path, rows: slice, count: int) -> None:
    ends = [end for end in (rows.start, rows.stop) if end is not None]
    step = 1 if rows.step is None else rows.step
    if step < 1 or any(abs(end) > count for end in ends) or not range(count)[rows]:
        raise ValueError(
            f"{file}: expected rows among the {count} of the file, in steps from 1 on, got {rows}: "
            "ask for fewer, or take a file that has more"
        )


def _check_finite(file: Path, name: str, values: npt.NDArray[Any]) -> None:
    bad = ~np.isfinite(values)
    if bad.any():
        raise ValueError(
            f"{file}: expected finite values, got {bad.sum()} in {name} that are NaN or infinite, "
            f"the first at {tuple(int(places[0]) for places in bad.nonzero())} of what was asked "
            "for: repair them, or leave those samples out"
        )
