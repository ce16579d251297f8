"""Steady flows past airfoils against known values, potential theory and symmetry; samples."""

from typing import Any

import numpy as np
import pytest

from funcattn.pde import airfoil, panel
from funcattn.pde.airfoil_mesh import c_grid, surface
from funcattn.pde.errors import NotConvergedError

GAMMA = 1.4
PLAIN = np.zeros(8)
# Half as many cells along both axes: at most a quarter of the time, and still the same physics.
HALF = {"wake_cells": 25, "surface_cells": 60, "normal_cells": 25}
TINY = {"wake_cells": 8, "surface_cells": 24, "normal_cells": 8}
FREE = np.array([1.0, 0.8 * np.sqrt(GAMMA), 0.0, 1.0])


def drawn_design(seed: int) -> np.ndarray:
    return np.concatenate([[0.0], np.random.default_rng(seed).uniform(-0.05, 0.05, 7)])


@pytest.fixture(scope="module")
def naca() -> tuple[np.ndarray, np.ndarray, airfoil.Solution]:
    """NACA 0012 at Mach 0.8 on the grid of the benchmark."""
    x, y = c_grid(PLAIN)
    return x, y, airfoil.solve(x, y)


def test_plain_airfoil_has_no_lift_and_nearly_the_known_drag_after_few_steps(naca: Any) -> None:
    _, _, solution = naca
    assert abs(solution.lift) < 1e-6
    # Literature: 0.0083 to 0.0084. The excess comes from the nose, with one cell for its radius.
    assert 0.0084 < solution.drag < 0.015
    # 14 steps here; twice as many without starting from a coarser grid.
    assert solution.iterations <= 18


def test_plain_airfoil_has_its_shock_at_half_chord(naca: Any) -> None:
    x, _, solution = naca
    chord, mach = x[50:171, 0], solution.flow[4, 50:171, 0]
    sonic = np.flatnonzero(np.diff(np.sign(mach - 1)))
    where = [
        chord[i] + (1 - mach[i]) / (mach[i + 1] - mach[i]) * (chord[i + 1] - chord[i])
        for i in sonic
    ]
    assert len(where) == 4
    assert where[1] == pytest.approx(where[2], abs=1e-5)
    np.testing.assert_allclose([where[0], where[3]], 0.5, atol=0.02)
    assert 1.23 < solution.flow[4].max() < 1.28


def test_stagnation_pressure_is_approached_from_below(naca: Any) -> None:
    _, _, solution = naca
    pressure = solution.flow[3]
    exact = (1 + 0.2 * 0.8**2) ** 3.5
    assert np.unravel_index(pressure.argmax(), pressure.shape) == (110, 0)
    coefficient, known = (np.array([pressure.max(), exact]) - 1) / (0.7 * 0.8**2)
    assert known == pytest.approx(1.170, abs=1e-3)
    assert 1.02 < coefficient < known


def test_total_enthalpy_is_constant_and_entropy_grows(naca: Any) -> None:
    density, u, v, pressure, mach = naca[2].flow
    enthalpy = 3.5 * pressure / density + (u**2 + v**2) / 2
    assert enthalpy.mean() == pytest.approx(3.5 + 0.448, abs=5e-4)
    assert enthalpy.std() < 1.2e-3
    entropy = pressure / density**GAMMA
    assert entropy.min() > 0.998
    assert 0.003 < entropy.std() < 0.008
    np.testing.assert_allclose(mach, np.hypot(u, v) / np.sqrt(GAMMA * pressure / density))


def test_flow_follows_the_wall_and_is_the_free_stream_far_away(naca: Any) -> None:
    x, y, solution = naca
    along = np.gradient(x[50:171, 0]), np.gradient(y[50:171, 0])
    through = along[1] * solution.flow[1, 50:171, 0] - along[0] * solution.flow[2, 50:171, 0]
    through /= np.hypot(*along)
    smooth = np.r_[1:55, 66:120]  # neither nose nor trailing edge
    assert abs(through[smooth]).max() < 1e-3
    np.testing.assert_allclose(solution.flow[:4, :, -1].T, np.tile(FREE, (221, 1)), atol=1e-4)


@pytest.mark.full
def test_finer_grid_comes_closer_to_the_literature(naca: Any) -> None:
    fine = {"wake_cells": 100, "surface_cells": 240, "normal_cells": 100}
    solution = airfoil.solve(*c_grid(PLAIN, **fine), wake_cells=100)
    coarse = naca[2]
    assert abs(solution.lift) < 1e-5
    assert 0.0084 < solution.drag < 0.0084 + 0.4 * (coarse.drag - 0.0084)
    known = (1 + 0.2 * 0.8**2) ** 3.5
    assert 0 < known - solution.flow[3].max() < 0.6 * (known - coarse.flow[3].max())


