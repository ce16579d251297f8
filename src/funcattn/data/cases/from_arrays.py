"""Cases from arrays: grids, point sets of one size or of many, named fields, numbers.

Axes: N case, n point, s space dimension, c component, t time.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from funcattn.arrays import Array, Floats
from funcattn.data.cases.case import Case, grid_weights
from funcattn.data.cases.collection import Cases

Given = Any
"""An array (N ...), anything like it that has a shape and gives a part for an index, or a list of
arrays that differ in size."""


class _Field(NamedTuple):
    """What was given under one name."""

    given: Given
    shape: tuple[int, ...] | None  # None where the cases differ in size

    @property
    def rank(self) -> int:
        """Axes of one case."""
        if self.shape is not None:
            return len(self.shape) - 1
        return max((np.ndim(each) for each in self.given), default=0)


def from_arrays(
    inputs: "Given | Mapping[str, Given] | None",
    outputs: "Given | Mapping[str, Given] | None" = None,
    *,
    positions: Given | None = None,
    parameters: "Mapping[str, Given] | Array | None" = None,
    grid: Sequence[int] | None = None,
    times: "Sequence[float] | Array | None" = None,
    names: Sequence[str] | None = None,
) -> Cases:
    """Cases from arrays.

    Args:
        inputs: fields on a grid, (N H W) or (N H W c), with one axis or three as well; or on
            points, (N n) or (N n c), or a list of (n_i) or (n_i c), with `positions`; or several of
            these by name. Numbers per case, (N), become parameters. None where the geometry is the
            input.
        outputs: the same; None where they are not known.
        positions: (N n s), or (n s) where they are the same for all cases, or a list of (n_i s). On
            a grid, its axes may stand in the place of n. By default a grid fills the unit box.
        parameters: numbers per case, (N) by name, or (N k).
        grid: axis lengths. By default arrays (N n) lie on a line, (N H W) and (N H W c) on a plane,
            and (N D H W c) in space; where some have one axis more than others, that is c.
        times: (t) those of a series; fields then have the axis t after the points.
        names: of the cases; by default their numbers.

    Raises:
        ValueError: arrays do not fit together; the message says which.

    Example:
        >>> cases = from_arrays(np.zeros((5, 8, 6)), np.ones((5, 8, 6, 2)))
        >>> len(cases), cases[0].grid, cases[0]["output"].shape
        (5, (8, 6), (48, 2))
    """
    by_input, by_output = _named(inputs, "input"), _named(outputs, "output")
    if twice := by_input.keys() & by_output.keys():
        raise ValueError(
            f"expected different names for inputs and outputs, got {', '.join(sorted(twice))} in "
            "both: rename one"
        )
    fields = {**by_input, **by_output}
    count = _count(fields, positions)
    numbers = _parameters(parameters, count)
    for name in list(fields):
        if fields[name].rank == 0:
            numbers[name] = _numbers(name, fields.pop(name).given, count)
    axes = _axes(fields, positions, grid, times)
    for name in list(fields):
        # (N k) beside fields on a grid of other lengths are k numbers per case.
        shape = fields[name].shape
        if shape is not None and len(shape) == 2 and axes and shape[1:] != axes:
            given = np.asarray(fields.pop(name).given)
            numbers |= {f"{name}_{k}": _numbers(name, given[:, k], count) for k in range(shape[1])}
    place = _places(positions, axes, count)
    moments = None if times is None else np.asarray(times, np.float64)
    labels = [str(number) for number in range(count)] if names is None else list(names)
    if len(labels) != count:
        raise ValueError(f"names: expected one for each of {count} cases, got {len(labels)}")

    def make(index: int) -> Case:
        where, weights = place(index)
        values: dict[str, Array] = {}
        categories: dict[str, Array] = {}
        for name, each in fields.items():
            array = _case_field(name, np.asarray(each.given[index]), axes, len(where), moments)
            if array.dtype.kind in "iub" and array.ndim == 1:
                categories[name] = array.astype(np.int64)
            else:
                values[name] = array
        return Case(
            name=labels[index],
            positions=where,
            fields=values,
            categories=categories,
            parameters={name: float(each[index]) for name, each in numbers.items()},
            grid=axes,
            times=moments,
            weights=weights,
        )

    made_inputs = [
        *(name for name in by_input if name in fields),
        *(name for name in numbers if name not in by_output),
    ]
    return Cases(
        labels,
        make,
        inputs=made_inputs,
        outputs=[name for name in (*fields, *numbers) if name not in made_inputs],
    )


def _named(given: Any, default: str) -> dict[str, _Field]:
    if given is None:
        return {}
    by_name = dict(given) if isinstance(given, Mapping) else {default: given}
    fields = {}
    for name, each in by_name.items():
        if not hasattr(each, "shape"):
            shapes = {np.shape(part) for part in each}
            same = len(shapes) == 1
            each = np.stack([np.asarray(part) for part in each]) if same else list(each)
        kind = each.dtype.kind if hasattr(each, "dtype") else "f"
        if kind not in "fiub":
            raise ValueError(
                f"{name}: expected real numbers, got {each.dtype}: convert them, to float64 for "
                "instance"
            )
        fields[str(name)] = _Field(each, tuple(each.shape) if hasattr(each, "shape") else None)
    return fields


def _count(fields: Mapping[str, _Field], positions: Given | None) -> int:
    counts = {
        name: len(each.given) if each.shape is None else (*each.shape, 0)[0]
        for name, each in fields.items()
    }
    if not counts and positions is not None:
        counts["positions"] = len(positions)
    if len(set(counts.values())) != 1 or 0 in counts.values():
        raise ValueError(
            "expected arrays of equally many cases along the first axis, one or more, got "
            f"{', '.join(f'{n} in {name}' for name, n in counts.items()) or 'no array'}"
        )
    return next(iter(counts.values()))


def _numbers(name: str, given: Given, count: int) -> Floats:
    numbers = np.asarray(given, np.float64)
    if numbers.shape != (count,) or not np.isfinite(numbers).all():
        raise ValueError(
            f"{name}: expected a finite number for each of {count} cases, got shape "
            f"{numbers.shape}{'' if np.isfinite(numbers).all() else ' with NaN or infinity'}"
        )
    return numbers


def _parameters(given: Any, count: int) -> dict[str, Floats]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        table = np.asarray(given)
        table = table[:, None] if table.ndim == 1 else table
        given = {f"parameter_{k}": table[:, k] for k in range(table.shape[1])}
    return {str(name): _numbers(str(name), each, count) for name, each in given.items()}


def _axes(
    fields: Mapping[str, _Field],
    positions: Given | None,
    grid: Sequence[int] | None,
    times: Any,
) -> tuple[int, ...] | None:
    """The axis lengths of the grid, None for a cloud."""
    if grid is not None:
        return tuple(int(length) for length in grid)
    if positions is not None:
        return None
    known = {name: each.shape for name, each in fields.items() if each.shape is not None}
    if not fields or len(known) < len(fields) or times is not None:
        raise ValueError(
            "expected `positions`, or `grid`, the axis lengths of the points, for arrays that "
            "differ in size, form a series, or have no points of their own; got neither"
        )
    # Arrays (N k) may be fields on a line, or k numbers per case beside fields on a grid.
    for low in (2, 3):
        shapes = [shape for shape in known.values() if len(shape) >= low]
        if len(lengths := _common_grid(shapes)) == 1:
            return lengths.pop()
    raise ValueError(
        "expected all arrays on one grid of one to three axes, got shapes "
        f"{', '.join(f'{shape} of {name}' for name, shape in known.items())}: if the last axis has "
        "components, say so by `grid`, the axis lengths of the points"
    )


def _common_grid(shapes: Sequence[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """The axis lengths that arrays (N *grid) or (N *grid c) have, one where they agree."""
    ranks = {len(shape) - 1 for shape in shapes}
    if not ranks:
        return set()
    low, high = min(ranks), max(ranks)
    # Where some have one axis more, that is c; a third axis that all have is c as well.
    space = low if low < 3 or high > low else low - 1
    if space > 3 or high > space + 1:
        return set()
    return {shape[1 : 1 + space] for shape in shapes}


def _places(
    positions: Given | None, axes: tuple[int, ...] | None, count: int
) -> Callable[[int], tuple[Floats, Floats | None]]:
    """The positions and weights of a case by its number."""
    points = None if axes is None else math.prod(axes)

    def flat(where: Any) -> tuple[Floats, Floats | None]:
        array = np.asarray(where, np.float64)
        if axes is not None and array.shape[:-1] == axes:
            array = array.reshape(points or 0, -1)
        if array.ndim != 2 or (points is not None and len(array) != points):
            on_grid = f" on the grid {axes}" if axes else ""
            raise ValueError(
                f"positions: expected (points, axes) per case{on_grid}, got shape {array.shape}"
            )
        return array, None if axes is None else grid_weights(array, axes)

    if positions is None:
        assert axes is not None
        lines = [np.linspace(0.0, 1.0, length) for length in axes]
        same = flat(np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1))
        return lambda _: same
    shape = getattr(positions, "shape", None)
    shared_ranks = (2,) if axes is None else (2, len(axes) + 1)
    if (
        shape is not None
        and len(shape) in shared_ranks
        and shape[:-1] in ((points,), axes, shape[:1])
    ):
        whole = np.asarray(positions)
        same = flat(whole)
        return lambda _: same
    if len(positions) != count:
        raise ValueError(f"positions: expected those of {count} cases, got {len(positions)}")
    return lambda index: flat(positions[index])


def _case_field(
    name: str,
    array: Array,
    axes: tuple[int, ...] | None,
    points: int,
    times: Floats | None,
) -> Array:
    """A field of one case with the points along one axis, and then times where there are some."""
    if axes is not None and array.shape[: len(axes)] == axes:
        array = array.reshape(points, *array.shape[len(axes) :])
    if not array.ndim or len(array) != points:
        raise ValueError(
            f"{name}: expected a row for each of {points} points"
            f"{f' of the grid {axes}' if axes else ''}, got shape {array.shape} in a case"
        )
    if times is not None and (array.ndim < 2 or array.shape[1] != len(times)):
        # What does not change in time.
        array = np.broadcast_to(array[:, None], (points, len(times), *array.shape[1:]))
    return array
