"""The surface of an airfoil and the C-grid around it: nodes, cells, faces and neighbours."""

from itertools import product

import numpy as np
import pytest

from funcattn.pde.airfoil_mesh import (
    FAR_FIELD,
    STATIONS,
    WALL,
    c_grid,
    cells,
    faces,
    spacing,
    surface,
)

PLAIN = np.zeros(8)
DESIGN = np.append(0.0, np.random.default_rng(0).uniform(-0.05, 0.05, 7))


def test_surface_nodes_are_those_of_naca_0012() -> None:
    x, y = surface(PLAIN)
    side = np.concatenate([[0, 1 / 59 / 4], np.arange(1, 60) / 59])
    np.testing.assert_allclose(x, np.concatenate([side[::-1], side[1:]]), atol=1e-15)
    np.testing.assert_array_equal(y[:60], -y[:60:-1])
    assert (y[1:60] > 0).all()
    assert (y[[0, 60, 120]] == 0).all()
    # Twelve percent thick at 0.3 of the chord.
    assert 2 * y.max() == pytest.approx(0.12, abs=1e-4)
    assert x[y.argmax()] == pytest.approx(0.3, abs=0.01)


def test_design_moves_the_surface_by_cubic_times_linear() -> None:
    design = np.random.default_rng(2).uniform(-0.05, 0.05, 8)
    (x, plain), (moved_x, moved) = surface(PLAIN), surface(design)
    bottom = np.polyval(np.polyfit(STATIONS, design[:4], 3), x)
    top = np.polyval(np.polyfit(STATIONS, design[:3:-1], 3), x)
    np.testing.assert_array_equal(moved_x, x)
    np.testing.assert_allclose(
        moved - plain, (bottom * (0.1 - plain) + top * (0.1 + plain)) / 0.2, atol=1e-15
    )
    np.testing.assert_allclose(STATIONS, [-0.25, 0.25, 0.75, 1.25])


@pytest.mark.parametrize("design", [np.zeros(7), np.zeros((8, 1)), np.full(8, np.nan)], ids=str)
def test_design_that_does_not_fit_is_refused(design: np.ndarray) -> None:
    with pytest.raises(ValueError, match="expected 8 finite displacements, got"):
        surface(design)


@pytest.mark.parametrize("cells", [6, 25])
def test_surface_cells_that_do_not_fit_are_refused(cells: int) -> None:
    with pytest.raises(ValueError, match=f"even number of surface cells, at least 8, got {cells}"):
        surface(PLAIN, cells)


def test_spacing_grows_slowly_and_then_closes() -> None:
    points = spacing(50, 1 / 60 / 40)
    steps = np.diff(points)
    ratios = steps[1:] / steps[:-1]
    assert (points[0], points[-1]) == (0, 1)
    assert steps[0] == pytest.approx(1 / 60 / 40, rel=1e-13)
    # Point 37, counted from 0, is the last of the slow ones: its two steps have the ratio 1.02.
    np.testing.assert_allclose(ratios[:37], 1.02, rtol=1e-12)
    np.testing.assert_allclose(ratios[37:], ratios[-1], rtol=1e-10)
    assert ratios[-1] > 1.5


def test_spacing_has_one_ratio_if_it_is_small() -> None:
    steps = np.diff(spacing(50, 0.015))
    np.testing.assert_allclose(steps[1:] / steps[:-1], steps[1] / steps[0], rtol=1e-11)
    assert 1 < steps[1] / steps[0] < 1.02
    assert steps.sum() == pytest.approx(1, abs=1e-14)


@pytest.mark.parametrize(("count", "first"), [(3, 0.1), (10, 0.1), (10, 0.0), (10, np.nan)])
def test_spacing_that_cannot_grow_is_refused(count: int, first: float) -> None:
    with pytest.raises(ValueError, match=f"0 < first step < 1 / cells, got {count} and {first}"):
        spacing(count, first)


