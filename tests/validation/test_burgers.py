"""The Burgers solver against exact solutions, two other methods, and the equation's symmetries."""

import re

import numpy as np
import pytest

from funcattn.pde import burgers
from funcattn.pde.errors import NotConvergedError
from funcattn.pde.random_fields import periodic_line


def nodes(points: int) -> np.ndarray:
    x: np.ndarray = np.arange(points) / points
    return x


def waves(x: np.ndarray, mean: float = 0.0) -> np.ndarray:
    """A smooth state without symmetry."""
    u: np.ndarray = mean + np.sin(2 * np.pi * x) + 0.5 * np.cos(4 * np.pi * x + 1.0)
    return u


def one_heat_mode(
    x: np.ndarray, time: float, viscosity: float, amplitude: float, mean: float
) -> np.ndarray:
    """The solution with phi = 1 + a exp(-4 pi^2 viscosity t) cos(2 pi x), carried by the mean."""
    angle = 2 * np.pi * (x - mean * time)
    a = amplitude * np.exp(-4 * np.pi**2 * viscosity * time)
    u: np.ndarray = mean + 4 * np.pi * viscosity * a * np.sin(angle) / (1 + a * np.cos(angle))
    return u


def refined(u: np.ndarray, factor: int) -> np.ndarray:
    """The trigonometric polynomial through an odd number of values, at more nodes."""
    assert len(u) % 2
    fine: np.ndarray = np.fft.irfft(np.fft.rfft(u), factor * len(u)) * factor
    return fine


