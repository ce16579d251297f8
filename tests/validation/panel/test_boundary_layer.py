"""Boundary layers against classical results, their equations and an adaptive integration."""

from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from funcattn.pde.boundary_layer import Layer, boundary_layer


def layer(
    speed: Any, viscosity: float, *, length: float = 1.0, stations: int = 400, **options: float
) -> tuple[np.ndarray, Layer]:
    """The layer for a speed that is a function of distance, and its stations."""
    arc = np.linspace(0.0, length, stations + 1)
    return arc[1:], boundary_layer(arc, speed(arc), viscosity, **options)


def test_laminar_layer_on_a_flat_plate_is_close_to_that_of_blasius() -> None:
    x, plate = layer(np.ones_like, 1e-6)
    root = np.sqrt(x / 1e-6)
    assert plate.turbulent_from == len(x)
    # The exact factors are 0.6641 for both; Thwaites has sqrt(0.45) for the first.
    np.testing.assert_allclose(plate.thickness / x * root, np.sqrt(0.45), rtol=1e-12)
    np.testing.assert_allclose(plate.friction * root, 0.6641, rtol=0.011)
    np.testing.assert_allclose(plate.shape, 2.591, rtol=2e-3)


def test_laminar_layer_at_a_stagnation_point_is_close_to_that_of_hiemenz() -> None:
    x, front = layer(lambda s: 3.0 * s, 1e-4)
    # The exact thickness is 0.2923 sqrt(viscosity / slope), the shear 1.2326 U sqrt(slope nu).
    np.testing.assert_allclose(front.thickness * np.sqrt(3.0 / 1e-4), np.sqrt(0.075), rtol=1e-10)
    shear = 0.5 * front.friction * (3.0 * x) ** 2
    np.testing.assert_allclose(shear, 1.2326 * 3.0 * x * np.sqrt(3.0 * 1e-4), rtol=0.035)


def test_laminar_layer_under_a_linearly_falling_speed_separates_where_howarths_does() -> None:
    # Exact: at 0.1199. Where it would separate it becomes turbulent, at any Reynolds number.
    x, falling = layer(lambda s: 1.0 - s, 1e-5, length=0.3, stations=600)
    assert x[falling.turbulent_from] == pytest.approx(0.1199, abs=0.005)
    assert falling.friction[falling.turbulent_from - 1] < 0.1 * falling.friction[60]


def test_long_laminar_layer_becomes_turbulent_by_michels_criterion() -> None:
    x, plate = layer(np.ones_like, 1e-7, stations=2000)
    along = x[plate.turbulent_from] / 1e-7
    thick = np.sqrt(0.45 * along)
    assert thick == pytest.approx(1.174 * (1 + 22400 / along) * along**0.46, rel=1e-3)
    assert 1e6 < along < 4e6  # as on smooth plates in quiet streams


@pytest.mark.parametrize("trip", [1e-9, 0.1], ids=["nose", "tenth"])
def test_trip_works_where_the_layer_is_thick_enough(trip: float) -> None:
    x, plate = layer(np.ones_like, 1e-6, trip=trip)
    expected = max(trip, 320.0**2 / 0.45 * 1e-6)
    assert expected <= x[plate.turbulent_from] <= expected + 1.01 / 400


@pytest.mark.parametrize("reynolds", [1e6, 3e6, 1e7], ids="{:.0e}".format)
def test_turbulent_friction_on_a_flat_plate_follows_the_correlations(reynolds: float) -> None:
    _, plate = layer(np.ones_like, 1 / reynolds, trip=1e-9)
    # Prandtl's power law, and the fit of White to the law of the wall.
    assert plate.friction[-1] == pytest.approx(0.0592 * reynolds**-0.2, rel=0.055)
    assert plate.friction[-1] == pytest.approx(0.455 / np.log(0.06 * reynolds) ** 2, rel=0.095)
    assert 1.3 < plate.shape[-1] < 1.45


@pytest.mark.parametrize(
    "speed",
    [lambda s: 1.0 + s, lambda s: 1.0 - 0.3 * s, lambda s: 1.0 + 0.1 * np.sin(6 * s)],
    ids=["rising", "falling", "waving"],
)
def test_turbulent_layer_obeys_its_equations(speed: Any) -> None:
    x, turbulent = layer(speed, 1e-7, stations=4000, trip=1e-9)
    assert turbulent.separated_from == len(x)
    part = slice(turbulent.turbulent_from + 400, None)
    u, thickness, shape = speed(x), turbulent.thickness, turbulent.shape

    def slope(values: np.ndarray) -> np.ndarray:
        return np.gradient(values, x)[part]

    momentum = slope(thickness) + ((shape + 2) * thickness / u)[part] * slope(u)
    np.testing.assert_allclose(momentum, turbulent.friction[part] / 2, rtol=0.01)
    # The published inverse of the relation between the shape factors, which is also a fit.
    low = 3.3 + 0.8234 * (shape - 1.1) ** -1.287
    high = 3.3 + 1.5501 * (np.maximum(shape, 1.6) - 0.6778) ** -3.064
    entrainment = np.where(shape <= 1.6, low, high)
    fed = slope(u * thickness * entrainment) / u[part]
    np.testing.assert_allclose(fed, 0.0306 * (entrainment[part] - 3) ** -0.6169, rtol=0.03)


