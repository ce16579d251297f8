"""Random airfoils, the C-grid between an airfoil and the far field, and the cells of a C-grid."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from funcattn.pde.naca import half_thickness

# The box that deforms the shape: four stations along x, bottom and top at -+ HALF_HEIGHT.
STATIONS = np.array([-0.25, 0.25, 0.75, 1.25])
HALF_HEIGHT = 0.1
# The wake reaches x = LENGTH; the half circle of the far field is centred at the trailing edge.
LENGTH = 40.0
RADIUS = 40.0


def surface(design: npt.NDArray[np.floating], cells: int = 120) -> npt.NDArray[np.float64]:
    """Return the nodes of a morphed NACA 0012, shape (2, cells + 1).

    They run from the trailing edge along the upper side to the nose and back along the lower side.
    On each side x is uniform, with one extra node at a quarter of the first interval at the nose.
    The morphing moves the nodes vertically,

        y <- y + sum_k design_k Phi_k(x) Psi_k(y),

    with the cubic Lagrange polynomials Phi of the stations x = -0.25, 0.25, 0.75, 1.25 and Psi
    linear between y = -0.1 and y = 0.1. Numbers 0 to 3 of the design move the bottom of this box,
    from left to right; numbers 4 to 7 move its top, from right to left.

    Raises:
        ValueError: the design is not eight finite numbers, or cells is odd or below 8.

    Example:
        >>> surface(np.zeros(8), cells=8).round(2)
        array([[ 1.  ,  0.67,  0.33,  0.08,  0.  ,  0.08,  0.33,  0.67,  1.  ],
               [ 0.  ,  0.04,  0.06,  0.04,  0.  , -0.04, -0.06, -0.04,  0.  ]])
    """
    design = np.asarray(design, dtype=np.float64)
    if design.shape != (8,) or not np.isfinite(design).all():
        raise ValueError(
            f"expected 8 finite displacements, got {design}: give zeros for the plain airfoil"
        )
    if cells < 8 or cells % 2:
        raise ValueError(
            f"expected an even number of surface cells, at least 8, got {cells}: "
            "both sides have the same number"
        )
    uniform = np.linspace(0.0, 1.0, cells // 2)
    side = np.concatenate([[0.0, uniform[1] / 4], uniform[1:]])
    x = np.concatenate([side[::-1], side[1:]])
    thickness = half_thickness(side, 12.0)
    thickness[-1] = 0.0  # exactly zero, so that both sides end in one point
    y = np.concatenate([thickness[::-1], -thickness[1:]])
    others = [np.delete(STATIONS, k) for k in range(4)]
    phi = np.stack(
        [
            np.prod((x[:, None] - other) / (station - other), axis=1)
            for station, other in zip(STATIONS, others, strict=True)
        ]
    )
    height = (y + HALF_HEIGHT) / (2 * HALF_HEIGHT)
    y = y + (1.0 - height) * (design[:4] @ phi) + height * (design[:3:-1] @ phi)
    y[-1] = y[0]  # the same sum, which a product may round otherwise at another place
    return np.stack([x, y])


def spacing(cells: int, first: float, ratio_limit: float = 1.02) -> npt.NDArray[np.float64]:
    """Divide [0, 1] into growing cells; return the cells + 1 points.

    The steps are geometric, starting from `first`. If the required ratio exceeds the limit, the
    steps grow by the limit up to point number 3 (cells + 1) // 4, and from there by a second ratio
    that closes the interval.

    Raises:
        ValueError: the first step is not smaller than that of equal cells, or there are fewer than
            4 cells.

    Example:
        >>> spacing(4, 1 / 15, ratio_limit=2.0) * 15  # steps 1, 2, 4, 8
        array([ 0.,  1.,  3.,  7., 15.])
    """
    if cells < 4 or not 0.0 < first * cells < 1.0:
        raise ValueError(
            f"expected at least 4 cells and 0 < first step < 1 / cells, got {cells} and {first}: "
            "the cells must grow from the first step"
        )

    def closing_ratio(step: float, length: float, count: int) -> float:
        # The bracket holds: at ratio 1 all steps together are too short, and at the upper end the
        # last step alone is long enough.
        def excess(ratio: float) -> float:
            return step * float((ratio ** np.arange(count)).sum()) - length

        return float(brentq(excess, 1.0, (length / step) ** (1 / (count - 1)), xtol=1e-15))

    steps = np.full(cells, closing_ratio(first, 1.0, cells))
    if steps[0] > ratio_limit:
        slow = 3 * (cells + 1) // 4 - 1
        steps[:slow] = ratio_limit
        reached = first * (ratio_limit ** np.arange(slow)).sum()
        steps[slow:] = closing_ratio(first * ratio_limit**slow, 1.0 - reached, cells - slow)
        steps[slow] = ratio_limit
    steps[0] = first
    points = np.concatenate([[0.0], np.cumsum(np.cumprod(steps))])
    points[-1] = 1.0
    return points


def c_grid(
    design: npt.NDArray[np.floating],
    *,
    wake_cells: int = 50,
    surface_cells: int = 120,
    normal_cells: int = 50,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the nodes x, y of the C-grid around a morphed airfoil, by default (221, 51) each.

    Index i starts downstream, follows the upper side of the wake to the trailing edge, the upper
    surface to the nose, the lower surface back, and the lower side of the wake; the nodes i and
    -1 - i of the wake coincide. Index j runs along straight lines from the airfoil and the wake
    (j = 0) to the far field. The far field is a half circle of radius 40 around (1, 0), divided
    into equal angles, and continues along y = -+ 40 in equal steps to x = 40. The wake is straight,
    from the trailing edge to (40, 0). `spacing` sets the steps along the wake, starting from the
    length of the last surface cell of the plain airfoil, and along j, starting from
    2 / surface_cells in a radius of 40.

    Raises:
        ValueError: the design is not eight finite numbers, or there are too few cells.

    Example:
        >>> x, y = c_grid(np.zeros(8))
        >>> x.shape, x[[0, 50, 110], 0]  # downstream, trailing edge, nose
        ((221, 51), array([40.,  1.,  0.]))
    """
    plain = surface(np.zeros(8), surface_cells)
    last_cell = float(np.hypot(*(plain[:, 1] - plain[:, 0])))
    foil = surface(design, surface_cells)
    along = spacing(wake_cells, last_cell / (LENGTH - 1.0))[1:]
    wake = np.outer(foil[:, 0], 1.0 - along) + np.outer([LENGTH, 0.0], along)
    inner = np.concatenate([wake[:, ::-1], foil, wake], axis=1)

    angle = np.linspace(0.5 * np.pi, 1.5 * np.pi, surface_cells + 1)
    arc = np.stack([1.0 + RADIUS * np.cos(angle), RADIUS * np.sin(angle)])
    top = np.stack([np.linspace(LENGTH, 1.0, wake_cells + 1)[:-1], np.full(wake_cells, RADIUS)])
    bottom = top[:, ::-1] * [[1.0], [-1.0]]
    outer = np.concatenate([top, arc, bottom], axis=1)

    normal = spacing(normal_cells, 2.0 / surface_cells / RADIUS)
    x, y = inner[..., None] * (1.0 - normal) + outer[..., None] * normal
    return x, y


