"""The random fields against their distributions; covariances are summed here term by term."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from funcattn.pde.random_fields import (
    gaussian_process,
    neumann_field,
    periodic_line,
    periodic_square,
)


def cosines(points: int, count: int) -> np.ndarray:
    """Orthonormal cosines along one axis at the nodes, (points, count)."""
    x = np.linspace(0.0, 1.0, points)
    basis: np.ndarray = np.sqrt(2.0) * np.cos(np.pi * x[:, None] * np.arange(count))
    basis[:, 0] = 1.0
    return basis


def theoretical_variance(points: int, alpha: float, tau: float) -> np.ndarray:
    k = np.arange(points)
    eigenvalue = tau ** (2 * (alpha - 1)) * (
        np.pi**2 * (k[:, None] ** 2 + k[None, :] ** 2) + tau**2
    ) ** (-alpha)
    eigenvalue[0, 0] = 0.0
    square = cosines(points, points) ** 2
    variance: np.ndarray = square @ eigenvalue @ square.T
    return variance


class UnitDraw(np.random.Generator):
    """Returns a unit vector as a normal draw: the sum over all of them is an exact expectation."""

    position = 0
    count = 0

    def standard_normal(self, size: int | tuple[int, ...]) -> Any:  # type: ignore[override]
        draw = np.zeros(size)
        self.count = draw.size
        draw.flat[self.position] = 1.0
        return draw


def exact_covariance(field: Callable[[np.random.Generator], np.ndarray]) -> np.ndarray:
    """The covariance between all pairs of points, from the response to each single draw."""
    rng = UnitDraw(np.random.PCG64(0))
    responses = [field(rng).ravel()]
    draws = rng.count
    for rng.position in range(1, draws):
        responses.append(field(rng).ravel())
    return np.transpose(responses) @ np.array(responses)


@pytest.mark.parametrize("points", [2, 3, 8, 9])
@pytest.mark.parametrize(("alpha", "tau"), [(2.0, 3.0), (2.5, 7.0)])
def test_pointwise_variance_is_exactly_the_series(points: int, alpha: float, tau: float) -> None:
    rng = UnitDraw(np.random.PCG64(0))
    variance = np.zeros((points, points))
    for rng.position in range(points**2):
        variance += neumann_field(points, alpha=alpha, tau=tau, rng=rng) ** 2
    np.testing.assert_allclose(variance, theoretical_variance(points, alpha, tau), rtol=1e-12)


def test_sampled_variance_and_mean_agree_with_the_series() -> None:
    points, draws = 17, 4000
    rng = np.random.default_rng(0)
    fields = np.stack([neumann_field(points, rng=rng) for _ in range(draws)])
    expected = theoretical_variance(points, 2.0, 3.0)
    # Four standard errors of a Gaussian sample's variance and mean.
    np.testing.assert_allclose((fields**2).mean(0) / expected, 1.0, atol=4 * np.sqrt(2 / draws))
    np.testing.assert_allclose(fields.mean(0) / np.sqrt(expected), 0.0, atol=4 / np.sqrt(draws))


@pytest.mark.parametrize("points", [2, 9, 64, 85])
def test_trapezoid_mean_is_zero(points: int) -> None:
    field = neumann_field(points, rng=np.random.default_rng(1))
    weights = np.full(points, 1.0 / (points - 1))
    weights[[0, -1]] /= 2
    assert abs(weights @ field @ weights) < 1e-15
    assert abs(field).max() > 1e-2


def test_normal_derivative_vanishes_at_first_order_on_every_side() -> None:
    # alpha = 6 is smooth enough for a second derivative, which the one-sided difference leaves.
    slopes = []
    for points in (65, 129, 257):
        field = neumann_field(points, alpha=6.0, rng=np.random.default_rng(2))
        sides = [field[1] - field[0], field[-2] - field[-1]]
        sides += [field[:, 1] - field[:, 0], field[:, -2] - field[:, -1]]
        slopes.append([np.abs(side).max() * (points - 1) for side in sides])
    orders = np.log2(np.array(slopes[:-1]) / np.array(slopes[1:]))
    np.testing.assert_allclose(orders, 1.0, atol=0.05)


def test_coarser_field_is_the_truncated_series_of_a_finer_one() -> None:
    def coefficients(points: int) -> np.ndarray:
        inverse = np.linalg.inv(cosines(points, points))
        return inverse @ neumann_field(points, rng=np.random.default_rng(3)) @ inverse.T

    np.testing.assert_allclose(coefficients(33)[:17, :17], coefficients(17), atol=1e-14)


def test_field_depends_only_on_the_generator_state() -> None:
    first, again, other = (neumann_field(9, rng=np.random.default_rng(s)) for s in (4, 4, 5))
    np.testing.assert_array_equal(first, again)
    assert first.dtype == np.float64
    assert abs(first - other).max() > 1e-2


def test_one_point_is_refused() -> None:
    with pytest.raises(ValueError, match="expected points_per_axis >= 2, got 1"):
        neumann_field(1, rng=np.random.default_rng(0))


@pytest.mark.parametrize(
    ("alpha", "tau"), [(1.0, 3.0), (np.nan, 3.0), (np.inf, 3.0), (2.0, 0.0), (2.0, np.nan)]
)
def test_spectrum_without_pointwise_values_is_refused(alpha: float, tau: float) -> None:
    with pytest.raises(ValueError, match=f"alpha > 1 and tau > 0, got alpha={alpha}, tau={tau}"):
        neumann_field(5, alpha=alpha, tau=tau, rng=np.random.default_rng(0))


NAVIER_STOKES = {"alpha": 2.5, "tau": 7.0, "scale": 2**0.5 * 7**1.5}
BURGERS = {"alpha": 2.0, "tau": 5.0, "scale": 25.0}


def periodic_eigenvalues(squared: np.ndarray, *, alpha: float, tau: float, scale: float) -> Any:
    """Eigenvalues of the covariance as a function of |k|^2, without the constant."""
    values = scale**2 * (4 * np.pi**2 * squared + tau**2) ** (-alpha)
    return np.where(squared == 0, 0.0, values)


@pytest.mark.parametrize("points", [3, 4, 7, 8])
@pytest.mark.parametrize("law", [{}, {"alpha": 1.5, "tau": 2.0, "scale": 3.0}], ids=str)
def test_covariance_on_the_periodic_square_is_exactly_the_series(points: int, law: Any) -> None:
    k = np.arange(-((points - 1) // 2), (points + 1) // 2)
    k1, k2 = (axis.ravel() for axis in np.meshgrid(k, k))
    x, y = (axis.ravel() / points for axis in np.meshgrid(*2 * [np.arange(points)], indexing="ij"))
    eigenvalue = periodic_eigenvalues(k1**2 + k2**2, **(NAVIER_STOKES | law))
    # exp(2 pi i k.(x - x')), summed over k and -k, is real.
    wave = np.exp(2j * np.pi * (np.outer(x, k1) + np.outer(y, k2)))
    expected = (wave * eigenvalue @ wave.conj().T).real
    covariance = exact_covariance(lambda rng: periodic_square(points, rng=rng, **law))
    np.testing.assert_allclose(covariance, expected, rtol=0, atol=1e-14 * expected.max())


@pytest.mark.parametrize("points", [3, 4, 15, 16])
@pytest.mark.parametrize("law", [{}, {"alpha": 0.75, "tau": 2.0, "scale": 3.0}], ids=str)
def test_covariance_on_the_periodic_line_is_exactly_the_series(points: int, law: Any) -> None:
    k = np.arange(1, (points + 1) // 2)
    x = np.arange(points) / points
    eigenvalue = periodic_eigenvalues(k**2, **(BURGERS | law))
    expected = 2 * np.cos(2 * np.pi * (x[:, None] - x)[..., None] * k) @ eigenvalue
    covariance = exact_covariance(lambda rng: periodic_line(points, rng=rng, **law))
    np.testing.assert_allclose(covariance, expected, rtol=0, atol=1e-14 * expected.max())


def test_first_draws_on_the_line_are_cosine_and_sine() -> None:
    rng = UnitDraw(np.random.PCG64(0))
    x = np.arange(8) / 8
    size = np.sqrt(2) * 25 / (4 * np.pi**2 + 25)
    np.testing.assert_allclose(periodic_line(8, rng=rng), size * np.cos(2 * np.pi * x), atol=1e-15)
    rng.position = 1
    np.testing.assert_allclose(periodic_line(8, rng=rng), size * np.sin(2 * np.pi * x), atol=1e-15)


@pytest.mark.parametrize(
    ("scale", "deviation"),
    [(2**0.5 * 7**1.5, 0.262), (7**1.5, 0.185), (7**0.75, 0.043)],
    ids=["first", "later", "printed"],
)
def test_square_has_its_standard_deviation_in_every_convention(
    scale: float, deviation: float
) -> None:
    k = np.arange(-31, 32)
    law = NAVIER_STOKES | {"scale": scale}
    eigenvalues = periodic_eigenvalues(k[:, None] ** 2 + k**2, **law)
    assert np.sqrt(eigenvalues.sum()) == pytest.approx(deviation, abs=5e-4)
    draws, rng = 400, np.random.default_rng(6)
    squares = [np.mean(periodic_square(64, scale=scale, rng=rng) ** 2) for _ in range(draws)]
    # Four standard errors of a sum of squares of Gaussians.
    error = 4 * np.sqrt(2 * (eigenvalues**2).sum() / draws)
    assert np.mean(squares) == pytest.approx(eigenvalues.sum(), abs=error)


def test_default_square_is_the_real_part_of_independent_complex_waves() -> None:
    # Var Re(sum_k s_k (a_k + i b_k) exp(it)) = sum_k s_k^2, with k and -k both in the sum.
    k = np.arange(-3, 4)
    size = np.sqrt(2) * 7**1.5 * (4 * np.pi**2 * (k[:, None] ** 2 + k**2) + 49) ** -1.25
    size[3, 3] = 0.0
    covariance = exact_covariance(lambda rng: periodic_square(7, rng=rng))
    np.testing.assert_allclose(np.diag(covariance), (size**2).sum(), rtol=1e-13)


def test_sampled_line_has_the_deviation_of_the_benchmark() -> None:
    eigenvalues = np.repeat(periodic_eigenvalues(np.arange(1, 128) ** 2, **BURGERS), 2)
    assert np.sqrt(eigenvalues.sum()) == pytest.approx(0.594, abs=5e-4)
    draws, rng = 2000, np.random.default_rng(7)
    fields = np.stack([periodic_line(256, rng=rng) for _ in range(draws)])
    error = 4 * np.sqrt(2 * (eigenvalues**2).sum() / draws)
    assert np.mean(fields**2) == pytest.approx(eigenvalues.sum(), abs=error)
    assert abs(fields.mean(axis=0)).max() < 4 * np.sqrt(eigenvalues.sum() / draws)


@pytest.mark.parametrize("field", [periodic_line, periodic_square])
@pytest.mark.parametrize("points", [3, 8, 65])
def test_mean_over_the_period_is_zero(field: Any, points: int) -> None:
    values = field(points, rng=np.random.default_rng(8))
    assert values.dtype == np.float64
    assert abs(values.mean()) < 1e-15
    assert abs(values).max() > 1e-2


@pytest.mark.parametrize(("coarse", "fine"), [(16, 33), (17, 32), (32, 34)], ids=str)
@pytest.mark.parametrize("field", [periodic_line, periodic_square])
def test_coarser_periodic_field_is_the_truncated_series(field: Any, coarse: int, fine: int) -> None:
    def modes(points: int, count: int) -> np.ndarray:
        spectrum = np.fft.fftn(field(points, rng=np.random.default_rng(9)), norm="forward")
        kept = np.arange(-count, count + 1)
        return spectrum[np.ix_(*spectrum.ndim * [kept])]

    count = (coarse - 1) // 2
    np.testing.assert_allclose(modes(fine, count), modes(coarse, count), rtol=0, atol=1e-15)


@pytest.mark.parametrize("length", [0.2, 0.03, 5.0])
def test_covariance_of_the_gaussian_process_is_exact(length: float) -> None:
    x = np.linspace(0.0, 1.0, 101)
    covariance = exact_covariance(lambda rng: gaussian_process(x, length=length, rng=rng))
    expected = np.exp(-((x[:, None] - x) ** 2) / (2 * length**2))
    np.testing.assert_allclose(covariance, expected, rtol=0, atol=5e-15 if length > 0.1 else 5e-13)


def test_sampled_gaussian_process_has_its_variance_and_mean() -> None:
    draws, rng = 4000, np.random.default_rng(10)
    x = np.array([0.0, 0.13, 0.5, 1.0])
    values = np.stack([gaussian_process(x, rng=rng) for _ in range(draws)])
    np.testing.assert_allclose(values.mean(0), 0.0, atol=4 / np.sqrt(draws))
    np.testing.assert_allclose((values**2).mean(0), 1.0, atol=4 * np.sqrt(2 / draws))
    correlation = np.mean(values[:, 0] * values[:, 1])
    assert correlation == pytest.approx(np.exp(-(0.65**2) / 2), abs=4 * np.sqrt(2 / draws))


def test_gaussian_process_is_the_same_function_at_other_points() -> None:
    x = np.random.default_rng(11).permutation(np.linspace(-3.0, -2.0, 33))
    ends_first = np.argsort(-abs(x + 2.5))
    values = gaussian_process(x, rng=np.random.default_rng(12))
    some = gaussian_process(x[ends_first[:9]], rng=np.random.default_rng(12))
    np.testing.assert_allclose(some, values[ends_first[:9]], rtol=0, atol=1e-14)
    assert np.ptp(values) > 0.5


def test_gaussian_process_is_exact_at_one_point_and_over_many_lengths() -> None:
    one = gaussian_process(np.array([7.0]), rng=np.random.default_rng(13))
    assert one == np.random.default_rng(13).standard_normal(21)[0]
    far = np.array([0.0, 1.0, 19.0, 20.5, 40.0])
    covariance = exact_covariance(lambda rng: gaussian_process(far, length=1.0, rng=rng))
    expected = np.exp(-((far[:, None] - far) ** 2) / 2)
    np.testing.assert_allclose(covariance, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "field",
    [
        lambda rng: periodic_line(9, rng=rng),
        lambda rng: periodic_square(9, rng=rng),
        lambda rng: gaussian_process(np.linspace(0, 1, 9), rng=rng),
    ],
    ids=["line", "square", "process"],
)
def test_draw_depends_only_on_the_generator_state(field: Any) -> None:
    rng = np.random.default_rng(14)
    first, second, again = field(rng), field(rng), field(np.random.default_rng(14))
    np.testing.assert_array_equal(first, again)
    assert abs(first - second).max() > 1e-2


@pytest.mark.parametrize("field", [periodic_line, periodic_square])
@pytest.mark.parametrize("points", [-1, 0, 2])
def test_too_few_points_along_a_period_are_refused(field: Any, points: int) -> None:
    with pytest.raises(ValueError, match=f"at least 3 points along a period, got {points}"):
        field(points, rng=np.random.default_rng(0))


@pytest.mark.parametrize(("field", "least"), [(periodic_line, 0.5), (periodic_square, 1.0)])
@pytest.mark.parametrize("name", ["alpha", "tau", "scale"])
@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_periodic_spectrum_without_pointwise_values_is_refused(
    field: Any, least: float, name: str, value: float
) -> None:
    with pytest.raises(ValueError, match=f"alpha > {least}, tau > 0 and .* got .*{name}={value}"):
        field(8, rng=np.random.default_rng(0), **{name: value})
    with pytest.raises(ValueError, match=f"alpha > {least}, .* got alpha={least}"):
        field(8, rng=np.random.default_rng(0), alpha=least)


@pytest.mark.parametrize(
    "points", [np.zeros((2, 2)), np.array(0.5), np.array([]), np.array([0.0, np.nan])], ids=str
)
def test_points_that_are_not_on_a_line_are_refused(points: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"expected finite points, shape \(n,\) .* got shape"):
        gaussian_process(points, rng=np.random.default_rng(0))


@pytest.mark.parametrize("length", [0.0, -0.2, np.nan, np.inf])
def test_length_that_is_not_positive_is_refused(length: float) -> None:
    with pytest.raises(ValueError, match=f"expected a finite length > 0, got {length}"):
        gaussian_process(np.array([0.0, 1.0]), length=length, rng=np.random.default_rng(0))


def test_points_too_far_apart_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"within 300 lengths, got a range of 1\.0 and length 0\.003"
    ):
        gaussian_process(np.array([0.0, 1.0]), length=0.003, rng=np.random.default_rng(0))
