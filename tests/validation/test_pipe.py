"""The pipe solver against exact flows, elements assembled by scikit-fem, and symmetries."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from skfem import (
    Basis,
    ElementQuad1,
    ElementQuad2,
    ElementVector,
    FacetBasis,
    LinearForm,
    MeshQuad,
    MeshQuad2,
)
from skfem.helpers import ddot, div, dot, grad, mul

from funcattn.pde import pipe
from funcattn.pde.errors import NotConvergedError

DESIGN = np.array([0.8, -0.5, 0.3, 0.6, 0.7, -0.4, 0.1, 0.9, -0.8])
LEVEL_ENDS = DESIGN * [1, 1, 1, 1, 0, 1, 1, 1, 0]


def flow_in(design: np.ndarray = DESIGN, nodes: int = 33, **options: Any) -> pipe.Flow:
    return pipe.solve(*pipe.channel(design, nodes), **options)


def warped(nx: int, ny: int) -> tuple[np.ndarray, np.ndarray]:
    """A grid curved on all four sides, [-1/2, 1] x [-1/2, 1/2] before that."""
    a, b = np.meshgrid(np.linspace(-0.5, 1.0, nx), np.linspace(-0.5, 0.5, ny), indexing="ij")
    x = a + 0.1 * b + 0.08 * np.cos(np.pi * a) * np.sin(2 * np.pi * b)
    return x, b + 0.1 * np.cos(np.pi * a) * (1 - b**2)


def bases(x: np.ndarray, y: np.ndarray, order: int) -> tuple[Basis, Basis, tuple, tuple]:
    """Velocity and pressure of scikit-fem on a grid, and the index of its unknowns in ours."""
    nx, ny = x.shape
    flat = MeshQuad2.from_mesh(MeshQuad.init_tensor(np.arange(0.0, nx, 2), np.arange(0.0, ny, 2)))
    i, j = np.rint(flat.doflocs).astype(int)
    curved = replace(flat, doflocs=np.stack([x[i, j], y[i, j]]))
    velocity, pressure = ElementVector(ElementQuad2()), ElementQuad1()
    places = [np.rint(Basis(flat, e).doflocs).astype(int) for e in (velocity, pressure)]
    basis = Basis(curved, velocity, intorder=order)
    # Its velocity unknowns alternate between the two directions.
    of_velocity = (np.arange(basis.N) % 2, *places[0])
    return basis, basis.with_element(pressure), of_velocity, tuple(places[1] // 2)


def flux(velocity: np.ndarray) -> np.ndarray:
    """Integral of u_x over y at each x of a channel: Simpson's rule is exact for the elements."""
    weights = np.ones(velocity.shape[2])
    weights[1:-1:2], weights[2:-1:2] = 4.0, 2.0
    through: np.ndarray = velocity[0] @ weights / weights.sum()
    return through


def distance(field: np.ndarray, reference: np.ndarray) -> float:
    return float(np.linalg.norm(field - reference) / np.linalg.norm(reference))


@pytest.mark.parametrize("viscosity", [0.005, 0.02])
@pytest.mark.parametrize("start", ["exact", "at rest"])
def test_straight_pipe_has_a_parabolic_velocity_and_linear_pressure(
    viscosity: float, start: str
) -> None:
    x, y, exact = pipe.channel(np.zeros(9), 33)
    velocity = exact.copy()
    if start == "at rest":
        velocity[:, 1:] = 0.0
    flow = pipe.solve(x, y, velocity, viscosity=viscosity, tolerance=1e-13)
    np.testing.assert_allclose(flow.velocity, exact, rtol=0, atol=1e-14)
    np.testing.assert_allclose(
        flow.pressure, 2 * viscosity * (10 - x[::2, ::2]), rtol=0, atol=1e-13
    )
    assert (flow.iterations == 1) == (start == "exact")