class Cells(NamedTuple):
    """The cells of a C-grid, numbered in row-major order of (i, j).

    area: shape (n, m). faces_i, shape (n + 1, m, 2), and faces_j, shape (n, m + 1, 2): length
    times unit normal of the faces between cells, in the direction of growing i or j. neighbours:
    numbers of the cells at i - 1, i + 1, j - 1, j + 1, shape (n m, 4), or FAR_FIELD, or WALL.
    outward: length times outward normal of these four faces, shape (n m, 4, 2). wall: the range of
    cells along i that lie on the airfoil, end excluded.
    """

    area: npt.NDArray[np.float64]
    faces_i: npt.NDArray[np.float64]
    faces_j: npt.NDArray[np.float64]
    neighbours: npt.NDArray[np.int64]
    outward: npt.NDArray[np.float64]
    wall: tuple[int, int]


FAR_FIELD, WALL = -1, -2


def faces(
    x: npt.NDArray[np.floating], y: npt.NDArray[np.floating]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return area, faces_i and faces_j (see `Cells`) of any structured grid, left- or right-handed.

    Raises:
        ValueError: x and y are not finite, not 2-dimensional or not of the same shape, or cells
            are folded.

    Example:
        >>> area, faces_i, faces_j = faces(*np.meshgrid([0.0, 2.0], [0.0, 1.0, 2.0], indexing="ij"))
        >>> area, faces_i[1, 0], faces_j[0, 2]
        (array([[2., 2.]]), array([1., 0.]), array([0., 2.]))
    """
    same = np.shape(x) == np.shape(y)
    nodes = np.stack([x, y], axis=-1, dtype=np.float64) if same else np.empty(0)
    if nodes.ndim != 3 or min(nodes.shape[:2]) < 2 or not np.isfinite(nodes).all():
        raise ValueError(
            f"expected finite x and y of the same shape (n, m), both at least 2, got shapes "
            f"{np.shape(x)} and {np.shape(y)}: give the nodes of a structured grid"
        )
    rising, falling = nodes[1:, 1:] - nodes[:-1, :-1], nodes[:-1, 1:] - nodes[1:, :-1]
    area = 0.5 * (rising[..., 0] * falling[..., 1] - rising[..., 1] * falling[..., 0])
    hand = 1.0 if area.sum() > 0.0 else -1.0
    if not (area * hand > 0.0).all():
        raise ValueError(
            f"expected cells of one orientation, got {int((area * hand <= 0.0).sum())} folded or "
            f"empty cells of {area.size}: move the nodes, or take a smaller displacement"
        )
    turn = hand * np.array([[0.0, -1.0], [1.0, 0.0]])
    return area * hand, np.diff(nodes, axis=1) @ turn, np.diff(nodes, axis=0) @ turn.T


def cells(x: npt.NDArray[np.floating], y: npt.NDArray[np.floating], wake_cells: int) -> Cells:
    """Describe the cells of a C-grid whose wake has `wake_cells` on each side.

    Raises:
        ValueError: as in `faces`, or the two sides of the wake do not coincide.

    Example:
        >>> grid = cells(*c_grid(np.zeros(8)), wake_cells=50)
        >>> grid.area.shape, grid.wall, grid.neighbours[0]  # the first cell: far field, wake
        ((220, 50), (50, 170), array([   -1,    50, 10950,     1]))
    """
    area, faces_i, faces_j = faces(x, y)
    n, m = area.shape
    apart = np.hypot(x[:, 0] - x[::-1, 0], y[:, 0] - y[::-1, 0])[: n // 2] > 1e-9
    in_wake = np.arange(n // 2) <= wake_cells
    if wake_cells < 1 or m < 2 or (apart == in_wake).any():
        raise ValueError(
            f"expected a C-grid with the first and last {wake_cells} cells along i on both sides "
            f"of one wake, the others around the airfoil, and at least 2 cells along j, got {n} x "
            f"{m} cells that are not: check wake_cells and the order of the nodes"
        )
    wall = (wake_cells, n - wake_cells)
    number = np.full((n + 2, m + 2), FAR_FIELD)
    number[1:-1, 1:-1] = np.arange(n * m).reshape(n, m)
    number[1:-1, 0] = number[-2:0:-1, 1]
    number[1 + wall[0] : 1 + wall[1], 0] = WALL
    neighbours = np.stack(
        [number[:-2, 1:-1], number[2:, 1:-1], number[1:-1, :-2], number[1:-1, 2:]], axis=-1
    )
    outward = np.stack([-faces_i[:-1], faces_i[1:], -faces_j[:, :-1], faces_j[:, 1:]], axis=2)
    return Cells(area, faces_i, faces_j, neighbours.reshape(-1, 4), outward.reshape(-1, 4, 2), wall)
