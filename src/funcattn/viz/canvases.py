"""Where values are drawn: an image, a mesh, points in space, a line."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.tri import Triangulation

from funcattn.viz.style import (
    Labels,
    Look,
    Reals,
    colour_ends,
    widened,
)

MOST_POINTS = 20_000
"""More points than this make a picture slow and no clearer."""


class Canvas(ABC):
    """One point set, ready to have fields drawn on it, panel after panel."""

    ratio: float
    """Height over width of a panel."""
    notes: tuple[str, ...]
    """What a reader must know of the drawing, in sentences."""
    directions: Reals | None = None
    """(3 2): where x, y and z point in the picture, where that must be said."""

    @abstractmethod
    def draw(self, axis: Axes, values: Reals, look: Look) -> None:
        """Draw one number per point."""

    def seen(self, values: Reals) -> Reals:
        """Those of the values that lie in the picture, for its colour range."""
        return values


@dataclass(frozen=True, eq=False)
class Image(Canvas):
    """A grid of equal spacing; `transposed` where the first index runs along y."""

    grid: tuple[int, int]
    ratio: float
    transposed: bool = False
    notes: tuple[str, ...] = ()

    def draw(self, axis: Axes, values: Reals, look: Look) -> None:
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

    points: Reals
    """(n 2), all finite."""
    corners: Labels
    """(k 3): which points make a triangle."""
    drawn: Labels
    """Which of the values belong to these points."""
    window: tuple[float, float, float, float]
    """Left, right, bottom and top of what is shown."""
    inside: Labels
    """Which of the values lie in the window, drawn or not."""
    ratio: float
    notes: tuple[str, ...] = ()

    def seen(self, values: Reals) -> Reals:
        """Those of the values that lie in the window."""
        return values[self.inside]

    def draw(self, axis: Axes, values: Reals, look: Look) -> None:
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
                s=_dot_area(axis, len(values), cover=0.6 * self.ratio),
                cmap=look.colours,
                norm=look.norm,
                linewidths=0,
            )


@dataclass(frozen=True, eq=False)
class Space(Canvas):
    """Points in space as dots, seen without perspective, the near ones over the far ones."""

    points: Reals
    """(n 2): places in the picture, all finite, the farthest point first."""
    drawn: Labels
    """Which of the values belong to these points."""
    ratio: float
    directions: Reals | None = None
    notes: tuple[str, ...] = ()

    def draw(self, axis: Axes, values: Reals, look: Look) -> None:
        """Draw dots without shading: a colour means a value and nothing else."""
        _bare(axis, self.ratio)
        axis.spines[:].set_visible(False)
        axis.set_aspect("equal", adjustable="datalim")
        values = values[self.drawn]
        finite = np.isfinite(values)
        x, y = self.points[finite].T
        axis.scatter(
            x,
            y,
            c=values[finite],
            # Half of a surface looks away: dots that are large enough hide it.
            s=_dot_area(axis, len(values), cover=2.0 * self.ratio),
            cmap=look.colours,
            norm=look.norm,
            linewidths=0,
        )


@dataclass(frozen=True, eq=False)
class Line(Canvas):
    """Points on a line: a field is a curve, and its colour range the height of the panel."""

    x: Reals
    """(n,), all finite, rising."""
    drawn: Labels
    """Which of the values belong to these points."""
    ratio: float = 0.75
    notes: tuple[str, ...] = ()

    def draw(self, axis: Axes, values: Reals, look: Look) -> None:
        """Draw a curve with gaps where values are not finite."""
        _bare(axis, self.ratio)
        low, high = colour_ends(look)
        axis.set(ylim=(low - 0.06 * (high - low), high + 0.06 * (high - low)))
        axis.plot(self.x, values[self.drawn], color=look.colours(0.4), linewidth=1.3)


def canvas(
    positions: Reals,
    grid: tuple[int, ...] | None = None,
    *,
    most: int = MOST_POINTS,
    on_body: npt.NDArray[np.bool_] | None = None,
    corners: Labels | None = None,
) -> Canvas:
    """The way to draw fields on points (n s) that may form a grid; at most `most` are drawn.

    on_body (n,): which points lie on the surface of a body in the plane, whose inside stays blank.
    corners (k 3): the triangles of a mesh in the plane, drawn as they are where all points can be.

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
        return _cloud_canvas(positions, drawn, most, notes, on_body, corners)
    if space == 3:
        drawn, thinned = _thinned(drawn, most)
        directions = widest_view(positions[drawn])
        seen = positions[drawn] @ directions
        order = np.argsort(seen[:, 2], kind="stable")
        drawn, seen = drawn[order], seen[order, :2]
        width, height = np.ptp(seen, axis=0) if len(seen) else (1.0, 1.0)
        ratio = float(np.clip(height / max(width, 1e-30), 1 / 3, 3))
        return Space(seen, drawn, ratio, directions[:, :2], notes + thinned)
    raise ValueError(
        f"positions: expected 1, 2 or 3 columns for a picture, got {space}; pass the columns that "
        "should be drawn"
    )


