"""The Neumann random field against its series, summed here term by term."""

from typing import Any

import numpy as np
import pytest

from funcattn.pde.random_fields import neumann_field


def cosines(points: int, count: int) -> np.ndarray:
    """Orthonormal cosines of one axis at the nodes, (points, count)."""
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
    """Gives a unit vector for a normal draw: summing over all of them is an exact expectation."""

    position = 0

    def standard_normal(self, size: int) -> Any:  # type: ignore[override]
        draw = np.zeros(size)
        draw[self.position] = 1.0
        return draw


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


def test_same_generator_state_gives_the_same_field_and_another_state_another() -> None:
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