@pytest.mark.parametrize("seed", [0, 1])
def test_values_at_coinciding_nodes_of_the_wake_are_equal(seed: int) -> None:
    x, y = c_grid(drawn_design(seed), **TINY)
    flow = airfoil.solve(x, y, wake_cells=8).flow
    np.testing.assert_allclose(flow[:, :9, 0], flow[:, :-10:-1, 0], rtol=1e-14, atol=1e-15)


def test_mirrored_airfoil_has_mirrored_flow() -> None:
    design = drawn_design(5)
    x, y = c_grid(design, **HALF)
    mirrored_x, mirrored_y = c_grid(-design[::-1], **HALF)
    np.testing.assert_allclose(mirrored_x, x[::-1], atol=1e-14)
    np.testing.assert_allclose(mirrored_y, -y[::-1], atol=1e-14)
    one = airfoil.solve(x, y, wake_cells=25)
    other = airfoil.solve(mirrored_x, mirrored_y, wake_cells=25)
    sign = np.array([1, 1, -1, 1, 1])[:, None, None]
    # The order of elimination is not symmetric: the flows are equal up to the tolerance.
    np.testing.assert_allclose(other.flow[:, ::-1] * sign, one.flow, atol=1e-5)
    assert other.lift == pytest.approx(-one.lift, abs=1e-5)
    assert other.drag == pytest.approx(one.drag, abs=1e-6)
    assert abs(one.lift) > 0.1


@pytest.mark.parametrize("seed", [1, 5])
def test_slow_flow_has_the_lift_of_potential_theory(seed: int) -> None:
    design, mach = drawn_design(seed), 0.3
    x, y = c_grid(design)
    potential = panel.lift(panel.solve(surface(design).T, np.array([1.0, 0.0])))
    # Prandtl and Glauert: compressibility raises it by 5 % here.
    expected = potential / np.sqrt(1 - mach**2)
    assert airfoil.solve(x, y, mach=mach).lift == pytest.approx(expected, rel=0.05)
    assert abs(expected) > 0.09


@pytest.mark.parametrize("tolerance", [1e-4, 1e-8])
def test_result_meets_the_tolerance(tolerance: float) -> None:
    x, y = c_grid(drawn_design(2), **HALF)
    rough = airfoil.solve(x, y, wake_cells=25, tolerance=tolerance)
    exact = airfoil.solve(x, y, wake_cells=25, tolerance=1e-11)
    assert rough.residual <= tolerance
    assert rough.iterations < exact.iterations
    # Forces hold to four digits even if the tolerance is loose.
    assert rough.lift == pytest.approx(exact.lift, abs=2e-4 * abs(exact.lift))
    error = abs(rough.flow - exact.flow).max()
    assert error < max(1e3 * tolerance, 1e-9)


def test_single_precision_nodes_are_solved_in_double() -> None:
    x, y = (z.astype(np.float32) for z in c_grid(PLAIN, **TINY))
    solution = airfoil.solve(x, y, wake_cells=8)
    assert solution.flow.dtype == np.float64
    np.testing.assert_array_equal(
        solution.flow, airfoil.solve(x.astype(float), y.astype(float), wake_cells=8).flow
    )


def test_flow_that_does_not_converge_in_time_raises() -> None:
    x, y = c_grid(PLAIN, **TINY)
    with pytest.raises(
        NotConvergedError, match=r"residual of 1\.0e-08 .* within 2 Newton steps, reached \d"
    ):
        airfoil.solve(x, y, wake_cells=8, max_iterations=2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mach": 0.0}, "0 < mach < 1, got 0.0"),
        ({"mach": 1.2}, "0 < mach < 1, got 1.2"),
        ({"mach": np.nan}, "0 < mach < 1, got nan"),
        ({"tolerance": 0.0}, "0 < tolerance < 1e-2, got 0.0"),
        ({"tolerance": np.nan}, "0 < tolerance < 1e-2, got nan"),
        ({"max_iterations": 0}, "max_iterations >= 1, got 0"),
        ({"wake_cells": 7}, "first and last 7 cells .* check wake_cells"),
        ({"wake_cells": 0}, "first and last 0 cells .* check wake_cells"),
        ({"wake_cells": 20}, "first and last 20 cells .* check wake_cells"),
    ],
    ids=str,
)
def test_solve_refuses_arguments_out_of_range(wrong: dict[str, float], message: str) -> None:
    x, y = c_grid(PLAIN, **TINY)
    with pytest.raises(ValueError, match=message):
        airfoil.solve(x, y, **{"wake_cells": 8, **wrong})  # type: ignore[arg-type]