def kovasznay_errors(x: np.ndarray, y: np.ndarray, normal: np.ndarray) -> tuple[float, float]:
    """L2 errors of velocity and pressure for the exact flow behind a row of cylinders, Re = 40."""
    viscosity = 1 / 40
    rate = 20 - np.sqrt(400 + 4 * np.pi**2)

    def exact(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        decay, c, s = np.exp(rate * x), np.cos(2 * np.pi * y), np.sin(2 * np.pi * y)
        velocity = np.stack([1 - decay * c, rate / (2 * np.pi) * decay * s])
        slope = decay * np.array(
            [[-rate * c, 2 * np.pi * s], [rate**2 / (2 * np.pi) * s, rate * c]]
        )
        return velocity, slope, -(decay**2) / 2

    start = exact(x, y)[0]
    _, slope, pressure = exact(x[-1], y[-1])
    traction = viscosity * np.einsum("srj,rj->sj", slope, normal) - pressure * normal
    start[0, 1:, 1:-1], start[1, 1:, 1:-1] = 1.0, 0.0
    flow = pipe.solve(x, y, start, viscosity=viscosity, traction=traction)

    velocities, pressures, of_velocity, of_pressure = bases(x, y, order=9)
    velocity, _, pressure = exact(*np.asarray(velocities.global_coordinates()))
    error = np.asarray(velocities.interpolate(flow.velocity[of_velocity])) - velocity
    error_pressure = np.asarray(pressures.interpolate(flow.pressure[of_pressure])) - pressure
    return (
        float(np.sqrt((error**2 * velocities.dx).sum())),
        float(np.sqrt((error_pressure**2 * velocities.dx).sum())),
    )


@pytest.mark.parametrize("grid", ["rectangle", "warped"])
def test_kovasznay_flow_converges_at_third_and_second_order(grid: str) -> None:
    errors = []
    for nodes in (17, 33, 65):
        b = np.linspace(-0.5, 0.5, nodes)
        if grid == "warped":
            x, y = warped(nodes, nodes)
            # Derivative of (x, y) along the side a = 1, rotated clockwise.
            normal = np.stack(
                [np.ones(nodes) + 0.2 * b, 0.16 * np.pi * np.cos(2 * np.pi * b) - 0.1]
            )
        else:
            x, y = np.meshgrid(np.linspace(-0.5, 1.0, nodes), b, indexing="ij")
            normal = np.stack([np.ones(nodes), np.zeros(nodes)])
        errors.append(kovasznay_errors(x, y, normal / np.linalg.norm(normal, axis=0)))
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    np.testing.assert_allclose(orders[:, 0], 3.0, atol=0.08)
    np.testing.assert_allclose(orders[:, 1], 2.0, atol=0.08)
    assert errors[-1][0] < 5e-5
    assert errors[-1][1] < 3e-4


def test_flow_meets_the_equations_assembled_by_another_library() -> None:
    viscosity = 0.02
    x, y = warped(17, 13)
    rng = np.random.default_rng(0)
    start = np.stack([0.25 - y**2, 0.1 * x]) + 0.01 * rng.standard_normal((2, *x.shape))
    traction = 0.01 * rng.standard_normal((2, 13))
    flow = pipe.solve(x, y, start, viscosity=viscosity, traction=traction, tolerance=1e-12)

    velocities, pressures, of_velocity, of_pressure = bases(x, y, order=5)
    state = {
        "u": velocities.interpolate(flow.velocity[of_velocity]),
        "p": pressures.interpolate(flow.pressure[of_pressure]),
    }

    @LinearForm
    def momentum(v: Any, w: Any) -> Any:
        convection = dot(mul(grad(w.u), w.u), v)
        return viscosity * ddot(grad(w.u), grad(v)) + convection - w.p * div(v)

    @LinearForm
    def mass(q: Any, w: Any) -> Any:
        return q * div(w.u)

    sides = velocities.mesh.boundary_facets()
    facets = FacetBasis(velocities.mesh, velocities.elem, intorder=5, facets=sides)
    outside = np.zeros_like(flow.velocity)
    outside[:, -1] = traction
    # Where the velocity is free, only the outlet has facets.
    load = LinearForm(lambda v, w: dot(w.t, v)).assemble(
        facets, t=facets.interpolate(outside[of_velocity])
    )
    forces = np.zeros_like(flow.velocity)
    forces[of_velocity] = momentum.assemble(velocities, **state) - load
    assert abs(forces).max() > 1e-3
    np.testing.assert_allclose(forces[:, 1:, 1:-1], 0.0, atol=1e-15)
    np.testing.assert_allclose(mass.assemble(pressures, **state), 0.0, atol=1e-15)
    # The flow is not trivial, and its given values are unchanged.
    for side in (np.s_[:, 0], np.s_[:, :, 0], np.s_[:, :, -1]):
        np.testing.assert_array_equal(flow.velocity[side], start[side])
    assert abs(flow.velocity - start).max() > 0.05


def test_newton_matrix_is_the_derivative_of_the_residual() -> None:
    x, y = warped(7, 9)
    rng = np.random.default_rng(1)
    elements = pipe._TaylorHood(np.stack([x, y]), 0.01, rng.standard_normal((2, 9)))
    state, direction = rng.standard_normal((2, 2 * x.size + 20))
    fixed = np.setdiff1d(np.arange(state.size), elements.free)
    # 9 nodes at the inlet, 6 more on each wall, two directions.
    assert fixed.size == 2 * (9 + 2 * 6)
    direction[fixed] = 0.0
    # The residual is quadratic: the central difference of step 1 is exact.
    difference = (elements.residual(state + direction) - elements.residual(state - direction)) / 2
    product = elements.matrix(state) @ direction[elements.free]
    np.testing.assert_allclose(product, difference, rtol=0, atol=1e-14 * abs(difference).max())


def test_flux_is_exact_over_every_column_of_elements() -> None:
    through = flux(flow_in().velocity)
    assert abs(through - 1 / 6).max() > 1e-3
    columns = (through[:-2:2] + 4 * through[1:-1:2] + through[2::2]) / 6
    np.testing.assert_allclose(columns, 1 / 6, rtol=1e-13)
    assert through[0] == pytest.approx(1 / 6, rel=1e-14)


def test_mirrored_channel_has_the_mirrored_flow() -> None:
    flow, mirrored = flow_in(), flow_in(-DESIGN)
    expected = np.stack([flow.velocity[0], -flow.velocity[1]])[:, :, ::-1]
    np.testing.assert_allclose(mirrored.velocity, expected, rtol=0, atol=5e-14)
    np.testing.assert_allclose(mirrored.pressure, flow.pressure[:, ::-1], rtol=0, atol=5e-14)
    assert abs(expected - flow.velocity).max() > 0.1


def test_rotated_channel_has_the_rotated_flow() -> None:
    x, y, velocity = pipe.channel(DESIGN, 33)
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    flow = pipe.solve(x, y, velocity)
    turned = pipe.solve(
        *np.einsum("rs,sij->rij", turn, [x, y]), np.einsum("rs,sij->rij", turn, velocity)
    )
    expected = np.einsum("rs,sij->rij", turn, flow.velocity)
    # Corrections are measured in the rotated components, so the last steps may differ.
    np.testing.assert_allclose(turned.velocity, expected, rtol=0, atol=1e-11)
    np.testing.assert_allclose(turned.pressure, flow.pressure, rtol=0, atol=1e-11)


def test_flow_scales_with_velocity_and_viscosity() -> None:
    x, y, velocity = pipe.channel(DESIGN, 33)
    flow = pipe.solve(x, y, velocity)
    fast = pipe.solve(x, y, 4 * velocity, viscosity=0.02)
    np.testing.assert_allclose(fast.velocity, 4 * flow.velocity, rtol=0, atol=1e-13)
    np.testing.assert_allclose(fast.pressure, 16 * flow.pressure, rtol=0, atol=1e-13)
    other = pipe.solve(x, y, velocity, viscosity=0.02)
    assert distance(other.velocity, flow.velocity) > 0.01


def test_pressure_at_the_outlet_is_added_inside() -> None:
    x, y, velocity = pipe.channel(DESIGN, 33)
    flow = pipe.solve(x, y, velocity)
    outside = np.stack([np.full(33, -0.7), np.zeros(33)])
    pressed = pipe.solve(x, y, velocity, traction=outside)
    np.testing.assert_allclose(pressed.velocity, flow.velocity, rtol=0, atol=1e-13)
    np.testing.assert_allclose(pressed.pressure, flow.pressure + 0.7, rtol=0, atol=1e-13)


def test_fluid_at_rest_stays_at_rest() -> None:
    x, y, velocity = pipe.channel(DESIGN, 17)
    flow = pipe.solve(x, y, 0 * velocity)
    np.testing.assert_array_equal(flow.velocity, 0.0)
    np.testing.assert_array_equal(flow.pressure, 0.0)


def test_flow_does_not_depend_on_the_start() -> None:
    x, y, velocity = pipe.channel(DESIGN, 33)
    flow = pipe.solve(x, y, velocity)
    velocity[:, 1:, 1:-1] = 0.0
    other = pipe.solve(x, y, velocity)
    np.testing.assert_allclose(other.velocity, flow.velocity, rtol=0, atol=1e-11)
    np.testing.assert_allclose(other.pressure, flow.pressure, rtol=0, atol=1e-11)


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6, 1e-9])
def test_returned_flow_meets_the_tolerance(tolerance: float) -> None:
    exact = flow_in(tolerance=1e-13)
    flow = flow_in(tolerance=tolerance)
    assert flow.change <= tolerance
    assert flow.iterations < exact.iterations
    left = abs(flow.velocity - exact.velocity).max() / abs(exact.velocity).max()
    assert 0 < left <= tolerance
    assert abs(flow.pressure - exact.pressure).max() <= tolerance * abs(exact.pressure).max()


