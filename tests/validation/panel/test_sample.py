"""Samples of flows past random airfoils: their distribution and their fields."""

from typing import Any

import numpy as np
import pytest

from funcattn.pde import panel
from funcattn.pde.naca import five_digit, four_digit


class Chosen(np.random.Generator):
    """A generator that returns the given numbers first, and random ones after that."""

    first: tuple[float, ...] | None = None

    def random(self, size: Any = None, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        if self.first is None:
            return super().random(size, *args, **kwargs)
        draw, self.first = np.array(self.first), None
        assert draw.shape == (size,)
        return draw


def drawn(*design: float, **options: Any) -> dict[str, Any]:
    rng = Chosen(np.random.PCG64(0))
    rng.first = design
    return panel.sample(**({"field_points": 0, "panels": 100} | options), rng=rng)


@pytest.mark.parametrize(
    ("design", "family", "digits", "reynolds", "incidence"),
    [
        ((0.0, 0.0, 0.0, 0.0, 0.5, 0.5, 0.0), 4, [3.5, 3.5, 0, 5], 2e6, -5),
        ((1.0, 0.5, 1.0, 0.49, 1.0, 1.0, 0.0), 4, [7, 7, 0, 20], 6e6, 5),
        ((0.5, 0.25, 0.2, 0.49, 0.9, 0.21, 0.0), 4, [0, 0, 0, 8], 4e6, 0),
        ((0.5, 0.25, 0.2, 0.5, 0.5, 0.0, 0.49), 5, [2, 3, 1, 8], 4e6, 0),
        ((0.5, 0.25, 0.2, 0.9, 1.0, 0.9, 0.5), 5, [4, 7.5, 0, 8], 4e6, 0),
    ],
    ids=["least", "greatest", "symmetric", "reflexed", "plain"],
)
def test_design_is_drawn_as_in_the_benchmark(
    design: tuple[float, ...],
    family: int,
    digits: list[float],
    reynolds: float,
    incidence: float,
) -> None:
    stored = drawn(*design)
    assert stored["family"] == family
    np.testing.assert_allclose(stored["digits"], digits, atol=1e-12)
    assert stored["reynolds"] == pytest.approx(reynolds)
    assert stored["incidence"] == pytest.approx(incidence, abs=1e-12)
    angle, far = np.deg2rad(incidence), stored["features"][0, 2:4]
    speed = reynolds * 1.56e-5
    np.testing.assert_allclose(far, [speed * np.cos(angle), speed * np.sin(angle)], atol=1e-12)
    first, second, reflex, thickness = map(float, digits)
    if family == 4:
        nodes = four_digit(first, second, thickness, panels=100)
    else:
        nodes = five_digit(first, second, thickness, reflex=bool(reflex), panels=100)
    flow = panel.solve(nodes, far)
    assert stored["lift"] == pytest.approx(panel.lift(flow), rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(stored["position"], panel.surface(flow).position)


def test_fraction_of_reflexed_lines_can_be_chosen() -> None:
    design = (0.5, 0.25, 0.2, 0.9, 1.0, 0.1, 0.3)
    reflexed = [drawn(*design, reflex=share)["digits"][2] for share in (0.0, 0.2, 0.4, 1.0)]
    assert reflexed == [0.0, 0.0, 1.0, 1.0]


def test_fields_of_a_sample_are_consistent() -> None:
    stored = panel.sample(panels=120, field_points=700, rng=np.random.default_rng(3))
    on = stored["surface"]
    assert on.dtype == np.bool_
    np.testing.assert_array_equal(np.flatnonzero(on), np.arange(120))
    assert all(np.isfinite(values).all() for values in stored.values())
    position, features, target = (stored[name] for name in ("position", "features", "target"))
    assert position.shape == (820, 2)
    assert features.shape == (820, 7)
    assert target.shape == (820, 4)
    np.testing.assert_array_equal(features[:, :2], position)
    assert ((position >= [-2.0, -1.5]) & (position <= [4.0, 1.5])).all()

    far = features[0, 2:4]
    np.testing.assert_array_equal(features[:, 2:4], np.broadcast_to(far, (820, 2)))
    assert np.linalg.norm(far) == pytest.approx(stored["reynolds"] * 1.56e-5)
    np.testing.assert_array_equal(features[on, 4], 0.0)
    assert features[~on, 4].min() >= 1e-3
    np.testing.assert_allclose(np.linalg.norm(features[on, 5:], axis=1), 1.0)
    np.testing.assert_array_equal(features[~on, 5:], 0.0)

    np.testing.assert_allclose(target[:, 2], (far @ far - (target[:, :2] ** 2).sum(1)) / 2)
    np.testing.assert_array_equal(target[:, 3], 0.0)
    np.testing.assert_allclose((target[on, :2] * features[on, 5:]).sum(1), 0.0, atol=1e-12)

    load = (stored["shear"] - target[on, 2:3] * features[on, 5:]) * stored["length"][:, None]
    x, y = far / np.linalg.norm(far)
    lift = 2 * load.sum(axis=0) @ [-y, x] / (far @ far)
    assert lift == pytest.approx(stored["lift"], abs=2e-3)
    assert 0.005 < stored["drag"] < 0.05


def test_field_of_a_sample_is_that_of_its_airfoil() -> None:
    # A four-digit airfoil at zero incidence: everything can be recomputed from the digits.
    stored = drawn(0.5, 0.25, 0.2, 0.0, 0.5, 0.5, 0.0, field_points=300)
    nodes = four_digit(3.5, 3.5, 8.0, panels=100)
    flow = panel.solve(nodes, np.array([62.4, 0.0]))
    points = stored["position"][100:]
    np.testing.assert_allclose(stored["target"][100:, :2], panel.velocity(flow, points), atol=1e-9)
    np.testing.assert_allclose(
        stored["features"][100:, 4], panel.signed_distance(nodes, points), atol=1e-12
    )
    layers = panel.friction(flow, 1.56e-5)
    assert stored["drag"] == pytest.approx(layers.drag, rel=1e-6)
    np.testing.assert_allclose(stored["shear"], layers.shear, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(stored["transition"], layers.transition)
    np.testing.assert_array_equal(stored["separation"], layers.separation)


def test_sample_depends_only_on_its_generator() -> None:
    options: dict[str, Any] = {"panels": 60, "field_points": 50}
    first = panel.sample(**options, rng=np.random.default_rng([5, 8]))
    other = panel.sample(**options, rng=np.random.default_rng([5, 9]))
    again = panel.sample(**options, rng=np.random.default_rng([5, 8]))
    for name, values in first.items():
        np.testing.assert_array_equal(values, again[name])
    assert abs(first["lift"] - other["lift"]) > 1e-2
    # The resolution of an airfoil does not change it; 60 panels are coarse for its lift.
    finer = panel.sample(panels=200, field_points=10, rng=np.random.default_rng([5, 8]))
    np.testing.assert_array_equal(finer["digits"], first["digits"])
    assert finer["lift"] == pytest.approx(first["lift"], rel=0.015)


def test_points_are_scattered_as_documented() -> None:
    nodes = four_digit(0.0, 0.0, 12.0)
    _, near = panel.scatter(nodes, 4000, near=1.0, closest=1e-3, rng=np.random.default_rng(6))
    # Over a plane, all decades of distance have equally many points. The range is three decades,
    # less the mean of -log10 of the cosine of the angle to the normal, log10(2).
    share = [(near < limit).mean() for limit in (1e-2, 1e-1)]
    np.testing.assert_allclose(share, np.array([1, 2]) / (3 - np.log10(2)), atol=0.05)
    points, far = panel.scatter(nodes, 4000, near=0.0, closest=1e-3, rng=np.random.default_rng(7))
    # Four standard errors of the mean of uniform numbers.
    error = 4 / np.sqrt(12 * 4000)
    np.testing.assert_allclose(points.mean(axis=0), [1.0, 0.0], atol=6 * error)
    assert far.min() >= 1e-3
    mixed, _ = panel.scatter(nodes, 4000, near=0.5, closest=1e-3, rng=np.random.default_rng(8))
    outside = abs(mixed - [0.5, 0.0]) > [1.5, 1.0]
    assert 0.2 < outside.any(axis=1).mean() < 0.4
    none, _ = panel.scatter(nodes, 0, near=0.5, closest=1e-3, rng=np.random.default_rng(8))
    assert len(none) == 0


@pytest.mark.full
def test_many_samples_are_solved_and_their_forces_agree() -> None:
    for seed in range(400):
        stored = panel.sample(field_points=0, rng=np.random.default_rng([9, seed]))
        assert all(np.isfinite(values).all() for values in stored.values())
        load = stored["target"][:, 2:3] * stored["features"][:, 5:] * stored["length"][:, None]
        x, y = stored["features"][0, 2:4] / (stored["reynolds"] * 1.56e-5)
        force = -2 * load.sum(axis=0) / (stored["reynolds"] * 1.56e-5) ** 2
        assert force @ [-y, x] == pytest.approx(stored["lift"], abs=1.5e-3), seed
        assert abs(force @ [x, y]) < 1.5e-3, seed
        assert -1.0 < stored["lift"] < 3.0
        assert 0.006 < stored["drag"] < 0.15


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"field_points": -1}, "field_points >= 0, got -1"),
        ({"near": 1.5}, r"a fraction near in \[0, 1\], got 1.5"),
        ({"reflex": np.nan}, r"a fraction reflex in \[0, 1\], got nan"),
        ({"closest": 0.0}, r"closest in \(0, 0.5\], got 0.0"),
        ({"closest": 0.6}, r"closest in \(0, 0.5\], got 0.6"),
        ({"panels": 21}, "even number of panels, at least 4, got 21"),
        ({"viscosity": 0.0}, "a stream of two finite numbers"),
        ({"trip": 0.0}, "viscosity and trip > 0, got 1.56e-05 and 0.0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_parameters_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        panel.sample(**({"panels": 60, "field_points": 5} | options), rng=np.random.default_rng(0))