def etdrk4(u: np.ndarray, viscosity: float, time: float, steps: int) -> np.ndarray:
    """Integrate the Fourier modes by fourth-order exponential Runge-Kutta (Kassam, Trefethen)."""
    points, step = len(u), time / steps
    k = 2j * np.pi * np.arange(points // 2 + 1)
    linear = viscosity * (k**2).real

    def nonlinear(modes: np.ndarray) -> np.ndarray:
        slope: np.ndarray = -0.5 * k * np.fft.rfft(np.fft.irfft(modes, points) ** 2)
        return slope

    # The coefficients are means over a circle, which avoids the cancellation at small arguments.
    z = step * linear[:, None] + np.exp(1j * np.pi * (np.arange(32) + 0.5) / 32)
    half = step * ((np.exp(z / 2) - 1) / z).mean(1).real
    first = step * ((-4 - z + np.exp(z) * (4 - 3 * z + z**2)) / z**3).mean(1).real
    middle = step * ((2 + z + np.exp(z) * (-2 + z)) / z**3).mean(1).real
    last = step * ((-4 - 3 * z - z**2 + np.exp(z) * (4 - z)) / z**3).mean(1).real
    decay, half_decay = np.exp(step * linear), np.exp(step * linear / 2)
    modes = np.fft.rfft(u)
    for _ in range(steps):
        here = nonlinear(modes)
        a = half_decay * modes + half * here
        there = nonlinear(a)
        b = half_decay * modes + half * there
        again = nonlinear(b)
        c = half_decay * a + half * (2 * again - here)
        modes = decay * modes + first * here + 2 * middle * (there + again) + last * nonlinear(c)
    result: np.ndarray = np.fft.irfft(modes, points)
    return result


def hopf_integral(u: np.ndarray, viscosity: float, time: float) -> np.ndarray:
    """The mean of v at y under exp(-psi(y) / 2 nu - (x - y)^2 / 4 nu t): positive terms only."""
    factor = 16
    v = refined(u, factor)
    fine = len(v)
    k = 2j * np.pi * np.arange(fine // 2 + 1)
    modes = np.fft.rfft(v)
    modes[1:] /= k[1:]
    psi = np.fft.irfft(modes, fine)
    images = np.arange(-8, 9)[:, None]
    result = np.empty(len(u))
    for i, x in enumerate(nodes(len(u))):
        exponent = -psi / (2 * viscosity) - (x - nodes(fine) + images) ** 2 / (4 * viscosity * time)
        weight = np.exp(exponent - exponent.max())
        result[i] = (weight * v).sum() / weight.sum()
    return result


@pytest.mark.parametrize("points", [96, 97])
@pytest.mark.parametrize("mean", [0.0, -0.7])
@pytest.mark.parametrize(
    ("viscosity", "amplitude"), [(0.1, 0.5), (0.1, -0.7), (0.004, 0.6)], ids=str
)
@pytest.mark.parametrize("time", [1e-3, 0.3, 2.0])
def test_one_heat_mode_is_exact(
    points: int, mean: float, viscosity: float, amplitude: float, time: float
) -> None:
    x = nodes(points)
    u = burgers.solve(
        one_heat_mode(x, 0.0, viscosity, amplitude, mean), viscosity=viscosity, time=time
    )
    exact = one_heat_mode(x, time, viscosity, amplitude, mean)
    # Each wave is at most 0.41 times the last, so that 48 of them leave only rounding.
    assert abs(u - exact).max() <= 1e-13 * abs(exact).max()


def test_error_falls_exponentially_with_the_points() -> None:
    errors = []
    for points in (9, 17, 33):
        x = nodes(points)
        u = burgers.solve(one_heat_mode(x, 0.0, 0.1, 0.8, 0.2), time=0.1, tolerance=1e-1)
        errors.append(abs(u - one_heat_mode(x, 0.1, 0.1, 0.8, 0.2)).max())
    # The poles of the state give a factor of 1/2 per wave: 1/2^4 from 9 to 17, 1/2^8 to 33.
    assert errors[1] < errors[0] / 2**3, errors
    assert errors[2] < errors[1] / 2**7, errors


@pytest.mark.parametrize(
    ("state", "viscosity", "time", "steps"),
    [
        (waves(nodes(63)), 0.1, 0.5, 400),
        (waves(nodes(63), 0.4), 0.02, 0.5, 400),
        (0.4 + periodic_line(63, rng=np.random.default_rng(0)), 0.02, 0.5, 400),
        (periodic_line(31, rng=np.random.default_rng(0)), 0.1, 1.0, 1600),
    ],
    ids=["smooth", "steep", "rough", "benchmark"],
)
def test_agrees_with_exponential_runge_kutta(
    state: np.ndarray, viscosity: float, time: float, steps: int
) -> None:
    u = burgers.solve(state, viscosity=viscosity, time=time)
    differences = []
    for count in (steps, 2 * steps):
        marched = etdrk4(refined(state, 4), viscosity, time, count)
        differences.append(abs(marched[::4] - u).max() / abs(u).max())
    assert differences[1] < 1e-10
    # The remaining difference is the error of the time integration, of order four.
    assert np.log2(differences[0] / differences[1]) == pytest.approx(4.0, abs=0.1)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("viscosity", [0.1, 0.03, 0.01])
def test_agrees_with_the_hopf_integral(viscosity: float, seed: int) -> None:
    rough = periodic_line(63, rng=np.random.default_rng(seed))
    u = burgers.solve(rough, viscosity=viscosity)
    expected = hopf_integral(rough, viscosity, 1.0)
    assert abs(u - expected).max() <= 1e-13 * abs(expected).max()


@pytest.mark.parametrize(
    ("points", "viscosity"), [(63, 0.003), (63, 0.002), (127, 0.002), (15, 0.01)], ids=str
)
@pytest.mark.parametrize("seed", [3, 5])
def test_smallest_tolerance_that_passes_is_near_the_true_error(
    points: int, viscosity: float, seed: int
) -> None:
    u = periodic_line(points, rng=np.random.default_rng(seed))
    expected = hopf_integral(u, viscosity, 1.0)
    for tolerance in np.logspace(-13, 0, 27):
        try:
            result = burgers.solve(u, viscosity=viscosity, tolerance=tolerance)
        except NotConvergedError:
            continue
        break
    error = abs(result - expected).max() / abs(expected).max()
    assert tolerance / 30 < error < tolerance


def test_two_solves_over_half_the_time_equal_one_solve() -> None:
    u = waves(nodes(128), 0.3)
    twice = burgers.solve(burgers.solve(u, viscosity=0.02, time=0.25), viscosity=0.02, time=0.25)
    once = burgers.solve(u, viscosity=0.02, time=0.5)
    np.testing.assert_allclose(twice, once, rtol=0, atol=1e-13)


@pytest.mark.parametrize("mean", [0.0, 5.0])
def test_mean_is_conserved_and_energy_decays(mean: float) -> None:
    u = waves(nodes(128), mean)
    states = [u] + [burgers.solve(u, viscosity=0.03, time=time) for time in (0.1, 0.2, 0.4, 0.8)]
    np.testing.assert_allclose(np.mean(states, axis=1), mean, atol=1e-14)
    assert (np.diff(np.mean(np.square(states), axis=1)) < -1e-3).all()
    assert (np.diff(abs(np.array(states) - mean).max(axis=1)) < 0.0).all()


def test_reflection_reverses_the_sign() -> None:
    u = waves(nodes(64), 0.3)
    mirrored = -np.roll(u[::-1], 1)
    expected = -np.roll(burgers.solve(u)[::-1], 1)
    np.testing.assert_allclose(burgers.solve(mirrored), expected, rtol=0, atol=1e-15)


def test_translation_moves_the_solution() -> None:
    u = periodic_line(64, rng=np.random.default_rng(2))
    moved = burgers.solve(np.roll(u, 11), viscosity=0.02)
    expected = np.roll(burgers.solve(u, viscosity=0.02), 11)
    np.testing.assert_allclose(moved, expected, rtol=0, atol=1e-13)


def test_moving_frame_carries_the_solution_along() -> None:
    u = periodic_line(64, rng=np.random.default_rng(3))
    # A mean of 3/4 over the time 1/2 moves the state by 24 of 64 points.
    moved = burgers.solve(u + 0.75, viscosity=0.02, time=0.5)
    expected = 0.75 + np.roll(burgers.solve(u, viscosity=0.02, time=0.5), 24)
    np.testing.assert_allclose(moved, expected, rtol=0, atol=1e-13)


def test_scaled_equation_has_the_scaled_solution() -> None:
    # 3 u(x, 3 t) solves the equation with three times the viscosity.
    u = waves(nodes(64))
    faster = burgers.solve(3 * u, viscosity=0.15, time=0.1)
    np.testing.assert_allclose(faster, 3 * burgers.solve(u, viscosity=0.05, time=0.3), atol=1e-13)


@pytest.mark.parametrize("size", [1e-6, 1e-150])
def test_small_states_obey_the_heat_equation(size: float) -> None:
    x = nodes(64)
    u = burgers.solve(size * waves(x)) / size
    decay = np.exp(-4 * np.pi**2 * 0.1)
    expected = decay * np.sin(2 * np.pi * x) + decay**4 * 0.5 * np.cos(4 * np.pi * x + 1.0)
    # The quadratic term remains: size / (4 pi viscosity) of the first.
    np.testing.assert_allclose(u, expected, rtol=0, atol=decay * max(size, 1e-14))


def test_shortest_wave_decays_by_the_heat_equation() -> None:
    u = 1e-6 * (-1.0) ** np.arange(8)
    later = burgers.solve(u, time=0.01)
    np.testing.assert_allclose(later, np.exp(-((8 * np.pi) ** 2) * 0.001) * u, rtol=1e-6)


def test_late_state_keeps_its_digits() -> None:
    x = nodes(64)
    late = burgers.solve(one_heat_mode(x, 0.0, 0.1, 0.5, 0.0), time=10.0)
    exact = one_heat_mode(x, 10.0, 0.1, 0.5, 0.0)
    assert abs(exact).max() < 1e-17
    # The mean of the initial values is a rounding error, and does not decay.
    assert abs(late - late.mean() - exact).max() < 1e-13 * abs(exact).max()


def test_short_time_leaves_a_rough_state_unchanged() -> None:
    u = periodic_line(64, rng=np.random.default_rng(4))
    np.testing.assert_allclose(burgers.solve(u, time=1e-12, tolerance=1e-3), u, atol=1e-8)


def test_constant_state_does_not_change() -> None:
    np.testing.assert_array_equal(burgers.solve(np.zeros(16)), 0.0)
    np.testing.assert_allclose(burgers.solve(np.full(15, 0.1)), 0.1, rtol=1e-15)


def test_batch_equals_solving_one_by_one() -> None:
    rng = np.random.default_rng(5)
    u = np.stack([periodic_line(128, rng=rng) for _ in range(6)]).reshape(2, 3, 128)
    u += np.arange(6).reshape(2, 3, 1)
    together = burgers.solve(u)
    assert together.shape == u.shape
    for i, j in np.ndindex(2, 3):
        np.testing.assert_array_equal(together[i, j], burgers.solve(u[i, j]))


def test_single_precision_input_is_solved_in_double_and_left_untouched() -> None:
    u = waves(nodes(64)).astype(np.float32)
    kept = u.copy()
    later = burgers.solve(u)
    assert later.dtype == np.float64
    np.testing.assert_array_equal(later, burgers.solve(u.astype(np.float64)))
    np.testing.assert_array_equal(u, kept)


def test_sample_is_the_random_field_and_its_solution() -> None:
    fields = burgers.sample(points=256, rng=np.random.default_rng(6))
    assert list(fields) == ["initial", "final"]
    initial = periodic_line(256, rng=np.random.default_rng(6))
    np.testing.assert_array_equal(fields["initial"], initial)
    np.testing.assert_array_equal(fields["final"], burgers.solve(initial, length=2 * np.pi))
    other = burgers.sample(
        points=256,
        viscosity=0.02,
        time=0.5,
        length=1.0,
        alpha=2.5,
        tau=7.0,
        scale=49.0,
        rng=np.random.default_rng(6),
    )
    initial = periodic_line(256, alpha=2.5, tau=7.0, scale=49.0, rng=np.random.default_rng(6))
    np.testing.assert_array_equal(other["initial"], initial)
    np.testing.assert_array_equal(other["final"], burgers.solve(initial, viscosity=0.02, time=0.5))


def test_sample_depends_only_on_its_generator_and_advances_it() -> None:
    rng = np.random.default_rng(7)
    first, second = (burgers.sample(points=64, rng=rng)["final"] for _ in range(2))
    again = burgers.sample(points=64, rng=np.random.default_rng(7))["final"]
    np.testing.assert_array_equal(first, again)
    assert abs(first - second).max() > 0.1 * abs(first).max()


@pytest.mark.parametrize(("length", "bound"), [(1.0, 1e-6), (2 * np.pi, 1e-5)], ids=["1", "2 pi"])
@pytest.mark.parametrize("seed", [0, 1])
def test_finer_points_show_the_same_sample(seed: int, length: float, bound: float) -> None:
    fine = burgers.sample(length=length, rng=np.random.default_rng(seed))["final"]
    assert fine.shape == (8192,)
    errors = []
    for points in (32, 128, 512):
        rng = np.random.default_rng(seed)
        coarse = burgers.sample(points=points, length=length, rng=rng)["final"]
        errors.append(abs(coarse - fine[:: 8192 // points]).max() / abs(fine).max())
    # Modes k decay as 1/k^2, and act on the surviving long waves through their squares / k.
    assert errors[0] < bound
    assert errors[1] < errors[0] / 4**4
    assert errors[2] < errors[1] / 4**4


def test_another_length_is_another_viscosity_in_other_units() -> None:
    u = waves(nodes(64), 0.3)
    expected = 3.0 * burgers.solve(u / 3.0, viscosity=0.05 / 9.0, time=0.4)
    got = burgers.solve(u, viscosity=0.05, time=0.4, length=3.0)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("length", [1.0, 2 * np.pi, 5.0])
def test_a_longer_circle_carries_a_wave_as_a_march_on_it_does(length: float) -> None:
    """Fourth-order Runge-Kutta with derivatives by matrices on the circle itself."""
    points, steps, viscosity, time = 97, 4000, 0.1, 0.5
    u = waves(nodes(points), 0.4)
    k = 2j * np.pi / length * np.arange(points // 2 + 1)
    identity = np.eye(points)
    first = np.fft.irfft(k * np.fft.rfft(identity), points).T
    second = np.fft.irfft(k**2 * np.fft.rfft(identity), points).T

    def change(state: np.ndarray) -> np.ndarray:
        slope: np.ndarray = viscosity * second @ state - state * (first @ state)
        return slope

    marched, step = u.copy(), time / steps
    for _ in range(steps):
        a = change(marched)
        b = change(marched + step / 2 * a)
        c = change(marched + step / 2 * b)
        d = change(marched + step * c)
        marched = marched + step / 6 * (a + 2 * b + 2 * c + d)
    later = burgers.solve(u, viscosity=viscosity, time=time, length=length)
    assert abs(later - marched).max() < 1e-7 * abs(later).max()


def drawn(length: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    samples = [burgers.sample(points=256, length=length, rng=rng) for _ in range(1000)]
    return np.stack([f["initial"] for f in samples]), np.stack([f["final"] for f in samples])


def test_law_and_statistics_of_the_benchmark() -> None:
    """Those measured on a public copy of the file: deviations 0.597 and 0.493, mean zero."""
    initial, final = drawn(2 * np.pi)
    # The first wave has 86 % of the variance of 1000 samples: 2 % of standard error.
    assert initial.std() == pytest.approx(0.597, rel=0.05)
    assert final.std() == pytest.approx(0.493, rel=0.05)
    assert abs(initial.mean(axis=1)).max() < 1e-15
    # Rounding is multiplied by the range of phi, some thousands at most.
    assert abs(final.mean(axis=1)).max() < 1e-10
    k = np.arange(1, 11)
    modes = np.fft.rfft(initial, norm="forward")[:, 1:11]
    size = np.sqrt((abs(modes) ** 2).mean(axis=0))
    # sqrt(2) (xi cos + eta sin) has the complex coefficient (xi - i eta) / sqrt(2), of size one.
    np.testing.assert_allclose(size, 25 / (4 * np.pi**2 * k**2 + 25), rtol=0.08)


def test_statistics_of_the_former_set() -> None:
    initial, final = drawn(1.0)
    assert initial.std() == pytest.approx(0.594, rel=0.05)
    assert final.std() == pytest.approx(0.0097, rel=0.05)
    assert 0.025 < abs(final).max() < 0.04
    assert abs(final.mean(axis=1)).max() < 1e-15


@pytest.mark.parametrize(
    ("state", "viscosity", "time"),
    [
        # phi is one point wide and even: its product with v is zero at every node.
        (np.sin(2 * np.pi * nodes(16)), 1e-5, 1e3),
        # phi underflows to zero: the ratios are infinite.
        (np.sin(2 * np.pi * nodes(64)), 3.9e-4, 0.3),
        (np.sin(2 * np.pi * nodes(64)), 1e-300, 1.0),
        (1e300 * np.sin(2 * np.pi * nodes(64)), 0.1, 1.0),
        (np.random.default_rng(0).standard_normal(64), 0.1, 1e-3),
    ],
    ids=["collapsed", "underflow", "no viscosity", "huge", "noise"],
)
def test_result_that_cannot_be_trusted_is_refused(
    state: np.ndarray, viscosity: float, time: float
) -> None:
    with pytest.raises(NotConvergedError, match=r"expected an error of at most \d\S+, got "):
        burgers.solve(state, viscosity=viscosity, time=time)


@pytest.mark.parametrize(
    ("points", "viscosity", "time", "cause"), [(16, 0.01, 0.1, 0), (256, 0.005, 0.3, 1)], ids=str
)
def test_refusal_states_the_cause(points: int, viscosity: float, time: float, cause: int) -> None:
    with pytest.raises(NotConvergedError) as refusal:
        burgers.solve(waves(nodes(points)), viscosity=viscosity, time=time)
    pattern = r"expected an error of at most (\S+), got (\S+) from too few points and (\S+) from ro"
    message = re.match(pattern, str(refusal.value))
    assert message
    allowed, *causes = (float(number) for number in message.groups())
    assert causes[cause] > max(allowed, 5 * causes[1 - cause])


def test_refusal_names_the_sample() -> None:
    smooth = waves(nodes(64))
    batch = np.stack([smooth, smooth, 20 * smooth, smooth]).reshape(2, 2, 64)
    with pytest.raises(NotConvergedError, match=r"at most \S+ in sample \(1, 0\), got"):
        burgers.solve(batch, viscosity=0.1, time=0.01)


@pytest.mark.parametrize("shape", [(), (2,), (5, 2)], ids=str)
def test_too_few_points_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected at least 3 points .* got \("):
        burgers.solve(np.ones(shape))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_missing_values_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="expected finite initial values, got NaN or infinity"):
        burgers.solve(np.array([0.0, value, 1.0]))


@pytest.mark.parametrize("name", ["viscosity", "time", "length", "tolerance"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_parameters_that_are_not_positive_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"expected a finite {name} > 0, got {value}"):
        burgers.solve(waves(nodes(16)), **{name: value})
