"""The mesh around an airfoil: closed, in order, as fine as requested, and not folded."""

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from funcattn.pde import airfrans
from funcattn.pde.errors import NotConvergedError
from funcattn.pde.naca import five_digit, four_digit
from funcattn.pde.openfoam_mesh import (
    COARSE,
    FINE,
    PolyMesh,
    Size,
    c_grid,
    centres,
    poly_mesh,
    transfer,
    write,
)

TINY = Size(surface=20, wake=6, normal=12, first=1e-3, radius=20.0)


def airfoil(size: Size) -> np.ndarray:
    return four_digit(2.0, 4.0, 12.0, panels=size.surface)


class Geometry:
    """Areas and centres of a mesh in three dimensions, from its points and corners only."""

    def __init__(self, mesh: PolyMesh) -> None:
        corner = mesh.points[mesh.faces]
        self.area = 0.5 * np.cross(corner[:, 2] - corner[:, 0], corner[:, 3] - corner[:, 1])
        halves = [
            np.cross(corner[:, k] - corner[:, 0], corner[:, k + 1] - corner[:, 0]) for k in (1, 2)
        ]
        weight = np.linalg.norm(halves, axis=2)[..., None]
        middle = [(corner[:, 0] + corner[:, k] + corner[:, k + 1]) / 3 for k in (1, 2)]
        self.face = (weight * middle).sum(axis=0) / weight.sum(axis=0)
        self.cells = int(mesh.owner.max()) + 1
        self.inside = len(mesh.neighbour)
        self.mesh = mesh
        # Pyramids from a point inside every cell to its faces.
        within = self.sums(self.face, both=1.0) / self.sums(np.ones((len(corner), 1)), both=1.0)
        volume, moment = np.zeros((self.cells, 1)), np.zeros((self.cells, 3))
        for sign, cell, count in (
            (1.0, mesh.owner, len(corner)),
            (-1.0, mesh.neighbour, self.inside),
        ):
            apex = within[cell]
            part = sign * np.sum((self.face[:count] - apex) * self.area[:count], axis=1) / 3
            np.add.at(volume, cell, part[:, None])
            np.add.at(moment, cell, part[:, None] * (0.75 * self.face[:count] + 0.25 * apex))
        self.volume, self.centre = volume[:, 0], moment / volume

    def sums(self, values: np.ndarray, both: float = -1.0) -> np.ndarray:
        """Sum face values over the faces of each cell, times `both` where it is the neighbour."""
        result = np.zeros((self.cells, values.shape[1]))
        np.add.at(result, self.mesh.owner, values)
        np.add.at(result, self.mesh.neighbour, both * values[: self.inside])
        return result

    def non_orthogonality(self) -> np.ndarray:
        offset = self.centre[self.mesh.neighbour] - self.centre[self.mesh.owner[: self.inside]]
        area = self.area[: self.inside]
        cosine = np.sum(offset * area, axis=1)
        cosine /= np.linalg.norm(offset, axis=1) * np.linalg.norm(area, axis=1)
        return np.rad2deg(np.arccos(np.minimum(cosine, 1.0)))


@pytest.fixture(scope="module", params=[TINY, COARSE, FINE], ids=["tiny", "coarse", "fine"])
def meshed(request: pytest.FixtureRequest) -> tuple[Size, np.ndarray, PolyMesh, Geometry]:
    size: Size = request.param
    grid = c_grid(airfoil(size), 0.1, size)
    mesh = poly_mesh(grid, size.wake)
    return size, grid, mesh, Geometry(mesh)


