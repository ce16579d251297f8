"""What people's cases look like, as the settings of a task of their own."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from funcattn.arrays import Array
from funcattn.data.cases import Case
from funcattn.data.cases.case import unknown
from funcattn.problem import Field
from funcattn.tasks.own import Given, Kind, OwnData, Weights
from funcattn.tasks.own_samples import where


def describe(
    cases: Sequence[Case],
    outputs: Sequence[str],
    inputs: Sequence[str] | None = None,
    *,
    kind: Kind | None = None,
    history: int = 1,
    weights: bool | None = None,
    base: OwnData | None = None,
) -> OwnData:
    """What the cases look like, as settings; refuses cases that do not belong together.

    outputs: names of fields, or of one category, whose points are then classified.
    inputs: names of fields, categories and parameters; the geometry always is one. None: the
        parameters that differ between the cases.
    kind: None: steps for series in time, otherwise steady.
    history: frames that the network sees, of steps.
    weights: whether sums over points use their quadrature weights; None: where all cases have some.
    base: settings that stay as they are, such as those of the split.
    """
    if not cases:
        raise ValueError("cases: expected at least one, got none")
    if not outputs:
        raise ValueError(
            f"outputs: expected the names of fields to predict, got none; there are "
            f"{', '.join(cases[0].names) or 'no fields'}"
        )
    first = cases[0]
    series = first.times is not None
    kind = kind or ("steps" if series else "steady")
    if kind != "steady" and not series:
        raise ValueError(
            f"{where(first)}: expected a series in time for {kind!r}, got one moment; use "
            "'steady', or give the frames and their times"
        )
    if kind == "steady" and series:
        raise ValueError(
            f"{where(first)}: expected one moment for steady fields, got {len(first.times or ())} "
            "times; use 'steps' or 'times'"
        )
    names = _varying(cases) if inputs is None else list(inputs)
    survey = _Survey(names, list(outputs))
    for case in cases:
        survey.look(case)
    data = base or OwnData()
    frames = 1 if first.times is None else len(first.times)
    if kind == "steps":
        if not 1 <= history < frames:
            raise ValueError(
                f"history: expected 1 to {frames - 1} of the {frames} frames, got {history}"
            )
        frames -= history
    times = (0.0, 1.0) if first.times is None else survey.times
    sizes = {len(case) for case in survey.sizes}
    return replace(
        data,
        space=first.positions.shape[1],
        origin=tuple(float(x) for x in survey.middle),
        inputs=survey.inputs(),
        outputs=survey.outputs(),
        scalars=tuple(name for name in outputs if name in survey.scalars),
        classes=survey.classes(),
        kind=kind,
        frames=frames,
        history=history,
        time_range=times,
        grid=survey.all_grids,
        axes=survey.axes,
        points=sizes.pop() if len(sizes) == 1 else None,
        weights=survey.weights(weights),
    )


class _Survey:
    """One look at every case, with what has to be the same in all of them."""

    def __init__(self, inputs: list[str], outputs: list[str]) -> None:
        for side, names in (("inputs", inputs), ("outputs", outputs)):
            if len(set(names)) < len(names):
                raise ValueError(f"{side}: expected each name once, got {', '.join(names)}")
        self.input_names, self.output_names = inputs, outputs
        self.first: Case | None = None
        self.channels: dict[str, tuple[str, int]] = {}
        self.labels: dict[str, set[int]] = {}
        self.partial: set[str] = set()
        self.units: dict[str, str] = {}
        self.sizes: list[range] = []
        self.scalars: set[str] = set()
        self.grids: set[tuple[int, ...] | None] = set()
        self.with_weights = self.with_cells = 0
        self.low, self.high = np.full(3, np.inf), np.full(3, -np.inf)
        self.times = (0.0, 1.0)

    def look(self, case: Case) -> None:
        first = self.first = self.first or case
        if case.positions.shape[1] != first.positions.shape[1]:
            raise ValueError(
                f"{where(case)}: expected positions in {first.positions.shape[1]} dimensions, as "
                f"in {where(first)}, got {case.positions.shape[1]}"
            )
        if (case.times is None) != (first.times is None) or (
            case.times is not None
            and first.times is not None
            and len(case.times) != len(first.times)
        ):
            expected, got = (0 if c.times is None else len(c.times) for c in (first, case))
            raise ValueError(
                f"{where(case)}: expected {expected} frames in time, as in {where(first)}, got "
                f"{got}"
            )
        for name in dict.fromkeys([*self.input_names, *self.output_names]):
            self._look_at(case, name)
        for name in self.output_names:
            if name in case.parameters and name not in case.fields:
                raise ValueError(
                    f"outputs: expected fields on points, got {name!r}, a number per case"
                )
        space = case.positions.shape[1]
        self.low[:space] = np.minimum(self.low[:space], case.positions.min(0))
        self.high[:space] = np.maximum(self.high[:space], case.positions.max(0))
        if case.times is not None:
            low, high = float(case.times[0]), float(case.times[-1])
            if first is not case:
                low, high = min(low, self.times[0]), max(high, self.times[1])
            self.times = (low, high)
        self.units = {**case.units, **self.units}
        self.sizes.append(range(len(case)))
        self.grids.add(case.grid)
        self.with_weights += case.weights is not None
        self.with_cells += case.cells is not None

    def _look_at(self, case: Case, name: str) -> None:
        if name not in case.names:
            raise ValueError(f"{where(case)}: {unknown(name, case.names)}")
        if name in case.fields:
            values = case.fields[name]
            axes = 1 if case.times is None else 2
            kind, channels = "field", 1 if values.ndim == axes else values.shape[axes]
            if values.ndim == axes:
                self.scalars.add(name)
            if np.isinf(values).any():
                raise ValueError(f"{where(case)}: expected finite numbers in {name}, got infinite")
            if name in self.input_names and np.isnan(values).any():
                self.partial.add(name)
        elif name in case.categories:
            kind, channels = "category", 1
            self.labels.setdefault(name, set()).update(np.unique(case.categories[name]).tolist())
        else:
            kind, channels = "parameter", 1
            if not np.isfinite(case.parameters[name]):
                raise ValueError(
                    f"{where(case)}: expected a number for {name}, got {case.parameters[name]}"
                )
        expected = self.channels.setdefault(name, (kind, channels))
        if expected != (kind, channels):
            raise ValueError(
                f"{where(case)}: expected {name} to be a {expected[0]} of {expected[1]} channels, "
                f"as in the cases before, got a {kind} of {channels}"
            )

    @property
    def all_grids(self) -> bool:
        return None not in self.grids

    @property
    def axes(self) -> tuple[int, ...]:
        (first, *others) = self.grids
        return () if others or first is None else first

    @property
    def middle(self) -> Array:
        assert self.first is not None
        space = self.first.positions.shape[1]
        middle: Array = (self.low[:space] + self.high[:space]) / 2
        return middle

    def inputs(self) -> tuple[Given, ...]:
        return tuple(
            Given(
                name,
                "parameter" if self.channels[name][0] == "parameter" else "field",
                self.channels[name][1],
                self.units.get(name, ""),
                tuple(str(label) for label in sorted(self.labels.get(name, ()))),
                name in self.partial,
            )
            for name in self.input_names
        )

    def outputs(self) -> tuple[Field, ...]:
        categories = [name for name in self.output_names if name in self.labels]
        if categories and len(self.output_names) > 1:
            raise ValueError(
                f"outputs: expected one category alone, or fields, got {self.output_names}; fit "
                f"{categories[0]!r} by itself"
            )
        return tuple(
            Field(name, self.channels[name][1], self.units.get(name, ""))
            for name in self.output_names
        )

    def classes(self) -> tuple[str, ...]:
        labels = sorted(self.labels.get(self.output_names[0], ()))
        if labels and len([label for label in labels if label >= 0]) < 2:
            raise ValueError(
                f"outputs: expected at least two classes in {self.output_names[0]}, got {labels}"
            )
        return tuple(str(label) for label in labels if label >= 0)

    def weights(self, wanted: bool | None) -> Weights:
        count = len(self.sizes)
        found: Weights = "none"
        if self.all_grids:
            found = "grid"
        elif self.with_weights == count:
            found = "mesh" if self.with_cells == count else "given"
        if wanted and found == "none":
            raise ValueError(
                f"weights: expected all {count} cases on grids, on meshes with cells, or with "
                f"weights, got {self.with_weights} with weights; fit without them"
            )
        return "none" if wanted is False else found


def _varying(cases: Sequence[Case]) -> list[str]:
    """The parameters that all cases have and that differ between them."""
    values: dict[str, list[float]] = {name: [] for name in cases[0].parameters}
    for case in cases:
        values = {name: v for name, v in values.items() if name in case.parameters}
        for name, seen in values.items():
            seen.append(case.parameters[name])
    return [name for name, seen in values.items() if len(set(seen)) > 1]
