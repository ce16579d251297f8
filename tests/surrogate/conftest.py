"""Small data of several kinds, and a surrogate that is fitted at once."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from funcattn.data.cases import Case, Cells
from funcattn.surrogate import Surrogate

Array = npt.NDArray[Any]
SMALL = {"width": 8, "layers": 1, "heads": 2, "bases": 4}


def quick(**more: Any) -> Surrogate:
    """A surrogate that is fitted at once, and not well."""
    settings: dict[str, Any] = {"epochs": 2, "network": SMALL, "yardsticks": False}
    return Surrogate(**{**settings, **more})


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def waves(random: np.random.Generator, count: int, *grid: int) -> tuple[Array, Array]:
    """Fields and what should come out, (count *grid)."""
    fields = random.normal(size=(count, *grid)).cumsum(1)
    return fields, 3.0 * fields - fields.mean(tuple(range(1, fields.ndim)), keepdims=True)


def clouds(random: np.random.Generator, count: int, space: int = 2) -> list[Array]:
    return [random.random((int(random.integers(20, 30)), space)) for _ in range(count)]


def triangles(random: np.random.Generator, count: int) -> list[Case]:
    """Meshes of random size, with a parameter, a category and two outputs of other units."""
    made = []
    for number in range(count):
        n = int(random.integers(5, 8))
        x, y = np.meshgrid(np.linspace(0, 1, n), np.linspace(0, 1, n), indexing="ij")
        points = np.stack([x, y], -1).reshape(-1, 2)
        corner = (np.arange(n - 1)[:, None] * n + np.arange(n - 1)).ravel()
        cells = np.concatenate(
            [
                np.stack([corner, corner + 1, corner + n], 1),
                np.stack([corner + 1, corner + n + 1, corner + n], 1),
            ]
        )
        size = 0.5 / (n - 1) ** 2
        mesh = Cells(cells.ravel(), np.arange(0, cells.size + 1, 3), np.full(len(cells), 5))
        load = float(random.uniform(1, 2))
        rim = ((points == 0) | (points == 1)).any(1)
        made.append(
            Case(
                f"plate_{number}",
                points,
                {"stress": load * points[:, 0] * 1e6, "shift": load * points},
                {"load": load},
                {"rim": rim.astype(np.int64)},
                weights=mesh.shared_out(np.full(len(cells), size), len(points)),
                cells=mesh,
                units={"stress": "Pa", "shift": "m"},
            )
        )
    return made
