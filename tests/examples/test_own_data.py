"""The tutorials about people's own data run, and reach what they promise."""

import importlib.util
import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.filterwarnings("ignore::funcattn.surrogate.OutsideTrainingWarning")
SMALL: dict[str, Any] = {"width": 16, "layers": 2, "heads": 4, "bases": 8, "mlp_ratio": 2.0}


def example(name: str) -> ModuleType:
    path = Path(__file__).parents[2] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_plates_of_the_first_tutorial_solve_their_equation() -> None:
    sources, conductivity, temperatures = example("own_arrays").plates(2, nodes=201)
    u, h = temperatures[0], 1 / 200
    laplace = (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]) / h**2
    np.testing.assert_allclose(
        -conductivity[0] * laplace, sources[0, 1:-1, 1:-1], atol=2e-3 * np.abs(sources).max()
    )


def test_arrays_on_a_grid() -> None:
    got = example("own_arrays").main(count=40, nodes=9, epochs=15, network=SMALL)
    assert got["error"] < 0.8 * got["mean of training"]
    assert got["relative"] < 0.8


def test_a_folder_of_meshes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyvista = pytest.importorskip("pyvista")
    monkeypatch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    path = example("own_meshes").main(tmp_path, count=20, nodes=10, fit=("--epochs", "8"))
    predicted = pyvista.read(path)
    names = ("displacement", "stress")
    assert {*names, *(f"{n}_predicted" for n in names), *(f"{n}_error" for n in names)} <= set(
        predicted.point_data
    )
    np.testing.assert_allclose(
        predicted["stress_error"], predicted["stress_predicted"] - predicted["stress"], rtol=1e-5
    )
    run = tmp_path / "runs" / "plates"
    assert (run / "report.html").exists()
    assert (tmp_path / "plates.png").exists()
    yardsticks = json.loads((run / "yardsticks.json").read_text())
    error = json.loads((run / "record.json").read_text())["test"]["error"]
    assert error < yardsticks["mean of training"]["error"]


@pytest.mark.full
def test_the_arrays_as_they_stand() -> None:
    assert example("own_arrays").main()["relative"] < 0.1


@pytest.mark.full
def test_the_tutorial_of_meshes_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyvista")
    monkeypatch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    example("own_meshes").main(tmp_path)
    run = tmp_path / "runs" / "plates"
    yardsticks = json.loads((run / "yardsticks.json").read_text())
    error = json.loads((run / "record.json").read_text())["test"]["error"]
    assert error < min(each["error"] for each in yardsticks.values())
    note = json.loads((run / "surrogate.json").read_text())
    assert sum(len(names) for names in note["cases"].values()) == 60
