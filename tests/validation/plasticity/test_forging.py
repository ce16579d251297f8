"""A block under a die: contact, conservation, symmetry, another element; dies and samples."""

from collections.abc import Iterator

import numpy as np
import pytest

from funcattn.pde import plasticity
from funcattn.pde.errors import NotConvergedError
from funcattn.pde.plasticity_block import (
    BULK,
    DENSITY,
    HALF,
    HEIGHT,
    LENGTH,
    MEAN,
    PER_MASS_X,
    POISSON,
    SHEAR,
    SPEED,
    TAU,
    VISCOSITY,
    VX,
    WAVE_SPEED,
    WORK,
    YIELD,
    YOUNG,
    Bottom,
    X,
    Y,
    advance,
    energies,
    field,
    new_block,
)

FLAT = np.zeros(2)
SKEW = np.array([2.0, 0.0, 1.5, 3.0])
SHARP = np.random.default_rng(0).uniform(0.0, 8.0, (2, 8))[1]
# 26 x 8 nodes, 2 mm apart: 0.15 s for all 20 frames.
COARSE = {"columns": 26, "rows": 8}


def pressed(
    heights: np.ndarray, *times: float, bottom: Bottom = "roller"
) -> Iterator[tuple[np.ndarray, float]]:
    """A coarse block at these times, and the work of the die."""
    block, clock = new_block(**COARSE, bottom=bottom), np.zeros(4)
    pieces = np.ascontiguousarray(plasticity.die_profile(heights).c)
    for time in times:
        assert advance(block, 26, pieces, clock, time, 0.05, VISCOSITY, 0.9, 10**6)
        yield block, clock[WORK]


def displacement(result: dict[str, np.ndarray]) -> np.ndarray:
    return result["motion"][..., 2:]


def relative(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.linalg.norm(first - second) / np.linalg.norm(second))


def two_by_two(heights: np.ndarray, columns: int, rows: int, until: float) -> np.ndarray:
    """The same block with fully integrated elements, without hourglass forces; (rows, ., 2)."""
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
        # Jaumann rate, rotated by the truncated series: 1e-4 radians per step.
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
            # Fixed-point iteration for the multiplier: slow, but independent of Newton's method.
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


def test_flat_die_presses_the_block_uniformly() -> None:
    result = plasticity.solve(FLAT, **COARSE)
    motion = result["motion"]
    # At 20 % compression, width and height follow the incompressible limit.
    width = np.ptp(motion[:, :, 10, 0], axis=0).mean()
    height = motion[:, 0, 10, 1].mean()
    assert height == pytest.approx(12.0, abs=1e-9)
    assert np.log(width / LENGTH) / np.log(height / HEIGHT) == pytest.approx(-0.5, abs=0.005)
    # Uniaxial yield: the work of the die is that of homogeneous compression.
    homogeneous = YIELD * np.log(HEIGHT / motion[0, 0, -1, 1]) * LENGTH * HEIGHT
    assert result["work"][-1] == pytest.approx(homogeneous, rel=0.02)


def test_flat_die_gives_no_horizontal_momentum() -> None:
    [(block, _)] = pressed(FLAT, 1.0)
    momentum = field(block, 26, VX) / field(block, 26, PER_MASS_X)
    assert abs(momentum.sum()) < 1e-9 * abs(momentum).sum()
    assert abs(momentum).sum() > 1.0


def test_mirrored_die_gives_the_mirrored_motion() -> None:
    one = plasticity.solve(SKEW, **COARSE)
    other = plasticity.solve(SKEW[::-1], **COARSE)
    np.testing.assert_allclose(other["die"], one["die"][::-1], rtol=1e-13)
    mirrored = displacement(other)[::-1] * np.array([-1.0, 1.0])
    assert relative(mirrored, displacement(one)) < 1e-6
    assert relative(displacement(other), displacement(one)) > 0.1


