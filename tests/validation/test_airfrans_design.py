from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest

from funcattn.pde import airfrans
from funcattn.pde.naca import five_digit, four_digit


class Chosen(np.random.Generator):
    """A generator that returns the given numbers."""

    draws: tuple[float, ...] = ()

    def random(self, size: Any = None) -> Any:  # type: ignore[override]
        assert size == len(self.draws)
        return np.array(self.draws)


def chosen(*draws: float) -> Chosen:
    rng = Chosen(np.random.PCG64(0))
    rng.draws = draws
    return rng


@pytest.fixture(scope="module")
def designs() -> list[airfrans.Design]:
    rng = np.random.default_rng(12)
    return [airfrans.draw_design(rng) for _ in range(4000)]


@pytest.mark.parametrize(
    ("draws", "design"),
    [
        ((0.0, 0.0, 0.0, 0.0, 0.5, 0.5, 0.0), (2e6, -5.0, 4, [3.5, 3.5, 0, 5])),
        ((1.0, 0.5, 1.0, 0.49, 1.0, 1.0, 0.0), (6e6, 5.0, 4, [7, 7, 0, 20])),
        ((0.5, 0.25, 0.2, 0.49, 0.9, 0.21, 0.0), (4e6, 0.0, 4, [0, 0, 0, 8])),
        ((0.5, 0.25, 0.2, 0.49, 0.9, 0.22, 0.0), (4e6, 0.0, 4, [6.3, 1.54, 0, 8])),
        ((0.5, 0.25, 0.2, 0.5, 0.5, 0.0, 0.49), (4e6, 0.0, 5, [2, 3, 1, 8])),
        ((0.5, 0.25, 0.2, 0.9, 1.0, 0.9, 0.5), (4e6, 0.0, 5, [4, 7.5, 0, 8])),
    ],
    ids=["least", "greatest", "symmetric", "hardly cambered ahead", "reflexed", "plain"],
)
def test_design_is_drawn_as_in_the_benchmark(draws: tuple[float, ...], design: Any) -> None:
    drawn = airfrans.draw_design(chosen(*draws))
    reynolds, incidence, family, digits = design
    assert drawn.reynolds == pytest.approx(reynolds)
    assert drawn.incidence == pytest.approx(incidence, abs=1e-12)
    assert drawn.family == family
    np.testing.assert_allclose(drawn.digits, digits, atol=1e-12)


def test_designs_follow_their_distribution(designs: list[airfrans.Design]) -> None:
    reynolds = np.array([design.reynolds for design in designs])
    incidence = np.array([design.incidence for design in designs])
    digits = np.stack([design.digits for design in designs])
    four = np.array([design.family == 4 for design in designs])
    cambered = four & (digits[:, 0] > 0)
    # Four standard errors of a fraction of 4000.
    assert four.mean() == pytest.approx(0.5, abs=0.032)
    assert digits[~four, 2].mean() == pytest.approx(0.5, abs=0.045)
    assert cambered[four].mean() == pytest.approx(5.5 / 7.0, abs=0.037)
    assert (digits[four, 2] == 0).all()
    for values, low, high in (
        (reynolds, 2e6, 6e6),
        (incidence, -5, 15),
        (digits[:, 3], 5, 20),
        (digits[cambered, 0], 0, 7),
        (digits[cambered, 1], 1.5, 7),
        (digits[~four, 0], 0, 4),
        (digits[~four, 1], 3, 8),
    ):
        assert kstest(values, "uniform", args=(low, high - low)).pvalue > 1e-3


def test_fraction_of_reflexed_lines_can_be_chosen() -> None:
    rng = chosen(0.5, 0.25, 0.2, 0.9, 1.0, 0.1, 0.3)
    bent = [airfrans.draw_design(rng, reflex=reflex).digits[2] for reflex in (0.0, 0.2, 0.4, 1.0)]
    assert bent == [0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize("reflex", [-0.1, 1.5, np.nan], ids=str)
def test_reflex_out_of_range_is_refused(reflex: float) -> None:
    with pytest.raises(ValueError, match=rf"a fraction reflex in \[0, 1\], got {reflex}"):
        airfrans.draw_design(np.random.default_rng(0), reflex=reflex)


@pytest.mark.parametrize(
    ("family", "digits", "nodes"),
    [
        (4, [2, 4, 0, 12], four_digit(2.0, 4.0, 12.0, panels=40)),
        (4, [0, 0, 0, 12], four_digit(0.0, 0.0, 12.0, panels=40)),
        (5, [2, 3, 0, 12], five_digit(2.0, 3.0, 12.0, panels=40)),
        (5, [2, 3, 1, 12], five_digit(2.0, 3.0, 12.0, reflex=True, panels=40)),
    ],
    ids=["2412", "0012", "23012", "23112"],
)
def test_outline_follows_the_digits(family: int, digits: list[float], nodes: Any) -> None:
    design = airfrans.Design(2e6, 3.0, family, np.array(digits, dtype=float))
    np.testing.assert_array_equal(airfrans.outline(design, panels=40), nodes)


def test_stream_has_the_reynolds_number_and_the_incidence() -> None:
    design = airfrans.Design(3e6, 30.0, 4, np.array([0.0, 0.0, 0.0, 12.0]))
    np.testing.assert_allclose(airfrans.stream(design, 1e-5), [30 * np.sqrt(0.75), 15.0])


def test_panels_of_a_circle_point_outwards() -> None:
    turn = np.linspace(0, 2 * np.pi, 9)
    circle = np.stack([np.cos(turn), np.sin(turn)], axis=-1)
    panels = airfrans.panels(circle)
    np.testing.assert_allclose(panels.length, 2 * np.sin(np.pi / 8))
    np.testing.assert_allclose(panels.middle, np.cos(np.pi / 8) * panels.normal, atol=1e-15)


def test_uniform_pressure_gives_no_force_and_a_gradient_gives_buoyancy() -> None:
    panels = airfrans.panels(four_digit(2.0, 4.0, 12.0, panels=400))
    x, y = four_digit(2.0, 4.0, 12.0, panels=400).T
    area = 0.5 * np.sum(x[:-1] * y[1:] - x[1:] * y[:-1])
    none = np.zeros_like(panels.middle)
    stream = np.array([3.0, 4.0])
    uniform = airfrans.coefficients(stream, np.ones(400), none, panels.normal, panels.length)
    np.testing.assert_allclose(uniform, 0.0, atol=1e-15)
    # Pressure p = y gives the force -area along y, with 0.6 across and 0.8 along the stream.
    force = airfrans.coefficients(stream, panels.middle[:, 1], none, panels.normal, panels.length)
    np.testing.assert_allclose(force, np.array([-0.6, -0.8]) * area * 2 / 25, rtol=1e-12)


def test_shear_along_the_stream_is_drag() -> None:
    stream = np.array([3.0, 4.0])
    shear = np.tile(stream / 10, (4, 1))
    lift, drag = airfrans.coefficients(
        stream, np.zeros(4), shear, np.zeros((4, 2)), np.full(4, 0.25)
    )
    assert lift == pytest.approx(0.0, abs=1e-15)
    assert drag == pytest.approx(0.5 * 2 / 25)
