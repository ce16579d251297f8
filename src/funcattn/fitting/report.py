"""The report of a surrogate: its test beside yardsticks, where it errs, how it was made."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from funcattn.data import Sample, Store, collate
from funcattn.fitting.sizing import extrapolated
from funcattn.fitting.yardsticks import neighbours
from funcattn.problem import PictureKind
from funcattn.tasks.base import Splits
from funcattn.tasks.own import Given, Own, OwnData
from funcattn.tasks.own_samples import CaseSamples
from funcattn.training.report import describe_run, drawn_case
from funcattn.training.setup import read_json
from funcattn.trust.pages import bands_section
from funcattn.viz import Case as DrawnCase
from funcattn.viz import write_run_report
from funcattn.viz.cases import case_pictures
from funcattn.viz.report import Section, Table

if TYPE_CHECKING:
    from funcattn.fitting.fitted import FittedSurrogate

WORST = 5
"""Cases that are named."""
DRAWN = 3
"""Of these are drawn."""


def write_surrogate_report(surrogate: "FittedSurrogate", path: Path) -> Path:
    """Write the report; the test cases are drawn from the data of the fit, or read again."""

    splits = surrogate.splits()
    task = surrogate.task
    described = describe_run(surrogate.run, Store(surrogate.run.folder), task=task)
    cases = _drawn(surrogate, splits)
    sections = [
        *bands_section(surrogate.run),
        *_yardsticks(surrogate),
        *learning_curve(surrogate),
        *_worst(surrogate, cases[2:], described.picture),
        *_regions(task, surrogate, splits),
    ]
    described = replace(described, cases=cases[:2])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_run_report(path, replace(described, first=sections, title=_title(surrogate)))
    return path


def _title(surrogate: "FittedSurrogate") -> str:
    given = [each.name for each in surrogate.data.inputs] or ["geometry"]
    sought = [each.name for each in surrogate.data.outputs]
    return f"{', '.join(given)} to {', '.join(sought)}"


def _yardsticks(surrogate: "FittedSurrogate") -> Iterator[Section]:
    own = surrogate.data
    names = [] if own.classes else [each.name for each in own.outputs]
    units = {each.name: f" [{each.unit}]" if each.unit else "" for each in own.outputs}
    found = {"this surrogate": surrogate.tested, **surrogate.comparison}
    ranked = sorted(found.items(), key=lambda item: item[1]["error"])
    rows = [
        (label, f"{100 * numbers['error']:.3g} %", *(f"{numbers[name]:.4g}" for name in names))
        for label, numbers in ranked
    ]
    place = [label for label, _ in ranked].index("this surrogate")
    text = (
        "The error of a field is the root mean square error over the deviation of the field in "
        "training; the first column is the mean over the fields, the others are in their units. "
        + surrogate.verdict()
    )
    if own.classes:
        text = f"The error is the share of points with a wrong label. {surrogate.verdict()}"
    headings = ("prediction of the test cases", "error", *(f"{n}{units[n]}" for n in names))
    yield Section("Beside yardsticks", text, [Table(headings, rows, strong=place)])


def learning_curve(surrogate: "FittedSurrogate") -> Iterator[Section]:
    """What more cases would give, or how to find out."""
    path = surrogate.run.folder / "learning_curve.json"
    if not path.exists():
        text = (
            "Not measured: funcattn fit with --learning-curve also trains with half and a quarter "
            "of the cases."
        )
        yield Section("Would more cases help?", text)
        return
    curve = surrogate.curve
    rows = [(count, f"{100 * error:.3g} %") for count, error in curve.items()]
    table = Table(("training cases", "validation error"), rows)
    yield Section("Would more cases help?", extrapolated(curve), [table])


def _drawn(surrogate: "FittedSurrogate", splits: Splits) -> list[DrawnCase]:
    """The best and the median case of the test, then the worst ones, the worst first."""
    errors = np.array(surrogate.run.record["test_values"]["error"])
    names, order = _test_names(surrogate), np.argsort(errors, kind="stable").tolist()
    chosen = [("best", order[0]), ("median", order[len(order) // 2])]
    chosen += [("worst", place) for place in order[: -1 - DRAWN : -1]]
    cases = []
    for label, place in chosen:
        sample = splits.test[place]
        label = f"{label}, {names[place]}{_numbers(sample, surrogate.data)}"
        case, _ = drawn_case(
            surrogate.task, surrogate.run.network, sample, label, float(errors[place])
        )
        fields = [i for i, each in enumerate(_columns(surrogate.data)) if each.kind == "field"]
        if case.inputs is not None and case.input_names:
            names_of = [case.input_names[i] for i in fields]
            case = replace(case, inputs=case.inputs[:, fields], input_names=names_of)
        cells = splits.test.case(place).cells if isinstance(splits.test, CaseSamples) else None
        cases.append(replace(case, corners=None if cells is None else cells.triangles()))
    return cases


def _columns(own: OwnData) -> list[Given]:
    """What each input channel belongs to."""
    before = own.history * own.output_channels if own.kind == "steps" else 0
    return [
        *[Given("frames before")] * before,
        *(each for each in own.inputs for _ in range(each.width)),
    ]


def _numbers(sample: Sample, own: OwnData) -> str:
    """The parameters of a case in words; a picture of a number says no more."""
    if sample.values is None:
        return ""
    return "".join(
        f", {each.name} {number:.4g}{f' {each.unit}' if each.unit else ''}"
        for each, number in zip(_columns(own), sample.values[0].tolist(), strict=True)
        if each.kind == "parameter"
    )


def _test_names(surrogate: "FittedSurrogate") -> list[str]:
    note = read_json(surrogate.run.file("surrogate.json"), {"cases": {"test": [str]}})
    names: list[str] = note["cases"]["test"]
    return names


def _worst(
    surrogate: "FittedSurrogate", cases: Sequence[DrawnCase], picture: PictureKind
) -> Iterator[Section]:
    """The test cases with the largest errors, by name and drawn."""
    names, values = _test_names(surrogate), surrogate.run.record["test_values"]
    order = np.argsort(-np.array(values["error"]))[:WORST]
    fields = [name for name in values if name != "error" and not name.endswith(" normalised")]
    rows = [
        (
            names[i],
            f"{100 * values['error'][i]:.3g} %",
            *(f"{values[name][i]:.4g}" for name in fields),
        )
        for i in order.tolist()
    ]
    text = "The test cases with the largest errors; fields in their units."
    pictures = list(case_pictures(cases, picture))
    yield Section("Worst cases", text, [Table(("case", "error", *fields), rows)], pictures)


def _regions(task: Own, surrogate: "FittedSurrogate", splits: Splits) -> Iterator[Section]:
    """Errors near the boundary of the points and far from it."""
    errors = errors_by_region(task, surrogate.run.network, splits)
    if not errors:
        return
    rows = [(name, f"{near:.4g}", f"{far:.4g}") for name, (near, far) in errors.items()]
    text = (
        "Root mean square errors at the tenth of the points nearest to the boundary of each case, "
        "and at all others. A point counts as the nearer to the boundary the more its neighbours "
        "lie on one side of it."
    )
    yield Section("Near the boundary", text, [Table(("field", "near", "far"), rows)])


@torch.no_grad()
def errors_by_region(
    task: Own, network: torch.nn.Module, splits: Splits
) -> dict[str, tuple[float, float]]:
    """Of each field, the root mean square error near the boundary and elsewhere, over the test."""
    if task.data.classes:
        return {}
    sums: dict[str, list[float]] = {each.name: [0.0, 0.0] for each in task.data.outputs}
    counts: dict[str, list[float]] = {each.name: [0.0, 0.0] for each in task.data.outputs}
    dtype = next(network.parameters()).dtype
    for place in range(len(splits.test)):
        sample = splits.test[place]
        guess = task.predict(network, collate([sample]).to("cpu", dtype))[0]
        near = near_boundary(sample)
        start = 0
        for each in task.data.outputs:
            channels = slice(start, start + each.channels)
            start += each.channels
            squares = (guess - sample.target)[..., channels].double().square()
            for side, chosen in enumerate((near, ~near)):
                part = squares[torch.from_numpy(chosen)]
                known = ~part.isnan()
                sums[each.name][side] += float(part[known].sum())
                counts[each.name][side] += float(known.sum())
    return {
        name: (
            float(np.sqrt(sums[name][0] / max(counts[name][0], 1))),
            float(np.sqrt(sums[name][1] / max(counts[name][1], 1))),
        )
        for name in sums
    }


def near_boundary(
    sample: Sample, share: float = 0.1, around: int = 12
) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """The share of the points (n,) whose neighbours lie most to one side of them."""
    points = sample.positions.double().numpy()
    places, distances = neighbours(points, points, min(around + 1, len(points)))
    reach = np.maximum(distances[:, -1:], np.finfo(float).tiny)
    lopsided = np.linalg.norm((points[places].mean(1) - points) / reach, axis=1)
    chosen = np.zeros(len(points), bool)
    chosen[np.argsort(-lopsided, kind="stable")[: max(round(share * len(points)), 1)]] = True
    return chosen


__all__ = ["errors_by_region", "learning_curve", "near_boundary", "write_surrogate_report"]