def triangles(points: Reals, *, reach: float = 3.0) -> Labels:
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
    far = longest > reach * spacing[corners].max(axis=1)
    # A gap of one triangle is chance, not a hole; over the rim (-1) there is nothing.
    beside = np.where(mesh.neighbors < 0, True, far[mesh.neighbors]).any(axis=1)
    return corners[~(far & beside)]


def widest_view(points: Reals) -> Reals:
    """The view, z upwards, in which points (n 3) spread over the largest area.

    A matrix (3 3): positions times it are to the right, up, and towards the reader.

    >>> import numpy as np
    >>> flat = np.array([[0.0, 0, 0], [1, 0, 0], [0, 0, 1], [1, 0, 1]])  # in the plane of x and z
    >>> right, up, _ = widest_view(flat).T
    >>> right.round(2), up.round(2)
    (array([0.97, 0.26, 0.  ]), array([-0.09,  0.33,  0.94]))
    """
    spread = np.cov(points.T) if len(points) > 1 else np.eye(3)

    def area(view: Reals) -> float:
        # Of views that are as wide, one with x to the right is easier to read.
        readable = 1.05 if view[0, 0] > 0 else 1.0
        return readable * float(np.linalg.det((view.T @ spread @ view)[:2, :2]))

    views = []
    for e in np.radians([20, 35, 50]):
        # Never straight along x or y, which would hide that direction behind z.
        for a in np.radians([-75, -60, -45, -30, -15, 15, 30, 45, 60, 75]):
            right = [-math.sin(a), math.cos(a), 0.0]
            up = [-math.sin(e) * math.cos(a), -math.sin(e) * math.sin(a), math.cos(e)]
            views.append(np.stack([right, up, np.cross(right, up)], axis=1))
    return max(views, key=area)


def _grid_canvas(positions: Reals, grid: tuple[int, int], most: int) -> Canvas:
    """An image where the spacing is even or the plane shape unknown; else the bent cells."""
    first, second = grid
    if positions.shape[1] != 2:
        ratio, notes = proportion(float(first), float(second))
        return Image(grid, ratio, notes=notes)
    finite = np.asarray(np.isfinite(positions).all(axis=1))
    if finite.all():
        x, y = positions.T.reshape(2, first, second)
        for transposed, across, up in ((False, x, y), (True, x.T, y.T)):
            if _is_even(across) and _is_even(up.T):
                ratio, notes = proportion(float(np.ptp(x)), float(np.ptp(y)))
                return Image(grid, ratio, transposed, notes)
    stride = math.ceil(math.sqrt(len(positions) / most))
    rows, columns = (np.unique([*range(0, length, stride), length - 1]) for length in grid)
    drawn = (rows[:, None] * second + columns).ravel()
    place = np.arange(len(drawn)).reshape(len(rows), len(columns))
    a, b, c, d = place[:-1, :-1], place[1:, :-1], place[1:, 1:], place[:-1, 1:]
    cells = np.stack([a, b, c, a, c, d], axis=-1).reshape(-1, 3)  # two triangles per cell
    window, ratio, notes = _window(positions[finite])
    if stride > 1:
        notes += (f"{len(drawn):,} of {len(positions):,} points are drawn.",)
    if lost := len(finite) - int(finite.sum()):
        notes += (_without_position(lost),)
    sound = finite[drawn]
    cells = (np.cumsum(sound) - 1)[cells[sound[cells].all(axis=1)]]
    drawn = drawn[sound]
    inside = np.flatnonzero(_within(positions, window))
    return Mesh(positions[drawn], cells, drawn, window, inside, ratio, notes)


