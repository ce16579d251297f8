"""The draws behind the floor of Darcy flow follow the law that they are said to follow."""

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from funcattn.pde.random_fields import neumann_field

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from darcy_floor import NODES, covariance, flown

Array = npt.NDArray[np.float64]


def test_the_covariance_is_that_of_drawn_fields() -> None:
    grid, count = 4, 1000
    every = (NODES - 1) // (grid - 1)
    random = np.random.default_rng(0)
    values = np.stack(
        [neumann_field(NODES, rng=random)[::every, ::every].ravel() for _ in range(count)]
    )
    law = covariance(grid)
    size = np.sqrt(np.outer(law.diagonal(), law.diagonal()))
    assert (abs(values.T @ values / count - law) / size).max() < 5 / count**0.5


def chain(walls: Array, place: Array, count: int) -> Array:
    """The places of a chain, (count d)."""
    random = np.random.default_rng(0)
    places = []
    for _ in range(count):
        place, _ = flown(place, walls, walls @ walls.T, random)
        places.append(place)
    return np.stack(places)


def test_flights_stay_within_their_walls_and_follow_the_cut_normal_law() -> None:
    # x >= 0 and y >= x: a wedge of an eighth of the plane.
    walls = np.array([[1.0, 0.0], [-(0.5**0.5), 0.5**0.5]])
    places = chain(walls, np.array([0.5, 1.0]), 4000)
    assert (places @ walls.T >= -1e-9).all()
    radius, angle = np.hypot(*places.T), np.arctan2(places[:, 1], places[:, 0])
    assert radius.mean() == pytest.approx((np.pi / 2) ** 0.5, rel=0.03)  # of Rayleigh's law
    assert (radius**2).mean() == pytest.approx(2.0, rel=0.06)
    assert angle.mean() == pytest.approx(3 * np.pi / 8, rel=0.01)  # evenly from pi/4 to pi/2
    assert angle.std() == pytest.approx(np.pi / 4 / 12**0.5, rel=0.05)


def test_axes_without_a_wall_keep_the_normal_law() -> None:
    far = np.array([[1.0, 0.0, 0.0]])
    places = chain(far, np.array([0.1, 0.0, 0.0]), 4000)
    assert places[:, 0].mean() == pytest.approx((2 / np.pi) ** 0.5, rel=0.04)  # one half of it
    assert abs(places[:, 1:].mean(0)).max() < 0.06
    assert places[:, 1:].std(0) == pytest.approx(1.0, rel=0.05)
