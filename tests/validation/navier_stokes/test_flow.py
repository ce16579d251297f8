"""The flow solver against exact flows, other methods, conservation laws and symmetries."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from funcattn.pde import navier_stokes
from funcattn.pde.errors import NotConvergedError
from funcattn.pde.random_fields import periodic_square


def grid(points: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.arange(points) / points
    return x[:, None], x[None, :]


def few_waves(points: int) -> np.ndarray:
    """An analytic flow without symmetry, which excites all other waves as it evolves."""
    x, y = grid(points)
    field: np.ndarray = (
        np.cos(2 * np.pi * x)
        + 1.5 * np.sin(4 * np.pi * y)
        + np.sin(2 * np.pi * (x + y) + 1)
        + np.cos(2 * np.pi * (2 * x - y))
    )
    return field


def other_force(points: int) -> np.ndarray:
    x, y = grid(points)
    force: np.ndarray = np.sin(2 * np.pi * (x - 2 * y)) + 0.5 * np.cos(2 * np.pi * x)
    return force


def rough(points: int, seed: int = 0) -> np.ndarray:
    """A random field with energy in all waves of the grid."""
    return periodic_square(points, alpha=1.5, scale=4.0, rng=np.random.default_rng(seed))


def without_short_waves(field: np.ndarray) -> np.ndarray:
    """Only waves with |k1|, |k2| < n / 3."""
    n = len(field)
    spectrum = np.fft.fft2(field)
    for i, j in np.ndindex(n, n):
        k1, k2 = (k if 2 * k < n else k - n for k in (i, j))
        if 3 * max(abs(k1), abs(k2)) >= n:
            spectrum[i, j] = 0.0
    return np.fft.ifft2(spectrum).real


def wave_squares(points: int) -> np.ndarray:
    k = 2 * np.pi * np.fft.fftfreq(points) * points
    squares: np.ndarray = k[:, None] ** 2 + k[None, :] ** 2
    return squares


def stream_function(w: np.ndarray) -> np.ndarray:
    """psi with -Laplace psi = w and zero mean."""
    square = wave_squares(w.shape[-1])
    square[0, 0] = np.inf
    return np.fft.ifft2(np.fft.fft2(w) / square).real


def gradient_square(w: np.ndarray) -> np.ndarray:
    """Mean of |grad w|^2."""
    n = w.shape[-1]
    total: np.ndarray = (wave_squares(n) * abs(np.fft.fft2(w) / n**2) ** 2).sum((-2, -1))
    return total


def relative(field: np.ndarray, reference: np.ndarray) -> float:
    return float(np.linalg.norm(field - reference) / np.linalg.norm(reference))


@pytest.mark.parametrize(
    "waves",
    [
        pytest.param([(1, 0), (0, 1)], id="taylor-green"),
        pytest.param([(3, 4), (5, 0), (4, -3), (0, 5), (3, -4)], id="several of equal length"),
        pytest.param([(1, 2), (2, 4), (-3, -6)], id="several of equal direction"),
    ],
)
def test_flows_without_advection_only_decay(waves: list[tuple[int, int]]) -> None:
    # Waves of equal length, or of equal direction, do not interact.
    nu, t = 1e-3, 2.0
    x, y = grid(32)
    initial, exact = np.zeros((32, 32)), np.zeros((32, 32))
    for i, (k1, k2) in enumerate(waves):
        wave = (1 + i) * np.cos(2 * np.pi * (k1 * x + k2 * y) + i)
        initial += wave
        exact += wave * np.exp(-4 * np.pi**2 * (k1**2 + k2**2) * nu * t)
    w = navier_stokes.solve(initial, viscosity=nu, times=[t])[0]
    np.testing.assert_allclose(w, exact, rtol=0, atol=1e-13 * abs(initial).max())


def test_laminar_flow_under_the_force_of_the_benchmark_has_a_closed_form() -> None:
    # w = a(t) sin + b(t) cos of 2 pi (x + y), each with a' = 0.1 - 8 pi^2 nu a.
    nu, times = 1e-3, [1.0, 5.0, 20.0]
    x, y = grid(16)
    phase = 2 * np.pi * (x + y)
    w = navier_stokes.solve(
        np.sin(phase), navier_stokes.diagonal_forcing(16), viscosity=nu, times=times
    )
    rate = 8 * np.pi**2 * nu
    for t, frame in zip(times, w, strict=True):
        gained = 0.1 * (1 - np.exp(-rate * t)) / rate
        exact = (np.exp(-rate * t) + gained) * np.sin(phase) + gained * np.cos(phase)
        # A step is Simpson's rule here, with an error of (rate * step)^4 / 2880 = 8e-14.
        np.testing.assert_allclose(frame, exact, rtol=0, atol=5e-13)


@pytest.mark.parametrize("points", [10, 11, 12])
def test_agrees_with_the_galerkin_system_summed_wave_by_wave(points: int) -> None:
    top = 3  # the largest k with 3 k < n
    nu, t = 1e-3, 1.0
    initial, force = rough(points), other_force(points)
    waves = [(i, j) for i in range(-top, top + 1) for j in range(-top, top + 1)]
    place = {k: at for at, k in enumerate(waves)}
    # d/dt w_k = sum over p + q = k of (p2 q1 - p1 q2) / |p|^2 w_p w_q: p advects q.
    triads = [
        (place[p[0] + q[0], p[1] + q[1]], place[p], place[q], p[1] * q[0] - p[0] * q[1], p)
        for p in waves
        for q in waves
        if p != (0, 0) and (p[0] + q[0], p[1] + q[1]) in place
    ]
    to, first, second = (np.array([triad[i] for triad in triads]) for i in range(3))
    strength = np.array([cross / (p[0] ** 2 + p[1] ** 2) for *_, cross, p in triads])
    decay = 4 * np.pi**2 * nu * np.array([k1**2 + k2**2 for k1, k2 in waves])

    def spectrum(field: np.ndarray) -> np.ndarray:
        x, y = grid(points)
        return np.array(
            [(field * np.exp(-2j * np.pi * (k1 * x + k2 * y))).mean() for k1, k2 in waves]
        )

    f = spectrum(force)

    def slope(_: float, w: np.ndarray) -> np.ndarray:
        moved = np.zeros_like(w)
        np.add.at(moved, to, strength * w[first] * w[second])
        total: np.ndarray = moved - decay * w + f
        return total

    expected = solve_ivp(
        slope, (0, t), spectrum(initial), method="DOP853", rtol=1e-12, atol=1e-14
    ).y[:, -1]
    w = navier_stokes.solve(initial, force, viscosity=nu, times=[t], step=1 / 400)[0]
    assert relative(spectrum(w), expected) < 1e-9
    # The waves did interact.
    laminar = spectrum(initial) * np.exp(-decay * t) + f * t
    assert relative(laminar, expected) > 0.1


def arakawa(initial: np.ndarray, force: np.ndarray, nu: float, t: float, steps: int) -> np.ndarray:
    """Finite differences of order 2 throughout: Arakawa's advection, five-point Laplacians."""
    n = len(initial)
    angle = np.pi * np.arange(n) / n
    laplacian = -4 * n**2 * (np.sin(angle)[:, None] ** 2 + np.sin(angle)[None, :] ** 2)
    laplacian[0, 0] = -np.inf

    def at(field: np.ndarray, i: int, j: int) -> np.ndarray:
        return np.roll(field, (-i, -j), (0, 1))

    def slope(w: np.ndarray) -> np.ndarray:
        p = np.fft.ifft2(-np.fft.fft2(w) / laplacian).real
        east, west, north, south = at(p, 1, 0), at(p, -1, 0), at(p, 0, 1), at(p, 0, -1)
        w_east, w_west, w_north, w_south = at(w, 1, 0), at(w, -1, 0), at(w, 0, 1), at(w, 0, -1)
        ne, nw, se, sw = at(p, 1, 1), at(p, -1, 1), at(p, 1, -1), at(p, -1, -1)
        w_ne, w_nw, w_se, w_sw = at(w, 1, 1), at(w, -1, 1), at(w, 1, -1), at(w, -1, -1)
        # The Jacobian psi_x w_y - psi_y w_x = -u . grad w, as the mean of its three forms.
        plain = (east - west) * (w_north - w_south) - (north - south) * (w_east - w_west)
        outer = east * (w_ne - w_se) - west * (w_nw - w_sw)
        outer -= north * (w_ne - w_nw) - south * (w_se - w_sw)
        inner = w_north * (ne - nw) - w_south * (se - sw)
        inner -= w_east * (ne - se) - w_west * (nw - sw)
        spread = w_east + w_west + w_north + w_south - 4 * w
        total: np.ndarray = n**2 * ((plain + outer + inner) / 12 + nu * spread) + force
        return total

    w, h = initial, t / steps
    for _ in range(steps):
        first = slope(w)
        second = slope(w + h / 2 * first)
        third = slope(w + h / 2 * second)
        w = w + h / 6 * (first + 2 * (second + third) + slope(w + h * third))
    return w


