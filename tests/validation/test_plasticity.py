"""The forging solver against exact motions, conservation laws, symmetry and another element."""

import numpy as np
import pytest
from scipy.linalg import eigvalsh
from scipy.special import erf

from funcattn.pde import plasticity
from funcattn.pde.errors import NotConvergedError
from funcattn.pde.plasticity import (
    BULK,
    DENSITY,
    HALF,
    HEIGHT,
    LENGTH,
    MEAN,
    PER_MASS_X,
    PER_MASS_Y,
    PLATE,
    POISSON,
    QX,
    QY,
    SHEAR,
    SPEED,
    STRAIN_WORK,
    TAU,
    VISCOSITY,
    VX,
    VY,
    WAVE_SPEED,
    YIELD,
    YOUNG,
    X,
    Y,
    advance,
    field,
    new_block,
    return_to_yield,
)

NO_DIE = np.array([[0.0], [0.0], [0.0], [1e9]])
FLAT = np.zeros(2)
SKEW = np.array([2.0, 0.0, 1.5, 3.0])
SHARP = np.random.default_rng(0).uniform(0.0, 8.0, (2, 8))[1]
# 26 x 8 nodes of 2 mm: 0.15 s for all 20 frames.
COARSE = {"columns": 26, "rows": 8}


def march(
    block: np.ndarray,
    columns: int,
    until: float,
    *,
    pieces: np.ndarray = NO_DIE,
    clock: np.ndarray | None = None,
    viscosity: float = VISCOSITY,
) -> np.ndarray:
    clock = np.zeros(4) if clock is None else clock
    assert advance(block, columns, pieces, clock, until, 0.05, viscosity, 0.9, 10**6)
    return clock


def prescribe_all_motion(block: np.ndarray, columns: int) -> None:
    field(block, columns, PER_MASS_X)[:] = 0.0
    field(block, columns, PER_MASS_Y)[:] = 0.0


def stress(block: np.ndarray, columns: int) -> np.ndarray:
    """s_xx, s_yy and s_xy of the elements, (3, rows - 1, columns - 1)."""
    mean, half, tau = (field(block, columns, name)[:-1, :-1] for name in (MEAN, HALF, TAU))
    return np.stack([mean + half, mean - half, tau])


def displacement(result: dict[str, np.ndarray]) -> np.ndarray:
    return result["motion"][..., 2:]


def relative(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.linalg.norm(first - second) / np.linalg.norm(second))


def areas(nodes: np.ndarray) -> np.ndarray:
    """Areas of the elements between nodes (columns, rows, ..., 2), from the top down."""
    down = nodes[1:, :-1] - nodes[:-1, 1:]
    up = nodes[:-1, :-1] - nodes[1:, 1:]
    return (down[..., 0] * up[..., 1] - down[..., 1] * up[..., 0]) / 2


