"""Curves over epochs and histograms, as matplotlib figures without global state."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from funcattn.viz.style import (
    PAGE_WIDTH,
    PREDICTION,
    TRUTH,
    Reals,
    Series,
    ShownFigure,
    short_numbers,
    value_range,
)


@dataclass(frozen=True)
class Chart:
    """One panel of curves over the epochs; `marked` is the epoch that was chosen."""

    title: str
    lines: Mapping[str, Series]
    log: bool = True
    """A logarithmic axis, where all values are positive and over a decade apart."""
    marked: float | None = None


def charts(panels: Sequence[Chart]) -> Figure:
    """Charts over the epochs, up to three side by side."""
    columns = 2 if len(panels) == 4 else min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = ShownFigure(
        figsize=(max(6.0, PAGE_WIDTH * columns / 3), 2.9 * rows), layout="constrained"
    )
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    for axis, chart in zip(axes, panels, strict=False):
        # A single curve is named by the title.
        names = chart.lines if len(chart.lines) > 1 else [None]
        drawn = [
            _plot(axis, line, label=name)
            for name, line in zip(names, chart.lines.values(), strict=True)
        ]
        if chart.marked is not None:
            label = f"chosen: epoch {chart.marked:g}"
            axis.axvline(chart.marked, color="grey", linestyle=":", label=label)
            for x, y in drawn:
                axis.plot(x[x == chart.marked], y[x == chart.marked], "o", color=PREDICTION)
        heights = np.concatenate([y for _, y in drawn])
        if chart.log and len(heights) and 0 < 10 * heights.min() < heights.max():
            axis.set_yscale("log")
            _decades(axis, heights)
        else:
            short_numbers(axis)
        axis.set_title(chart.title, fontsize=10)
        _count_epochs(axis)
        axis.grid(visible=True, alpha=0.3)
        if len(chart.lines) > 1 or chart.marked is not None:
            axis.legend(fontsize=9)
    return figure


def layer_curves(layers: Mapping[str, Series], *, y_label: str) -> Figure:
    """One curve a layer over the epochs on a logarithmic axis, coloured by depth."""
    figure = ShownFigure(figsize=(8.5, 3.6), layout="constrained")
    axis = figure.subplots()
    shades = colormaps["viridis"](np.linspace(0.0, 0.88, len(layers)))
    axis.set_yscale("log")
    heights: list[Reals] = [np.empty(0)]
    for (name, (x, y)), shade in zip(layers.items(), shades, strict=True):
        positive = [value if value > 0 else math.nan for value in y]
        heights.append(_plot(axis, (x, positive), label=name, color=shade)[1])
    _decades(axis, np.concatenate(heights))
    axis.set_ylabel(y_label, fontsize=10)
    _count_epochs(axis)
    axis.grid(visible=True, which="both", alpha=0.25)
    figure.legend(loc="outside right upper", fontsize=9, frameon=False)
    return figure


def curves(lines: Mapping[str, Series], *, x_label: str, y_label: str) -> Figure:
    """Curves on logarithmic axes, with dots where they are few."""
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axis = figure.subplots()
    heights: list[Reals] = [np.empty(0)]
    for name, line in lines.items():
        heights.append(_plot(axis, line, label=name)[1])
    axis.set(xscale="log", yscale="log", xlabel=x_label, ylabel=y_label)
    drawn = np.concatenate(heights)
    if len(drawn) and 0 < drawn.max() < 2 * drawn.min():  # what hardly changes is drawn as flat
        axis.set_ylim(drawn.min() / 2, 2 * drawn.max())
    _decades(axis, drawn)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_xticks(sorted({x for line in lines.values() for x in line[0]}))
    axis.grid(visible=True, which="major", alpha=0.3)
    if len(lines) > 1:
        axis.legend(fontsize=9)
    return figure


def histogram(values: Sequence[float], *, x_label: str, y_label: str = "test samples") -> Figure:
    """How often which value came, with mean and median; what is not finite is left out."""
    figure = ShownFigure(figsize=(7, 3.2), layout="constrained")
    axis = figure.subplots()
    kept = np.asarray(values, dtype=np.float64)
    kept = kept[np.isfinite(kept)]
    low, high = value_range([kept])
    bins = int(np.clip(2 * math.sqrt(len(kept)), 8, 40))
    # Errors often have a tail of decades, which would leave one bin for nearly all samples.
    if len(kept) and 0 < 100 * low < high:
        axis.set_xscale("log")
        edges = np.geomspace(low, high, bins + 1)
    else:
        edges = np.linspace(low, high, bins + 1)
        short_numbers(axis, "x")
    axis.hist(kept, edges.tolist(), color="#7d9fc7", edgecolor="white", linewidth=0.5)
    if len(kept):
        mean, median = float(kept.mean()), float(np.median(kept))
        axis.axvline(mean, color=PREDICTION, label=f"mean {mean:.4g}")
        axis.axvline(median, color=TRUTH, linestyle="--", label=f"median {median:.4g}")
        axis.legend(fontsize=9)
    axis.set(xlabel=x_label, ylabel=y_label)
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _plot(axis: Axes, line: Series, **style: Any) -> tuple[Reals, Reals]:
    """Draw where values are finite, with dots where they are few, and return what was drawn."""
    x, y = (np.asarray(part, dtype=np.float64) for part in line)
    finite = np.isfinite(y)
    x, y = x[finite], y[finite]
    axis.plot(x, y, marker="." if len(x) <= 20 else "", **style)
    return x, y


def _count_epochs(axis: Axes) -> None:
    """Whole numbers below the axis, also where there is one epoch only."""
    axis.set_xlabel("epoch", fontsize=10)
    axis.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    left, right = axis.get_xlim()
    if right - left < 2:
        axis.set_xlim((left + right) / 2 - 1, (left + right) / 2 + 1)


def _decades(axis: Axes, heights: Reals) -> None:
    """Plain numbers on a logarithmic axis, at 1, 2, 5 where there are few decades."""
    few = len(heights) > 0 and heights.max() < 100 * heights.min()
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter(NullFormatter())