@pytest.mark.parametrize("bottom", ["roller", "clamped"])
def test_work_of_the_die_is_kinetic_elastic_plastic_and_little_else(
    bottom: Bottom,
) -> None:
    plastic = 0.0
    for block, work in pressed(SKEW, *np.linspace(0.2, 1.8, 9), bottom=bottom):
        parts = energies(block, 26)
        assert sum(parts.values()) == pytest.approx(work, rel=5e-3)
        assert parts["plastic"] > plastic
        plastic = parts["plastic"]
        assert 0.0 < parts["kinetic"] < 0.05 * work
        assert 0.0 < parts["extra"] < 0.04 * work
        # At most the energy of yielding everywhere, which is largest for equal biaxial tension.
        assert 0.0 < parts["elastic"] < YIELD**2 / (2 * BULK) * LENGTH * HEIGHT


def test_stress_stays_within_yield_and_elements_are_not_inverted() -> None:
    [(block, _)] = pressed(SHARP, 1.9)
    mean, half, tau, x, y = (field(block, 26, name) for name in (MEAN, HALF, TAU, X, Y))
    mises = np.sqrt(mean**2 + 3 * (half**2 + tau**2))
    assert mises.max() == pytest.approx(YIELD, rel=1e-10)
    # Twice the areas of the elements, from their diagonals; rows go from the top down.
    down_x, down_y = (z[1:, 1:] - z[:-1, :-1] for z in (x, y))
    up_x, up_y = (z[:-1, 1:] - z[1:, :-1] for z in (x, y))
    assert (down_x * up_y - down_y * up_x).min() > 0.0


@pytest.mark.parametrize("heights", [FLAT, SKEW, SHARP], ids=["flat", "skew", "sharp"])
def test_block_stays_below_the_die_and_touches_it(heights: np.ndarray) -> None:
    result = plasticity.solve(heights, **COARSE)
    profile = plasticity.die_profile(heights)
    x, y = result["motion"][:, 0, 1:, 0], result["motion"][:, 0, 1:, 1]
    travel = 0.3 * np.arange(1, 20)
    gap = profile(np.clip(x, 0.0, LENGTH)) - travel - y
    assert gap.min() > -1e-6
    assert (gap.min(axis=0) < 0.05).all()
    # Edges move halfway out in each step, and the curvature remains at a spacing of 2 mm.
    assert result["overlap"] < 0.15


def test_bottom_slides_on_rollers_but_not_in_a_clamp() -> None:
    free = displacement(plasticity.solve(SKEW, **COARSE))[:, -1]
    held = displacement(plasticity.solve(SKEW, bottom="clamped", **COARSE))[:, -1]
    np.testing.assert_array_equal(free[..., 1], 0.0)
    np.testing.assert_array_equal(held, 0.0)
    # The ends move apart.
    assert free[-1, -1, 0] - free[0, -1, 0] > 1.0


def test_motion_converges_with_smaller_time_steps() -> None:
    runs = [
        displacement(plasticity.solve(SKEW, courant=courant, **COARSE))
        for courant in (0.8, 0.4, 0.2)
    ]
    first, second = relative(runs[0], runs[1]), relative(runs[1], runs[2])
    assert first < 5e-3
    assert second < first


@pytest.mark.full
def test_motion_agrees_with_fully_integrated_elements() -> None:
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
    # Steps are shortened at other times.
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


def test_sample_depends_only_on_its_generator() -> None:
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


def test_running_out_of_steps_is_reported() -> None:
    with pytest.raises(
        NotConvergedError, match=r"until 0\.60 ms within 2000 steps, got as far as 0\.5\d ms in 1"
    ):
        plasticity.solve(SKEW, max_steps=2000, **COARSE)


def test_die_with_a_corner_that_cuts_the_block_is_refused() -> None:
    # Natural ends leave a corner where the die continues horizontally.
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
def test_invalid_heights_are_refused(heights: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"finite die heights, shape \(K,\) with K >= 2, got"):
        plasticity.solve(heights)
