from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pyvista = pytest.importorskip("pyvista")


@pytest.fixture
def plate() -> Callable[..., Any]:
    """Makes a plate of triangles in the plane, with fields of all kinds on it."""

    def make(columns: int = 5, rows: int = 4, seed: int = 0, size: float = 1.0) -> Any:
        rng = np.random.default_rng(seed)
        x, y = np.meshgrid(np.linspace(0, size, columns), np.linspace(0, size, rows))
        points = np.stack([x.ravel(), y.ravel(), np.zeros(x.size)], axis=1)
        corner = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).ravel()
        one = np.stack([corner, corner + 1, corner + columns], axis=1)
        two = np.stack([corner + 1, corner + columns + 1, corner + columns], axis=1)
        triangles = np.concatenate([one, two])
        cells = np.pad(triangles, ((0, 0), (1, 0)), constant_values=3)
        grid = pyvista.UnstructuredGrid(cells.ravel(), np.full(len(triangles), 5), points)
        grid.point_data["pressure"] = rng.normal(size=x.size)
        grid.point_data["velocity"] = np.pad(rng.normal(size=(x.size, 2)), ((0, 0), (0, 1)))
        grid.point_data["kind"] = (points[:, 0] == 0).astype(np.int32)
        grid.cell_data["material"] = np.arange(len(triangles)) % 2
        grid.cell_data["source"] = rng.normal(size=len(triangles))
        grid.field_data["speed"] = [3.0 + seed]
        return grid

    return make


@pytest.fixture
def plates(plate: Callable[..., Any], tmp_path: Path) -> Path:
    """A folder of three plates of different sizes, and a table of parameters beside it."""
    folder = tmp_path / "plates"
    folder.mkdir()
    for number in (1, 2, 10):
        plate(4 + number, 5, seed=number).save(folder / f"plate_{number}.vtu")
    (tmp_path / "table.csv").write_text(
        "file,angle,note\nplate_10.vtu,10,c\nplate_1,1,a\nplate_2,2,b\n"
    )
    return folder
