"""Arrays whose axes have names, as xarray writes them into NetCDF and Zarr.

An axis is time, space, cases or components by its name; others are axes of space where they have
coordinates, and axes of cases where they have none. So (time y x), (case x y) and (case time x y
component) are all read, whatever the order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from funcattn.arrays import Array
from funcattn.data.cases.array_files import ArrayFile
from funcattn.data.cases.case import Case
from funcattn.data.cases.collection import Cases
from funcattn.data.cases.on_grid import on_grid

TIMES = ("time", "t", "times")
CASES = (
    *("case", "cases", "sample", "samples", "simulation", "run", "member", "realization"),
    *("realisation", "ensemble", "batch", "trajectory"),
)
COMPONENTS = ("component", "components", "channel", "channels", "vector", "field", "fields")


@dataclass(frozen=True)
class _Axes:
    """The names of the axes of a file by what they are; empty where there is none."""

    case: str
    time: str
    space: tuple[str, ...]
    component: str


def is_labelled(file: ArrayFile) -> bool:
    """Whether the axes have names, and one of them coordinates under its own name."""
    labels = file.axes()
    names = {name for axes in labels.values() for name in axes}
    return any(labels.get(name) == (name,) for name in names)


def labelled_cases(file: ArrayFile, inputs: Sequence[str], outputs: Sequence[str]) -> Cases:
    """The cases of such a file: one, or as many as the axis of cases is long."""
    labels = file.axes()
    axes = _sorted_out(labels)
    whole = {
        name: order
        for name, order in labels.items()
        if set(axes.space) <= set(order) and name not in order
    }
    if not axes.space or not whole:
        raise ValueError(f"no field over the axes {', '.join(axes.space) or 'of space'}")
    coordinates = [
        np.ravel(file[name]) if labels.get(name) == (name,) else np.arange(_length(file, name))
        for name in axes.space
    ]
    times = np.ravel(file[axes.time]) if labels.get(axes.time) == (axes.time,) else None
    if times is not None and times.dtype.kind not in "fiu":
        times = None
    count = _length(file, axes.case) if axes.case else 1
    stem = file.path.stem
    names = [f"{stem}_{number}" for number in range(count)] if axes.case else [stem]
    numbers = {
        name: np.ravel(file[name])
        for name, order in labels.items()
        if order in ((), (axes.case,)) and name != axes.case and file[name].dtype.kind in "fiub"
    }

    def make(index: int) -> Case:
        values = {name: _turned(file, name, order, axes, index) for name, order in whole.items()}
        parameters = {
            name: float(each[index] if labels[name] else each[0]) for name, each in numbers.items()
        }
        return on_grid(file, names[index], values, coordinates, times, parameters)

    return Cases(names, make, inputs=inputs, outputs=outputs)


def _sorted_out(labels: Mapping[str, tuple[str, ...]]) -> _Axes:
    """What the axes are; those of space in the order of the field with most axes, x before y."""
    longest_first = sorted(labels.values(), key=len, reverse=True)
    names = list(dict.fromkeys(name for axes in longest_first for name in axes))
    found = {"case": "", "time": "", "component": ""}
    space = []
    for name in names:
        word = name.lower()
        kinds = (("time", TIMES), ("case", CASES), ("component", COMPONENTS))
        kind = next((kind for kind, words in kinds if word in words), None)
        if kind is None:
            kind = "space" if labels.get(name) == (name,) else "case"
        if kind == "space":
            space.append(name)
        elif found[kind]:
            raise ValueError(
                f"two axes of {kind}s, {found[kind]} and {name}; give coordinates to axes of space"
            )
        else:
            found[kind] = name
    if {name.lower() for name in space} <= {"x", "y", "z"}:
        space.sort(key=str.lower)
    if len(space) > 3:
        raise ValueError(f"{len(space)} axes of space, {', '.join(space)}; 3 at most")
    return _Axes(found["case"], found["time"], tuple(space), found["component"])


def _length(file: ArrayFile, axis: str) -> int:
    for name, order in file.axes().items():
        if axis in order:
            return int(file[name].shape[order.index(axis)])
    raise AssertionError(axis)


def _turned(file: ArrayFile, name: str, order: tuple[str, ...], axes: _Axes, index: int) -> Array:
    """A field of one case as (time, *space, component), those of them that it has."""
    left = list(order)
    if axes.case in left and left[0] == axes.case:
        values = np.asarray(file.read(name, index))  # only this case is read
        left.pop(0)
    else:
        values = np.asarray(file.read(name))
        if axes.case in left:
            values = values.take(index, axis=left.index(axes.case))
            left.remove(axes.case)
    wanted = [axis for axis in (axes.time, *axes.space, axes.component) if axis in left]
    if set(wanted) != set(left):
        raise ValueError(f"{name} with the axes {', '.join(order)}")
    return values.transpose([left.index(axis) for axis in wanted])
