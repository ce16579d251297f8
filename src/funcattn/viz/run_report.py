"""The report of a training run: what came out, on which samples, and how it was made.

Axes: n point, g basis function.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from funcattn.problem import PictureKind
from funcattn.viz.cases import (
    SMALL,
    Case,
    FieldArray,
    case_canvas,
    case_name,
    case_pictures,
    check_case,
    floats,
    not_finite,
)
from funcattn.viz.figures import point_gallery
from funcattn.viz.plots import Chart, charts, histogram, layer_curves
from funcattn.viz.report import Picture, Section, Table, write_report
from funcattn.viz.style import Series

MOST_FUNCTIONS = 16


@dataclass(frozen=True)
class RunReport:
    """All that the report of a run shows; what is empty is left out."""

    title: str
    summary: str
    picture: PictureKind
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
    """By name, one number per test sample."""
    cases: Sequence[Case]
    bases: Mapping[str, FieldArray]
    """By layer, from first to last: (g n) values at the positions of the first case."""
    conditions: Mapping[str, Sequence[float]]
    """By layer: condition number of the matrix that is solved with, one per epoch."""
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
        check_case(case, report.picture)
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
        text += not_finite(_words(name), values, "they are left out")
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
        text += not_finite(_words(name), np.asarray(values), "those epochs are left blank")
    yield Section("Training", text, pictures=[Picture(charts(panels), caption)])


def _predictions(report: RunReport) -> Iterator[Section]:
    if not report.cases:
        return
    names = ", ".join(case_name(case) for case in report.cases)
    text = f"Test samples and their {_words(report.headline)}: {names}."
    yield Section("Predictions", text, pictures=list(case_pictures(report.cases, report.picture)))


def _bases(report: RunReport) -> Iterator[Section]:
    if not report.bases:
        return
    case = report.cases[0]
    place = case_canvas(case, report.picture, most=SMALL)
    pictures = []
    for name in dict.fromkeys((next(iter(report.bases)), list(report.bases)[-1])):
        values = floats(report.bases[name])
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
            f"colour range.{not_finite(name, values, 'they are left blank')}"
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
            text += not_finite(name, np.asarray(numbers), "those epochs are left blank")
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


def _words(name: str) -> str:
    return name.replace("_", " ")