def convergence(design: np.ndarray, nodes: list[int]) -> np.ndarray:
    """Relative distance of velocity and pressure from those on the last grid."""
    *flows, finest = [flow_in(design, count) for count in nodes]
    errors = []
    for flow in flows:
        stride = (len(finest.pressure) - 1) // (len(flow.pressure) - 1)
        errors.append(
            [
                distance(flow.velocity, finest.velocity[:, ::stride, ::stride]),
                distance(flow.pressure, finest.pressure[::stride, ::stride]),
            ]
        )
    return np.array(errors)


def test_finer_grids_approach_the_same_flow() -> None:
    # Walls that meet inlet and outlet at right angles leave the flow smooth.
    errors = convergence(LEVEL_ENDS, [33, 65, 129])
    assert (np.log2(errors[0] / errors[1]) > [2.3, 2.1]).all(), errors
    assert (errors[1] < [0.007, 0.005]).all(), errors


@pytest.mark.full
def test_benchmark_grid_is_within_a_third_of_a_percent_of_the_next() -> None:
    errors = convergence(LEVEL_ENDS, [65, 129, 257])
    assert (np.log2(errors[0] / errors[1]) > [3.0, 2.3]).all(), errors
    assert (errors[1] < [0.001, 0.001]).all(), errors
    # With slanted ends stresses are singular in the corners, which lowers the order there.
    errors = convergence(DESIGN, [65, 129, 257])
    assert (np.log2(errors[0] / errors[1]) > [1.8, 1.5]).all(), errors
    assert (errors[1] < 0.0035).all(), errors


