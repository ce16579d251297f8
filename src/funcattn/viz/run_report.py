"""The report of a training run: what came out, on which samples, and how it was made.

Axes: n point, s space dimension, i input channel, o output channel, t frame, m observation,
g basis function.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from funcattn.viz.figures import (
    MOST_FRAMES,
    MOST_NAMED_LABELS,
    Canvas,
    Chart,
    LabelRow,
    LineCase,
    Panel,
    Row,
    Series,
    canvas,
    charts,
    frame_strip,
    histogram,
    label_rows,
    layer_curves,
    line_cases,
    point_gallery,
    point_rows,
)
from funcattn.viz.report import Picture, Section, Table, write_report

Array = npt.NDArray[np.floating] | npt.NDArray[np.integer]
Floats = npt.NDArray[np.float64]

MOST_CHANNELS = 4
MOST_FUNCTIONS = 16
SMALL = 5_000
"""So many points are enough for the small pictures of galleries and strips."""


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


def write_run_report(path: Path, report: RunReport) -> None:
    """Write the report as one HTML file that holds everything it shows."""
    _check(report)
    sections = [
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
    names = sorted(report.test_metrics, key=lambda name: name != report.headline)
    rows = []
    for name in names:
        values = report.test_metrics[name]
        finite = int(np.isfinite(np.asarray(values, dtype=np.float64)).sum())
        samples = f"{finite:,}" if finite == len(values) else f"{finite:,} of {len(values):,}"
        shown = ("-" if np.isnan(v) else f"{v:.4g}" for v in statistics(values).values())
        rows.append((_words(name), *shown, samples))
    better = "larger" if report.larger_is_better else "smaller"
    text = (
        f"{_words(report.headline).capitalize()} is the metric by which the epoch was chosen; "
        f"{better} is better. The numbers are over the test samples, the standard deviation with "
        "n - 1, 5 % and 95 % are quantiles."
    )
    lost = {
        name: int((~np.isfinite(np.asarray(values, dtype=np.float64))).sum())
        for name, values in report.test_metrics.items()
    }
    for name, count in lost.items():
        if count:
            text += f" {_words(name)} is not finite for {count:,} samples, which are left out."
    headline = report.test_metrics[report.headline]
    pictures = []
    if len(headline) > lost[report.headline]:
        figure = histogram(headline, x_label=_words(report.headline))
        caption = (
            f"Histogram of {_words(report.headline)} over the {len(headline):,} test samples, "
            "with mean and median."
        )
        pictures.append(Picture(figure, caption))
    headings = ("metric", *statistics([]), "samples")
    yield Section("Test", text, [Table(headings, rows, strong=0)], pictures)


def _training(report: RunReport) -> Iterator[Section]:
    series = _series(report)
    chosen = f"validation_{report.headline}"
    marked = report.best_epoch
    losses = {_words(k): line for k, line in series.items() if k.endswith("loss") and k != chosen}
    panels = [Chart("loss", losses)] if losses else []
    for name in sorted(series, key=lambda name: name != chosen):
        if not name.startswith("validation_") or (name.endswith("loss") and name != chosen):
            continue
        first = name == chosen
        log = not (first and report.larger_is_better)
        title = "validation " + _words(name.removeprefix("validation_"))
        panels.append(Chart(title, {title: series[name]}, log, marked if first else None))
    if "rate" in series:
        panels.append(Chart("learning rate", {"learning rate": series["rate"]}))
    if not panels:
        return
    text = f"{len(report.history):,} epochs; epoch {marked:,} was chosen on validation data"
    if chosen in series:
        epochs, values = series[chosen]
        at = dict(zip(epochs, values, strict=True)).get(marked, float("nan"))
        text += f", by its {_words(report.headline)} of {at:.4g}" if np.isfinite(at) else ""
    text += "."
    for name, (_, values) in series.items():
        text += _not_finite(_words(name), np.asarray(values), "epochs")
    caption = "Over the epochs: " + ", ".join(panel.title for panel in panels) + "."
    if chosen in series:
        caption += f" The dotted line is the chosen epoch, {marked:,}."
    yield Section("Training", text, pictures=[Picture(charts(panels), caption)])


def _predictions(report: RunReport) -> Iterator[Section]:
    if not report.cases:
        return
    drawing = {"frames": _frames}.get(report.picture, _steady)
    names = [case.label for case in report.cases]
    listed = ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]
    text = f"Test samples by their {_words(report.headline)}: {listed}."
    yield Section("Predictions", text, pictures=list(drawing(report)))


def _steady(report: RunReport) -> Iterator[Picture]:
    first = report.cases[0]
    if first.positions.shape[1] == 1 or (
        report.picture == "grid" and first.grid is not None and len(first.grid) == 1
    ):
        yield from _lines(report)
    elif first.labelled:
        yield from _labels(report)
    else:
        yield from _fields(report)


def _fields(report: RunReport) -> Iterator[Picture]:
    """One picture for all cases where a case fits into a row; else one for each."""
    places = [_place(case, report) for case in report.cases]
    parts = [(_floats(case.inputs), _channels(case.truth)) for case in report.cases]
    if all(inputs.shape[1] <= 1 and truth.shape[1] == 1 for inputs, truth in parts):
        rows = [
            Row(_name(case), place, [*_input_panels(inputs), *_output_panels(case, 0)])
            for case, place, (inputs, _) in zip(report.cases, places, parts, strict=True)
        ]
        about = " ".join(_about(case, place) for case, place in zip(report.cases, places, strict=True))
        caption = f"{_row_words(parts[0][0])}, for each case. Truth and prediction share one "
        yield Picture(point_rows(rows), f"{caption}colour range. {about}".strip())
        return
    for case, place, (inputs, truth) in zip(report.cases, places, parts, strict=True):
        shown = min(MOST_CHANNELS, truth.shape[1])
        rows = [Row("input", place, _input_panels(inputs))] if inputs.shape[1] else []
        rows += [
            Row(f"output {o + 1}" if truth.shape[1] > 1 else "output", place, _output_panels(case, o))
            for o in range(shown)
        ]
        caption = (
            f"{_name(case, report).capitalize()}. {_row_words(inputs)}, by channel. Truth and "
            f"prediction of a channel share one colour range. "
            f"{_first_of(inputs.shape[1], 'input')}{_first_of(truth.shape[1], 'output')}"
            f"{_about(case, place)}"
        )
        yield Picture(point_rows(rows), caption.strip())