def test_grid_has_its_nodes_in_the_order_of_the_benchmark() -> None:
    x, y = c_grid(DESIGN)
    assert x.shape == y.shape == (221, 51)
    np.testing.assert_array_equal(np.stack([x, y])[:, 50:171, 0], surface(DESIGN))
    # Upper side first; the wake is a straight line to (40, 0); then the same for the lower side.
    assert y[80, 0] > y[140, 0]
    for z in (x, y):
        np.testing.assert_array_equal(z[:51, 0], z[:-52:-1, 0])
    np.testing.assert_allclose(x[[0, -1]], 40.0, rtol=1e-15)
    assert y[0, 0] == 0
    np.testing.assert_allclose(y[:51, 0], y[50, 0] * (40 - x[:51, 0]) / 39, atol=1e-15)
    # Along the wake, the spacing starts from the last cell of the plain airfoil.
    last = np.hypot(*np.diff(surface(PLAIN)[:, :2]))[0]
    np.testing.assert_allclose((x[50::-1, 0] - 1) / 39, spacing(50, last / 39), atol=1e-14)
    # The far field: half a circle, then straight.
    angle = np.pi / 2 + np.arange(121) * np.pi / 120
    np.testing.assert_allclose(x[50:171, -1], 1 + 40 * np.cos(angle), atol=1e-12)
    np.testing.assert_allclose(y[50:171, -1], 40 * np.sin(angle), atol=1e-12)
    np.testing.assert_allclose(x[:51, -1], np.linspace(40, 1, 51))
    np.testing.assert_allclose(x[170:, -1], np.linspace(1, 40, 51))
    assert (y[:50, -1] == 40).all()
    assert (y[171:, -1] == -40).all()
    # Straight lines in between.
    weight = spacing(50, 2 / 120 / 40)
    for z in (x, y):
        np.testing.assert_allclose(
            z, z[:, :1] + (z[:, -1:] - z[:, :1]) * weight, rtol=0, atol=1e-13
        )


def test_grids_of_extreme_designs_are_not_folded() -> None:
    for corner in product((-0.05, 0.05), repeat=7):
        area, _, _ = faces(*c_grid(np.array([0.0, *corner])))
        assert area.min() > 2e-5


def test_cells_are_closed_and_fill_the_domain() -> None:
    nodes = np.stack(c_grid(DESIGN))
    grid = cells(*nodes, wake_cells=50)
    assert abs(grid.outward.sum(axis=1)).max() < 1e-13
    border = np.concatenate([nodes[:, :, -1], nodes[:, -1, ::-1], nodes[:, 0]], axis=1)

    def inside(nodes: np.ndarray) -> float:
        x, y = nodes
        return float((x[:-1] * y[1:] - x[1:] * y[:-1]).sum() / 2)

    assert grid.area.sum() == pytest.approx(inside(border) - inside(surface(DESIGN)), rel=1e-13)


def test_neighbours_agree_on_their_face() -> None:
    x, y = c_grid(DESIGN, wake_cells=25, surface_cells=60, normal_cells=25)
    grid = cells(x, y, wake_cells=25)
    own, side = np.nonzero(grid.neighbours >= 0)
    other = grid.neighbours[own, side]
    back = grid.neighbours[other] == own[:, None]
    assert (back.sum(axis=1) == 1).all()
    np.testing.assert_allclose(grid.outward[other][back], -grid.outward[own, side], atol=1e-14)
    assert (grid.neighbours == WALL).sum() == 60
    assert (grid.neighbours == FAR_FIELD).sum() == 110 + 2 * 25


@pytest.mark.parametrize("flip", [1, -1], ids=["right-handed", "left-handed"])
def test_normals_point_to_growing_indices(flip: int) -> None:
    x, y = np.meshgrid([0.0, 1.0, 3.0], [0.0, 0.5, 1.0], indexing="ij")
    area, faces_i, faces_j = faces(x, flip * y)
    np.testing.assert_array_equal(area, [[0.5, 0.5], [1.0, 1.0]])
    np.testing.assert_array_equal(faces_i, np.broadcast_to([0.5, 0.0], (3, 2, 2)))
    np.testing.assert_array_equal(faces_j[0], np.broadcast_to([0.0, flip * 1.0], (3, 2)))


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (np.ones((3, 3)), np.ones((3, 4))),
        (np.ones(3), np.ones(3)),
        (np.ones((1, 3)), np.ones((1, 3))),
        (np.full((3, 3), np.nan), np.ones((3, 3))),
    ],
    ids=["shapes", "one axis", "one line", "missing"],
)
def test_nodes_that_do_not_form_a_grid_are_refused(x: np.ndarray, y: np.ndarray) -> None:
    with pytest.raises(ValueError, match="expected finite x and y of the same shape"):
        faces(x, y)