def test_centre_line_has_the_heights_and_slopes_of_the_design() -> None:
    c = pipe.centre_line(DESIGN)
    knots = np.array([0.0, 2.5, 5.0, 7.5, 10.0])
    np.testing.assert_allclose(c(knots), [0.0, *DESIGN[:4]], rtol=1e-15)
    np.testing.assert_allclose(c(knots, 1), DESIGN[4:], rtol=1e-13)
    # Slopes are dc/dx: halfway between knots 2.5 / 8 of their difference adds to the mean height.
    middle = (DESIGN[0] + DESIGN[1]) / 2 + 2.5 / 8 * (DESIGN[5] - DESIGN[6])
    assert c(3.75) == pytest.approx(middle, rel=1e-14)


def test_channel_has_the_grid_and_boundary_values_of_the_benchmark() -> None:
    x, y, velocity = pipe.channel(DESIGN, 129)
    np.testing.assert_allclose(x, np.repeat(np.arange(129.0)[:, None] * 10 / 128, 129, 1))
    np.testing.assert_allclose(y[:, 64], pipe.centre_line(DESIGN)(x[:, 0]), atol=1e-15)
    np.testing.assert_allclose(np.diff(y, axis=1), 1 / 128, rtol=1e-12)
    assert velocity[0, 0, 64] == 0.25
    np.testing.assert_allclose(velocity[0, 0], 0.25 - y[0] ** 2, atol=1e-16)
    np.testing.assert_array_equal(velocity[1, 0], 0.0)
    np.testing.assert_array_equal(velocity[:, :, [0, -1]], 0.0)
    # Inside, the start follows the channel.
    slope = pipe.centre_line(DESIGN)(x[1:, :1], 1)
    np.testing.assert_allclose(velocity[1, 1:], slope * velocity[0, 1:], atol=1e-16)
    for coarse, fine in zip(pipe.channel(DESIGN, 33), (x, y, velocity), strict=True):
        np.testing.assert_allclose(coarse, fine[..., ::4, ::4], atol=1e-15)