def test_folded_cells_are_refused() -> None:
    x, y = c_grid(PLAIN, **TINY)
    x[20, 2] += 3.0
    with pytest.raises(ValueError, match=r"cells of one orientation, got \d+ folded"):
        airfoil.solve(x, y, wake_cells=8)


def draw(seed: int, **options: float) -> dict[str, np.ndarray]:
    small: dict[str, float] = {**TINY, **options}
    return airfoil.sample(**small, rng=np.random.default_rng(seed))  # type: ignore[arg-type]


def test_sample_depends_only_on_its_generator() -> None:
    one = draw(3)
    draw(4)
    again = draw(3)
    assert list(one) == [
        *("x", "y", "flow", "design", "lift", "drag", "iterations", "residual"),
    ]
    for name, values in one.items():
        np.testing.assert_array_equal(values, again[name])
        assert values.dtype == np.float64
    assert abs(one["flow"] - draw(5)["flow"]).max() > 0.05
    np.testing.assert_array_equal(one["x"], c_grid(one["design"], **TINY)[0])
    solution = airfoil.solve(one["x"], one["y"], wake_cells=8)
    np.testing.assert_array_equal(one["flow"], solution.flow)
    assert (one["lift"], one["drag"]) == (solution.lift, solution.drag)
    assert (one["iterations"], one["residual"]) == (solution.iterations, solution.residual)


def test_designs_are_uniform() -> None:
    designs: list[np.ndarray] = []

    def note(design: np.ndarray, **_: int) -> None:
        designs.append(design)
        raise InterruptedError

    rng = np.random.default_rng(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(airfoil, "c_grid", note)
        for _ in range(4000):
            with pytest.raises(InterruptedError):
                airfoil.sample(amplitude=0.03, rng=rng)
    first, others = np.array(designs)[:, 0], np.array(designs)[:, 1:]
    assert (first == 0).all()
    assert abs(others).max() < 0.03
    # Four standard errors of mean and variance.
    assert abs(others.mean(0)).max() < 4 * 0.03 / np.sqrt(3 * 4000)
    np.testing.assert_allclose(others.var(0), 0.03**2 / 3, rtol=4 * np.sqrt(0.8 / 4000))
    assert abs(np.corrcoef(others.T) - np.eye(7)).max() < 4.5 / np.sqrt(4000)


def test_sample_is_stored_at_every_stride_th_node() -> None:
    whole, kept = draw(3), draw(3, stride=4)
    assert kept["flow"].shape == (5, 11, 3)
    for name in ("x", "y", "flow"):
        np.testing.assert_array_equal(kept[name], whole[name][..., ::4, ::4])
    assert kept["lift"] == whole["lift"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"stride": 0}, "stride that divides 8, 24 and 8 cells, got 0"),
        ({"stride": 3}, "stride that divides 8, 24 and 8 cells, got 3"),
        ({"amplitude": -0.01}, "0 <= amplitude < 0.1, got -0.01"),
        ({"amplitude": 0.1}, "0 <= amplitude < 0.1, got 0.1"),
        ({"surface_cells": 6, "stride": 2}, "even number of surface cells, at least 8, got 6"),
        ({"normal_cells": 2, "stride": 2}, "at least 4 cells .* got 2"),
    ],
    ids=str,
)
def test_sample_refuses_arguments_out_of_range(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw(0, **wrong)


@pytest.mark.full
def test_samples_have_the_statistics_of_the_benchmark() -> None:
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(12):
        density, u, v, pressure, mach = airfoil.sample(rng=rng)["flow"]
        kinetic = (u**2 + v**2) / 2
        energy = 2.5 * pressure / density + kinetic
        rows.append(
            [
                (mach > 1).mean(),
                (pressure / density**GAMMA).std(),
                energy.mean(),
                energy.std(),
                (energy + pressure / density).std(),
            ]
        )
    supersonic, entropy, energy, energy_spread, enthalpy_spread = np.mean(rows, axis=0)
    assert 0.04 < supersonic < 0.1
    assert entropy == pytest.approx(0.01, abs=0.003)
    assert energy == pytest.approx(2.948, abs=0.01)
    assert energy_spread == pytest.approx(0.04, abs=0.01)
    assert enthalpy_spread < 0.0025