def _is_even(coordinate: Reals) -> bool:
    """Whether it rises in even steps along the first axis and is constant along the second."""
    even = np.linspace(coordinate[0, 0], coordinate[-1, 0], len(coordinate))[:, None]
    step = float(coordinate[-1, 0] - coordinate[0, 0]) / max(1, len(coordinate) - 1)
    return step > 0 and float(np.abs(coordinate - even).max()) < 0.01 * step


def _cloud_canvas(
    positions: Reals,
    drawn: Labels,
    most: int,
    notes: tuple[str, ...],
    on_body: npt.NDArray[np.bool_] | None,
    corners: Labels | None,
) -> Mesh:
    window, ratio, about_window = _window(positions[drawn])
    left, right, bottom, top = window
    # Points outside would only use up the number to draw; those near it have triangles inside.
    by, up = 0.1 * (right - left), 0.1 * (top - bottom)
    near = _within(positions[drawn], (left - by, right + by, bottom - up, top + up))
    inside = drawn[_within(positions[drawn], window)]
    drawn, thinned = _thinned(drawn[near], most)
    points = positions[drawn]
    if corners is None or thinned:
        corners = triangles(points)
    else:
        place = np.full(len(positions), -1)
        place[drawn] = np.arange(len(drawn))
        corners = place[corners]
        corners = corners[(corners >= 0).all(axis=1)]
    if on_body is not None:
        corners = corners[~on_body[drawn][corners].all(axis=1)]
    notes += about_window + thinned
    return Mesh(points, corners, drawn, window, inside, ratio, notes)


def _within(points: Reals, window: tuple[float, float, float, float]) -> npt.NDArray[np.bool_]:
    left, right, bottom, top = window
    x, y = points.T
    return (x >= left) & (x <= right) & (y >= bottom) & (y <= top)


def _without_position(lost: int) -> str:
    return f"{lost:,} points without a finite position are left out."


def _thinned(drawn: Labels, most: int) -> tuple[Labels, tuple[str, ...]]:
    if len(drawn) <= most:
        return drawn, ()
    # At random: every k-th point of a mesh file would follow the file's order, not the shape.
    kept = np.sort(np.random.default_rng(0).choice(drawn, most, replace=False))
    return kept, (f"{most:,} of {len(drawn):,} points are drawn.",)


def _window(points: Reals) -> tuple[tuple[float, float, float, float], float, tuple[str, ...]]:
    """Left, right, bottom and top of what to show, its height over width, and notes.

    A mesh around a body reaches far out with few cells. Twice the range of the middle half of the
    points is the whole range where points are spread evenly; where it is far less, it is shown.
    """
    if not len(points):
        return (0.0, 1.0, 0.0, 1.0), 1.0, ()
    low, high = points.min(axis=0), points.max(axis=0)
    first, third = np.quantile(points, [0.25, 0.75], axis=0)
    half = np.maximum(third - first, 0.6 * (third - first).max())
    middle = (first + third) / 2
    near_low, near_high = np.maximum(low, middle - half), np.minimum(high, middle + half)
    zoomed = bool(np.prod(near_high - near_low) < 0.2 * np.prod(high - low))
    if zoomed:
        low, high = near_low, near_high
    else:
        low, high = low - 0.02 * (high - low), high + 0.02 * (high - low)
    left, right = widened(float(low[0]), float(high[0]))
    bottom, top = widened(float(low[1]), float(high[1]))
    ratio, notes = proportion(right - left, top - bottom)
    if zoomed:
        notes = ("Only the part of the domain where points are dense is shown.", *notes)
    return (left, right, bottom, top), ratio, notes


def proportion(width: float, height: float) -> tuple[float, tuple[str, ...]]:
    """Height over width of a panel, within reason; a note where that is not the true one."""
    if 1 / 3 <= height / width <= 3:
        return height / width, ()
    ratio = min(3.0, max(1 / 3, height / width))
    return ratio, ("The two directions are not drawn to the same scale.",)


def _bare(axis: Axes, ratio: float) -> None:
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_box_aspect(ratio)
    axis.spines[:].set_color("#9aa1a9")


def _dot_area(axis: Axes, points: int, *, cover: float) -> float:
    """The area of dots that together, were they apart, would cover so much of a square panel."""
    place = axis.get_subplotspec()
    columns = 1 if place is None else place.get_gridspec().ncols
    side = 72 * axis.figure.bbox.width / axis.figure.dpi / columns
    return float(np.clip(cover * side**2 / max(1, points), 0.6, 60))