def test_sample_has_the_flow_of_its_design_at_the_stored_nodes() -> None:
    stored = pipe.sample(nodes=33, stride=4, rng=np.random.default_rng(3))
    x, y, velocity = pipe.channel(stored["design"], 33)
    flow = pipe.solve(x, y, velocity)
    np.testing.assert_array_equal(stored["x"], x[::4, ::4])
    np.testing.assert_array_equal(stored["y"], y[::4, ::4])
    np.testing.assert_array_equal(stored["flow"][:2], flow.velocity[:, ::4, ::4])
    np.testing.assert_array_equal(stored["flow"][2], flow.pressure[::2, ::2])
    assert stored["iterations"] == flow.iterations
    assert stored["change"] == flow.change <= 1e-10
    assert {name: array.shape for name, array in stored.items()} == {
        "x": (9, 9),
        "y": (9, 9),
        "flow": (3, 9, 9),
        "design": (9,),
        "iterations": (),
        "change": (),
    }
    assert all(array.dtype == np.float64 for array in stored.values())


def test_sample_passes_its_parameters_to_the_solver() -> None:
    stored = pipe.sample(nodes=17, viscosity=0.02, tolerance=1e-3, rng=np.random.default_rng(3))
    flow = flow_in(stored["design"], 17, viscosity=0.02, tolerance=1e-3)
    np.testing.assert_array_equal(stored["flow"][:2], flow.velocity)
    np.testing.assert_array_equal(stored["flow"][2, ::2, ::2], flow.pressure)


def test_sample_depends_only_on_its_generator() -> None:
    rng = np.random.default_rng(7)
    first, second = (pipe.sample(nodes=17, rng=rng) for _ in range(2))
    again = pipe.sample(nodes=17, rng=np.random.default_rng(7))
    for name, array in first.items():
        np.testing.assert_array_equal(array, again[name])
    assert distance(second["flow"], first["flow"]) > 0.1
    # Another resolution draws the same channel, and leaves the generator in the same state.
    finer_rng = np.random.default_rng(7)
    finer = pipe.sample(nodes=25, stride=2, rng=finer_rng)
    np.testing.assert_array_equal(finer["design"], first["design"])
    assert pipe.sample(nodes=17, rng=finer_rng)["design"].tolist() == second["design"].tolist()


@pytest.mark.parametrize(("heights", "slopes"), [(1.0, 1.0), (2.0, 0.4)])
def test_designs_are_uniform_within_their_bounds(heights: float, slopes: float) -> None:
    rng = np.random.default_rng(11)
    options: dict[str, Any] = {"nodes": 5, "viscosity": 1.0, "heights": heights, "slopes": slopes}
    draws = 200
    designs = np.stack([pipe.sample(**options, rng=rng)["design"] for _ in range(draws)])
    unit = designs / np.array(4 * [heights] + 5 * [slopes])
    assert 0.97 < abs(unit).max() <= 1.0
    # Mean 0, variance 1/3 and no correlation, to four standard errors.
    np.testing.assert_allclose(unit.mean(0), 0.0, atol=4 * np.sqrt(1 / 3 / draws))
    np.testing.assert_allclose((unit**2).mean(0), 1 / 3, atol=4 * np.sqrt(4 / 45 / draws))
    np.testing.assert_allclose(np.corrcoef(unit.T), np.eye(9), atol=4 / np.sqrt(draws))


