"""Yield, and a block without a die: exact motions, waves, and the longest stable step."""

import numpy as np
import pytest
from scipy.linalg import eigvalsh
from scipy.special import erf

from funcattn.pde.plasticity_block import (
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
    STEPS,
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
    critical_step,
    field,
    new_block,
    return_to_yield,
)

NO_DIE = np.array([[0.0], [0.0], [0.0], [1e9]])


def march(
    block: np.ndarray,
    columns: int,
    until: float,
    *,
    clock: np.ndarray | None = None,
    viscosity: float = VISCOSITY,
) -> np.ndarray:
    clock = np.zeros(4) if clock is None else clock
    assert advance(block, columns, NO_DIE, clock, until, 0.05, viscosity, 0.9, 10**6)
    return clock


def stress(block: np.ndarray, columns: int) -> np.ndarray:
    """s_xx, s_yy and s_xy of the elements, (3, rows - 1, columns - 1)."""
    mean, half, tau = (field(block, columns, name)[:-1, :-1] for name in (MEAN, HALF, TAU))
    return np.stack([mean + half, mean - half, tau])


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


def test_rotating_and_moving_the_block_rotates_its_stress_and_does_no_work() -> None:
    columns, rows, turns = 7, 4, 50
    block = new_block(columns, rows)
    for name in (PER_MASS_X, PER_MASS_Y):
        field(block, columns, name)[:] = 0.0  # so that no force moves it
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
    assert clock[STEPS] == turns
    # A quarter turn counterclockwise: x becomes y, y becomes -x.
    for name, value in ((MEAN, 10.0), (HALF, -20.0), (TAU, 5.0), (QX, -3.0), (QY, 1.0)):
        np.testing.assert_allclose(field(block, columns, name)[:-1, :-1], value, atol=1e-7)
    # Strain of second order in the angle would do work of about 0.1.
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
    # Trapezia of equal area, which are the hourglass pattern itself.
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
    assert clock[STEPS] > 500
    np.testing.assert_allclose(x - x0, stretch[0, 0] * x0 + stretch[0, 1] * y0, atol=1e-11)
    np.testing.assert_allclose(y - y0, stretch[1, 0] * x0 + stretch[1, 1] * y0, atol=1e-11)
    if contraction == POISSON:
        along, across = YOUNG * strain, 0.0
    else:
        # Stretch rates are per current length, so that the rate across is a little more than half
        # the rate along, and the stress is where the normal of the yield surface has that ratio.
        ratio = -contraction * (1 + strain) / (1 - contraction * strain)
        across_over_along = (1 + 2 * ratio) / (2 + ratio)
        along = YIELD / np.sqrt(1 - across_over_along + across_over_along**2)
        across = across_over_along * along
    turned = (along - across) * np.outer(axis, axis) + across * np.eye(2)
    expected = np.array([turned[0, 0], turned[1, 1], turned[0, 1]])
    actual = stress(block, columns)
    np.testing.assert_allclose(actual, np.broadcast_to(actual[:, :1, :1], actual.shape), atol=1e-8)
    # Elastic strain is small, not infinitesimal; plastic stress lags behind by the elastic strain.
    tolerance = {POISSON: strain * along, 0.5: 2 * YIELD / YOUNG * along}[contraction]
    np.testing.assert_allclose(actual[:, 0, 0], expected, rtol=0, atol=tolerance)


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
    # The inertia of the sides leaves a little transverse stress.
    np.testing.assert_allclose(xx, YIELD, rtol=5e-3)
    assert abs(yy).max() < 0.01 * YIELD
    assert abs(xy).max() < 0.01 * YIELD
    axial, lateral = np.log(np.ptp(x) / LENGTH), np.log(np.ptp(y) / HEIGHT)
    assert lateral / axial == pytest.approx(-0.5, abs=0.005)
    work = field(block, columns, STRAIN_WORK).sum()
    assert work == pytest.approx(YIELD * axial * LENGTH * HEIGHT, rel=0.01)


def test_elastic_wave_converges_to_dalemberts_solution_at_second_order() -> None:
    width, time = 2.0, 12.0 / WAVE_SPEED
    errors = []
    for columns in (101, 201, 401):
        block = new_block(columns, 3)
        # Held transversely, the block carries plane waves.
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
        area = (quad[0] @ np.roll(quad[1], -1) - quad[1] @ np.roll(quad[0], -1)) / 2
        b_x = (np.roll(quad[1], -1) - np.roll(quad[1], 1)) / (2 * area)
        b_y = (np.roll(quad[0], 1) - np.roll(quad[0], -1)) / (2 * area)
        none = np.zeros(4)
        strain = np.block([[b_x, none], [none, b_y], [b_y, b_x]])
        stiffness = area * strain.T @ law @ strain
        highest = np.sqrt(eigvalsh(stiffness).max() / (DENSITY * area / 4))
        assert critical_step(block, 2) == pytest.approx(2 / highest, rel=1e-10)


def test_mass_is_that_of_the_block() -> None:
    mass = 1.0 / field(new_block(26, 8), 26, PER_MASS_X)
    assert mass.sum() == pytest.approx(DENSITY * LENGTH * HEIGHT, rel=1e-14)
    # One element has a quarter of its mass at each corner.
    assert mass[0, 0] == pytest.approx(DENSITY * LENGTH * HEIGHT / (25 * 7) / 4, rel=1e-14)


def test_inverted_element_or_missing_value_stops_the_simulation() -> None:
    for value in (HEIGHT / 2, np.nan):
        block = new_block(5, 4)
        field(block, 5, Y)[0, 2] = value - HEIGHT
        clock = np.zeros(4)
        assert not advance(block, 5, NO_DIE, clock, 1.0, 0.05, VISCOSITY, 0.9, 10**6)
        assert clock[STEPS] == 0.0