def two_by_two(heights: np.ndarray, columns: int, rows: int, until: float) -> np.ndarray:
    """The same block of fully integrated elements, which need no hourglass force; (rows, ., 2)."""
    profile = plasticity.die_profile(heights)
    slope = profile.derivative()
    corner = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    at = corner / np.sqrt(3.0)
    # Derivatives of the four shape functions by both coordinates of the cell, (gauss, 4, 2).
    shape = corner[None] * (1.0 + at[:, None, ::-1] * corner[None, :, ::-1]) / 4.0
    x = np.stack(
        np.meshgrid(np.linspace(0.0, LENGTH, columns), np.linspace(HEIGHT, 0.0, rows)), axis=-1
    )
    index = np.arange(rows * columns).reshape(rows, columns)
    cells = np.stack([index[1:, :-1], index[1:, 1:], index[:-1, 1:], index[:-1, :-1]], axis=-1)
    cells = cells.reshape(-1, 4)
    x = x.reshape(-1, 2)
    area0 = LENGTH * HEIGHT / len(cells)
    mass = DENSITY * area0 / 4.0 * np.bincount(cells.ravel())[:, None]
    v, force = np.zeros_like(x), np.zeros_like(x)
    sigma = np.zeros((len(cells), 4, 2, 2))
    plane = np.eye(2)
    dt, time = 0.0, 0.0
    surface = np.unique(np.concatenate([index[0], index[:, 0], index[:, -1]]))
    edges = np.stack([index[0, :-1], index[0, 1:]])

    def gradients(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        jacobian = np.einsum("gna,eni->egai", shape, points[cells])
        inverse = np.linalg.inv(jacobian)
        return np.einsum("gna,egia->egni", shape, inverse), np.linalg.det(jacobian)

    def way_out(points: np.ndarray) -> np.ndarray:
        inside = np.clip(points[:, 0], 0.0, LENGTH)
        depth = np.maximum(points[:, 1] - profile(inside) + SPEED * time, 0.0)
        steep = np.where(inside == points[:, 0], slope(inside), 0.0)
        return np.stack([steep, -np.ones_like(steep)], axis=-1) * (depth / (1 + steep**2))[:, None]

    while time < until - 1e-12:
        shortest = min(np.ptp(x[cells[:, [0, 3]]][..., 1], axis=1).min(), LENGTH / (columns - 1))
        last, dt = dt, min(0.5 * shortest / WAVE_SPEED, until - time)
        time += dt
        v += (last + dt) / 2.0 * force / mass
        v[index[-1], 1] = 0.0
        new = x + dt * v
        new[surface] += way_out(new[surface])
        push = way_out(new[edges].mean(axis=0)) / 2.0
        np.add.at(new, edges[0], push)
        np.add.at(new, edges[1], push)
        v = (new - x) / dt
        gradient, _ = gradients((x + new) / 2.0)
        step = np.einsum("eni,egnj->egij", (new - x)[cells], gradient)
        strain, spin = (step + step.mT) / 2.0, (step - step.mT) / 2.0
        # Jaumann rate, rotated by the truncated series: 1e-4 of a radian in a step.
        trial = sigma + spin @ sigma - sigma @ spin + 2.0 * SHEAR * strain
        trial += (BULK - SHEAR) * np.trace(strain, axis1=2, axis2=3)[..., None, None] * plane
        sigma = trial
        mean = np.trace(trial, axis1=2, axis2=3)[..., None, None] / 2.0 * plane
        g = np.zeros(mean.shape[:2])[..., None, None]
        square = mean[..., :1, :1] ** 2
        deviator = 1.5 * ((trial - mean) ** 2).sum(axis=(2, 3), keepdims=True)
        ratio = BULK / (3.0 * SHEAR)
        over = square + deviator > YIELD**2
        for _ in range(15):
            # Fixed point of the multiplier; slow, but another way than Newton's.
            f = np.sqrt(square / (1 + ratio * g) ** 2 + deviator / (1 + g) ** 2)
            g = np.where(over, (1.0 + g) * np.maximum(f, 1e-9) / YIELD - 1.0, 0.0)
        sigma = mean / (1.0 + ratio * g) + (trial - mean) / (1.0 + g)
        gradient, det = gradients(new)
        thickness = (
            area0 / 4.0 / det * (1 + (1 - 2 * POISSON) / YOUNG * np.trace(sigma, axis1=2, axis2=3))
        )
        pull = -np.einsum("egij,egnj,eg->eni", sigma, gradient, thickness * det)
        force = np.stack(
            [np.bincount(cells.ravel(), pull[..., k].ravel()) for k in (0, 1)], axis=-1
        )
        x = new
    return x.reshape(rows, columns, 2)


def test_pure_shear_yields_at_yield_stress_over_root_three() -> None:
    _, half, tau, _ = return_to_yield(0.0, 0.0, 500.0)
    assert half == 0.0
    assert tau == pytest.approx(YIELD / np.sqrt(3.0), rel=1e-15)


@pytest.mark.parametrize("trial", [(0.0, 0.0, 0.0), (69.9, 0.0, 0.0), (-35.0, 34.9, 0.0)])
def test_stress_below_yield_is_kept(trial: tuple[float, float, float]) -> None:
    assert return_to_yield(*trial) == (*trial, 1.0)


@pytest.mark.parametrize("overshoot", [1.0001, 1.2, 2.0, 10.0])
def test_stress_above_yield_returns_along_the_normal_of_the_yield_surface(overshoot: float) -> None:
    rng = np.random.default_rng(0)
    weight = np.array([1.0, 3.0, 3.0])
    for trial in rng.standard_normal((200, 3)):
        trial *= overshoot * YIELD / np.sqrt(weight @ trial**2)
        *after, keep = return_to_yield(*trial)
        assert np.sqrt(weight @ np.square(after)) == pytest.approx(YIELD, rel=1e-11)
        # Plastic strain, conjugate to the three stresses, is parallel to the gradient of yield.
        flow = (trial - after) / np.array([BULK, SHEAR, SHEAR]) / (weight * after)
        np.testing.assert_allclose(flow, flow.mean(), rtol=1e-9)
        assert 0.0 < keep < 1.0


def test_turning_and_carrying_the_block_turns_its_stress_and_does_no_work() -> None:
    columns, rows, turns = 7, 4, 50
    block = new_block(columns, rows)
    prescribe_all_motion(block, columns)
    for name, value in ((MEAN, 10.0), (HALF, 20.0), (TAU, -5.0), (QX, 1.0), (QY, 3.0)):
        field(block, columns, name)[:-1, :-1] = value
    clock = np.zeros(4)
    dt = 1e-5
    angle = np.pi / 2 / turns
    for k in range(turns):
        x, y = field(block, columns, X), field(block, columns, Y)
        field(block, columns, VX)[:] = (x * np.cos(angle) - y * np.sin(angle) - x) / dt + 70.0
        field(block, columns, VY)[:] = (x * np.sin(angle) + y * np.cos(angle) - y) / dt - 30.0
        march(block, columns, (k + 1) * dt, clock=clock)
    assert clock[plasticity.STEPS] == turns
    # A quarter turn against the clock: x becomes y, y becomes -x.
    for name, value in ((MEAN, 10.0), (HALF, -20.0), (TAU, 5.0), (QX, -3.0), (QY, 1.0)):
        np.testing.assert_allclose(field(block, columns, name)[:-1, :-1], value, atol=1e-7)
    # Strain of the second order in the angle would do work of about 0.1.
    assert abs(field(block, columns, STRAIN_WORK)).max() < 1e-10


@pytest.mark.parametrize(
    ("strain", "contraction"), [(2e-4, POISSON), (1e-2, 0.5)], ids=["elastic", "plastic"]
)
def test_patch_of_distorted_elements_is_in_uniaxial_tension(
    strain: float, contraction: float
) -> None:
    columns, rows = 9, 6
    block = new_block(columns, rows)
    x, y = field(block, columns, X), field(block, columns, Y)
    # Trapezia of equal areas, which are the hourglass pattern itself.
    x += 0.8 * (-1.0) ** np.add.outer(np.arange(rows), np.arange(columns))
    x0, y0 = x.copy(), y.copy()
    axis = np.array([0.8, 0.6])
    stretch = strain * ((1 + contraction) * np.outer(axis, axis) - contraction * np.eye(2))
    field(block, columns, VX)[:] = stretch[0, 0] * x0 + stretch[0, 1] * y0
    field(block, columns, VY)[:] = stretch[1, 0] * x0 + stretch[1, 1] * y0
    for name in (PER_MASS_X, PER_MASS_Y):
        inside = field(block, columns, name)[1:-1, 1:-1].copy()
        field(block, columns, name)[:] = 0.0
        field(block, columns, name)[1:-1, 1:-1] = inside
    clock = march(block, columns, 1.0, viscosity=0.0)
    assert clock[plasticity.STEPS] > 500
    np.testing.assert_allclose(x - x0, stretch[0, 0] * x0 + stretch[0, 1] * y0, atol=1e-11)
    np.testing.assert_allclose(y - y0, stretch[1, 0] * x0 + stretch[1, 1] * y0, atol=1e-11)
    if contraction == POISSON:
        along, across = YOUNG * strain, 0.0
    else:
        # Rates of stretch are per current length, so that across is a little more than half of
        # along, and the stress is where the normal of the yield surface has that ratio.
        ratio = -contraction * (1 + strain) / (1 - contraction * strain)
        across_over_along = (1 + 2 * ratio) / (2 + ratio)
        along = YIELD / np.sqrt(1 - across_over_along + across_over_along**2)
        across = across_over_along * along
    turned = (along - across) * np.outer(axis, axis) + across * np.eye(2)
    expected = np.array([turned[0, 0], turned[1, 1], turned[0, 1]])
    found = stress(block, columns)
    np.testing.assert_allclose(found, np.broadcast_to(found[:, :1, :1], found.shape), atol=1e-8)
    # Elastic strain is small, not infinitesimal; plastic stress lags behind by the elastic strain.
    tolerance = {POISSON: strain * along, 0.5: 2 * YIELD / YOUNG * along}[contraction]
    np.testing.assert_allclose(found[:, 0, 0], expected, rtol=0, atol=tolerance)


def test_pulled_bar_flows_at_the_yield_stress_and_keeps_its_volume() -> None:
    columns, rows = 11, 4
    block = new_block(columns, rows)
    x, y = field(block, columns, X), field(block, columns, Y)
    rate = 0.1
    field(block, columns, VX)[:] = rate * x
    field(block, columns, VY)[:] = -rate / 2 * y
    field(block, columns, PER_MASS_X)[:, [0, -1]] = 0.0
    march(block, columns, 1.0)
    xx, yy, xy = stress(block, columns)
    # Inertia of the sides leaves a little stress across.
    np.testing.assert_allclose(xx, YIELD, rtol=5e-3)
    assert abs(yy).max() < 0.01 * YIELD
    assert abs(xy).max() < 0.01 * YIELD
    axial, lateral = np.log(np.ptp(x) / LENGTH), np.log(np.ptp(y) / HEIGHT)
    assert lateral / axial == pytest.approx(-0.5, abs=0.005)
    work = field(block, columns, STRAIN_WORK).sum()
    assert work == pytest.approx(YIELD * axial * LENGTH * HEIGHT, rel=0.01)


def test_elastic_wave_travels_as_dalembert_says_at_second_order() -> None:
    width, time = 2.0, 12.0 / WAVE_SPEED
    errors = []
    for columns in (101, 201, 401):
        block = new_block(columns, 3)
        # Held across the block, it carries plane waves.
        field(block, columns, PER_MASS_Y)[:] = 0.0
        x0 = field(block, columns, X)[1].copy()
        pulse = np.exp(-(((x0 - LENGTH / 2) / width) ** 2))
        field(block, columns, VX)[:] = 1e-3 * pulse
        march(block, columns, time, viscosity=0.0)
        ahead, behind = (x0 - LENGTH / 2 + side * WAVE_SPEED * time for side in (1.0, -1.0))
        exact = 1e-3 / WAVE_SPEED * np.sqrt(np.pi) * width / 4
        exact = exact * (erf(ahead / width) - erf(behind / width))
        errors.append(abs(field(block, columns, X) - x0 - exact).max() / exact.max())
    assert errors[-1] < 5e-4
    np.testing.assert_allclose(np.log2(np.array(errors[:-1]) / errors[1:]), 2.0, atol=0.1)


def test_critical_step_is_that_of_the_stiffest_element() -> None:
    rng = np.random.default_rng(2)
    law = np.array([[1, POISSON, 0], [POISSON, 1, 0], [0, 0, (1 - POISSON) / 2]]) * PLATE
    for _ in range(20):
        block = new_block(2, 2)
        x, y = field(block, 2, X), field(block, 2, Y)
        x += rng.uniform(-15.0, 15.0, (2, 2))
        y += rng.uniform(-5.0, 5.0, (2, 2))
        quad = np.array([[q[1, 0], q[1, 1], q[0, 1], q[0, 0]] for q in (x, y)])
        area = areas(np.stack([x.T, y.T], axis=-1)).item()
        b_x = (np.roll(quad[1], -1) - np.roll(quad[1], 1)) / (2 * area)
        b_y = (np.roll(quad[0], 1) - np.roll(quad[0], -1)) / (2 * area)
        none = np.zeros(4)
        strain = np.block([[b_x, none], [none, b_y], [b_y, b_x]])
        stiffness = area * strain.T @ law @ strain
        highest = np.sqrt(eigvalsh(stiffness).max() / (DENSITY * area / 4))
        assert plasticity.critical_step(block, 2) == pytest.approx(2 / highest, rel=1e-10)


def test_flat_die_presses_the_block_evenly() -> None:
    result = plasticity.solve(FLAT, **COARSE)
    motion = result["motion"]
    # 20 % lower: width and height follow the incompressible limit.
    width = np.ptp(motion[:, :, 10, 0], axis=0).mean()
    height = motion[:, 0, 10, 1].mean()
    assert height == pytest.approx(12.0, abs=1e-9)
    assert np.log(width / LENGTH) / np.log(height / HEIGHT) == pytest.approx(-0.5, abs=0.005)
    # Uniaxial yield: the work of the die is that of homogeneous compression.
    homogeneous = YIELD * np.log(HEIGHT / motion[0, 0, -1, 1]) * LENGTH * HEIGHT
    assert result["work"][-1] == pytest.approx(homogeneous, rel=0.02)


def test_flat_die_gives_no_horizontal_momentum() -> None:
    columns, rows = COARSE["columns"], COARSE["rows"]
    block = new_block(columns, rows)
    pieces = np.ascontiguousarray(plasticity.die_profile(FLAT).c)
    march(block, columns, 1.0, pieces=pieces)
    momentum = field(block, columns, VX) / field(block, columns, PER_MASS_X)
    assert abs(momentum.sum()) < 1e-9 * abs(momentum).sum()
    assert abs(momentum).sum() > 1.0


def test_mass_is_that_of_the_block() -> None:
    mass = 1.0 / field(new_block(**COARSE), COARSE["columns"], PER_MASS_X)
    assert mass.sum() == pytest.approx(DENSITY * LENGTH * HEIGHT, rel=1e-14)
    # One element has a quarter of its mass at each corner.
    assert mass[0, 0] == pytest.approx(DENSITY * LENGTH * HEIGHT / (25 * 7) / 4, rel=1e-14)


def test_mirrored_die_gives_the_mirrored_motion() -> None:
    one = plasticity.solve(SKEW, **COARSE)
    other = plasticity.solve(SKEW[::-1], **COARSE)
    np.testing.assert_allclose(other["die"], one["die"][::-1], rtol=1e-13)
    mirrored = displacement(other)[::-1] * np.array([-1.0, 1.0])
    assert relative(mirrored, displacement(one)) < 1e-6
    assert relative(displacement(other), displacement(one)) > 0.1


@pytest.mark.parametrize("bottom", ["roller", "clamped"])
def test_work_of_the_die_is_kinetic_elastic_plastic_and_little_else(bottom: str) -> None:
    columns, rows = COARSE["columns"], COARSE["rows"]
    block = new_block(columns, rows, bottom)  # type: ignore[arg-type]
    pieces = np.ascontiguousarray(plasticity.die_profile(SKEW).c)
    clock = np.zeros(4)
    plastic = 0.0
    for time in np.linspace(0.2, 1.8, 9):
        march(block, columns, time, pieces=pieces, clock=clock)
        parts = plasticity.energies(block, columns)
        work = clock[plasticity.WORK]
        assert sum(parts.values()) == pytest.approx(work, rel=5e-3)
        assert parts["plastic"] > plastic
        plastic = parts["plastic"]
        assert 0.0 < parts["kinetic"] < 0.05 * work
        assert 0.0 < parts["extra"] < 0.04 * work
        # At most the energy of yielding everywhere, which is greatest for equal tension.
        assert 0.0 < parts["elastic"] < YIELD**2 / (2 * BULK) * LENGTH * HEIGHT


def test_stress_stays_within_yield_and_elements_upright() -> None:
    columns, rows = COARSE["columns"], COARSE["rows"]
    block = new_block(columns, rows)
    pieces = np.ascontiguousarray(plasticity.die_profile(SHARP).c)
    march(block, columns, 1.9, pieces=pieces)
    mean, half, tau = (field(block, columns, name) for name in (MEAN, HALF, TAU))
    mises = np.sqrt(mean**2 + 3 * (half**2 + tau**2))
    assert mises.max() == pytest.approx(YIELD, rel=1e-10)
    nodes = np.stack([field(block, columns, X).T, field(block, columns, Y).T], axis=-1)
    assert areas(nodes).min() > 0.0


@pytest.mark.parametrize("heights", [FLAT, SKEW, SHARP], ids=["flat", "skew", "sharp"])
def test_block_stays_below_the_die_and_touches_it(heights: np.ndarray) -> None:
    result = plasticity.solve(heights, **COARSE)
    profile = plasticity.die_profile(heights)
    x, y = result["motion"][:, 0, 1:, 0], result["motion"][:, 0, 1:, 1]
    sunk = 0.3 * np.arange(1, 20)
    gap = profile(np.clip(x, 0.0, LENGTH)) - sunk - y
    assert gap.min() > -1e-6
    assert (gap.min(axis=0) < 0.05).all()
    # Edges are half out in each step, and the curvature is what is left of a spacing of 2 mm.
    assert result["overlap"] < 0.15


def test_bottom_slides_on_rollers_and_not_in_a_clamp() -> None:
    free = displacement(plasticity.solve(SKEW, **COARSE))[:, -1]
    held = displacement(plasticity.solve(SKEW, bottom="clamped", **COARSE))[:, -1]
    np.testing.assert_array_equal(free[..., 1], 0.0)
    np.testing.assert_array_equal(held, 0.0)
    # The ends move apart.
    assert free[-1, -1, 0] - free[0, -1, 0] > 1.0


def test_smaller_time_steps_change_little_and_less_and_less() -> None:
    runs = [
        displacement(plasticity.solve(SKEW, courant=courant, **COARSE))
        for courant in (0.8, 0.4, 0.2)
    ]
    first, second = relative(runs[0], runs[1]), relative(runs[1], runs[2])
    assert first < 5e-3
    assert second < first


def test_motion_is_consistent_and_frames_only_choose_what_is_stored() -> None:
    result = plasticity.solve(SKEW, **COARSE)
    motion = result["motion"]
    assert motion.shape == (26, 8, 20, 4)
    material = motion[..., :2] - motion[..., 2:]
    np.testing.assert_allclose(
        material[..., 0],
        np.broadcast_to(np.linspace(0, 50, 26)[:, None, None], (26, 8, 20)),
        atol=1e-12,
    )
    np.testing.assert_allclose(
        material[..., 1], np.broadcast_to(np.linspace(15, 0, 8)[:, None], (26, 8, 20)), atol=1e-12
    )
    np.testing.assert_array_equal(motion[:, :, 0, 2:], 0.0)
    np.testing.assert_allclose(result["die"], plasticity.die_profile(SKEW)(material[:, 0, 0, 0]))
    assert all(np.isfinite(array).all() for array in result.values())
    fewer = plasticity.solve(SKEW, frames=5, **COARSE)["motion"]
    # Steps are cut at other times.
    assert relative(fewer[..., 2:], motion[:, :, ::4, 2:]) < 5e-3


@pytest.mark.parametrize("interpolation", ["spline", "natural", "pchip"])
def test_die_passes_its_knots_and_touches_the_block(interpolation: str) -> None:
    heights = np.random.default_rng(3).uniform(0.0, 8.0, 8)
    profile = plasticity.die_profile(heights, interpolation)  # type: ignore[arg-type]
    knots = profile(np.linspace(0.0, LENGTH, 8))
    np.testing.assert_allclose(knots - knots[0], heights - heights[0], atol=1e-12)
    dense = profile(np.linspace(0.0, LENGTH, 100_001))
    assert HEIGHT <= dense.min() < HEIGHT + 1e-6
    slope, bend = profile.derivative(1), profile.derivative(2)
    ends = np.array([0.0, LENGTH])
    assert (abs(slope(ends)).max() < 1e-12) == (interpolation == "spline")
    assert (abs(bend(ends)).max() < 1e-12) == (interpolation == "natural")
    assert (knots.min() == pytest.approx(HEIGHT, abs=1e-12)) == (interpolation == "pchip")


def test_knots_are_uniform_and_scale_with_the_amplitude(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[np.ndarray] = []
    monkeypatch.setattr(plasticity, "solve", lambda heights, **_: drawn.append(heights) or {})
    rng = np.random.default_rng(4)
    for _ in range(500):
        plasticity.sample(rng=rng)
    knots = np.array(drawn)
    assert knots.shape == (500, 8)
    # Four standard errors of the mean and of the standard deviation of a uniform law.
    assert knots.mean() == pytest.approx(4.0, abs=4 * 8 / np.sqrt(12 * 4000))
    assert knots.std() == pytest.approx(8 / np.sqrt(12), rel=4 * np.sqrt(0.2 / 4000))
    plasticity.sample(amplitude=2.0, knots=5, rng=np.random.default_rng(4))
    np.testing.assert_array_equal(drawn[-1], np.array(drawn[0][:5]) / 4.0)


def test_sample_depends_on_the_generator_only() -> None:
    one, again, other = (
        plasticity.sample(**COARSE, rng=np.random.default_rng(seed)) for seed in (5, 5, 6)
    )
    assert one.keys() == {"die", "motion", "work", "imbalance", "overlap", "steps"}
    for name, array in one.items():
        assert array.dtype == np.float64, name
        np.testing.assert_array_equal(array, again[name])
    assert relative(displacement(other), displacement(one)) > 0.1
    finer = plasticity.sample(columns=51, rows=8, frames=2, rng=np.random.default_rng(5))
    np.testing.assert_allclose(finer["die"][::2], one["die"], rtol=1e-14)


def test_turned_element_and_missing_value_stop_the_march() -> None:
    for value in (HEIGHT / 2, np.nan):
        block = new_block(5, 4)
        field(block, 5, Y)[0, 2] = value - HEIGHT
        clock = np.zeros(4)
        assert not advance(block, 5, NO_DIE, clock, 1.0, 0.05, VISCOSITY, 0.9, 10**6)
        assert clock[plasticity.STEPS] == 0.0


def test_running_out_of_steps_is_said() -> None:
    with pytest.raises(
        NotConvergedError, match=r"until 0\.60 ms within 2000 steps, got as far as 0\.5\d ms in 1"
    ):
        plasticity.solve(SKEW, max_steps=2000, **COARSE)


def test_die_with_a_corner_that_cuts_the_block_is_refused() -> None:
    # Natural ends leave a corner where the die goes on level.
    heights = np.random.default_rng(300).uniform(0.0, 8.0, (19, 8))[-1]
    with pytest.raises(NotConvergedError, match=r"less than half a spacing .* and \d\.\d+ mm at"):
        plasticity.solve(heights, interpolation="natural", columns=51, rows=16)


def test_energy_that_does_not_add_up_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plasticity, "energies", lambda *_: {"kinetic": np.nan})
    with pytest.raises(NotConvergedError, match=r"energy conserved within 1 % .* got nan%"):
        plasticity.solve(SKEW, **COARSE)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("columns", 2, "columns from 3 to 518"),
        ("columns", 519, "columns from 3 to 518"),
        ("rows", 2, "rows >= 3"),
        ("frames", 1, "frames >= 2"),
        ("max_steps", 0, "max_steps >= 1"),
        ("hourglass", -0.1, "0 <= hourglass <= 1 and 0 < courant <= 1, got -0.1"),
        ("hourglass", np.nan, "0 <= hourglass <= 1"),
        ("courant", 1.1, "0 < courant <= 1, got 0.05 and 1.1"),
        ("courant", 0.0, "0 < courant <= 1"),
        ("amplitude", -1.0, "finite amplitude >= 0, got 8 and -1.0"),
        ("amplitude", np.inf, "finite amplitude >= 0"),
        ("knots", 1, "knots >= 2"),
    ],
)
def test_parameters_out_of_range_are_refused(name: str, value: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plasticity.sample(**{name: value}, rng=np.random.default_rng(0))  # type: ignore[arg-type]


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize(("name", "value"), [("bottom", "glued"), ("interpolation", "linear")])
def test_unknown_choices_are_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"expected {name} .*, got '{value}': choose one"):
        plasticity.solve(FLAT, **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("heights", [np.zeros(1), np.zeros((2, 2)), np.array([0.0, np.nan])])
def test_heights_that_are_no_die_are_refused(heights: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"finite die heights, shape \(K,\) with K >= 2, got"):
        plasticity.solve(heights)


@pytest.mark.full
def test_fully_integrated_elements_move_alike() -> None:
    for heights, tolerance in ((FLAT, 0.01), (SKEW, 0.06)):
        other = two_by_two(heights, 26, 8, 1.0).transpose(1, 0, 2)
        # The full hourglass stiffness is that of the other element.
        motion = plasticity.solve(heights, hourglass=1.0, **COARSE)["motion"]
        assert relative(motion[:, :, 10, 2:], other - motion[:, :, 0, :2]) < tolerance


@pytest.mark.full
def test_finer_meshes_approach_the_same_motion() -> None:
    fine = displacement(plasticity.solve(SKEW, columns=101, rows=31))
    errors = []
    for columns, rows in ((26, 7), (51, 16)):
        coarse = displacement(plasticity.solve(SKEW, columns=columns, rows=rows))
        stride = 100 // (columns - 1)
        down = 30 // (rows - 1)
        errors.append(relative(coarse, fine[::stride, ::down]))
    assert errors[1] < 0.05
    assert errors[1] < errors[0]
