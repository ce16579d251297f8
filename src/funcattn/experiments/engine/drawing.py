"""Figures that several experiments share."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from funcattn.experiments.engine.experiment import Outcome
from funcattn.experiments.engine.trial import Trial
from funcattn.viz import Chart, charts
from funcattn.viz.style import Series

_MARKS = "os^DvPX*"
_ROOM = 24
"""Up to this many characters in total, all places get their number below the axis."""


def curves(lines: Mapping[str, Series], *, x_label: str, y_label: str) -> Figure:
    """Lines with marks, both axes logarithmic."""
    figure = Figure(figsize=(6.6, 3.9), layout="constrained")
    axis = figure.subplots()
    for number, (name, (x, y)) in enumerate(lines.items()):
        axis.plot(x, y, marker=_MARKS[number % len(_MARKS)], markersize=5, label=name)
    axis.set_xscale("log")
    axis.set_yscale("log")
    places = sorted({place for x, _ in lines.values() for place in x})
    numbers = [f"{place:g}" for place in places]
    if len("".join(numbers)) <= _ROOM:
        axis.set_xticks(places, numbers)
        axis.xaxis.set_minor_locator(NullLocator())
    heights = [height for _, y in lines.values() for height in y]
    narrow = max(heights) < 100 * min(heights)
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if narrow else (1,)))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.set(xlabel=x_label, ylabel=y_label)
    axis.grid(visible=True, which="both", alpha=0.3)
    figure.legend(loc="outside right upper", fontsize=9, frameon=False)
    return figure


def condition_curves(outcome: Outcome, name: str, trials: Mapping[str, Trial]) -> dict[str, Figure]:
    """Condition numbers over training, as a mean over layers, for the first seed of each trial."""
    lines: dict[str, Series] = {}
    for label, trial in trials.items():
        for result in outcome.found(trial)[:1]:
            curve = result.line["curve"]
            layers = [values for key, values in curve.items() if key.startswith("condition_")]
            mean = np.mean(np.array(layers, dtype=np.float64), axis=0)
            lines[label] = (curve["epoch"], mean.tolist())
    if not lines:
        return {}
    return {name: charts([Chart("condition number, mean over layers", lines)])}
