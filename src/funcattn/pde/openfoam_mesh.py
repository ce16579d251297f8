"""The C-grid around an airfoil for OpenFOAM, and the files from which OpenFOAM reads it."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from funcattn.arrays import Floats
from funcattn.pde.errors import NotConvergedError

Integers = npt.NDArray[np.int64]


class Size(NamedTuple):
    """The resolution and the extent of a C-grid."""

    surface: int  # cells around the airfoil, even
    wake: int  # cells along the wake, on each side of it
    normal: int  # cells from the airfoil to the far field
    first: float  # height of the cells at the airfoil
    radius: float  # radius of the far field


# The far field is this far away because a closer one suppresses the upwash of a lifting airfoil. At
# a radius of 20, NACA 0012 at 10 degrees has 20 % more drag than at 300; at 100 it has 3 % more.
COARSE = Size(surface=80, wake=24, normal=40, first=3e-4, radius=100.0)
FINE = Size(surface=160, wake=50, normal=78, first=1e-5, radius=100.0)


def c_grid(nodes: Floats, angle: float, size: Size) -> Floats:
    """Return the nodes of a C-grid around an airfoil, shape (n + 1, m + 1, 2).

    Index i starts downstream, follows the upper side of the wake to the trailing edge, the upper
    surface to the nose, the lower surface back, and the lower side of the wake: n = surface +
    2 wake cells. Nodes i and n - i of the wake coincide. Index j runs from the airfoil and the wake
    (j = 0) to the far field, m = normal cells. The far field is a half circle around the trailing
    edge, continued by two straight lines along the stream.

    The wake leaves along the bisector of the trailing edge and turns into the stream within half a
    chord. Rays (lines of constant i) leave the airfoil at right angles, unless they would lean
    back, and leave the wake vertically; within two chords they become straight lines. Cells along
    the rays grow geometrically, from `first` at the airfoil, and from increasing first heights
    along the wake.

    Mirroring the airfoil and its stream mirrors the grid.

    Args:
        nodes: nodes of the airfoil, shape (surface + 1, 2), as returned by `funcattn.pde.naca`.
        angle: angle of the stream, radians.
        size: size of the grid.

    Raises:
        ValueError: the number of nodes does not match the size, they are not finite, or there are
            too many cells for their first height.
        NotConvergedError: cells are folded or too oblique.

    Example:
        >>> from funcattn.pde.naca import four_digit
        >>> grid = c_grid(four_digit(0.0, 0.0, 12.0, panels=80), 0.1, COARSE)
        >>> grid.shape, grid[24, 0], grid[64, 0]  # trailing edge and nose
        ((129, 41, 2), array([1., 0.]), array([0., 0.]))
    """
    surface, wake, normal, first, radius = size
    if nodes.shape != (surface + 1, 2) or not np.isfinite(nodes).all():
        raise ValueError(
            f"expected finite nodes of shape ({surface + 1}, 2), got shape {nodes.shape}: "
            f"use an outline of {surface} panels"
        )
    edge, stream = nodes[0], np.array([np.cos(angle), np.sin(angle)])
    last = 0.5 * (np.linalg.norm(nodes[1] - edge) + np.linalg.norm(nodes[-2] - edge))
    distance = radius * _growing(wake, np.array([last / radius]))[0]
    tail = _unit(edge - 0.5 * (nodes[1] + nodes[-2]))
    line = (
        edge
        + np.outer(distance, stream)
        + np.outer(0.5 - 0.5 * np.exp(-distance / 0.5), tail - stream)
    )
    inner = np.concatenate([line[:0:-1], nodes, line[1:]])

    # Angles are measured from straight upstream, up to a right angle on each side. Equal angles
    # would bend the rays at the rear; a power law alone would crowd them behind the trailing edge.
    part = np.linspace(1.0, -1.0, surface + 1)
    power = np.sign(part) * np.sin(0.5 * np.pi * abs(part)) ** 0.7
    turn = 0.5 * np.pi * (0.7 * power + 0.3 * part)
    arc = radius * np.stack([-np.cos(turn), np.sin(turn)], axis=-1)
    behind = 0.5 * (distance + np.linspace(0.0, radius, wake + 1))[1:]
    top = np.stack([behind[::-1], np.full(wake, radius)], axis=-1)
    outer = np.concatenate([top, arc, top[::-1] * [1.0, -1.0]])
    outer = edge + outer @ np.array([stream, [-stream[1], stream[0]]])

    # Along the wake, heights grow so slowly that lines of constant j stay smooth.
    height = np.full(len(inner), first)
    grown = first * (0.02 / first) ** (distance / (distance + 5.0))
    height[: wake + 1], height[-wake - 1 :] = grown[::-1], grown
    chord = outer - inner
    length = np.linalg.norm(chord, axis=1)
    share = _growing(normal, height / length)
    reach = share * length[:, None]  # (n + 1, m + 1), distance from the wall along the rays
    late = np.clip(reach / 2.0, 0.0, 1.0)
    blend = (late**2 * (3.0 - 2.0 * late))[..., None]
    # Sharp bends near the trailing edge (as in some reflexed lines) need more smoothing than the
    # nose of a thin airfoil tolerates.
    for passes in (1 + 3 * len(nodes) // 40, 1 + 24 * len(nodes) // 40):
        leave = reach[..., None] * _directions(nodes, wake, passes)[:, None]
        grid: Floats = (
            inner[:, None] + (1.0 - blend) * leave + blend * share[..., None] * chord[:, None]
        )
        folded = _folded(grid)
        if folded == 0:
            return grid
    raise NotConvergedError(
        f"expected convex cells that are not too oblique, got {folded} others out of "
        f"{(len(grid) - 1) * normal}: try other numbers of cells, or an airfoil that bends less"
    )


def centres(grid: Floats) -> Floats:
    """Return the centroids of the cells of a grid (n + 1, m + 1, 2), shape (n, m, 2)."""
    a, b, c, d = grid[:-1, :-1], grid[1:, :-1], grid[1:, 1:], grid[:-1, 1:]
    first, second = (_cross(b - a, c - a)[..., None], _cross(c - a, d - a)[..., None])
    return (first * (a + b + c) + second * (a + c + d)) / (3.0 * (first + second))


def transfer(values: Floats, grid: Floats, size: Size, onto: Floats, onto_size: Size) -> Floats:
    """Interpolate values at the cells of one C-grid, (n, m, k), to those of another.

    The grids belong to the same airfoil. Interpolation is linear. The coordinate along i is the
    fraction of the surface, or a decreasing function of the distance along the wake; along j it is
    the distance.
    """

    def places(grid: Floats, size: Size) -> tuple[Floats, Floats]:
        middle = 0.5 * (grid[1:, 0] + grid[:-1, 0])
        behind = 1.0 / (1.0 + np.linalg.norm(middle - grid[size.wake, 0], axis=1))
        along = 1.0 + (np.arange(len(middle)) - size.wake + 0.5) / size.surface
        along[: size.wake] = behind[: size.wake]
        along[-size.wake :] = 3.0 - behind[-size.wake :]
        step = np.linalg.norm(np.diff(grid, axis=1), axis=-1)
        step = 0.5 * (step[1:] + step[:-1])
        return along, np.cumsum(step, axis=1) - 0.5 * step

    along, distance = places(grid, size)
    new_along, new_distance = places(onto, onto_size)
    left = np.clip(np.searchsorted(along, new_along) - 1, 0, len(along) - 2)
    weight = np.clip((new_along - along[left]) / np.diff(along)[left], 0.0, 1.0)
    result = np.zeros((*new_distance.shape, values.shape[-1]))
    for i, (start, share) in enumerate(zip(left, weight, strict=True)):
        for k in range(values.shape[-1]):
            for column, part in ((start, 1.0 - share), (start + 1, share)):
                result[i, :, k] += part * np.interp(
                    new_distance[i], distance[column], values[column, :, k]
                )
    return result


class PolyMesh(NamedTuple):
    """A mesh in the format of OpenFOAM: a C-grid, one cell thick, from z = 0 to z = 1.

    Cell (i, j) of n x m has number i m + j. A face between two cells belongs to the cell with the
    smaller number, its owner. These faces are sorted by owner, then neighbour; the faces of the
    patches follow. The corners of a face are ordered such that its normal leaves the owner.
    """

    points: Floats  # (p, 3)
    faces: Integers  # (f, 4), corners
    owner: Integers  # (f,)
    neighbour: Integers  # of the first faces, those between cells
    patches: dict[str, int]  # number of faces of each patch, in order


def poly_mesh(grid: Floats, wake: int) -> PolyMesh:
    """Describe a C-grid for OpenFOAM, with the patches airfoil, far and sides.

    Faces of the airfoil follow the order of its panels.

    Example:
        >>> from funcattn.pde.naca import four_digit
        >>> mesh = poly_mesh(c_grid(four_digit(0.0, 0.0, 12.0, panels=80), 0.0, COARSE), 24)
        >>> mesh.patches
        {'airfoil': 80, 'far': 208, 'sides': 10240}
    """
    n, m = grid.shape[0] - 1, grid.shape[1] - 1
    node = np.arange((n + 1) * (m + 1)).reshape(n + 1, m + 1)
    node[n - wake :, 0] = node[wake::-1, 0]  # both sides of the wake, and the trailing edge
    kept, index = np.unique(node, return_inverse=True)
    index = index.reshape(node.shape)
    flat = grid.reshape(-1, 2)[kept]
    points = np.concatenate([np.column_stack([flat, np.full(len(flat), z)]) for z in (0.0, 1.0)])
    cell = np.arange(n * m).reshape(n, m)

    def upright(start: Integers, end: Integers) -> Integers:
        return np.stack([start, end, end + len(flat), start + len(flat)], axis=-1)

    # i runs counterclockwise around the airfoil and j away from it: normals point along i and j.
    across_i = upright(index[:, 1:], index[:, :-1])  # (n + 1, m, 4)
    across_j = upright(index[:-1], index[1:])  # (n, m + 1, 4)
    floor = np.stack([index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:]], axis=-1)
    turned = slice(None, None, -1)  # reversed corners: the normal has the opposite sign

    inside = [
        (across_i[1:-1], cell[:-1], cell[1:]),
        (across_j[:, 1:-1], cell[:, :-1], cell[:, 1:]),
        (across_j[:wake, 0, turned], cell[:wake, 0], cell[: n - wake - 1 : -1, 0]),
    ]
    patches = {
        "airfoil": [(across_j[wake : n - wake, 0, turned], cell[wake : n - wake, 0])],
        "far": [
            (across_j[:, m], cell[:, m - 1]),
            (across_i[0, :, turned], cell[0]),
            (across_i[n], cell[n - 1]),
        ],
        "sides": [(floor, cell), (floor[..., turned] + len(flat), cell)],
    }
    between = np.concatenate([faces.reshape(-1, 4) for faces, _, _ in inside])
    owner = np.concatenate([cells.ravel() for _, cells, _ in inside])
    neighbour = np.concatenate([cells.ravel() for _, _, cells in inside])
    order = np.lexsort((neighbour, owner))
    parts = [part for patch in patches.values() for part in patch]
    return PolyMesh(
        points,
        np.concatenate([between[order], *(faces.reshape(-1, 4) for faces, _ in parts)]),
        np.concatenate([owner[order], *(cells.ravel() for _, cells in parts)]),
        neighbour[order],
        {name: sum(cells.size for _, cells in patch) for name, patch in patches.items()},
    )


def write(mesh: PolyMesh, folder: Path) -> None:
    """Write a mesh to a new folder, `constant/polyMesh` of a case."""
    folder.mkdir(parents=True)
    first, kinds = len(mesh.neighbour), {"airfoil": "wall", "far": "patch", "sides": "empty"}
    patches = ""
    for name, count in mesh.patches.items():
        patches += f"{name} {{ type {kinds[name]}; nFaces {count}; startFace {first}; }}\n"
        first += count
    for name, kind, content in (
        ("points", "vectorField", rows("(%.17g %.17g %.17g)", mesh.points)),
        ("faces", "faceList", rows("4(%d %d %d %d)", mesh.faces)),
        ("owner", "labelList", rows("%d", mesh.owner)),
        ("neighbour", "labelList", rows("%d", mesh.neighbour)),
        ("boundary", "polyBoundaryMesh", f"{len(mesh.patches)}\n(\n{patches})\n"),
    ):
        (folder / name).write_text(header(name, kind) + content)


def header(name: str, kind: str) -> str:
    """Return the header of an OpenFOAM file."""
    return f"FoamFile {{ version 2.0; format ascii; class {kind}; object {name}; }}\n"


def rows(form: str, values: npt.NDArray[np.generic]) -> str:
    """Return an OpenFOAM list with one line per row of the values, (n,) or (n, k)."""
    return (
        f"{len(values)}\n(\n" + f"{form}\n" * len(values) % tuple(values.ravel().tolist()) + ")\n"
    )


def _growing(cells: int, first: Floats) -> Floats:
    """Divide [0, 1] into geometric steps for each of k first steps, (k, cells + 1) points."""
    if not ((first > 0.0) & (first * cells < 1.0)).all():
        raise ValueError(
            f"expected first steps in (0, 1 / {cells}), relative to the whole length, got "
            f"{first.min()} to {first.max()}: the cells must grow from the first step; use fewer"
        )
    low, high = np.ones_like(first), (1.0 / first) ** (1.0 / (cells - 1))
    for _ in range(60):
        ratio = 0.5 * (low + high)
        short = first * (ratio**cells - 1.0) < ratio - 1.0
        low, high = np.where(short, ratio, low), np.where(short, high, ratio)
    points = np.zeros((len(first), cells + 1))
    points[:, 1:] = np.cumsum(ratio[:, None] ** np.arange(cells), axis=1)
    return points / points[:, -1:]


def _directions(nodes: Floats, wake: int, passes: int) -> Floats:
    """Return smoothed unit vectors along which rays leave airfoil and wake, (n + 1, 2)."""
    along = _unit(np.diff(nodes, axis=0))
    sides = np.concatenate([along[:1], along]) + np.concatenate([along, along[-1:]])
    out = np.stack([sides[:, 1], -sides[:, 0]], axis=-1)
    # Rays that lean back would cross those of the wake.
    out[:, 0] = np.minimum(out[:, 0], 0.0)
    up = np.tile([0.0, 1.0], (wake, 1))
    direction = _unit(np.concatenate([up, out, -up]))
    for _ in range(passes):
        direction[1:-1] = _unit(direction[2:] + 2.0 * direction[1:-1] + direction[:-2])
    return direction


def _folded(grid: Floats) -> int:
    """Return the number of cells that are not convex or too oblique.

    A cell is too oblique if the line from its centre to the centre of the next cell along i is less
    than 15 degrees off the face between them.
    """
    a, b, c, d = grid[:-1, :-1], grid[1:, :-1], grid[1:, 1:], grid[:-1, 1:]
    corners = ((d - a, b - a), (a - b, c - b), (b - c, d - c), (c - d, a - d))
    valid = np.all([_cross(one, other) > 0.0 for one, other in corners], axis=0)
    along, across = _unit(np.diff(grid[1:-1], axis=1)), _unit(np.diff(centres(grid), axis=0))
    valid[1:] &= _cross(along, across) > np.sin(np.deg2rad(15.0))
    return int((~valid).sum())


def _cross(one: Floats, other: Floats) -> Floats:
    return one[..., 0] * other[..., 1] - one[..., 1] * other[..., 0]


def _unit(vectors: Floats) -> Floats:
    unit: Floats = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return unit
