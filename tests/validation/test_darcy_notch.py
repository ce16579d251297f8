"""The notched triangle against exact solutions, two other methods, and known properties."""

import time
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.linalg import spsolve

from funcattn.pde import darcy_notch
from funcattn.pde.random_fields import gaussian_process

HEIGHT = np.sqrt(3) / 2
AREA = HEIGHT / 2 - 0.02 * 0.4
# Corners in counterclockwise order: the domain lies to the left of each edge.
CORNERS = np.array([0, 0.49, 0.49 + 0.4j, 0.51 + 0.4j, 0.51, 1, 0.5 + HEIGHT * 1j])
# Coarse elements for tests of properties that hold at any spacing.
COARSE = 0.03

X, Y = np.meshgrid(np.linspace(0, 1, 101), np.linspace(0, 1, 101))  # first axis y


def random_boundary(count: int, points: int = 101, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 1, points)
    return np.stack([gaussian_process(x, length=0.2, rng=rng) for _ in range(count)])


def relative(error: np.ndarray, reference: np.ndarray) -> float:
    return float(np.linalg.norm(error) / np.linalg.norm(reference))


def angles(mesh) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Angles of all triangles in degrees, (3, triangles)."""
    corner = mesh.p[0, mesh.t] + 1j * mesh.p[1, mesh.t]
    ahead, behind = np.roll(corner, -1, 0) - corner, np.roll(corner, 1, 0) - corner
    return abs(np.angle(behind / ahead, deg=True))


@cache
def rational_solution() -> tuple[Callable[[np.ndarray], np.ndarray], float]:
    """Solve -Laplace u = 10, b(x) = 1 + 0.7 x by rational functions; return u and an error bound.

    u is -5/2 |z - 1/2|^2 plus the real part of a polynomial, of poles outside the domain (clustered
    at the corners, and in a row along the narrow notch) and of two logarithms for the jumps of the
    boundary values, fitted to the boundary values by least squares. By the maximum principle the
    error inside is at most the error on the boundary.
    """
    count = 40
    cluster = np.exp(-4 * (np.sqrt(count) - np.sqrt(np.arange(1, count + 1))))
    outward = np.exp(1j * np.deg2rad([-150, -45, -45, -135, -135, -30, 90]))
    reach = np.array([1, 1, 0.012, 0.012, 1, 1, 1])
    poles = (CORNERS + np.outer(cluster, outward * reach)).ravel()
    row = 0.5 + 1j * np.concatenate([np.arange(0.395, -0.02, -0.0025), -np.geomspace(0.023, 1, 30)])
    poles = np.concatenate([poles, row])
    size = abs(poles[:, None] - CORNERS).min(axis=1)

    def terms(z: np.ndarray) -> np.ndarray:
        powers = ((z[:, None] - 0.5 - 0.35j) / 0.7) ** np.arange(25)
        columns = np.hstack([size / (z[:, None] - poles), powers])
        jumps = np.angle((z[:, None] - [0.49, 0.51]) / 1j)
        return np.hstack([columns.real, columns.imag, jumps])

    def boundary_values(z: np.ndarray, edge: int) -> np.ndarray:
        return np.zeros(len(z)) if edge in (1, 2, 3) else 1 + 0.7 * z.real

    def on_edges(samples: int) -> tuple[np.ndarray, np.ndarray]:
        parts = np.concatenate(
            [np.geomspace(1e-13, 1e-2, samples), np.linspace(1e-2, 0.5, samples + 1)[1:]]
        )
        points, values = [], []
        for edge, (start, end) in enumerate(zip(CORNERS, np.roll(CORNERS, -1), strict=True)):
            for z in (start + (end - start) * parts, end + (start - end) * parts):
                points.append(z)
                values.append(boundary_values(z, edge) - particular(z))
        return np.concatenate(points), np.concatenate(values)

    def particular(z: np.ndarray) -> np.ndarray:
        return -2.5 * abs(z - 0.5) ** 2

    z, values = on_edges(200)
    matrix = terms(z)
    scale = np.linalg.norm(matrix, axis=0)
    scale[scale == 0] = 1
    coefficients = np.linalg.lstsq(matrix / scale, values, rcond=1e-14)[0] / scale
    # Checked between the points of the fit, at more than twice their density.
    z, values = on_edges(517)
    bound = abs(terms(z) @ coefficients - values).max()
    return lambda z: particular(z) + terms(z) @ coefficients, float(bound)


def finite_differences(boundary: np.ndarray, forcing: float, cells: int) -> np.ndarray:
    """Five-point differences, cut at the slanted edges; (cells + 1)^2 values, 0 outside.

    cells is a multiple of 100, so that the grid meets the edges of the notch and the bottom.
    """
    h, knots = 1 / cells, np.linspace(0, 1, len(boundary))
    number = -np.ones((cells + 1, cells + 1), dtype=int)
    j, i = np.indices(number.shape)
    in_triangle = (j > 0) & (2 * HEIGHT * np.minimum(i, cells - i) > j)
    hole = (abs(i - cells // 2) <= cells // 100) & (j <= 4 * cells // 10)
    unknown = in_triangle & ~hole
    number[unknown] = np.arange(unknown.sum())
    rows, columns, entries, right = [], [], [], np.full(unknown.sum(), forcing)
    for y, x in np.argwhere(unknown):
        here = number[y, x]
        # Distances to the slanted edges, in cells.
        to_edge = {(0, -1): x - y / (2 * HEIGHT), (0, 1): cells - x - y / (2 * HEIGHT)}
        to_edge[1, 0] = 2 * HEIGHT * min(x, cells - x) - y
        for opposite in (((0, -1), (0, 1)), ((-1, 0), (1, 0))):
            arms = []
            for dy, dx in opposite:
                arm = min(1.0, to_edge.get((dy, dx), 1.0))
                neighbour = number[y + dy, x + dx] if arm == 1.0 else -1
                given = (
                    0.0 if hole[y + dy, x + dx] else np.interp((x + arm * dx) * h, knots, boundary)
                )
                arms.append((arm, neighbour, given))
            total = arms[0][0] + arms[1][0]
            for arm, neighbour, given in arms:
                weight = 2 / (arm * total * h**2)
                rows.append(here)
                columns.append(here)
                entries.append(weight)
                if neighbour >= 0:
                    rows.append(here)
                    columns.append(neighbour)
                    entries.append(-weight)
                else:
                    right[here] += weight * given
    matrix = coo_array((entries, (rows, columns)), shape=2 * (len(right),))
    u = np.zeros(number.shape)
    u[unknown] = spsolve(matrix.tocsc(), right)
    return u


@pytest.mark.parametrize("spacing", [0.05, 0.037, 0.02, 0.0123, 0.01])
def test_triangles_fill_the_domain_and_are_not_flat(spacing: float) -> None:
    mesh = darcy_notch.mesh(spacing)
    p = mesh.p[:, mesh.t]
    sides = p[:, 1:] - p[:, :1]
    area = abs(sides[0, 0] * sides[1, 1] - sides[0, 1] * sides[1, 0]) / 2
    assert area.sum() == pytest.approx(AREA, rel=1e-13)
    # The top edge of the notch is only 0.02 long, which a coarser spacing must resolve.
    assert angles(mesh).min() > (23 if spacing <= 0.02 else 12)
    # Every edge is shared by two triangles or lies on the boundary: no hanging vertices.
    x, y = mesh.p[:, mesh.facets[:, mesh.boundary_facets()]].mean(axis=1)
    distance = np.minimum(y, HEIGHT * np.minimum(x, 1 - x) - y / 2)
    beside = np.where(y < 0.4 + 1e-9, abs(x - 0.5) - 0.01, np.inf)
    above = np.where(abs(x - 0.5) < 0.01 + 1e-9, y - 0.4, np.inf)
    assert np.minimum(distance, np.minimum(abs(beside), abs(above))).max() < 1e-12
    lengths = np.hypot(*np.diff(mesh.p[:, mesh.facets], axis=1)[:, 0])
    assert lengths.max() < 1.8 * spacing
    assert lengths.min() < spacing / 200


def test_mesh_is_its_own_mirror_image() -> None:
    mesh = darcy_notch.mesh(COARSE)

    def centres(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        middle = np.round(np.stack([x, y])[:, mesh.t].mean(axis=1).T, 12)
        return middle[np.lexsort(middle.T)]

    x, y = mesh.p
    np.testing.assert_allclose(centres(1 - x, y), centres(x, y), rtol=0, atol=2e-12)


@pytest.mark.parametrize(
    ("solution", "forcing"),
    [
        (lambda x, y: 1 + 0 * x * y, 0.0),
        (lambda x, y: 2 * x - 3 * y, 0.0),
        (lambda x, y: x**2 - y**2, 0.0),
        (lambda x, y: (x - 0.3) * y, 0.0),
        (lambda x, y: -2.5 * (x**2 + y**2) + x, 10.0),
        (lambda x, y: -5 * y**2 + 4 * x * y, 10.0),
    ],
    ids=["constant", "linear", "harmonic", "saddle", "forced", "forced-one-way"],
)
def test_quadratic_solutions_are_reproduced_to_rounding(
    solution: Callable[..., np.ndarray], forcing: float
) -> None:
    elements = darcy_notch.elements(0.01)
    exact = solution(*elements.basis.doflocs)
    u = elements.solve(exact[elements.edge, None], forcing)[:, 0]
    np.testing.assert_allclose(u, exact, rtol=0, atol=1e-11)


def test_smooth_harmonic_function_converges_at_third_order() -> None:
    errors = []
    for spacing in (0.04, 0.02, 0.01):
        elements = darcy_notch.elements(spacing)
        x, y = elements.basis.doflocs
        exact = np.exp(np.pi * x) * np.sin(np.pi * y)
        u = elements.solve(exact[elements.edge, None])[:, 0]
        errors.append(abs(u - exact).max())
    assert errors[-1] < 2.5e-6
    np.testing.assert_allclose(np.log2(np.array(errors[:-1]) / errors[1:]), 3.0, atol=0.1)


def error_of(spacing: float) -> tuple[float, float]:
    """Error for b(x) = 1 + 0.7 x inside the domain: 2-norm relative to u, and maximum."""
    exact, _ = rational_solution()
    inside = darcy_notch.inside()
    u = darcy_notch.solve(1 + 0.7 * X[0], spacing=spacing)[inside]
    reference = exact(X[inside] + 1j * Y[inside])
    return relative(u - reference, reference), abs(u - reference).max()


def test_rational_solution_bounds_its_own_error() -> None:
    assert rational_solution()[1] < 1e-6


def test_corners_of_the_notch_do_not_spoil_third_order() -> None:
    norms, greatest = np.transpose([error_of(spacing) for spacing in (0.04, 0.02, 0.01)])
    assert norms[-1] < 5e-6
    assert greatest[-1] < 7e-5
    np.testing.assert_allclose(np.log2(norms[:-1] / norms[1:]), 2.9, atol=0.2)
    assert (np.log2(greatest[:-1] / greatest[1:]) > 2.3).all()


@pytest.mark.full
def test_third_order_holds_down_to_the_finest_elements() -> None:
    coarse, fine = (np.array(error_of(spacing)) for spacing in (0.01, 0.005))
    np.testing.assert_allclose(np.log2(coarse / fine), 2.8, atol=0.3)


def test_random_samples_agree_with_finite_differences() -> None:
    boundary = random_boundary(1, seed=3)[0]
    u = darcy_notch.solve(boundary)
    inside = darcy_notch.inside()
    errors = []
    for cells in (100, 200):
        stride = cells // 100
        other = finite_differences(boundary, 10.0, cells)[::stride, ::stride]
        assert (other != 0)[inside].all()
        errors.append(relative((u - other)[inside], u[inside]))
    # The differences are not of second order because u jumps.
    assert errors[1] < 1e-3
    assert errors[1] < errors[0] / 2


def test_u_jumps_with_the_angle_at_the_lower_corners() -> None:
    elements = darcy_notch.elements(0.01)
    x, y = elements.basis.doflocs[:, elements.edge]
    outer = (abs(x - 0.5) > 0.01 + 1e-9) | (y > 0.4 + 1e-9)
    u = elements.solve(np.where(outer, 1.0, 0.0)[:, None], 10.0)[:, 0]
    angle = np.linspace(0, np.pi / 2, 9)
    # The remainder is of order r^2 log r.
    for radius, rest in ((1e-3, 1e-4), (1e-2, 2e-3)):
        arc = 0.49 + radius * 1j * np.exp(1j * angle)
        along = elements.basis.probes(np.stack([arc.real, arc.imag])[:, 1:-1]) @ u
        np.testing.assert_allclose(along, angle[1:-1] * 2 / np.pi, rtol=0, atol=rest)


def test_u_grows_as_the_power_two_thirds_from_the_upper_corners() -> None:
    elements = darcy_notch.elements(0.01)
    u = elements.solve(np.zeros((len(elements.edge), 1)), 10.0)[:, 0]
    radius = 1e-4 * 2.0 ** np.arange(5)
    # Along the bisector, where the first singular function has its maximum.
    ray = np.stack([0.49 - radius / np.sqrt(2), 0.4 + radius / np.sqrt(2)])
    along = elements.basis.probes(ray) @ u
    np.testing.assert_allclose(np.log2(along[1:] / along[:-1]), 2 / 3, atol=0.005)


def test_sources_inside_leave_through_the_edges() -> None:
    elements = darcy_notch.elements(COARSE)
    values = np.random.default_rng(1).standard_normal((len(elements.edge), 1))
    u = elements.solve(values, 10.0)[:, 0]
    outflow = elements.load * 10.0 - elements.stiffness @ u
    assert abs(outflow[elements.inner]).max() < 1e-12
    assert outflow[elements.edge].sum() == pytest.approx(10 * AREA, abs=1e-11)


def test_solution_is_linear_in_boundary_and_forcing() -> None:
    first, second = random_boundary(2)
    both = darcy_notch.solve(first + 3 * second, 20.0, spacing=COARSE)
    parts = darcy_notch.solve(first, 0.0, spacing=COARSE)
    parts += 3 * darcy_notch.solve(second, 0.0, spacing=COARSE)
    parts += 2 * darcy_notch.solve(np.zeros(101), 10.0, spacing=COARSE)
    np.testing.assert_allclose(both, parts, rtol=0, atol=1e-13)


def test_mirrored_boundary_gives_the_mirrored_solution() -> None:
    boundary = random_boundary(3)
    u = darcy_notch.solve(boundary)
    mirrored = darcy_notch.solve(boundary[:, ::-1])
    np.testing.assert_allclose(mirrored, u[:, :, ::-1], rtol=0, atol=1e-12)
    assert abs(mirrored - u).max() > 0.1


def test_solution_obeys_the_maximum_principle() -> None:
    inside = darcy_notch.inside()
    boundary = random_boundary(20)
    u = darcy_notch.solve(boundary, 0.0)[:, inside]
    low, high = np.minimum(boundary.min(axis=1), 0), np.maximum(boundary.max(axis=1), 0)
    assert (u > low[:, None]).all()
    assert (u < high[:, None]).all()
    share = darcy_notch.solve(np.ones(101), 0.0)[inside]
    assert 0 < share.min() < 0.1
    assert 0.9 < share.max() < 1
    assert (darcy_notch.solve(np.zeros(101))[inside] > 0).all()


def test_solution_grows_with_every_boundary_value() -> None:
    u = darcy_notch.solve(np.eye(101), 0.0)[:, darcy_notch.inside()]
    # Positive up to rounding.
    assert u.min() > -1e-14
    assert (u.max(axis=1)[np.arange(101) != 50] > 1e-3).all()
    # b(1/2) acts only at the apex: at the bottom the notch is there.
    assert u[50].max() > 0.1


def test_edges_and_the_notch_have_their_given_values() -> None:
    boundary = random_boundary(1)[0] + 5.0
    u = darcy_notch.solve(boundary, spacing=COARSE)
    notch = (abs(X - 0.5) < 0.0101) & (Y < 0.4001)
    assert notch.sum() == 3 * 41
    np.testing.assert_array_equal(u[notch], 0.0)
    bottom = u[0, ~notch[0]]
    np.testing.assert_allclose(bottom, boundary[~notch[0]], rtol=1e-14)


def test_values_outside_are_those_at_the_closest_point_of_the_triangle() -> None:
    boundary = random_boundary(1)[0]
    u = darcy_notch.solve(boundary, spacing=COARSE)
    outside = 2 * HEIGHT * np.minimum(X, 1 - X) < Y - 1e-9
    assert outside.mean() == pytest.approx(0.57, abs=0.005)
    along = np.linspace(0, 0.5, 5001)
    edge = np.concatenate([along, 1 - along]), 2 * HEIGHT * np.concatenate([along, along])
    for x, y, value in zip(X[outside][::7], Y[outside][::7], u[outside][::7], strict=True):
        closest = np.argmin((edge[0] - x) ** 2 + (edge[1] - y) ** 2)
        # The steepest slope of this b is 8, and the edge is sampled at 1e-4.
        expected = np.interp(edge[0][closest], X[0], boundary)
        assert value == pytest.approx(expected, abs=1e-3)


def test_inside_is_the_open_domain() -> None:
    point = X + 1j * Y
    # Left of the three outer edges, and not in the closed notch.
    outer = [0, 1, 0.5 + HEIGHT * 1j]
    expected = np.ones(X.shape, dtype=bool)
    for start, end in zip(outer, np.roll(outer, -1), strict=True):
        expected &= ((point - start) * np.conj(end - start)).imag > 1e-9
    expected[:41, 49:52] = False
    np.testing.assert_array_equal(darcy_notch.inside(), expected)
    np.testing.assert_array_equal(darcy_notch.inside(51), expected[::2, ::2])
    assert expected.mean() == pytest.approx(AREA, abs=0.02)


def test_batch_equals_solving_one_by_one() -> None:
    boundary = random_boundary(6).reshape(2, 3, 101)
    u = darcy_notch.solve(boundary, spacing=COARSE)
    assert u.shape == (2, 3, 101, 101)
    for k in np.ndindex(2, 3):
        one = darcy_notch.solve(boundary[k], spacing=COARSE)
        np.testing.assert_allclose(u[k], one, rtol=0, atol=1e-14 * abs(one).max())
    assert darcy_notch.solve(np.ones((0, 101)), spacing=COARSE).shape == (0, 101, 101)


def test_result_does_not_depend_on_earlier_solves() -> None:
    boundary = random_boundary(1)[0]
    u = darcy_notch.solve(boundary, spacing=COARSE)
    for points in (51, 21, 11):
        darcy_notch.solve(np.ones(points), spacing=0.05)
    np.testing.assert_array_equal(darcy_notch.solve(boundary, spacing=COARSE), u)


def test_single_precision_input_is_solved_in_double_and_left_untouched() -> None:
    boundary = random_boundary(1)[0].astype(np.float32)
    kept = boundary.copy()
    u = darcy_notch.solve(boundary, spacing=COARSE)
    assert u.dtype == np.float64
    np.testing.assert_array_equal(u, darcy_notch.solve(boundary.astype(np.float64), spacing=COARSE))
    np.testing.assert_array_equal(boundary, kept)


def test_sample_is_a_draw_and_its_solution() -> None:
    drawn = darcy_notch.sample(spacing=COARSE, rng=np.random.default_rng(5))
    assert {name: array.shape for name, array in drawn.items()} == {
        "boundary": (101,),
        "solution": (101, 101),
    }
    boundary = gaussian_process(X[0], length=0.2, rng=np.random.default_rng(5))
    np.testing.assert_array_equal(drawn["boundary"], boundary)
    np.testing.assert_array_equal(drawn["solution"], darcy_notch.solve(boundary, spacing=COARSE))
    other = darcy_notch.sample(spacing=COARSE, rng=np.random.default_rng(6))
    assert abs(other["solution"] - drawn["solution"]).max() > 0.1


def test_sample_passes_its_parameters_to_the_solver() -> None:
    drawn = darcy_notch.sample(
        nodes=21, length=0.5, forcing=3.0, spacing=0.05, rng=np.random.default_rng(5)
    )
    boundary = gaussian_process(np.linspace(0, 1, 21), length=0.5, rng=np.random.default_rng(5))
    np.testing.assert_array_equal(drawn["boundary"], boundary)
    u = darcy_notch.solve(boundary, 3.0, spacing=0.05)
    np.testing.assert_array_equal(drawn["solution"], u)


def test_other_grids_show_the_same_sample() -> None:
    fine, coarse = (
        darcy_notch.sample(nodes=nodes, spacing=0.02, rng=np.random.default_rng(7))["solution"]
        for nodes in (101, 51)
    )
    # They differ by the linear interpolation of b: 0.02^2 / 8 times its second derivative, which
    # is about sqrt(3) / 0.2^2.
    assert relative(fine[::2, ::2] - coarse, coarse) < 4e-3


def test_two_thousand_samples_follow_the_distribution_and_take_seconds() -> None:
    draws = 2000
    rng = np.random.default_rng(8)
    darcy_notch.sample(rng=rng)
    start = time.process_time()
    u = np.stack([darcy_notch.sample(rng=rng)["solution"][::5, ::5] for _ in range(draws)])
    # Measured: 0.7 s.
    assert time.process_time() - start < 10
    # The solution is Gaussian. Its mean is the solution for the forcing alone, and by linearity its
    # variance is that of a sum over the boundary values.
    response = darcy_notch.solve(np.eye(101), 0.0).reshape(101, -1)
    covariance = np.exp(-((X[0][:, None] - X[0]) ** 2) / (2 * 0.2**2))
    deviation = np.sqrt(np.einsum("kp,kl,lp->p", response, covariance, response, optimize=True))
    deviation = deviation.reshape(101, 101)[::5, ::5]
    forced = darcy_notch.solve(np.zeros(101))[::5, ::5]
    somewhere = deviation > 0
    z = (u - forced)[:, somewhere] / deviation[somewhere]
    # Four standard errors of a Gaussian sample's mean and variance.
    assert abs(z.mean(axis=0)).max() < 4 / np.sqrt(draws)
    assert abs((z**2).mean(axis=0) - 1).max() < 4 * np.sqrt(2 / draws)


@pytest.mark.parametrize("shape", [(), (2,), (5, 0), (3, 2)])
def test_too_few_boundary_values_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"shape \(\.\.\., n\) with n >= 3, got \(.*equidistant"):
        darcy_notch.solve(np.ones(shape))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    boundary = np.ones((2, 5))
    boundary[1, 2] = value
    with pytest.raises(ValueError, match=f"finite boundary values .* to {value} and forcing 10"):
        darcy_notch.solve(boundary)
    with pytest.raises(ValueError, match=f"finite boundary values .* forcing {value}"):
        darcy_notch.solve(np.ones(5), value)


@pytest.mark.parametrize("spacing", [0.0, -0.01, 1e-4, 0.06, np.nan])
def test_spacing_out_of_range_is_refused(spacing: float) -> None:
    with pytest.raises(ValueError, match=f"expected 0.001 <= spacing <= 0.05, got {spacing}"):
        darcy_notch.solve(np.ones(5), spacing=spacing)


def test_sample_of_too_few_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match="expected nodes >= 3, got 2"):
        darcy_notch.sample(nodes=2, rng=np.random.default_rng(0))
