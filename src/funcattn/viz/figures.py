"""Pictures of fields, bases and training curves, as matplotlib figures without global state.

Fields on a plain 2-D array are in "ij" order: the first index runs along x. They are drawn with x
to the right and y upwards. Fields on any points are drawn on a `Canvas`, which knows the geometry:
an image, triangles in the plane, dots in space, or a curve. What is not finite is left blank.

Axes: n point, s space dimension, i input channel, t frame, k triangle.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, Colormap, ListedColormap, Normalize, hsv_to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from matplotlib.tri import Triangulation

Array = npt.NDArray[np.floating]
Labels = npt.NDArray[np.integer]
Series = tuple[Sequence[float], Sequence[float]]
"""Places and the values at them."""

MOST_POINTS = 20_000
"""More points than this make a picture slow and no clearer."""
MOST_FRAMES = 10
MOST_NAMED_LABELS = 20

_TRUTH, _PREDICTION, _OBSERVED = "#1b1f24", "#d1660a", "#2463b0"
_RIGHT, _WRONG = "#c4c9cf", "#c8102e"


@dataclass(frozen=True)
class Panel:
    """One field of a row; panels of a row with the same `scale` share their colour range."""

    title: str
    values: Array
    colours: str = "viridis"
    scale: str | None = None
    from_zero: bool = False
    """The colours start at 0, as those of an absolute error should."""


@dataclass(frozen=True)
class Look:
    """Which colour a value has; `smooth` allows colours between those of the points."""

    colours: Colormap
    norm: Normalize
    smooth: bool = True


class Canvas(ABC):
    """One point set, ready to have fields drawn on it, panel after panel."""

    projection: ClassVar[Literal["3d"] | None] = None
    ratio: float
    """Height over width of a panel."""
    notes: tuple[str, ...]
    """What a reader must know of the drawing, in sentences."""

    @abstractmethod
    def draw(self, axis: Any, values: Array, look: Look) -> None:
        """Draw one number a point on an axis of this projection."""


@dataclass(frozen=True, eq=False)
class Image(Canvas):
    """A grid of equal spacing; `transposed` where the first index runs along y."""

    grid: tuple[int, int]
    ratio: float
    transposed: bool = False
    notes: tuple[str, ...] = ()

    def draw(self, axis: Any, values: Array, look: Look) -> None:
        """Draw an image, the first index to the right unless transposed."""
        _bare(axis, self.ratio)
        pixels = np.ma.masked_invalid(values.reshape(self.grid))
        axis.imshow(
            pixels if self.transposed else pixels.T,
            origin="lower",
            cmap=look.colours,
            norm=look.norm,
            aspect="auto",
            interpolation="auto" if look.smooth else "nearest",
        )


@dataclass(frozen=True, eq=False)
class Mesh(Canvas):
    """Points in the plane and triangles between them; points of no triangle are dots."""

    points: Array
    """(n 2), all finite."""
    corners: Labels
    """(k 3): which points make a triangle."""
    drawn: Labels
    """Which of the values belong to these points."""
    window: tuple[float, float, float, float]
    """Left, right, bottom and top of what is shown."""
    ratio: float
    notes: tuple[str, ...] = ()

    def draw(self, axis: Any, values: Array, look: Look) -> None:
        """Draw colours that run linearly over each triangle, or dots where they must not mix."""
        _bare(axis, self.ratio)
        axis.set(xlim=self.window[:2], ylim=self.window[2:])
        values = values[self.drawn]
        alone = finite = np.isfinite(values)
        x, y = self.points.T
        corners = self.corners[finite[self.corners].all(axis=1)]
        if look.smooth and len(corners):
            alone = finite.copy()
            alone[corners] = False
            axis.tripcolor(
                Triangulation(x, y, corners),
                np.where(finite, values, 0.0),
                shading="gouraud",
                cmap=look.colours,
                norm=look.norm,
            )
        if alone.any():
            axis.scatter(
                x[alone],
                y[alone],
                c=values[alone],
                s=_dot_area(axis, len(values)),
                cmap=look.colours,
                norm=look.norm,
                linewidths=0,
            )


@dataclass(frozen=True, eq=False)
class Space(Canvas):
    """Points in space as dots, from a view that spreads them widely."""

    projection: ClassVar[Literal["3d"] | None] = "3d"
    points: Array
    """(n 3), all finite."""
    drawn: Labels
    """Which of the values belong to these points."""
    view: tuple[float, float]
    """Elevation and azimuth in degrees."""
    ratio: float = 1.0
    notes: tuple[str, ...] = ()

    def draw(self, axis: Any, values: Array, look: Look) -> None:
        """Draw dots without shading: a colour means a value and nothing else."""
        values = values[self.drawn]
        finite = np.isfinite(values)
        axis.set_proj_type("ortho")
        axis.view_init(*self.view)
        axis.set_axis_off()
        sides = [_widened(float(c.min()), float(c.max())) for c in self.points.T if len(c)]
        if sides:
            axis.set(xlim=sides[0], ylim=sides[1], zlim=sides[2])
            axis.set_box_aspect([high - low for low, high in sides], zoom=1.2)
        axis.scatter(
            *self.points[finite].T,
            c=values[finite],
            s=_dot_area(axis, len(values)),
            cmap=look.colours,
            norm=look.norm,
            linewidths=0,
            depthshade=False,
        )


@dataclass(frozen=True, eq=False)
class Line(Canvas):
    """Points on a line: a field is a curve, and its colour range the height of the panel."""

    x: Array
    """(n,), all finite, rising."""
    drawn: Labels
    """Which of the values belong to these points."""
    ratio: float = 0.75
    notes: tuple[str, ...] = ()

    def draw(self, axis: Any, values: Array, look: Look) -> None:
        """Draw a curve with gaps where values are not finite."""
        _bare(axis, self.ratio)
        low, high = float(look.norm.vmin or 0), float(look.norm.vmax or 0)
        axis.set(ylim=(low - 0.06 * (high - low), high + 0.06 * (high - low)))
        axis.plot(self.x, values[self.drawn], color=look.colours(0.4), linewidth=1.3)


def canvas(
    positions: Array, grid: tuple[int, ...] | None = None, *, most: int = MOST_POINTS
) -> Canvas:
    """The way to draw fields on points (n s) that may form a grid; at most `most` are drawn.

    >>> import numpy as np
    >>> x, y = np.meshgrid(np.linspace(0, 1, 3), np.linspace(0, 2, 5), indexing="ij")
    >>> canvas(np.stack([x.ravel(), y.ravel()], axis=1), (3, 5))
    Image(grid=(3, 5), ratio=2.0, transposed=False, notes=())
    """
    points, space = positions.shape
    if grid is not None and math.prod(grid) != points:
        raise ValueError(
            f"grid: expected axis lengths whose product is the number of points, {points}, got "
            f"{grid}; pass None for points that form no grid"
        )
    if grid is not None and len(grid) == 2:
        return _grid_canvas(positions, (grid[0], grid[1]), most)
    drawn: Labels = np.flatnonzero(np.isfinite(positions).all(axis=1))
    notes = (_without_position(points - len(drawn)),) if len(drawn) < points else ()
    if space == 1 or (grid is not None and len(grid) == 1):
        # A grid that bends through the plane has no one coordinate: its points are counted.
        x = positions[:, 0] if space == 1 else np.arange(points, dtype=np.float64)
        drawn = drawn[np.argsort(x[drawn], kind="stable")]
        return Line(x[drawn], drawn, notes=notes)
    if space == 2:
        return _cloud_canvas(positions, drawn, most, notes)
    if space == 3:
        drawn, thinned = _thinned(drawn, most)
        shown = positions[drawn]
        return Space(shown, drawn, widest_view(shown), notes=notes + thinned)
    raise ValueError(
        f"positions: expected 1, 2 or 3 columns for a picture, got {space}; pass the columns that "
        "should be drawn"
    )


def triangles(points: Array, *, reach: float = 3.0) -> Labels:
    """Delaunay triangles (k 3) of points (n 2) in the plane, without those that bridge a gap.

    A triangle goes if its longest edge is over `reach` times the spacing at its corners, so that
    holes stay holes and notches stay open. The spacing at a point is its third-shortest edge:
    those do not cross a hole, not even from its rim. None are left where the points are on a line.

    >>> import numpy as np
    >>> triangles(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])).shape
    (1, 3)
    """
    try:
        mesh = Triangulation(points[:, 0], points[:, 1])
    except (RuntimeError, ValueError):  # qhull: fewer than three points, or all on one line
        return np.empty((0, 3), dtype=np.int64)
    corners = mesh.triangles.astype(np.int64)
    ends = np.concatenate([mesh.edges, mesh.edges[:, ::-1]])
    lengths = np.linalg.norm(points[ends[:, 0]] - points[ends[:, 1]], axis=1)
    order = np.lexsort((lengths, ends[:, 0]))
    start, stop = (
        np.searchsorted(ends[order, 0], np.arange(len(points)), side=side)
        for side in ("left", "right")
    )
    # Duplicates of a point have no edges; they are no triangle's corner, so any place will do.
    third = np.clip(np.minimum(start + 2, stop - 1), 0, len(order) - 1)
    spacing = lengths[order][third]
    sides = points[corners] - points[np.roll(corners, 1, axis=1)]
    longest = np.linalg.norm(sides, axis=2).max(axis=1)
    return corners[longest <= reach * spacing[corners].max(axis=1)]


def widest_view(points: Array) -> tuple[float, float]:
    """Elevation and azimuth, z upwards, from which points (n 3) spread over the largest area."""
    if len(points) < 2:
        return 20.0, -60.0
    spread = np.cov(points.T)

    def area(view: tuple[float, float]) -> float:
        e, a = np.radians(view)
        right = [-math.sin(a), math.cos(a), 0.0]
        up = [-math.sin(e) * math.cos(a), -math.sin(e) * math.sin(a), math.cos(e)]
        seen = np.array([right, up])
        return float(np.linalg.det(seen @ spread @ seen.T))

    return max(((e, float(a)) for e in (20.0, 35.0, 50.0) for a in range(-75, 105, 15)), key=area)


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
    """Rows of fields on points side by side with their colour bars."""
    return _rows([(row.name, [(panel, row.canvas) for panel in row.panels]) for row in rows])


def basis_gallery(functions: Sequence[Array], titles: Sequence[str], columns: int = 8) -> Figure:
    """Small pictures of basis functions on 2-D arrays, each on its own colour range."""
    return _gallery([_plain_image(values) for values in functions], functions, titles, columns)


def point_gallery(
    place: Canvas, functions: Sequence[Array], titles: Sequence[str], columns: int = 8
) -> Figure:
    """Small pictures of basis functions (n,) on points, each on its own colour range."""
    return _gallery([place] * len(functions), functions, titles, columns)


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
    marks = _categories([_RIGHT, _WRONG])
    figure, axes = _axes([[row.canvas] * 3 for row in rows], width=3.6)
    axis: Any  # matplotlib leaves its axes in space untyped
    for line, row in zip(axes, rows, strict=True):
        for axis, name in zip(line, ("truth", "prediction"), strict=False):
            labels = row.truth if name == "truth" else row.prediction
            row.canvas.draw(axis, np.searchsorted(every, labels).astype(np.float64), look)
            axis.set_title(name, fontsize=10)
        axis, wrong = line[2], row.truth != row.prediction
        # The few that are wrong must not hide behind the many that are right.
        if row.canvas.projection == "3d":
            axis.computed_zorder = False
        row.canvas.draw(axis, np.where(wrong, np.nan, 0.0), marks)
        row.canvas.draw(axis, np.where(wrong, 1.0, np.nan), marks)
        axis.set_title(f"wrong: {100 * wrong.mean():.3g} % of points", fontsize=10)
        _name_row(line[0], row.name)
    named: list[tuple[str, Any]] = [("right", _RIGHT), ("wrong", _WRONG)]
    if len(every) <= MOST_NAMED_LABELS:
        shades = (look.colours(place) for place in range(len(every)))
        named = [*zip(map(str, every), shades, strict=True), *named]
    handles = [
        Line2D([], [], marker="o", linestyle="", color=colour, label=name) for name, colour in named
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=11, fontsize=9, frameon=False)
    return figure


@dataclass(frozen=True)
class LineCase:
    """One sample on a line (n,), with its input channels (n i) and observations (m 2)."""

    name: str
    x: Array
    truth: Array
    prediction: Array
    inputs: Array | None = None
    observed: Array | None = None


def line_cases(cases: Sequence[LineCase]) -> Figure:
    """Columns of curves: inputs if there are any, truth with prediction, and the error."""
    with_inputs = any(case.inputs is not None for case in cases)
    heights = [1.0] * with_inputs + [2.0, 1.0]
    figure = Figure(figsize=(3.9 * len(cases), 1.3 * sum(heights) + 0.8), layout="constrained")
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
        fit.plot(x, case.truth[order], color=_TRUTH, linewidth=2.2, label="truth")
        fit.plot(
            x,
            case.prediction[order],
            color=_PREDICTION,
            linewidth=1.6,
            linestyle="--",
            label="prediction",
        )
        if case.observed is not None:
            fit.plot(*case.observed.T, "o", color=_OBSERVED, markersize=5, label="observed")
        error.axhline(0, color="grey", linewidth=0.8)
        error.plot(x, (case.prediction - case.truth)[order], color=_PREDICTION, linewidth=1.2)
        error.set_xlabel("position")
        column[0].set_title(case.name, fontsize=10)
        for axis in column:
            axis.grid(visible=True, alpha=0.3)
            axis.tick_params(labelsize=9)
            _short_numbers(axis)
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


def frame_strip(place: Canvas, truth: Array, prediction: Array) -> Figure:
    """Up to ten frames of fields (n t) in time: truth above prediction above absolute error.

    Truth and prediction share one colour range over all frames; so do the errors.
    """
    frames = truth.shape[1]
    shown = np.unique(np.linspace(0, frames - 1, min(frames, MOST_FRAMES)).round().astype(int))
    error = np.abs(prediction - truth)
    values = _range([truth[:, shown], prediction[:, shown]])
    errors = _range([error[:, shown]], from_zero=True)
    strips = (
        ("truth", truth, Look(colormaps["viridis"], Normalize(*values))),
        ("prediction", prediction, Look(colormaps["viridis"], Normalize(*values))),
        ("error", error, Look(colormaps["magma"], Normalize(*errors))),
    )
    width = min(2.4, 12.0 / len(shown))
    figure, axes = _axes([[place] * len(shown)] * 3, width=width, title=0.1)
    for line, (name, fields, look) in zip(axes, strips, strict=True):
        for axis, frame in zip(line, shown, strict=True):
            place.draw(axis, fields[:, frame], look)
        _name_row(line[0], name)
    for axis, frame in zip(axes[0], shown, strict=True):
        axis.set_title(f"frame {frame + 1}", fontsize=9)
    _bar(figure, [*axes[0], *axes[1]], strips[0][2])
    _bar(figure, axes[2], strips[2][2])
    return figure


def curves(
    lines: Mapping[str, Sequence[float]], *, x_label: str, y_label: str, marked: int | None = None
) -> Figure:
    """Curves over 1, 2, 3, ... on a logarithmic axis; `marked` draws a line at that place."""
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axis = figure.subplots()
    for name, values in lines.items():
        axis.semilogy(range(1, len(values) + 1), values, label=name)
    if marked is not None:
        axis.axvline(marked, color="grey", linestyle=":", label=f"chosen: {x_label} {marked}")
    axis.set(xlabel=x_label, ylabel=y_label)
    axis.grid(visible=True, which="both", alpha=0.3)
    axis.legend()
    return figure


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
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(max(6.0, 4.1 * columns), 3.2 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    for axis, chart in zip(axes, panels, strict=False):
        drawn = [_plot(axis, line, label=name) for name, line in chart.lines.items()]
        if chart.marked is not None:
            label = f"chosen: epoch {chart.marked:g}"
            axis.axvline(chart.marked, color="grey", linestyle=":", label=label)
            for x, y in drawn:
                axis.plot(x[x == chart.marked], y[x == chart.marked], "o", color="grey")
        heights = np.concatenate([y for _, y in drawn])
        if chart.log and len(heights) and 0 < 10 * heights.min() < heights.max():
            axis.set_yscale("log")
        else:
            _short_numbers(axis)
        axis.set_title(chart.title, fontsize=10)
        axis.set_xlabel("epoch", fontsize=10)
        axis.grid(visible=True, alpha=0.3)
        if len(chart.lines) > 1 or chart.marked is not None:
            axis.legend(fontsize=9)
    return figure


def layer_curves(layers: Mapping[str, Series], *, y_label: str) -> Figure:
    """One curve a layer over the epochs on a logarithmic axis, coloured by depth."""
    figure = Figure(figsize=(8.5, 3.6), layout="constrained")
    axis = figure.subplots()
    shades = colormaps["viridis"](np.linspace(0.0, 0.88, len(layers)))
    axis.set_yscale("log")
    for (name, (x, y)), shade in zip(layers.items(), shades, strict=True):
        positive = [value if value > 0 else math.nan for value in y]
        _plot(axis, (x, positive), label=name, color=shade)
    axis.set(xlabel="epoch", ylabel=y_label)
    axis.grid(visible=True, which="both", alpha=0.25)
    figure.legend(loc="outside right upper", fontsize=9, frameon=False)
    return figure


def histogram(values: Sequence[float], *, x_label: str) -> Figure:
    """How often which value came, with mean and median; what is not finite is left out."""
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axis = figure.subplots()
    kept = np.asarray(values, dtype=np.float64)
    kept = kept[np.isfinite(kept)]
    low, high = _range([kept])
    bins = int(np.clip(2 * math.sqrt(len(kept)), 8, 40))
    # Errors often have a tail of decades, which would leave one bin for nearly all samples.
    if len(kept) and 0 < 100 * low < high:
        axis.set_xscale("log")
        edges = np.geomspace(low, high, bins + 1)
    else:
        edges = np.linspace(low, high, bins + 1)
        _short_numbers(axis, "x")
    axis.hist(kept, edges.tolist(), color="#7d9fc7", edgecolor="white", linewidth=0.5)
    if len(kept):
        mean, median = float(kept.mean()), float(np.median(kept))
        axis.axvline(mean, color=_PREDICTION, label=f"mean {mean:.4g}")
        axis.axvline(median, color=_TRUTH, linestyle="--", label=f"median {median:.4g}")
        axis.legend(fontsize=9)
    axis.set(xlabel=x_label, ylabel="test samples")
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _grid_canvas(positions: Array, grid: tuple[int, int], most: int) -> Canvas:
    """An image where the spacing is even or the plane shape unknown; else the bent cells."""
    first, second = grid
    if positions.shape[1] != 2:
        ratio, notes = _proportion(first, second)
        return Image(grid, ratio, notes=notes)
    finite = np.asarray(np.isfinite(positions).all(axis=1))
    if finite.all():
        x, y = positions.T.reshape(2, first, second)
        for transposed, across, up in ((False, x, y), (True, x.T, y.T)):
            if _is_even(across) and _is_even(up.T):
                ratio, notes = _proportion(float(np.ptp(x)), float(np.ptp(y)))
                return Image(grid, ratio, transposed, notes)
    stride = math.ceil(math.sqrt(len(positions) / most))
    rows, columns = (np.unique([*range(0, length, stride), length - 1]) for length in grid)
    drawn = (rows[:, None] * second + columns).ravel()
    place = np.arange(len(drawn)).reshape(len(rows), len(columns))
    a, b, c, d = place[:-1, :-1], place[1:, :-1], place[1:, 1:], place[:-1, 1:]
    cells = np.stack([a, b, c, a, c, d], axis=-1).reshape(-1, 3)  # two triangles a cell
    window, ratio, notes = _window(positions[finite])
    if stride > 1:
        notes += (f"{len(drawn):,} of {len(positions):,} points are drawn.",)
    if lost := len(finite) - int(finite.sum()):
        notes += (_without_position(lost),)
    sound = finite[drawn]
    cells = (np.cumsum(sound) - 1)[cells[sound[cells].all(axis=1)]]
    drawn = drawn[sound]
    return Mesh(positions[drawn], cells, drawn, window, ratio, notes)


def _is_even(coordinate: Array) -> bool:
    """Whether it rises in even steps along the first axis and is constant along the second."""
    even = np.linspace(coordinate[0, 0], coordinate[-1, 0], len(coordinate))[:, None]
    step = float(coordinate[-1, 0] - coordinate[0, 0]) / max(1, len(coordinate) - 1)
    return step > 0 and float(np.abs(coordinate - even).max()) < 0.01 * step


def _cloud_canvas(positions: Array, drawn: Labels, most: int, notes: tuple[str, ...]) -> Mesh:
    window, ratio, about_window = _window(positions[drawn])
    left, right, bottom, top = window
    # Points outside would only use up the number to draw; those near it have triangles inside.
    x, y = positions[drawn].T
    by, up = 0.1 * (right - left), 0.1 * (top - bottom)
    near = (x > left - by) & (x < right + by) & (y > bottom - up) & (y < top + up)
    drawn, thinned = _thinned(drawn[near], most)
    points = positions[drawn]
    return Mesh(points, triangles(points), drawn, window, ratio, notes + about_window + thinned)


def _without_position(lost: int) -> str:
    return f"{lost:,} points without a finite position are left out."


def _thinned(drawn: Labels, most: int) -> tuple[Labels, tuple[str, ...]]:
    if len(drawn) <= most:
        return drawn, ()
    # At random: every k-th point of a mesh file would follow the file's order, not the shape.
    kept = np.sort(np.random.default_rng(0).choice(drawn, most, replace=False))
    return kept, (f"{most:,} of {len(drawn):,} points are drawn.",)


def _window(points: Array) -> tuple[tuple[float, float, float, float], float, tuple[str, ...]]:
    """Left, right, bottom and top of what to show, its height over width, and notes.

    A mesh around a body reaches far out with few cells: where most points lie in a small part of
    the domain, that part is shown.
    """
    if not len(points):
        return (0.0, 1.0, 0.0, 1.0), 1.0, ()
    low, high = points.min(axis=0), points.max(axis=0)
    inner_low, inner_high = np.quantile(points, [0.05, 0.95], axis=0)
    zoomed = np.prod(inner_high - inner_low) < 0.2 * np.prod(high - low)
    if zoomed:
        margin = 0.15 * (inner_high - inner_low)
        low, high = np.maximum(low, inner_low - margin), np.minimum(high, inner_high + margin)
    left, right = _widened(float(low[0]), float(high[0]))
    bottom, top = _widened(float(low[1]), float(high[1]))
    ratio, notes = _proportion(right - left, top - bottom)
    if zoomed:
        notes = ("Only the part of the domain with most of the points is shown.", *notes)
    return (left, right, bottom, top), ratio, notes


def _proportion(width: float, height: float) -> tuple[float, tuple[str, ...]]:
    """Height over width of a panel, within reason; a note where that is not the true one."""
    if 1 / 3 <= height / width <= 3:
        return height / width, ()
    ratio = min(3.0, max(1 / 3, height / width))
    return ratio, ("The two directions are not drawn to the same scale.",)


def _plain_image(values: Array) -> Image:
    first, second = values.shape
    return Image((first, second), _proportion(first, second)[0])


def _rows(rows: Sequence[tuple[str, Sequence[tuple[Panel, Canvas]]]]) -> Figure:
    figure, axes = _axes([[place for _, place in panels] for _, panels in rows], width=2.5)
    for line, (name, panels) in zip(axes, rows, strict=True):
        for number, (axis, (panel, place)) in enumerate(zip(line, panels, strict=True)):
            shared = [p for p, _ in panels if panel.scale and p.scale == panel.scale] or [panel]
            norm = Normalize(*_range([p.values for p in shared], from_zero=panel.from_zero))
            look = Look(colormaps[panel.colours], norm)
            place.draw(axis, panel.values, look)
            axis.set_title(panel.title, fontsize=10)
            following = [p for p, _ in panels[number + 1 :]]
            if not any(p is other for p in following for other in shared):
                _bar(figure, [axis], look)
        _name_row(line[0], name)
    return figure


def _gallery(
    places: Sequence[Canvas], functions: Sequence[Array], titles: Sequence[str], columns: int
) -> Figure:
    lines = [places[start : start + columns] for start in range(0, len(places), columns)]
    figure, axes = _axes(lines, width=1.45, title=0.25)
    flat = [axis for line in axes for axis in line]
    for axis, place, values, title in zip(flat, places, functions, titles, strict=True):
        low, high = _range([values])
        look = Look(colormaps["magma"], Normalize(low, high))
        if low < 0 < high:  # zero is where such a function does nothing: it gets the neutral colour
            far = max(-low, high)
            look = Look(colormaps["coolwarm"], Normalize(-far, far))
        place.draw(axis, values, look)
        axis.set_title(title, fontsize=8)
    return figure


def _axes(
    lines: Sequence[Sequence[Canvas]], *, width: float, title: float = 0.35
) -> tuple[Figure, list[list[Axes]]]:
    """A figure with an axis for each canvas, in lines, about `width` inches each."""
    columns = max(len(line) for line in lines)
    heights = [width * max(place.ratio for place in line) + title for line in lines]
    figure = Figure(
        figsize=(max(4.0, (width + 0.45) * columns), sum(heights) + 0.2), layout="constrained"
    )
    spec = figure.add_gridspec(len(lines), columns, height_ratios=heights)
    axes = [
        [
            figure.add_subplot(spec[row, column], projection=place.projection)
            for column, place in enumerate(line)
        ]
        for row, line in enumerate(lines)
    ]
    return figure, axes


def _bare(axis: Any, ratio: float) -> None:
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_box_aspect(ratio)


def _name_row(axis: Axes, name: str) -> None:
    # Not a label of the y axis: axes in space have no such place.
    axis.annotate(
        name,
        (0, 0.5),
        (-6, 0),
        xycoords="axes fraction",
        textcoords="offset points",
        rotation=90,
        ha="right",
        va="center",
        fontsize=10,
    )


def _bar(figure: Figure, axes: Sequence[Axes], look: Look) -> None:
    low, high = float(look.norm.vmin or 0), float(look.norm.vmax or 0)
    # As many digits as it takes for the ends of a narrow range to differ.
    digits = 3 + max(0, math.floor(math.log10(max(abs(low), abs(high)) / (high - low))))
    bar = figure.colorbar(
        ScalarMappable(look.norm, look.colours),
        ax=list(axes),
        fraction=0.046,
        pad=0.02,
        aspect=18,
        format=f"%.{digits}g",
    )
    bar.ax.tick_params(labelsize=8)
    bar.ax.locator_params(nbins=5)


def _range(arrays: Sequence[Array], *, from_zero: bool = False) -> tuple[float, float]:
    """The smallest and largest finite value of all, never the same."""
    finite = [a[np.isfinite(a)] for a in arrays]
    every = np.concatenate([*finite, [0.0] if from_zero else []], dtype=np.float64)
    if not len(every):
        return 0.0, 1.0
    return _widened(float(every.min()), float(every.max()))


def _widened(low: float, high: float) -> tuple[float, float]:
    if high - low > 1e-9 * max(abs(low), abs(high)):
        return low, high
    by = 0.1 * max(abs(low), abs(high)) or 1.0
    return low - by, high + by


def _dot_area(axis: Any, points: int) -> float:
    """Dots that together nearly fill a panel of this figure."""
    side = 72 * axis.figure.get_figwidth() / axis.get_gridspec().ncols
    return float(np.clip(0.35 * side**2 / max(1, points), 0.6, 30))


def _label_colours(labels: int) -> list[Any]:
    if labels <= 10:
        return [colormaps["tab10"](place) for place in range(labels)]
    if labels <= 20:
        return [colormaps["tab20"](place) for place in range(labels)]
    # Steps of the golden ratio keep the hues of neighbouring labels far apart.
    places = np.arange(labels)
    hues = (places * 0.618034) % 1
    return list(
        hsv_to_rgb(np.stack([hues, 0.9 - 0.2 * (places % 3), 0.6 + 0.15 * (places % 3)], 1))
    )


def _categories(shades: Sequence[Any]) -> Look:
    edges = np.arange(len(shades) + 1) - 0.5
    return Look(ListedColormap(shades), BoundaryNorm(edges, len(shades)), smooth=False)


def _plot(axis: Axes, line: Series, **style: Any) -> tuple[Array, Array]:
    """Draw where values are finite, with dots where they are few, and return what was drawn."""
    x, y = (np.asarray(part, dtype=np.float64) for part in line)
    finite = np.isfinite(y)
    x, y = x[finite], y[finite]
    axis.plot(x, y, marker="." if len(x) <= 20 else "", **style)
    return x, y


def _short_numbers(axis: Axes, which: Literal["x", "y"] = "y") -> None:
    axis.ticklabel_format(axis=which, style="sci", scilimits=(-3, 4), useMathText=True)