def check_ranges(count: int, nodes: int, flux_error: float) -> None:
    rng = np.random.default_rng(0)
    samples = [pipe.sample(nodes=nodes, rng=rng) for _ in range(count)]
    y = np.stack([stored["y"] for stored in samples])
    velocity = np.stack([stored["flow"][:2] for stored in samples])
    # Two equal heights with opposite slopes bulge by 2.5 / 4 between them.
    assert abs(y).max() <= 0.5 + 1 + 2.5 / 4
    assert -2.0 < y.min() < -1.3
    assert 1.3 < y.max() < 2.0
    peak = velocity[:, 0].max((1, 2))
    assert (peak >= 0.25).all()
    assert peak.max() == pytest.approx(0.325, abs=0.015)
    # Hardly any backflow, and no spikes at the outlet.
    assert -0.006 < velocity[:, 0].min() <= 0.0
    assert 0.2 < abs(velocity[:, 1]).max() < 0.4
    assert velocity[:, 0, -1].max() < 0.32
    assert max(abs(6 * flux(one) - 1).max() for one in velocity) < flux_error
    pressure = np.stack([stored["flow"][2] for stored in samples])
    # Any bend needs more pressure than the straight pipe.
    assert (pressure.max((1, 2)) > 0.1).all()
    assert pressure.max() < 0.5
    assert max(stored["iterations"] for stored in samples) <= 13


def test_samples_are_in_the_ranges_of_the_benchmark() -> None:
    check_ranges(10, nodes=65, flux_error=0.1)


@pytest.mark.full
def test_samples_of_full_size_are_in_the_ranges_of_the_benchmark() -> None:
    check_ranges(40, nodes=129, flux_error=0.0125)


def test_single_precision_input_is_solved_in_double_and_left_untouched() -> None:
    inputs = [array.astype(np.float32) for array in pipe.channel(DESIGN, 9)]
    kept = [array.copy() for array in inputs]
    flow = pipe.solve(*inputs)
    assert flow.velocity.dtype == flow.pressure.dtype == np.float64
    double = pipe.solve(*(array.astype(np.float64) for array in inputs))
    np.testing.assert_array_equal(flow.velocity, double.velocity)
    for array, before in zip(inputs, kept, strict=True):
        np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize("nodes", [-1, 3, 8, 128])
def test_number_of_nodes_without_elements_is_refused(nodes: int) -> None:
    message = f"expected an odd number of nodes, at least 5, got {nodes}"
    with pytest.raises(ValueError, match=message):
        pipe.channel(DESIGN, nodes)
    with pytest.raises(ValueError, match=message):
        pipe.sample(nodes=nodes, rng=np.random.default_rng(0))


@pytest.mark.parametrize("shape", [(3, 9), (9, 3), (8, 9), (9, 8)], ids=str)
def test_grid_without_elements_is_refused(shape: tuple[int, int]) -> None:
    x, y = np.meshgrid(*map(np.arange, shape), indexing="ij")
    x, y = x.astype(float), y.astype(float)
    with pytest.raises(ValueError, match=f"odd .* got {shape[0]} x {shape[1]}"):
        pipe.solve(x, y, np.zeros((2, *shape)))


@pytest.mark.parametrize(
    "design", [np.zeros(8), np.zeros((1, 9)), np.full(9, np.nan)], ids=["short", "batch", "nan"]
)
def test_design_that_does_not_fit_is_refused(design: np.ndarray) -> None:
    with pytest.raises(ValueError, match="expected 9 finite numbers, 4 heights then 5 slopes, got"):
        pipe.channel(design)