def test_cells_are_closed_and_fill_the_domain(meshed: Any) -> None:
    size, grid, mesh, geometry = meshed
    assert geometry.cells == (size.surface + 2 * size.wake) * size.normal
    np.testing.assert_array_equal(
        geometry.sums(np.ones((len(mesh.faces), 1)), both=1.0), 6.0, err_msg="faces of a cell"
    )
    largest = np.sqrt(geometry.sums((geometry.area**2).sum(axis=1)[:, None], both=1.0))
    assert (abs(geometry.sums(geometry.area)) < 1e-13 * largest).all()
    assert (geometry.volume > 0).all()

    def enclosed(nodes: np.ndarray) -> float:
        x, y = nodes.T
        return 0.5 * float(np.sum(x * np.roll(y, -1) - np.roll(x, -1) * y))

    border = np.concatenate([grid[:, -1], grid[-1, -2::-1], grid[0, 1:-1]])
    assert geometry.volume.sum() == pytest.approx(
        enclosed(border) - enclosed(airfoil(size)), rel=1e-12
    )
    np.testing.assert_allclose(
        geometry.centre[:, :2], centres(grid).reshape(-1, 2), rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(geometry.centre[:, 2], 0.5)


def test_faces_join_the_right_cells_in_the_right_order(meshed: Any) -> None:
    size, _, mesh, geometry = meshed
    owner, n, m = mesh.owner[: geometry.inside], size.surface + 2 * size.wake, size.normal
    assert (owner < mesh.neighbour).all()
    pairs = owner * geometry.cells + mesh.neighbour
    assert (np.diff(pairs) > 0).all()
    # Neighbours along j and i, and across the wake.
    i, j = np.divmod(np.arange(geometry.cells), m)
    expected = {(c, c + 1) for c in np.flatnonzero(j < m - 1)}
    expected |= {(c, c + m) for c in np.flatnonzero(i < n - 1)}
    expected |= {(k * m, (n - 1 - k) * m) for k in range(size.wake)}
    assert set(zip(owner.tolist(), mesh.neighbour.tolist(), strict=True)) == expected
    offset = geometry.centre[mesh.neighbour] - geometry.centre[owner]
    assert (np.sum(offset * geometry.area[: geometry.inside], axis=1) > 0).all()


def test_all_points_are_used_and_distinct(meshed: Any) -> None:
    _, _, mesh, _ = meshed
    np.testing.assert_array_equal(np.unique(mesh.faces), np.arange(len(mesh.points)))
    assert len(np.unique(mesh.points, axis=0)) == len(mesh.points)


def test_patches_are_where_they_should_be(meshed: Any) -> None:
    size, _, mesh, geometry = meshed
    first = geometry.inside + np.cumsum([0, *mesh.patches.values()])
    assert first[-1] == len(mesh.faces)
    wall, far, sides = (slice(a, b) for a, b in itertools.pairwise(first))
    assert list(mesh.patches) == ["airfoil", "far", "sides"]
    # Panels of the airfoil in order, with normals out of the fluid.
    panels = airfrans.panels(airfoil(size))
    np.testing.assert_allclose(geometry.face[wall, :2], panels.middle, atol=1e-15)
    np.testing.assert_allclose(
        geometry.area[wall, :2], -panels.normal * panels.length[:, None], atol=1e-15
    )
    i = size.wake + np.arange(size.surface)
    np.testing.assert_array_equal(mesh.owner[wall], i * size.normal)
    assert np.linalg.norm(geometry.face[far, :2], axis=1).min() > 0.9 * size.radius
    outwards = geometry.face - geometry.centre[mesh.owner]
    beyond = slice(geometry.inside, None)
    assert (np.sum(outwards * geometry.area, axis=1)[beyond] > 0).all()
    assert set(geometry.face[sides, 2]) == {0.0, 1.0}
    np.testing.assert_allclose(abs(geometry.area[sides, :2]), 0.0, atol=1e-12)


def test_grid_has_the_requested_heights_and_wake() -> None:
    size = FINE
    grid = c_grid(airfoil(size), 0.2, size)
    wake = size.wake
    np.testing.assert_array_equal(grid[wake:-wake, 0], airfoil(size))
    np.testing.assert_array_equal(grid[: wake + 1, 0], grid[: -wake - 2 : -1, 0])
    first = np.linalg.norm(grid[wake:-wake, 1] - grid[wake:-wake, 0], axis=1)
    np.testing.assert_allclose(first, size.first, rtol=1e-6)
    end = grid[0, 0] - grid[1, 0]
    assert np.arctan2(end[1], end[0]) == pytest.approx(0.2, abs=1e-6)
    assert np.linalg.norm(grid[0, 0] - [1.0, 0.0]) == pytest.approx(size.radius, rel=0.01)
    arc = np.linalg.norm(grid[wake:-wake, -1] - [1.0, 0.0], axis=1)
    np.testing.assert_allclose(arc, size.radius, rtol=1e-12)
    # Cells along a ray grow by one factor, except where the ray bends.
    step = np.linalg.norm(np.diff(grid[wake + 40], axis=0), axis=1)
    ratio = step[1:] / step[:-1]
    np.testing.assert_allclose(ratio[[0, 30, -1]], np.median(ratio), rtol=1e-3)
    assert np.median(ratio) == pytest.approx(1.205, abs=0.005)
    np.testing.assert_allclose(ratio, np.median(ratio), rtol=0.25)


def test_mirrored_airfoil_has_the_mirrored_grid() -> None:
    nodes = five_digit(3.0, 5.0, 15.0, reflex=True, panels=80)
    grid = c_grid(nodes, 0.2, COARSE)
    other = c_grid(nodes[::-1] * [1.0, -1.0], -0.2, COARSE)
    np.testing.assert_allclose(other[::-1] * [1.0, -1.0], grid, rtol=1e-9, atol=1e-12)


RANDOM = [airfrans.draw_design(rng) for rng in [np.random.default_rng(31)] for _ in range(200)]
# Their tails turn up sharply.
SHARP = [
    airfrans.Design(4e6, 14.5, 5, np.array([lift, position, 1.0, thickness]))
    for lift, position, thickness in ((3.44, 7.94, 16.76), (3.38, 7.63, 5.92), (2.18, 7.7, 7.51))
]


@pytest.mark.parametrize(("size", "limit"), [(COARSE, 64.0), (FINE, 69.0)], ids=["coarse", "fine"])
@pytest.mark.parametrize(
    "designs",
    [RANDOM[:12], pytest.param(RANDOM, marks=pytest.mark.full), SHARP],
    ids=["12 random designs", "200 random designs", "sharp tails"],
)
def test_grids_do_not_fold_and_their_cells_are_not_too_oblique(
    designs: list[airfrans.Design], size: Size, limit: float
) -> None:
    for design in designs:
        nodes = airfrans.outline(design, panels=size.surface)
        grid = c_grid(nodes, float(np.deg2rad(design.incidence)), size)
        assert Geometry(poly_mesh(grid, size.wake)).non_orthogonality().max() < limit


def test_folded_grid_is_reported() -> None:
    # A node of the upper side is moved to the place of one farther ahead.
    nodes = airfoil(COARSE)
    nodes[10] = nodes[30]
    with pytest.raises(
        NotConvergedError, match=r"expected convex cells .*, got \d+ others out of 5120"
    ):
        c_grid(nodes, 0.0, COARSE)


def test_cells_that_cannot_grow_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"first steps in \(0, 1 / 40\), .* got .*: the cells must grow"
    ):
        c_grid(airfoil(COARSE), 0.0, COARSE._replace(first=3.0))


