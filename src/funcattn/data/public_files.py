"""The public files of four benchmarks: read them, or write one's own samples in their layout.

burgers         burgers_data_R10.mat (Li et al. 2020)
darcy           piececonst_r421_N1024_smooth1.mat for training, ..._smooth2.mat for tests (the same)
darcy_notch     Darcy_Triangular_FNO.mat (Lu et al. 2022)
navier_stokes   NavierStokes_V1e-5_N1200_T20.mat (Li et al. 2020)

A path is the file, or the folder that has it under its public name. Any number of samples and any
resolution is read, as long as the arrays of a file agree; variables beside those named here are
left alone. Both MATLAB formats are read; see `funcattn.data.matlab` for their cost in memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from funcattn.data.matlab import (
    ALL_ROWS,
    Format,
    MatlabVariable,
    describe,
    list_matlab,
    read_matlab,
    write_matlab,
)

SPACE = ("x", "y")
Fields = dict[str, npt.NDArray[np.floating]]


@dataclass(frozen=True)
class PublicArray:
    """One of our arrays: its variable in the file, the axes it has there, and those it has here.

    Axes are words: samples, frames, and x and y, which are points in space and equally many. Along
    an axis that we leave out, what is stored is constant.
    """

    variable: str
    stored: tuple[str, ...]
    axes: tuple[str, ...]
    optional: bool = False
    """Written where it is given, never read."""


@dataclass(frozen=True)
class PublicLayout:
    """A benchmark's files by the part of the data in them, and the arrays in each, by our names."""

    files: Mapping[str, str]
    arrays: Mapping[str, PublicArray]
    periodic: bool
    """Whether space is periodic, so that a grid leaves out its last end, or has both ends."""
    coordinates: tuple[PublicArray, ...] = ()
    """Grids from 0 to 1 that the file repeats for every sample; checked, not returned."""

    @property
    def needed(self) -> list[str]:
        """The arrays that every file has."""
        return [name for name, array in self.arrays.items() if not array.optional]

    def every(self, name: str, stride: int) -> tuple[int, ...]:
        """Steps along the axes of an array after the samples: the stride along those of space.

        >>> NAVIER_STOKES.every("vorticity", 4)
        (1, 4, 4)
        """
        return tuple(stride if axis in SPACE else 1 for axis in self.arrays[name].axes[1:])


BURGERS = PublicLayout(
    files={"all": "burgers_data_R10.mat"},
    arrays={
        "initial": PublicArray("a", ("samples", "x"), ("samples", "x")),
        "final": PublicArray("u", ("samples", "x"), ("samples", "x")),
    },
    periodic=True,
)
DARCY = PublicLayout(
    files={
        "train": "piececonst_r421_N1024_smooth1.mat",
        "test": "piececonst_r421_N1024_smooth2.mat",
    },
    arrays={
        "permeability": PublicArray("coeff", ("samples", "x", "y"), ("samples", "x", "y")),
        "pressure": PublicArray("sol", ("samples", "x", "y"), ("samples", "x", "y")),
    },
    periodic=False,
)
DARCY_NOTCH = PublicLayout(
    files={"all": "Darcy_Triangular_FNO.mat"},
    arrays={
        "boundary": PublicArray("boundCoeff", ("samples", "y", "x"), ("samples", "x")),
        "solution": PublicArray("sol", ("samples", "y", "x"), ("samples", "y", "x")),
    },
    periodic=False,
    coordinates=(
        PublicArray("coord_x", ("samples", "y", "x"), ("x",)),
        PublicArray("coord_y", ("samples", "y", "x"), ("y",)),
    ),
)
NAVIER_STOKES = PublicLayout(
    files={"all": "NavierStokes_V1e-5_N1200_T20.mat"},
    arrays={
        "vorticity": PublicArray(
            "u", ("samples", "x", "y", "frames"), ("samples", "frames", "x", "y")
        ),
        "initial": PublicArray("a", ("samples", "x", "y"), ("samples", "x", "y"), optional=True),
        "time": PublicArray("t", ("frames",), ("frames",), optional=True),
    },
    periodic=True,
)