@pytest.mark.parametrize("stride", [0, -2, 3, 6, 64])
def test_stride_that_misses_nodes_is_refused(stride: int) -> None:
    with pytest.raises(ValueError, match=f"a divisor of nodes - 1 = 32, got {stride}"):
        pipe.sample(nodes=33, stride=stride, rng=np.random.default_rng(0))


@pytest.mark.parametrize("bound", [-1.0, np.nan, np.inf])
@pytest.mark.parametrize("name", ["heights", "slopes"])
def test_bound_out_of_range_is_refused(name: str, bound: float) -> None:
    options: dict[str, Any] = {name: bound}
    with pytest.raises(ValueError, match=f"heights >= 0 and slopes >= 0, got .*{bound}"):
        pipe.sample(**options, rng=np.random.default_rng(0))


@pytest.mark.parametrize("which", [0, 1, 2], ids=["x", "y", "velocity"])
def test_arrays_that_do_not_fit_are_refused(which: int) -> None:
    arrays = list(pipe.channel(DESIGN, 9))
    arrays[which] = arrays[which][..., :7]
    with pytest.raises(ValueError, match=r"expected x and y of shape .* got .*7\).* same nodes"):
        pipe.solve(*arrays)
    arrays = list(pipe.channel(DESIGN, 9))
    arrays[which][..., 3, 3] = np.nan
    with pytest.raises(ValueError, match="expected finite x, y and velocity, got NaN"):
        pipe.solve(*arrays)


@pytest.mark.parametrize(
    ("spoil", "count"),
    [
        (lambda x, y: (x.T, y.T), 16),
        (lambda x, y: (x, -y), 16),
        (lambda x, y: (np.where(x == 5.0, 9.0, x), y), 4),
    ],
    ids=["transposed", "upside down", "folded"],
)
def test_inverted_or_folded_grid_is_refused(spoil: Callable[..., Any], count: int) -> None:
    x, y, velocity = pipe.channel(np.zeros(9), 9)
    with pytest.raises(ValueError, match=f"without folds, got {count} of 16 elements"):
        pipe.solve(*spoil(x, y), velocity)


@pytest.mark.parametrize("viscosity", [0.0, -1.0, np.nan, np.inf])
def test_viscosity_out_of_range_is_refused(viscosity: float) -> None:
    with pytest.raises(ValueError, match=f"positive, finite viscosity, got {viscosity}"):
        flow_in(nodes=9, viscosity=viscosity)


@pytest.mark.parametrize("tolerance", [0.0, -1e-8, 1.0, np.nan])
def test_tolerance_out_of_range_is_refused(tolerance: float) -> None:
    with pytest.raises(ValueError, match=f"expected 0 < tolerance < 1, got {tolerance}"):
        flow_in(nodes=9, tolerance=tolerance)


@pytest.mark.parametrize(
    "traction", [np.zeros(9), np.zeros((9, 2)), np.nan, np.full((2, 9), np.inf)]
)
def test_traction_that_does_not_fit_is_refused(traction: Any) -> None:
    with pytest.raises(ValueError, match=r"finite traction, a number or shape \(2, 9\), got shape"):
        flow_in(nodes=9, traction=traction)


def test_too_few_iterations_raise_with_the_last_correction() -> None:
    with pytest.raises(
        NotConvergedError, match=r"1\.0e-10 of the velocity within 3 iterations, got \d\.\de-0[1-4]"
    ):
        flow_in(max_iterations=3)


def test_tolerance_below_rounding_raises_instead_of_claiming_success() -> None:
    with pytest.raises(NotConvergedError, match=r"within 25 iterations, got \d\.\de-1[4-6]"):
        flow_in(nodes=17, tolerance=1e-17)


def test_flow_that_newton_cannot_find_raises() -> None:
    with pytest.raises(NotConvergedError, match="start from the flow at a larger viscosity"):
        flow_in(nodes=17, viscosity=1e-5)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid:RuntimeWarning")
def test_overflow_raises() -> None:
    x, y, velocity = pipe.channel(DESIGN, 9)
    with pytest.raises(NotConvergedError, match="got nan"):
        pipe.solve(x, y, 1e200 * velocity)