def test_finite_differences_converge_to_the_solution_at_second_order() -> None:
    nu, t = 1e-3, 0.5
    errors = []
    for points in (32, 64, 128):
        force = other_force(points)
        w = navier_stokes.solve(few_waves(points), force, viscosity=nu, times=[t], step=0.01)[0]
        errors.append(relative(arakawa(few_waves(points), force, nu, t, points // 2), w))
    assert errors[-1] < 1e-3
    np.testing.assert_allclose(np.log2(np.array(errors[:-1]) / errors[1:]), 2.0, atol=0.1)


@pytest.mark.parametrize(
    ("name", "values", "finest", "limit", "others"),
    [
        ("step", (1 / 20, 1 / 40, 1 / 80), 1 / 320, 1e-9, {"viscosity": 1e-2, "times": [1.0]}),
        ("courant", (1.6, 0.8, 0.4), 0.1, 2e-8, {"times": [0.5], "step": 1.0}),
    ],
    ids=["step", "courant"],
)
def test_error_is_of_fourth_order_in_the_step_and_in_the_courant_number(
    name: str, values: tuple[float, ...], finest: float, limit: float, others: dict[str, Any]
) -> None:
    def end(value: float) -> np.ndarray:
        return navier_stokes.solve(few_waves(32), other_force(32), **{name: value}, **others)[0]

    reference = end(finest)
    errors = [relative(end(value), reference) for value in values]
    assert errors[-1] < limit
    np.testing.assert_allclose(np.log2(np.array(errors[:-1]) / errors[1:]), 4.0, atol=0.1)


def test_spatial_error_falls_faster_than_any_power() -> None:
    def end(points: int) -> np.ndarray:
        return navier_stokes.solve(
            few_waves(points), other_force(points), viscosity=1e-2, times=[0.5], step=0.01
        )[0]

    reference, errors = end(128), np.empty(4)
    for i, points in enumerate((8, 16, 32, 64)):
        every = slice(None, None, 128 // points)
        errors[i] = relative(end(points), reference[every, every])
    orders = np.log2(errors[:-1] / errors[1:])
    assert (np.diff(orders) > 1.0).all(), orders
    assert errors[-1] < 1e-14, errors


@pytest.mark.parametrize("points", [4, 5, 6, 7, 24, 25])
def test_time_zero_is_the_initial_field_without_short_waves(points: int) -> None:
    field = np.random.default_rng(0).standard_normal((points, points))
    w = navier_stokes.solve(field, times=[0.0])[0]
    np.testing.assert_allclose(w, without_short_waves(field), rtol=0, atol=1e-13)
    assert relative(field, w) > 0.01


def test_short_waves_of_the_force_are_left_out() -> None:
    noise = np.random.default_rng(1).standard_normal((24, 24))
    w = navier_stokes.solve(rough(24), noise, times=[1.0])
    expected = navier_stokes.solve(rough(24), without_short_waves(noise), times=[1.0])
    np.testing.assert_allclose(w, expected, rtol=0, atol=1e-12)


def test_mean_vorticity_has_no_effect_and_only_a_mean_force_changes_it() -> None:
    times = [0.5, 1.0]
    w = navier_stokes.solve(rough(32), other_force(32), times=times)
    assert abs(w.mean((1, 2))).max() < 1e-15
    with_mean = navier_stokes.solve(rough(32) + 3.0, other_force(32) - 2.0, times=times)
    gained = 3.0 - 2.0 * np.array(times)
    np.testing.assert_allclose(with_mean.mean((1, 2)), gained, rtol=0, atol=1e-13)
    np.testing.assert_allclose(with_mean - gained[:, None, None], w, rtol=0, atol=1e-12)


def test_energy_and_enstrophy_change_by_viscosity_and_force_alone() -> None:
    nu, gap = 1e-3, 0.02
    force = other_force(64)
    times = [0.5 + gap * i for i in range(5)]
    w = navier_stokes.solve(few_waves(64), force, viscosity=nu, times=times, step=gap / 2)
    psi = stream_function(w)
    energy, enstrophy = (psi * w).mean((1, 2)) / 2, (w**2).mean((1, 2)) / 2
    centre, psi = w[2], psi[2]
    lost_energy, lost_enstrophy = nu * (centre**2).mean(), nu * gradient_square(centre)
    power, enstrophy_power = (psi * force).mean(), (centre * force).mean()
    # A central difference of order 4.
    slope = np.array([1, -8, 0, 8, -1]) / (12 * gap)
    assert slope @ energy == pytest.approx(power - lost_energy, rel=1e-7)
    assert slope @ enstrophy == pytest.approx(enstrophy_power - lost_enstrophy, rel=2e-6)
    # Every term contributes.
    assert lost_energy > 0.1 * abs(power)
    assert lost_enstrophy > 0.1 * abs(enstrophy_power)


def test_energy_and_enstrophy_are_conserved_without_viscosity_and_force() -> None:
    # The rough field fills all waves: aliases would show at once.
    changes = []
    for step in (1 / 50, 1 / 100):
        w = navier_stokes.solve(rough(32), viscosity=0.0, times=[0.0, 2.0], step=step)
        energy, enstrophy = (stream_function(w) * w).mean((1, 2)), (w**2).mean((1, 2))
        changes.append([abs(energy[1] / energy[0] - 1), abs(enstrophy[1] / enstrophy[0] - 1)])
    assert relative(w[1], w[0]) > 0.5
    assert max(changes[1]) < 1e-10, changes
    # The change comes only from the time step, with order 5.
    assert (np.array(changes[0]) > 20 * np.array(changes[1])).all(), changes


@pytest.mark.parametrize(
    ("move", "sign"),
    [
        pytest.param(lambda w: np.roll(w, (5, -3), (-2, -1)), 1, id="shift"),
        pytest.param(lambda w: np.rot90(w, axes=(-2, -1)), 1, id="quarter turn"),
        pytest.param(lambda w: np.swapaxes(w, -2, -1), -1, id="transpose"),
        pytest.param(lambda w: np.flip(w, -1), -1, id="mirror"),
    ],
)
def test_transforming_the_start_transforms_the_flow(move: Callable[[Any], Any], sign: int) -> None:
    # Vorticity changes sign under reflection.
    initial, force = rough(32), other_force(32)
    w = navier_stokes.solve(initial, force, times=[1.0])
    moved = navier_stokes.solve(sign * move(initial), sign * move(force), times=[1.0])
    np.testing.assert_allclose(moved, sign * move(w), rtol=0, atol=1e-12)
    assert relative(moved, w) > 0.1


def test_flow_can_be_stopped_and_continued() -> None:
    force = other_force(32)
    whole = navier_stokes.solve(few_waves(32), force, times=[0.4, 1.0])
    again = navier_stokes.solve(whole[0], force, times=[0.6])
    np.testing.assert_allclose(again[0], whole[1], rtol=0, atol=1e-12)
    # Snapshots shorten steps, and change the result by at most the error in time.
    assert 0 < relative(navier_stokes.solve(few_waves(32), force, times=[1.0])[0], whole[1]) < 1e-3


@pytest.mark.parametrize(
    ("step", "courant", "count"),
    [(1.0, 2.0, 10), (1.0, 1.01, 20), (1.0, 0.99, 21), (0.05, 2.0, 20), (0.03, 2.0, 34)],
)
def test_steps_follow_the_courant_number(step: float, courant: float, count: int) -> None:
    # Taylor-Green: max of |u1| + |u2| is 1 / pi, 10 waves of 32 points: 20 dt <= courant.
    x, y = grid(32)
    vortices = np.cos(2 * np.pi * x) + np.cos(2 * np.pi * y)

    run = partial(navier_stokes.solve, viscosity=0.0, times=[1.0], step=step, courant=courant)
    run(vortices, max_steps=count)
    with pytest.raises(NotConvergedError, match=f"within {count - 1} steps"):
        run(vortices, max_steps=count - 1)


def test_batch_equals_solving_one_by_one() -> None:
    initial = np.stack([rough(16, seed) for seed in range(6)]).reshape(2, 3, 16, 16)
    force = np.stack([other_force(16), -other_force(16), 0 * other_force(16)])
    w = navier_stokes.solve(initial, force, times=[0.5, 1.0])
    assert w.shape == (2, 3, 2, 16, 16)
    for i, j in np.ndindex(2, 3):
        alone = navier_stokes.solve(initial[i, j], force[j], times=[0.5, 1.0])
        np.testing.assert_array_equal(w[i, j], alone)
    # One initial field with several forces.
    several = navier_stokes.solve(initial[0, 1], force, times=[0.5, 1.0])
    np.testing.assert_array_equal(several[1], w[0, 1])


def test_single_precision_input_is_solved_in_double() -> None:
    field = rough(16).astype(np.float32)
    w = navier_stokes.solve(field, times=[1.0])
    assert w.dtype == np.float64
    np.testing.assert_array_equal(w, navier_stokes.solve(field.astype(np.float64), times=[1.0]))


def test_inputs_are_left_untouched() -> None:
    field, force = rough(16), other_force(16)
    navier_stokes.solve(field, force, times=[0.1])
    np.testing.assert_array_equal(field, rough(16))
    np.testing.assert_array_equal(force, other_force(16))


@pytest.mark.parametrize("shape", [(5, 6), (2, 5, 6), (5,), ()])
def test_grid_that_is_not_square_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected a square grid .* got \(.*resample"):
        navier_stokes.solve(np.ones(shape))


def test_grid_without_waves_is_refused() -> None:
    with pytest.raises(ValueError, match="expected at least 4 points per axis, got 3"):
        navier_stokes.solve(np.ones((3, 3)))


@pytest.mark.parametrize("shape", [(5,), (4, 4), (2, 5, 4)])
def test_forcing_that_does_not_fit_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"a number or has shape \(\.\.\., 5, 5\), got \("):
        navier_stokes.solve(np.ones((5, 5)), np.ones(shape))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    bad = np.zeros((5, 5))
    bad[2, 3] = value
    for initial, force in ((bad, 0.0), (np.zeros((5, 5)), bad), (np.zeros((5, 5)), value)):
        with pytest.raises(ValueError, match="expected finite initial field and forcing, got NaN"):
            navier_stokes.solve(initial, force)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("viscosity", -1e-5, "finite viscosity >= 0, got -1e-05"),
        ("viscosity", np.nan, "finite viscosity >= 0, got nan"),
        ("viscosity", np.inf, "finite viscosity >= 0, got inf"),
        ("step", 0.0, "finite step > 0, got 0.0"),
        ("step", np.inf, "finite step > 0, got inf"),
        ("step", np.nan, "finite step > 0, got nan"),
        ("courant", 0.0, r"0 < courant <= 2\.828, got 0.0"),
        ("courant", 3.0, r"0 < courant <= 2\.828, got 3.0"),
        ("courant", np.nan, r"0 < courant <= 2\.828, got nan"),
        ("times", [], r"one or more finite times .* got \[\]"),
        ("times", [1.0, 1.0], r"times that increase .* got \[1.0, 1.0\]"),
        ("times", [2.0, 1.0], r"times that increase .* got \[2.0, 1.0\]"),
        ("times", [-1.0, 1.0], r"times that increase from zero .* got \[-1.0, 1.0\]"),
        ("times", [1.0, np.inf], r"finite times .* got \[1.0, inf\]"),
        ("times", [np.nan], r"finite times .* got \[nan\]"),
    ],
)
def test_parameter_out_of_range_is_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        navier_stokes.solve(np.zeros((5, 5)), **{name: value})


@pytest.mark.parametrize("strength", [1e3, 1e100])
def test_flow_that_outruns_its_step_raises(strength: float) -> None:
    # A flow at rest does not limit the first step.
    force = strength * other_force(16)
    with pytest.raises(NotConvergedError, match=r"at most 2\.828, got .* after a step of 0\.05"):
        navier_stokes.solve(np.zeros((16, 16)), force, times=[1.0])
    both = np.stack([other_force(16), force])
    with pytest.raises(NotConvergedError, match=r"try a smaller step \(flow \(1,\)\)"):
        navier_stokes.solve(np.zeros((16, 16)), both, times=[1.0])


def test_flow_too_fast_for_the_allowed_steps_raises_at_once() -> None:
    with pytest.raises(NotConvergedError, match="within 100000 steps, got to 0 in 0 and need"):
        navier_stokes.solve(1e6 * few_waves(16), times=[1.0])
    with pytest.raises(
        NotConvergedError, match=r"within 30 steps, got to 1 in 20 and need 20 more"
    ):
        navier_stokes.solve(0.1 * few_waves(16), times=[1.0, 2.0], max_steps=30)


def test_twice_the_vorticity_evolves_in_half_the_time() -> None:
    w = navier_stokes.solve(rough(32), other_force(32), viscosity=1e-3, times=[1.0], step=0.02)
    fast = navier_stokes.solve(
        2 * rough(32), 4 * other_force(32), viscosity=2e-3, times=[0.5], step=0.01
    )
    np.testing.assert_allclose(fast, 2 * w, rtol=0, atol=1e-12)


def test_four_tiles_are_one_flow_at_half_the_length() -> None:
    def tiled(field: np.ndarray) -> np.ndarray:
        return np.tile(field, (2, 2))

    # 64 points keep 21 waves and 32 points keep 10: those of the tiles are 2, 4, ..., 20.
    initial, force = without_short_waves(rough(32)), other_force(32)
    w = navier_stokes.solve(initial, force, viscosity=1e-3, times=[1.0], step=0.01)[0]
    tiles = navier_stokes.solve(
        tiled(initial), tiled(force), viscosity=1e-3 / 4, times=[1.0], step=0.01
    )[0]
    np.testing.assert_allclose(tiles, tiled(w), rtol=0, atol=1e-11)


def test_vorticity_grows_no_faster_than_the_force_allows() -> None:
    w0, force = rough(32), navier_stokes.diagonal_forcing(32)
    times = [float(t) for t in range(1, 21)]
    w = navier_stokes.solve(w0, force, times=times)
    size = np.sqrt((w**2).mean((1, 2)))
    bound = np.sqrt((w0**2).mean()) + np.array(times) * np.sqrt((force**2).mean())
    assert (size <= bound).all()
    assert np.isfinite(w).all()