@pytest.mark.parametrize(("rise", "viscosity"), [(1.0, 1e-7), (-0.3, 1e-7), (-0.3, 1e-6)], ids=str)
def test_turbulent_layer_agrees_with_an_adaptive_integration(rise: float, viscosity: float) -> None:
    x, turbulent = layer(lambda s: 1.0 + rise * s, viscosity, stations=40, trip=0.05)
    first = turbulent.turbulent_from
    assert turbulent.shape[first] == pytest.approx(1.4)

    def shape_of(entrainment: float) -> float:
        excess = entrainment - 3.3
        high, low = 0.6778 + 1.1536 * excess**-0.326, 1.1 + 0.86 * excess**-0.777
        return high if high > 1.5848 else low

    def change(s: float, state: np.ndarray) -> list[float]:
        """Derivatives of thickness and of speed * thickness * entrainment shape factor."""
        thickness, speed = state[0], 1.0 + rise * s
        entrainment = state[1] / (speed * thickness)
        shape = shape_of(entrainment)
        friction = 0.246 * 10 ** (-0.678 * shape) * (speed * thickness / viscosity) ** -0.268
        growth = friction / 2 - (shape + 2) * thickness / speed * rise
        return [growth, speed * 0.0306 * (entrainment - 3) ** -0.6169]

    # Entrainment shape factor for a shape factor of 1.4.
    start = turbulent.thickness[first] * np.array(
        [1.0, (1.0 + rise * x[first]) * (3.3 + (0.3 / 0.86) ** (-1 / 0.777))]
    )
    exact = solve_ivp(change, (x[first], x[-1]), start, t_eval=x[first:], rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(turbulent.thickness[first:], exact.y[0], rtol=2e-4)
    entrainment = exact.y[1] / ((1.0 + rise * x[first:]) * exact.y[0])
    expected = [shape_of(value) for value in entrainment]
    np.testing.assert_allclose(turbulent.shape[first:], expected, rtol=2e-4)


def test_turbulent_layer_survives_a_jump_of_the_speed_between_two_stations() -> None:
    # The speed rises tenfold, first between two stations and then over 100 stations.
    results = []
    for inner in (2, 101):
        arc = np.concatenate([np.linspace(0, 0.5, 51)[:-1], np.linspace(0.5, 0.55, inner)])
        arc = np.append(arc, np.linspace(0.55, 1, 46)[1:])
        speed = np.interp(arc, [0.0, 0.5, 0.55, 1.0], [0.1, 0.1, 1.0, 1.0])
        results.append(boundary_layer(arc, speed, 3e-8, trip=0.1))
    for name in ("thickness", "shape"):
        once, slowly = (getattr(result, name)[-45:] for result in results)
        np.testing.assert_allclose(once, slowly, rtol=5e-3)


def test_turbulent_layer_separates_where_the_speed_falls_too_fast() -> None:
    x, falling = layer(lambda s: 1.0 - 0.8 * s, 1e-7, trip=0.05)
    first = falling.separated_from
    assert 0.3 < x[first] < 0.8
    assert (falling.friction[:first] > 0).all()
    assert (falling.shape[falling.turbulent_from : first] < 2.4).all()
    assert falling.shape[first - 1] > 2.2
    np.testing.assert_array_equal(falling.friction[first:], 0.0)
    np.testing.assert_array_equal(falling.shape[first:], 2.4)
    kept = falling.thickness[first - 1 :] * (1.0 - 0.8 * x[first - 1 :]) ** 4.4
    np.testing.assert_allclose(kept, kept[0], rtol=1e-12)


def test_layer_with_transition_at_its_last_station_stays_laminar() -> None:
    x, plate = layer(np.ones_like, 1e-7, trip=1.0)
    assert plate.turbulent_from < len(x)
    x, plate = layer(np.ones_like, 1e-6, trip=1.0)
    assert plate.turbulent_from == len(x)


@pytest.mark.parametrize(
    ("arc", "speed"),
    [
        ([0.0, 1.0], [0.0, 1.0]),
        ([0.0, 1.0, 2.0], [0.0, 1.0]),
        ([0.1, 1.0, 2.0], [0.0, 1.0, 1.0]),
        ([0.0, 1.0, 1.0], [0.0, 1.0, 1.0]),
        ([0.0, 1.0, 2.0], [0.0, 1.0, 0.0]),
        ([0.0, 1.0, 2.0], [-1.0, 1.0, 1.0]),
        ([0.0, 1.0, 2.0], [0.0, np.nan, 1.0]),
    ],
    ids=["short", "uneven", "late", "still", "halting", "backward", "missing"],
)
def test_invalid_stations_are_refused(arc: list[float], speed: list[float]) -> None:
    with pytest.raises(ValueError, match="expected arc increasing from 0 and speed positive"):
        boundary_layer(np.array(arc), np.array(speed), 1e-5)


def test_turbulent_layer_does_not_depend_on_the_stations() -> None:
    results = [layer(lambda s: 1.0 - 0.3 * s, 1e-7, stations=n, trip=0.05)[1] for n in (100, 1000)]
    for name in ("thickness", "shape", "friction"):
        coarse, fine = (getattr(result, name)[-1] for result in results)
        assert coarse == pytest.approx(fine, rel=2e-3)
