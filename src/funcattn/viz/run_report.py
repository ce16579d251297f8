"""The report of a training run: what came out, on which samples, and how it was made.

Axes: n point, s space dimension, i input channel, o output channel, t frame, m observation,
g basis function.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from funcattn.viz.canvases import (
    MOST_POINTS,
    Canvas,
    Line,
    canvas,
)
from funcattn.viz.figures import (
    MOST_FRAMES,
    MOST_NAMED_LABELS,
    LabelRow,
    LineCase,
    Panel,
    Row,
    frame_strip,
    label_rows,
    line_cases,
    point_gallery,
    point_rows,
)
from funcattn.viz.plots import (
    Chart,
    charts,
    histogram,
    layer_curves,
)
from funcattn.viz.report import Picture, Section, Table, write_report
from funcattn.viz.style import Series

Array = npt.NDArray[np.floating] | npt.NDArray[np.integer]
Floats = npt.NDArray[np.float64]

MOST_CHANNELS = 4
MOST_FUNCTIONS = 16
SMALL = 5_000
"""So many points are enough for the small pictures of galleries and strips."""
_SHARED = "Truth and prediction share one colour range."


@dataclass(frozen=True)
class Case:
    """One test sample, as numpy arrays."""

    label: str
    """Why it is shown: best, median, worst."""
    error: float
    positions: Array
    """(n s)"""
    grid: tuple[int, ...] | None
    inputs: Array | None
    """(n i)"""
    truth: Array
    """(n o) fields, (n,) whole numbers for labels, or (n t) and (n t o) for frames."""
    prediction: Array
    """Shaped as the truth; labels as labels."""
    context: Array | None = None
    """(m 2): places and values at which a function on a line was observed."""
    on_body: npt.NDArray[np.bool_] | None = None
    """(n,): which points lie on the surface of a body, whose inside stays blank."""

    @property
    def labelled(self) -> bool:
        """Whether the truth is labels, not a field."""
        return self.truth.ndim == 1 and bool(np.issubdtype(self.truth.dtype, np.integer))


@dataclass(frozen=True)
class RunReport:
    """All that the report of a run shows; what is empty is left out."""

    title: str
    summary: str
    picture: Literal["grid", "line", "cloud", "frames"]
    """How a case is drawn."""
    settings: Mapping[str, object]
    """Mappings inside mappings are shown flat, as a.b.c."""
    history: Sequence[Mapping[str, float | int]]
    """One mapping an epoch: train_loss, validation_<metric>, rate, seconds; epochs count from 1
    unless an `epoch` is among them."""
    headline: str
    """The metric by which the epoch was chosen."""
    larger_is_better: bool
    best_epoch: int
    test_metrics: Mapping[str, Sequence[float]]
    """By name, one number a test sample."""
    cases: Sequence[Case]
    bases: Mapping[str, Array]
    """By layer, from first to last: (g n) values at the positions of the first case."""
    conditions: Mapping[str, Sequence[float]]
    """By layer: condition number of the matrix that is solved with, one an epoch."""
    facts: Mapping[str, str]
    """Command, commit, machine, versions, when the test set was read."""
    first: Sequence[Section] = ()
    """Sections of the caller's own, shown before all others."""


def write_run_report(path: Path, report: RunReport) -> None:
    """Write the report as one HTML file that holds everything it shows."""
    _check(report)
    sections = [
        *report.first,
        *_test(report),
        *_training(report),
        *_predictions(report),
        *_bases(report),
        *_conditions(report),
        *_table("Settings", ("setting", "value"), _flat(report.settings)),
        *_table("How this was made", ("what", "value"), report.facts.items()),
    ]
    write_report(path, title=report.title, summary=report.summary, sections=sections)


def statistics(values: Sequence[float]) -> dict[str, float]:
    """Of the finite values: mean, standard deviation (n - 1), median, quantiles, extremes.

    >>> statistics([1.0, 2.0, 3.0, float("nan")])["mean"]
    2.0
    """
    every = np.asarray(values, dtype=np.float64)
    finite = every[np.isfinite(every)]
    names = ("mean", "standard deviation", "median", "5 %", "95 %", "minimum", "maximum")
    if not len(finite):
        return dict.fromkeys(names, float("nan"))
    spread = finite.std(ddof=1) if len(finite) > 1 else float("nan")
    quantiles = np.quantile(finite, [0.5, 0.05, 0.95, 0.0, 1.0])
    return dict(zip(names, map(float, (finite.mean(), spread, *quantiles)), strict=True))


