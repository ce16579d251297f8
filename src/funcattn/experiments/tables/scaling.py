"""The figure of time and memory over the number of points, from what `funcattn bench` measured."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from matplotlib.figure import Figure

from funcattn.bench.candidates import LAYERS, OURS, STREAMED
from funcattn.bench.runner import MEASUREMENTS
from funcattn.documents import read_json
from funcattn.experiments.engine.claims import compared, times
from funcattn.experiments.engine.drawing import curves
from funcattn.experiments.engine.experiment import (
    NOT_IN_PAPER,
    Claim,
    Experiment,
    Outcome,
    Verdict,
)
from funcattn.viz.style import Series

SHAPE = {"width": 128, "bases": 64, "heads": 8}
_METHODS = {
    OURS: "Functional attention",
    STREAMED: "Functional attention, streamed",
    "softmax": "Softmax attention",
    "performer": "Performer",
    "linformer": "Linformer",
    "nystromformer": "Nystromformer",
    "galerkin": "Galerkin",
}
"""The methods of the paper's figure, by their names in the benchmark; the streamed form is ours."""
_BASELINES = [name for name, candidate in LAYERS.items() if not candidate.functional]
"""All methods that were measured count, also those that the paper's figure lacks."""
Quantity = Literal["time", "memory"]
_LABELS: Mapping[Quantity, str] = {
    "time": "forward pass, milliseconds",
    "memory": "forward pass, peak memory, MB",
}
_SIXTEENTH = 16
"""How far apart two sizes are whose times per point are compared."""


def measured(path: Path, quantity: Quantity) -> dict[str, dict[int, float]]:
    """A forward pass of one layer, by method and number of points; empty without measurements."""
    found: dict[str, dict[int, float]] = {}
    if not path.exists():
        return found
    records: Mapping[str, Any] = read_json(path, MEASUREMENTS)["measurements"]
    for record in records.values():
        # The file also has single calls with very many points, which have no part.
        what = [record.get(name) for name in ("part", "shape", "allocator", "threads")]
        if what != ["layer", SHAPE, "default", 1]:
            continue
        for name, of in record["candidates"].items():
            value = (
                1e3 * of.get("forward", {}).get("median", math.nan)
                if quantity == "time"
                else of.get("memory", {}).get("forward", {}).get("bytes", math.nan) / 1e6
            )
            if math.isfinite(value):
                found.setdefault(name, {})[record["points"]] = value
    return found


@dataclass(frozen=True)
class Least(Claim):
    """A form of functional attention takes least at the largest size at which it was measured."""

    quantity: Quantity
    form: str = OURS

    def verdict(self, outcome: Outcome) -> Verdict:
        """Against the methods that were measured there."""
        found = measured(outcome.bench, self.quantity)
        if self.form not in found:
            return Verdict(self.text, "not yet", "not measured")
        points = max(found[self.form])
        others = {n: found[n][points] for n in _BASELINES if points in found.get(n, {})}
        if not others:
            return Verdict(self.text, "not yet", "no other method was measured there")
        name = min(others, key=lambda other: others[other])
        ours, theirs = found[self.form][points], others[name]
        title = _METHODS.get(name, f"{name}{NOT_IN_PAPER}")
        details = compared(self.quantity, "functional attention", ours, title, theirs)
        details += f" at {points:,} points; {len(others)} of {len(_BASELINES)} other methods were "
        return Verdict(
            self.text, "holds" if ours < theirs else "does not hold", f"{details}measured"
        )


@dataclass(frozen=True)
class Linear(Claim):
    """The time per point of a form does not grow."""

    form: str = OURS
    most: float = 1.25

    def verdict(self, outcome: Outcome) -> Verdict:
        """From a sixteenth of the largest size on."""
        taken = measured(outcome.bench, "time").get(self.form, {})
        if not taken or max(taken) // _SIXTEENTH not in taken:
            return Verdict(self.text, "not yet", "not measured")
        large = max(taken)
        small = large // _SIXTEENTH
        ratio = taken[large] / large / (taken[small] / small)
        details = (
            f"the time per point at {large:,} points is {times(ratio)} that at {small:,} points"
        )
        return Verdict(self.text, "holds" if ratio <= self.most else "does not hold", details)


def _figures(outcome: Outcome) -> dict[str, Figure]:
    figures = {}
    for quantity, label in _LABELS.items():
        lines: dict[str, Series] = {}
        found = measured(outcome.bench, quantity)
        for name, title in _METHODS.items():
            if name in found:
                points = sorted(found[name])
                lines[title] = ([float(n) for n in points], [found[name][n] for n in points])
        if lines:
            figures[f"scaling_{quantity}"] = curves(lines, x_label="points", y_label=label)
    return figures


SCALING = Experiment(
    name="scaling",
    aliases=("figure5",),
    title="Time and memory over the number of points",
    unit="",
    rows={},
    columns={},
    trials={},
    claims=(
        Least("functional attention is the fastest at many points", "time"),
        Least("functional attention takes least memory at many points", "memory"),
        Least("functional attention takes least memory, when streamed", "memory", STREAMED),
        Linear("the time of functional attention grows linearly"),
        Linear("the time of functional attention grows linearly, when streamed", STREAMED),
    ),
    figures=_figures,
    notes=(
        "Measured by `funcattn bench`, one layer of width 128 with 64 basis functions and 8 heads, "
        "batch 1, on one CPU core; the paper used a GPU.",
    ),
)