def count_public(layout: PublicLayout, path: str | Path) -> dict[str, int]:
    """The number of samples in each file of a benchmark, by its part; raises as `read_public`."""
    counts = {}
    for part in layout.files:
        _, sizes = _described(layout, _existing(layout, Path(path), part), part)
        counts[part] = sizes["samples"]
    return counts


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
        path: the file, or the folder that has it under its public name. Where there are two files,
            either of them, beside the other.
        part: which file, where there are two: "train" or "test".
        rows: samples to read, all within the file; a negative start counts from the end.
        stride: keep every stride-th point of space; a divisor of the points of an axis where space
            is periodic, of one less where the grid has both ends.

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
        ...     file = write_public(BURGERS, folder, {"initial": wave, "final": 0.1 * wave})
        ...     read_public(BURGERS, folder, rows=slice(-2, None), stride=4)["final"].shape
        (2, 2)
    """
    file = _existing(layout, Path(path), part)
    variables, sizes = _described(layout, file, part)
    grids = [array for array in layout.coordinates if array.variable in variables]
    points = sizes["x"]
    cells = points if layout.periodic else points - 1
    if stride < 1 or cells % stride:
        raise ValueError(
            f"stride: expected a divisor of {cells}, so that what is kept of the {points} points "
            f"an axis in {file} is a uniform grid of the same domain, got {stride}"
        )
    for grid in grids:
        values = _ours(file, grid, _stored(file, grid, slice(0, 1), 1))
        # A hundredth of a cell is far above rounding, and far below any other grid.
        if abs(values - np.linspace(0.0, 1.0, points)).max() > 0.01 / points:
            raise ValueError(
                f"{file}: expected {grid.variable} from 0 to 1 in equal steps, got {values.min()} "
                f"to {values.max()} or other steps: these samples lie on another grid; "
                "interpolate them to the unit square"
            )
    return {
        name: _ours(file, array, _stored(file, array, rows, stride))
        for name, array in layout.arrays.items()
        if name in layout.needed
    }


def _described(
    layout: PublicLayout, file: Path, part: str
) -> tuple[dict[str, MatlabVariable], dict[str, int]]:
    """The variables of a file and the lengths of its axes, where it is what its name says."""
    variables = list_matlab(file)
    grids = [array for array in layout.coordinates if array.variable in variables]
    sizes: dict[str, int] = {}
    checked = [*(layout.arrays[name] for name in layout.needed), *grids]
    for array in checked:
        found = variables.get(array.variable)
        if found is None or len(found.shape) != len(array.stored):
            expected = [f"{each.variable} ({', '.join(each.stored)})" for each in checked]
            raise ValueError(
                f"{file}: expected {' and '.join(expected)}, got {describe(variables)}: "
                f"this is not a {layout.files[part]}; take another file"
            )
        _agree(f"{file}: {array.variable}", array.stored, found.shape, sizes)
    return variables, sizes


def write_public(
    layout: PublicLayout,
    path: str | Path,
    arrays: Mapping[str, npt.NDArray[np.floating]],
    part: str = "all",
    *,
    format: Format = "5",  # noqa: A002
) -> Path:
    """Write arrays, as `read_public` returns them, in the layout of a benchmark; returns the file.

    Args:
        layout: whose.
        path: a folder, for a file of the public name in it, or the file, whose name ends in .mat.
        arrays: by our names; finite.
        part: which file, where there are two: "train" or "test".
        format: MATLAB's, "5" or "7.3"; the latter for more than 2 GiB a variable.

    Raises:
        ValueError: names, shapes or values are not those of the benchmark.
    """
    file = _file(layout, Path(path), part)
    if file.suffix != ".mat":
        raise ValueError(f"{file}: expected a folder that exists, or a file name ending in .mat")
    if not set(layout.needed) <= set(arrays) <= set(layout.arrays):
        raise ValueError(
            f"{file}: expected the arrays {', '.join(sorted(layout.needed))} and at most "
            f"{', '.join(layout.arrays)}, got {', '.join(arrays) or 'none'}: name them so"
        )
    sizes: dict[str, int] = {}
    for name, values in arrays.items():
        _agree(f"{file}: {name}", layout.arrays[name].axes, values.shape, sizes)
        _check_finite(file, name, values)
    stored = {layout.arrays[name]: values for name, values in arrays.items()}
    stored |= {grid: np.linspace(0.0, 1.0, sizes["x"]) for grid in layout.coordinates}
    theirs = {array.variable: _theirs(array, values, sizes) for array, values in stored.items()}
    write_matlab(file, theirs, format=format)
    return file


def _file(layout: PublicLayout, path: Path, part: str) -> Path:
    """The file of a part, by its folder or by any file of the layout."""
    if part not in layout.files:
        raise ValueError(f"part: expected one of {', '.join(layout.files)}, got {part!r}")
    if path.is_dir():
        return path / layout.files[part]
    if len(layout.files) == 1:
        return path
    if path.name not in layout.files.values():
        raise ValueError(
            f"{path}: expected a folder that exists, or {' or '.join(layout.files.values())} in "
            "it: the names tell the parts apart; rename the file"
        )
    return path.with_name(layout.files[part])


def _existing(layout: PublicLayout, path: Path, part: str) -> Path:
    """The file of a part, where all parts are there: a benchmark needs them all."""
    wanted = _file(layout, path, part)
    for file in (_file(layout, path, each) for each in layout.files):
        if not file.is_file():
            beside = sorted(other.name for other in file.parent.glob("*.mat"))
            raise FileNotFoundError(
                f"{file}: expected {' and '.join(layout.files.values())}, got no such file, but "
                f"{', '.join(beside) or 'no .mat file'} in its folder: put it there"
            )
    return wanted


def _stored(file: Path, array: PublicArray, rows: slice, stride: int) -> npt.NDArray[Any]:
    """The finite values of a variable, every stride-th in space."""
    strides = [stride if axis in SPACE else 1 for axis in array.stored[1:]]
    values = read_matlab(file, [array.variable], rows=rows, stride=strides)[array.variable]
    _check_finite(file, array.variable, values)
    return values


def _ours(file: Path, array: PublicArray, values: npt.NDArray[Any]) -> npt.NDArray[np.floating]:
    """Stored values with our axes in our order."""
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
    return np.ascontiguousarray(values, None if values.dtype.kind == "f" else np.float64)


def _theirs(
    array: PublicArray, values: npt.NDArray[np.floating], sizes: Mapping[str, int]
) -> npt.NDArray[np.floating]:
    """Our values with the axes that the file has."""
    values = values.transpose(
        [array.axes.index(axis) for axis in array.stored if axis in array.axes]
    )
    left_out = tuple(array.stored.index(axis) for axis in array.stored if axis not in array.axes)
    return np.broadcast_to(np.expand_dims(values, left_out), [sizes[axis] for axis in array.stored])


def _agree(what: str, axes: tuple[str, ...], shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    """Check a shape against the sizes known from other arrays, and add its own to them."""
    expected = ", ".join(f"{axis} {sizes[axis]}" if axis in sizes else axis for axis in axes)
    if len(shape) == len(axes):
        for axis, size in zip(axes, shape, strict=True):
            for same in SPACE if axis in SPACE else (axis,):
                sizes.setdefault(same, size)
    if shape != tuple(sizes.get(axis) for axis in axes):
        raise ValueError(
            f"{what}: expected shape ({expected}), x and y of one length, got {shape}: "
            "the arrays of a set have the same samples on one square grid"
        )


def _check_finite(file: Path, name: str, values: npt.NDArray[Any]) -> None:
    bad = ~np.isfinite(values)
    if bad.any():
        raise ValueError(
            f"{file}: expected finite values, got {bad.sum()} in {name} that are NaN or infinite, "
            f"the first at {tuple(int(places[0]) for places in bad.nonzero())} of what was asked "
            "for: repair them, or leave those samples out"
        )