def _check(report: RunReport) -> None:
    """Refuse what cannot be drawn, and say whose fault it is."""
    if report.test_metrics and report.headline not in report.test_metrics:
        raise ValueError(
            f"headline: expected one of the test metrics {sorted(report.test_metrics)}, got "
            f"{report.headline!r}"
        )
    epochs = _epochs(report)
    if epochs and report.best_epoch not in epochs:
        raise ValueError(
            f"best_epoch: expected an epoch of the history, {epochs[0]:g} to {epochs[-1]:g}, got "
            f"{report.best_epoch}; epochs count from 1 unless the history has an 'epoch'"
        )
    for case in report.cases:
        _check_case(case, report.picture)
    if len({case.labelled for case in report.cases}) > 1:
        raise ValueError("cases: expected labels in all or in none, got both; draw two reports")
    if report.bases and not report.cases:
        raise ValueError(
            f"bases: expected a first case to draw {len(report.bases)} layers on, got no cases; "
            "pass one, or no bases"
        )
    for name, values in report.bases.items():
        points = len(report.cases[0].positions)
        if values.ndim != 2 or values.shape[1] != points:
            raise ValueError(
                f"bases, {name}: expected (functions, {points}), one value at each position of "
                f"case {report.cases[0].label!r}, got {values.shape}"
            )


def _check_case(case: Case, picture: str) -> None:
    def expect(sound: bool, what: str, expected: str, got: object) -> None:
        if not sound:
            raise ValueError(f"case {case.label!r}, {what}: expected {expected}, got {got}")

    shape = case.positions.shape
    expect(len(shape) == 2 and min(shape) > 0, "positions", "(points, space dimensions)", shape)
    n, s = shape
    expect(s <= 3, "positions", "at most 3 columns to draw", f"{s}; pass those to draw")
    grid = case.grid
    expect(
        grid is None or int(np.prod(grid)) == n,
        "grid",
        f"axis lengths whose product is the number of positions, {n}",
        grid,
    )
    needs_grid = "a grid for the picture 'grid'; points without one are a 'cloud'"
    expect(picture != "grid" or grid is not None, "grid", needs_grid, None)
    on_line = "one column for the picture 'line'; points of the plane are a 'cloud'"
    expect(picture != "line" or s == 1, "positions", on_line, s)
    ranks = (2, 3) if picture == "frames" else (1, 2)
    layouts = "(n, t) or (n, t, o)" if picture == "frames" else "(n, o), or (n,) for labels,"
    truth, prediction = case.truth.shape, case.prediction.shape
    expect(
        len(truth) in ranks and truth[0] == n and min(truth) > 0,
        "truth",
        f"{layouts} with n = {n} positions for the picture {picture!r}",
        truth,
    )
    expect(prediction == truth, "prediction", f"the shape of the truth, {truth}", prediction)
    expect(
        not case.labelled or np.issubdtype(case.prediction.dtype, np.integer),
        "prediction",
        "labels as whole numbers, as in the truth",
        f"{case.prediction.dtype}; pass the argmax",
    )
    if case.inputs is not None:
        expected = f"({n}, channels), one row a position"
        got = case.inputs.shape
        expect(len(got) == 2 and got[0] == n, "inputs", expected, got)
    if case.context is not None:
        got = case.context.shape
        expect(len(got) == 2 and got[1] == 2, "context", "(observations, 2): place and value", got)


