"""Pictures of fields, bases and training curves, as matplotlib figures without global state.

Fields on a plain 2-D array are in "ij" order: the first index runs along x. They are drawn with x
to the right and y upwards. Fields on any points are drawn on a `Canvas`, which knows the geometry:
an image, triangles in the plane, dots in space, or a curve. What is not finite is left blank.

Axes: n point, s space dimension, i input channel, t frame, k triangle.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap, Normalize, hsv_to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from funcattn.viz.canvases import Canvas, Image, Line, proportion
from funcattn.viz.style import (
    OBSERVED,
    PAGE_WIDTH,
    PREDICTION,
    RIGHT,
    TRUTH,
    WRONG,
    Labels,
    Look,
    Reals,
    ShownFigure,
    colour_ends,
    short_numbers,
    value_range,
)

MOST_FRAMES = 10
MOST_NAMED_LABELS = 16


@dataclass(frozen=True)
class Panel:
    """One field of a row; panels of a row with the same `scale` share their colour range."""

    title: str
    values: Reals
    colours: str = "viridis"
    scale: str | None = None
    from_zero: bool = False
    """The colours start at 0, as those of an absolute error should."""


def field_rows(rows: Mapping[str, Sequence[Panel]]) -> Figure:
    """Rows of 2-D arrays side by side with their colour bars; the key names the row."""
    return _rows(
        [
            (name, [(panel, _plain_image(panel.values)) for panel in panels])
            for name, panels in rows.items()
        ]
    )


@dataclass(frozen=True)
class Row:
    """Panels on one canvas, their values (n,)."""

    name: str
    canvas: Canvas
    panels: Sequence[Panel]


def point_rows(rows: Sequence[Row]) -> Figure:
    """Rows of fields on points side by side with their colour bars; rows of one field share one."""
    if len(rows) > 1 and all(len(row.panels) == 1 for row in rows):
        named = [(replace(row.panels[0], title=row.name), row.canvas) for row in rows]
        return _rows([(rows[0].panels[0].title, named)])
    return _rows([(row.name, [(panel, row.canvas) for panel in row.panels]) for row in rows])


def point_gallery(
    place: Canvas, functions: Sequence[Reals], titles: Sequence[str], columns: int = 8
) -> Figure:
    """Small pictures of basis functions (n,) on points, each on its own colour range."""
    places = [place] * len(functions)
    lines = [places[start : start + columns] for start in range(0, len(places), columns)]
    figure, axes = _axes(lines, gap=0.08, title=0.25, most=1.6)
    flat = [axis for line in axes for axis in line]
    for axis, values, title in zip(flat, functions, titles, strict=True):
        low, high = value_range([place.seen(values)])
        look = Look(colormaps["magma"], Normalize(low, high))
        if low < 0 < high:  # zero is where such a function does nothing: it gets the neutral colour
            far = max(-low, high)
            look = Look(colormaps["coolwarm"], Normalize(-far, far))
        place.draw(axis, values, look)
        axis.set_title(title, fontsize=9)
    return figure


@dataclass(frozen=True)
class LabelRow:
    """Whole numbers (n,) that name the parts of a shape."""

    name: str
    canvas: Canvas
    truth: Labels
    prediction: Labels


def label_rows(rows: Sequence[LabelRow]) -> Figure:
    """Rows of true labels, predicted labels, and where the two differ.

    A label has the same colour in all panels. A legend names the labels unless they are many.
    """
    every = np.unique(np.concatenate([part for r in rows for part in (r.truth, r.prediction)]))
    look = _categories(_label_colours(len(every)))
    marks = _categories([RIGHT, WRONG])
    figure, axes = _axes([[row.canvas] * 3 for row in rows], gap=0.5)
    for line, row in zip(axes, rows, strict=True):
        for axis, name in zip(line, ("truth", "prediction"), strict=False):
            labels = row.truth if name == "truth" else row.prediction
            row.canvas.draw(axis, np.searchsorted(every, labels).astype(np.float64), look)
            axis.set_title(name, fontsize=10)
        axis, wrong = line[2], row.truth != row.prediction
        # Second, so that the few that are wrong do not hide behind the many that are right.
        row.canvas.draw(axis, np.where(wrong, np.nan, 0.0), marks)
        row.canvas.draw(axis, np.where(wrong, 1.0, np.nan), marks)
        axis.set_title(f"{100 * wrong.mean():.3g} % wrong", fontsize=10)
        _name_row(line[0], row.name, row.canvas)
    named: list[tuple[str, Any]] = [("right", RIGHT), ("wrong", WRONG)]
    if len(every) <= MOST_NAMED_LABELS:
        shades = (look.colours(place) for place in range(len(every)))
        named = [*zip(map(str, every), shades, strict=True), *named]
    handles = [
        Line2D([], [], marker="o", linestyle="", color=colour, label=name) for name, colour in named
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=9, fontsize=9, frameon=False)
    return figure


@dataclass(frozen=True)
class LineCase:
    """One sample on a line (n,), with its input channels (n i) and observations (m 2)."""

    name: str
    x: Reals
    truth: Reals
    prediction: Reals
    inputs: Reals | None = None
    observed: Reals | None = None


def line_cases(cases: Sequence[LineCase]) -> Figure:
    """Columns of curves: inputs if there are any, truth with prediction, and the error."""
    with_inputs = any(case.inputs is not None for case in cases)
    heights = [1.0] * with_inputs + [2.0, 1.0]
    figure = ShownFigure(
        figsize=(PAGE_WIDTH / 3 * len(cases), 1.3 * sum(heights) + 0.8), layout="constrained"
    )
    axes = figure.subplots(
        len(heights), len(cases), squeeze=False, sharex="col", height_ratios=heights
    )
    for column, case in zip(axes.T, cases, strict=True):
        order = np.argsort(case.x, kind="stable")
        x = case.x[order]
        if case.inputs is not None:
            shades = colormaps["cividis"](np.linspace(0.1, 0.8, case.inputs.shape[1]))
            for channel, shade in zip(case.inputs[order].T, shades, strict=True):
                column[0].plot(x, channel, color=shade, linewidth=1.2)
        fit, error = column[-2:]
        fit.plot(x, case.truth[order], color=TRUTH, linewidth=2.2, label="truth")
        fit.plot(
            x,
            case.prediction[order],
            color=PREDICTION,
            linewidth=1.6,
            linestyle="--",
            label="prediction",
        )
        if case.observed is not None:
            fit.plot(*case.observed.T, "o", color=OBSERVED, markersize=5, label="observed")
        error.axhline(0, color="grey", linewidth=0.8)
        error.plot(x, (case.prediction - case.truth)[order], color=PREDICTION, linewidth=1.2)
        error.set_xlabel("position")
        column[0].set_title(case.name, fontsize=10)
        for axis in column:
            axis.grid(visible=True, alpha=0.3)
            axis.tick_params(labelsize=9)
            short_numbers(axis)
    names = ["input"] * with_inputs + ["value", "error"]
    for axis, name in zip(axes[:, 0], names, strict=True):
        axis.set_ylabel(name, fontsize=10)
    found = dict(zip(*reversed(axes[-2, 0].get_legend_handles_labels()), strict=True))
    figure.legend(
        found.values(),
        found.keys(),
        loc="outside upper center",
        ncols=3,
        fontsize=10,
        frameon=False,
    )
    return figure


def frame_strip(place: Canvas, truth: Reals, prediction: Reals) -> Figure:
    """Up to ten frames of fields (n t) in time: truth above prediction above absolute error.

    Truth and prediction share one colour range over all frames; so do the errors.
    """
    frames = truth.shape[1]
    shown = np.unique(np.linspace(0, frames - 1, min(frames, MOST_FRAMES)).round().astype(int))
    error = np.abs(prediction - truth)
    values = value_range([place.seen(part[:, shown]) for part in (truth, prediction)])
    errors = value_range([place.seen(error[:, shown])], from_zero=True)
    strips = (
        ("truth", truth, Look(colormaps["viridis"], Normalize(*values))),
        ("prediction", prediction, Look(colormaps["viridis"], Normalize(*values))),
        ("error", error, Look(colormaps["magma"], Normalize(*errors))),
    )
    figure, axes = _axes([[place] * len(shown)] * 3, gap=0.08, title=0.06, most=2.4, beside=1.1)
    for line, (name, fields, look) in zip(axes, strips, strict=True):
        for axis, frame in zip(line, shown, strict=True):
            place.draw(axis, fields[:, frame], look)
        _name_row(line[0], name, place)
    for axis, frame in zip(axes[0], shown, strict=True):
        axis.set_title(f"frame {frame + 1}", fontsize=9)
    if isinstance(place, Line):
        for line, (_, _, look) in zip(axes, strips, strict=True):
            _heights(line[0], look)
    else:
        _bar(figure, [*axes[0], *axes[1]], strips[0][2], 2 * place.ratio)
        _bar(figure, axes[2], strips[2][2], place.ratio)
    return figure


def _plain_image(values: Reals) -> Image:
    first, second = values.shape
    return Image((first, second), proportion(float(first), float(second))[0])


def _rows(rows: Sequence[tuple[str, Sequence[tuple[Panel, Canvas]]]]) -> Figure:
    places = [[place for _, place in panels] for _, panels in rows]
    figure, axes = _axes(places, gap=0.6, to_the_right=True)
    for line, (name, panels) in zip(axes, rows, strict=True):
        for number, (axis, (panel, place)) in enumerate(zip(line, panels, strict=True)):
            shared = [p for p, _ in panels if panel.scale and p.scale == panel.scale] or [panel]
            ranged = [place.seen(p.values) for p in shared]
            norm = Normalize(*value_range(ranged, from_zero=panel.from_zero))
            look = Look(colormaps[panel.colours], norm)
            place.draw(axis, panel.values, look)
            axis.set_title(panel.title, fontsize=10)
            following = [p for p, _ in panels[number + 1 :]]
            if isinstance(place, Line):
                _heights(axis, look)
            elif not any(p is other for p in following for other in shared):
                _bar(figure, [axis], look, place.ratio)
        _name_row(line[0], name, panels[0][1])
    return figure


def _axes(
    lines: Sequence[Sequence[Canvas]],
    *,
    gap: float,
    title: float = 0.3,
    most: float = 3.2,
    beside: float = 0.3,
    to_the_right: bool = False,
) -> tuple[Figure, list[list[Axes]]]:
    """A figure with an axis for each canvas, in lines; a panel is about `most` inches at most.

    `gap` is for what stands between two panels, `beside` for what stands at the sides of all.
    `to_the_right`: where a short line goes.
    """
    columns = max(len(line) for line in lines)
    ratio = max(place.ratio for line in lines for place in line)
    # Tall panels are narrower, but have room for their titles.
    width = min(most, (PAGE_WIDTH - beside) / columns - gap, max(0.56 * most, 1.25 * most / ratio))
    heights = [width * max(place.ratio for place in line) + title for line in lines]
    size = ((width + gap) * columns + beside, sum(heights) + 0.2)
    figure = ShownFigure(figsize=size, layout="constrained")
    spec = figure.add_gridspec(len(lines), columns, height_ratios=heights)
    axes = [
        [
            figure.add_subplot(spec[row, column + (columns - len(line)) * to_the_right])
            for column in range(len(line))
        ]
        for row, line in enumerate(lines)
    ]
    return figure, axes


def _name_row(axis: Axes, name: str, place: Canvas) -> None:
    """Name a row at its first axis, and its directions if they cannot be taken for granted."""
    axis.set_ylabel(name, fontsize=10)
    if place.directions is None:
        return
    ends = 26 * place.directions
    foot = 6 - np.minimum(0, ends.min(axis=0))  # all of it to the right of and above the corner
    for letter, (right, up) in zip("xyz", foot + ends, strict=True):
        axis.annotate(
            letter,
            (float(foot[0]), float(foot[1])),
            (float(right), float(up)),
            xycoords="axes points",
            textcoords="axes points",
            ha="center",
            va="center",
            fontsize=8,
            color="#57606a",
            arrowprops={"arrowstyle": "-", "color": "#9aa1a9", "shrinkA": 1, "shrinkB": 0},
        )


def _bar(figure: Figure, axes: Sequence[Axes], look: Look, ratio: float) -> None:
    """A colour bar beside axes that together are `ratio` times as high as one is wide."""
    low, high = colour_ends(look)
    bar = figure.colorbar(
        ScalarMappable(look.norm, look.colours),
        ax=list(axes),
        fraction=0.046,
        aspect=ratio / 0.046,
        pad=0.02,
        format=_short_format(low, high),
    )
    bar.ax.tick_params(labelsize=8)
    bar.ax.locator_params(nbins=5)


def _heights(axis: Axes, look: Look) -> None:
    """What a colour bar is to other canvases, for curves: numbers at the lowest and highest."""
    low, high = colour_ends(look)
    axis.set_yticks(
        [low, high], [_short_format(low, high) % end for end in (low, high)], fontsize=8
    )


def _short_format(low: float, high: float) -> str:
    """Three digits of the range, whatever the digits before them."""
    digits = 3 + max(0, math.ceil(math.log10(max(abs(low), abs(high)) / (high - low))))
    return f"%.{digits}g"


def _label_colours(labels: int) -> list[Any]:
    # Without the reds and greys, which say wrong and right.
    for name, taken in (("tab10", (3, 7)), ("tab20", (6, 7, 14, 15))):
        shades = [
            colormaps[name](place) for place in range(colormaps[name].N) if place not in taken
        ]
        if labels <= len(shades):
            return shades[:labels]
    # Steps of the golden ratio keep the hues of neighbouring labels far apart.
    places = np.arange(labels)
    hues, third = (places * 0.618034) % 1, places % 3
    return list(hsv_to_rgb(np.stack([hues, 0.9 - 0.2 * third, 0.6 + 0.15 * third], axis=1)))


def _categories(shades: Sequence[Any]) -> Look:
    edges = np.arange(len(shades) + 1) - 0.5
    return Look(ListedColormap(shades), BoundaryNorm(edges, len(shades)), smooth=False)