@pytest.mark.parametrize("count", [80, 82], ids=str)
def test_wrong_number_of_nodes_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=rf"shape \(81, 2\), got shape \({count}, 2\)"):
        c_grid(np.zeros((count, 2)), 0.0, COARSE)


def test_transfer_to_the_same_grid_changes_nothing() -> None:
    grid = c_grid(airfoil(COARSE), 0.1, COARSE)
    values = np.random.default_rng(0).random((*centres(grid).shape[:2], 3))
    np.testing.assert_allclose(transfer(values, grid, COARSE, grid, COARSE), values, rtol=1e-12)


def test_transfer_keeps_linear_fields_near_the_airfoil() -> None:
    coarse, fine = c_grid(airfoil(COARSE), 0.1, COARSE), c_grid(airfoil(FINE), 0.1, FINE)
    moved = transfer(centres(coarse), coarse, COARSE, fine, FINE)
    error = np.linalg.norm(moved - centres(fine), axis=-1)
    near = np.linalg.norm(centres(fine) - [0.5, 0.0], axis=-1) < 1.0
    # Coarse cells are up to 0.3 wide there, and rays bend.
    assert near.sum() > 8000
    assert error[near].max() < 0.05
    assert np.median(error[near]) < 5e-4


def numbers(text: str) -> np.ndarray:
    """The numbers in an OpenFOAM list."""
    count, body = re.match(r"[^}]*}\s*(\d+)\s*\((.*)\)\s*$", text, re.DOTALL).groups()  # type: ignore[union-attr]
    values = np.array(re.sub(r"[()]", " ", body).split(), dtype=float)
    return values.reshape(int(count), -1)


def test_mesh_files_hold_the_mesh(tmp_path: Path) -> None:
    mesh = poly_mesh(c_grid(airfoil(TINY), 0.1, TINY), TINY.wake)
    write(mesh, tmp_path / "polyMesh")
    text = {path.name: path.read_text() for path in (tmp_path / "polyMesh").iterdir()}
    np.testing.assert_array_equal(numbers(text["points"]), mesh.points)
    faces = numbers(text["faces"].replace("4(", "("))
    np.testing.assert_array_equal(faces, mesh.faces)
    np.testing.assert_array_equal(numbers(text["owner"])[:, 0], mesh.owner)
    np.testing.assert_array_equal(numbers(text["neighbour"])[:, 0], mesh.neighbour)
    patches = re.findall(r"(\w+) { type (\w+); nFaces (\d+); startFace (\d+); }", text["boundary"])
    inside = len(mesh.neighbour)
    assert patches == [
        ("airfoil", "wall", "20", str(inside)),
        ("far", "patch", str(32 + 24), str(inside + 20)),
        ("sides", "empty", str(2 * 32 * 12), str(inside + 20 + 56)),
    ]