def _test(report: RunReport) -> Iterator[Section]:
    if not report.test_metrics:
        return
    headline = _words(report.headline)
    better = "larger" if report.larger_is_better else "smaller"
    text = (
        f"The epoch was chosen by {headline}; {better} is better. Numbers are over the test "
        "samples: the standard deviation is that with n - 1, 5 % and 95 % are quantiles."
    )
    rows = []
    for name in sorted(report.test_metrics, key=lambda name: name != report.headline):
        values = np.asarray(report.test_metrics[name], dtype=np.float64)
        numbers = statistics(report.test_metrics[name]).values()
        shown = ("-" if np.isnan(number) else f"{number:.4g}" for number in numbers)
        rows.append((_words(name), *shown, f"{np.isfinite(values).sum():,}"))
        text += _not_finite(_words(name), values, "they are left out")
    pictures = []
    if np.isfinite(np.asarray(report.test_metrics[report.headline], dtype=np.float64)).any():
        figure = histogram(report.test_metrics[report.headline], x_label=headline)
        caption = f"Histogram of {headline} over the test samples, with mean and median."
        pictures.append(Picture(figure, caption))
    headings = ("metric", *statistics([]), "samples")
    yield Section("Test", text, [Table(headings, rows, strong=0)], pictures)


def _training(report: RunReport) -> Iterator[Section]:
    series = _series(report)
    chosen, marked = f"validation_{report.headline}", report.best_epoch
    losses = {k: line for k, line in series.items() if k.endswith("loss") and k != chosen}
    panels = []
    if losses:
        panels.append(Chart("loss", {_words(name): line for name, line in losses.items()}))
    for name in sorted(series, key=lambda name: name != chosen):
        if name.startswith("validation_") and name not in losses:
            choosing = name == chosen
            log = not (choosing and report.larger_is_better)
            line = {_words(name): series[name]}
            panels.append(Chart(_words(name), line, log, float(marked) if choosing else None))
    if "rate" in series:
        panels.append(Chart("learning rate", {"learning rate": series["rate"]}))
    if not panels:
        return
    text = f"Of {len(report.history):,} epochs, epoch {marked:,} was chosen on validation data"
    caption = "Over the epochs: " + ", ".join(panel.title for panel in panels) + "."
    if chosen in series:
        at = dict(zip(*series[chosen], strict=True)).get(marked)
        text += "" if at is None else f", for its {_words(report.headline)} of {at:.4g}"
        caption += f" The dotted line is the chosen epoch, {marked:,}."
    text += "."
    for name, (_, values) in series.items():
        text += _not_finite(_words(name), np.asarray(values), "those epochs are left blank")
    yield Section("Training", text, pictures=[Picture(charts(panels), caption)])


def _predictions(report: RunReport) -> Iterator[Section]:
    if not report.cases:
        return
    first = report.cases[0]
    if report.picture == "frames":
        pictures = _frames(report)
    elif isinstance(_place(first, report), Line):
        pictures = _lines(report)
    elif first.labelled:
        pictures = _labels(report)
    else:
        pictures = _fields(report)
    names = ", ".join(_name(case) for case in report.cases)
    text = f"Test samples and their {_words(report.headline)}: {names}."
    yield Section("Predictions", text, pictures=list(pictures))


def _fields(report: RunReport) -> Iterator[Picture]:
    """One picture of all cases where each fits into a row; else one for each."""
    rows = []
    for case in report.cases:
        place = _place(case, report)
        inputs = _input_panels(case)
        outputs = _output_panels(case)
        if len(inputs) <= 1 and len(outputs) == 1:
            rows.append(Row(_name(case), place, [*inputs, *outputs[0]]))
            continue
        parts = [Row("input", place, inputs)] if inputs else []
        for number, panels in enumerate(outputs, start=1):
            parts.append(Row(f"output {number}" if len(outputs) > 1 else "output", place, panels))
        caption = (
            f"{_name(case).capitalize()}: {'inputs, ' if inputs else ''}truth, prediction and "
            f"absolute error. {_SHARED} {_remarks(report, [case], [place])}"
        )
        yield Picture(point_rows(parts), caption.strip())
    if rows:
        whose = ", ".join(row.name for row in rows)
        titles = ", ".join(panel.title for panel in rows[0].panels)
        remarks = _remarks(report, report.cases, [row.canvas for row in rows])
        caption = f"{whose.capitalize()}: {titles}. {_SHARED} {remarks}"
        yield Picture(point_rows(rows), caption.strip())


def _labels(report: RunReport) -> Iterator[Picture]:
    places = [_place(case, report) for case in report.cases]
    rows = [
        LabelRow(_name(case), place, _whole(case.truth), _whole(case.prediction))
        for case, place in zip(report.cases, places, strict=True)
    ]
    labels = len(np.unique(np.concatenate([np.append(r.truth, r.prediction) for r in rows])))
    whose = ", ".join(row.name for row in rows)
    caption = f"{whose.capitalize()}: true labels, predicted labels, and the wrong points in red."
    if labels > MOST_NAMED_LABELS:
        caption += f" {labels:,} labels occur; colours only tell them apart, and some are alike."
    caption += f" {_remarks(report, report.cases, places)}"
    yield Picture(label_rows(rows), caption.strip())


def _lines(report: RunReport) -> Iterator[Picture]:
    outputs = max(_channels(case.truth).shape[1] for case in report.cases)
    for output in range(min(MOST_CHANNELS, outputs)):
        having = [case for case in report.cases if output < _channels(case.truth).shape[1]]
        for start in range(0, len(having), 3):
            cases = having[start : start + 3]
            places = [_place(case, report) for case in cases]
            drawn = []
            for case in cases:
                n, s = case.positions.shape
                drawn.append(
                    LineCase(
                        _name(case),
                        _floats(case.positions)[:, 0] if s == 1 else np.arange(n, dtype=np.float64),
                        _channels(case.truth)[:, output],
                        _channels(case.prediction)[:, output],
                        _shown_inputs(case),
                        None if case.context is None else _floats(case.context),
                    )
                )
            which = f"Output {output + 1} of " if outputs > 1 else ""
            whose = ", ".join(case.name for case in drawn)
            seen = ", observations as dots" if any(c.context is not None for c in cases) else ""
            caption = (
                f"{which}{whose}: truth as a black line, prediction as a dashed orange line{seen}; "
                f"below, prediction minus truth. {_remarks(report, cases, places)}"
            )
            yield Picture(line_cases(drawn), (caption[0].upper() + caption[1:]).strip())


def _frames(report: RunReport) -> Iterator[Picture]:
    for case in report.cases:
        place = _place(case, report, most=SMALL)
        truth, prediction = (_frame_channels(part) for part in (case.truth, case.prediction))
        frames, outputs = truth.shape[1:]
        for output in range(min(MOST_CHANNELS, outputs)):
            which = f", output {output + 1}" if outputs > 1 else ""
            some = f"{MOST_FRAMES} of {frames} frames" if frames > MOST_FRAMES else "frames"
            caption = (
                f"{_name(case).capitalize()}{which}: {some} of truth, prediction and absolute "
                f"error. {_SHARED} {_remarks(report, [case], [place])}"
            )
            figure = frame_strip(place, truth[:, :, output], prediction[:, :, output])
            yield Picture(figure, caption.strip())


def _bases(report: RunReport) -> Iterator[Section]:
    if not report.bases:
        return
    case = report.cases[0]
    place = _place(case, report, most=SMALL)
    pictures = []
    for name in dict.fromkeys((next(iter(report.bases)), list(report.bases)[-1])):
        values = _floats(report.bases[name])
        mass = np.abs(np.where(np.isfinite(values), values, 0.0)).sum(axis=1)
        largest = np.argsort(-mass, kind="stable")[:MOST_FUNCTIONS]
        share = 100 * mass / (mass.sum() or 1.0)
        figure = point_gallery(
            place,
            [values[j] for j in largest],
            [f"{j} ({share[j]:.2g} %)" for j in largest],
        )
        caption = (
            f"{name.capitalize()}: the {len(largest)} of {len(values)} basis functions of largest "
            f"mass, by number with their share of it, on the {case.label} case. Each has its own "
            f"colour range.{_not_finite(name, values, 'they are left blank')}"
        )
        pictures.append(Picture(figure, " ".join([caption, *place.notes])))
    text = (
        "Functional attention projects fields onto functions that the network makes from the "
        "input. The mass of a function is the sum of its absolute values over the points."
    )
    yield Section("Learned bases", text, pictures=pictures)


def _conditions(report: RunReport) -> Iterator[Section]:
    lines: dict[str, Series] = {}
    text = (
        "Each layer solves with a small matrix. Its condition number says by how much the solve "
        "may enlarge rounding errors."
    )
    epochs = _epochs(report)
    for name, numbers in report.conditions.items():
        if len(numbers):
            same = len(numbers) == len(epochs)
            counted = [float(place) for place in range(1, len(numbers) + 1)]
            lines[name] = (epochs if same else counted, numbers)
            text += _not_finite(name, np.asarray(numbers), "those epochs are left blank")
    if not lines:
        return
    figure = layer_curves(lines, y_label="condition number")
    caption = "Condition number of the solved matrix over the epochs, by layer."
    yield Section("Condition of the solve", text, pictures=[Picture(figure, caption)])


def _table(
    title: str, headings: tuple[str, str], rows: Iterable[tuple[str, str]]
) -> Iterator[Section]:
    if kept := list(rows):
        yield Section(title, tables=[Table(headings, kept)])


def _flat(settings: Mapping[str, object], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", "none" if value is None or value == {} else str(value)


def _epochs(report: RunReport) -> list[float]:
    return [float(row.get("epoch", place)) for place, row in enumerate(report.history, start=1)]


def _series(report: RunReport) -> dict[str, Series]:
    """What is drawn of the history, by name: the epochs that have it, and its values there."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for epoch, row in zip(_epochs(report), report.history, strict=True):
        for name, value in row.items():
            if name == "rate" or name.startswith("validation_") or name.endswith("loss"):
                epochs, values = found.setdefault(name, ([], []))
                epochs.append(epoch)
                values.append(float(value))
    return dict(found)


def _place(case: Case, report: RunReport, *, most: int = MOST_POINTS) -> Canvas:
    grid = None if report.picture == "cloud" else case.grid
    return canvas(_floats(case.positions), grid, most=most, on_body=case.on_body)


def _input_panels(case: Case) -> list[Panel]:
    inputs = _shown_inputs(case)
    if inputs is None:
        return []
    names = [f"input {c + 1}" for c in range(inputs.shape[1])] if inputs.shape[1] > 1 else ["input"]
    return [Panel(name, inputs[:, c], colours="cividis") for c, name in enumerate(names)]


def _output_panels(case: Case) -> list[list[Panel]]:
    """Truth, prediction and absolute error of each channel that is shown."""
    return [
        [
            Panel("truth", truth, scale="value"),
            Panel("prediction", prediction, scale="value"),
            Panel("absolute error", np.abs(prediction - truth), "magma", from_zero=True),
        ]
        for truth, prediction in zip(
            _channels(case.truth).T[:MOST_CHANNELS],
            _channels(case.prediction).T[:MOST_CHANNELS],
            strict=True,
        )
    ]


def _shown_inputs(case: Case) -> Floats | None:
    if case.inputs is None or not case.inputs.shape[1]:
        return None
    return _floats(case.inputs)[:, :MOST_CHANNELS]


def _remarks(report: RunReport, cases: Sequence[Case], places: Sequence[Canvas]) -> str:
    """What the pictures leave out, in sentences."""
    said = list(dict.fromkeys(note for place in places for note in place.notes))
    for case in cases:
        frames = report.picture == "frames"  # which are drawn without their inputs
        outputs = case.truth.shape[2:] if frames else case.truth.shape[1:]
        inputs = () if case.inputs is None or frames else case.inputs.shape[1:]
        for kind, channels in (("input", inputs), ("output", outputs)):
            if channels and channels[0] > MOST_CHANNELS:
                said.append(
                    f"The first {MOST_CHANNELS} of {channels[0]} {kind} channels are shown."
                )
        for kind in ("inputs", "truth", "prediction", "context"):
            values = getattr(case, kind)
            if values is not None:
                said.append(_not_finite(f"{case.label}, {kind}", values, "left blank").strip())
    return " ".join(dict.fromkeys(filter(None, said)))


def _not_finite(name: str, values: Array, then: str) -> str:
    lost = int((~np.isfinite(values)).sum())
    return f" {name}: {lost:,} of {values.size:,} values are not finite; {then}." if lost else ""


def _name(case: Case) -> str:
    return f"{case.label} ({case.error:.3g})"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _floats(values: Array) -> Floats:
    return values.astype(np.float64)


def _whole(values: Array) -> npt.NDArray[np.int64]:
    return values.astype(np.int64)


def _channels(values: Array) -> Floats:
    """(n,) or (n o) -> (n o)"""
    return _floats(values).reshape(len(values), -1)


def _frame_channels(values: Array) -> Floats:
    """(n t) or (n t o) -> (n t o)"""
    return _floats(values).reshape(*values.shape[:2], -1)
