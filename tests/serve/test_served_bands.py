"""Bands and the score of unlike inputs, over HTTP: as `Predictor` and `Surrogate` have them."""

import io
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from funcattn import load
from funcattn.data.cases.meshes import read_mesh
from funcattn.fitting.served import served
from funcattn.serve.familiar import OutsideTrainingWarning

VTU, NPZ = "application/vnd.vtk", "application/x-npz"


@pytest.fixture
def asked(client: TestClient) -> dict[str, Any]:
    sample = client.get("/models/banded").json()["sample"]
    return {name: sample[name] for name in ("positions", "values", "grid")}


@pytest.fixture
def truth(banded_run: Path, asked: dict[str, Any]) -> Any:
    positions, values = (np.array(asked[name]) for name in ("positions", "values"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OutsideTrainingWarning)  # a default may be an odd one
        return load(banded_run).bands(positions, values, grid=asked["grid"])


def test_a_calibrated_run_answers_with_its_band(
    client: TestClient, banded_run: Path, asked: dict[str, Any], truth: Any
) -> None:
    described = client.get("/models/banded").json()["bands"]
    assert described["coverage"] == 0.8
    assert "80 % of new samples" in described["words"]
    found = client.post("/models/banded/predict", json=asked).json()
    for part, expected in zip(("outputs", "lower", "upper"), truth, strict=True):
        np.testing.assert_array_equal(np.float32(found[part]["pressure"]), expected[:, 0])
    assert np.all(truth.lower < truth.upper)
    positions, values = (np.array(asked[name]) for name in ("positions", "values"))
    (score,) = load(banded_run).familiarity(positions, values, grid=asked["grid"])
    assert found["unlike"] == pytest.approx(score.worst)


def test_files_have_the_ends_beside_the_prediction(
    client: TestClient, asked: dict[str, Any], truth: Any
) -> None:
    body = io.BytesIO()
    np.savez(body, **{name: np.array(array) for name, array in asked.items()})
    reply = client.post(
        "/models/banded/predict", content=body.getvalue(), headers={"content-type": NPZ}
    )
    headers = {"content-type": NPZ, "accept": "application/json"}
    shown = client.post("/models/banded/predict", content=body.getvalue(), headers=headers).json()
    assert shown["positions"] == asked["positions"]
    assert shown["grid"] == asked["grid"]
    arrays = np.load(io.BytesIO(reply.content))
    names = ("prediction", "prediction_lower", "prediction_upper")
    for name, expected in zip(names, truth, strict=True):
        np.testing.assert_array_equal(arrays[name], expected)


def test_a_mesh_of_ones_own_gets_the_ends_too(
    service_of: Callable[..., TestClient], own_run: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(own_run, tmp_path / "calm")
    mesh = np.load(folder / "positions.npy")[None]
    angles = np.linspace(0.1, 1.9, 9)
    surrogate = load(folder)
    surrogate.calibrate(
        0.8,
        None,
        {"height": np.cos(angles[:, None] + mesh[..., 0])},
        positions=mesh.repeat(9, axis=0),
        parameters={"angle": angles},
    )
    truth = surrogate.bands(positions=mesh, parameters={"angle": np.array([1.0])})
    asked = {"parameters": {"angle": 1.0}}
    with service_of({"calm": served(folder)}) as client:
        reply = client.post("/models/calm/predict", json=asked, headers={"Accept": VTU})
        found = client.post("/models/calm/predict", json=asked).json()
    (tmp_path / "answer.vtu").write_bytes(reply.content)
    case = read_mesh(tmp_path / "answer.vtu")
    parts = (("predicted", "outputs"), ("lower", "lower"), ("upper", "upper"))
    for (name, part), expected in zip(parts, truth, strict=True):
        height = np.ravel(expected["height"])
        np.testing.assert_allclose(np.ravel(case[f"height_{name}"]), height, rtol=1e-6)
        np.testing.assert_allclose(found[part]["height"], height, rtol=1e-6)


def test_an_input_unlike_the_training_data_is_warned_about(
    client: TestClient, banded_run: Path
) -> None:
    far = {"parameters": {"permeability": [[60, 90], [75, 80]]}}
    found = client.post("/models/banded/predict", json=far).json()
    assert found["unlike"] > 1
    assert any("unlike the training data" in words for words in found["warnings"])
    drawn = client.post("/models/banded/input", json=far).json()
    positions, values = (np.array(drawn[name]) for name in ("positions", "values"))
    with (
        pytest.warns(OutsideTrainingWarning, match="is asked at 60 to 90"),
        pytest.warns(OutsideTrainingWarning, match="unlike the training data"),
    ):
        load(banded_run).predict(positions, values, grid=drawn["grid"])
    two = {"positions": [positions.tolist()] * 2, "values": [values.tolist()] * 2}
    many = client.post("/models/banded/predict", json=two | {"grid": drawn["grid"]}).json()
    assert len(many["unlike"]) == 2
    assert sum(words.startswith("sample 1: unlike") for words in many["warnings"]) == 1


def test_a_finer_drawing_is_as_like_the_training_data_as_a_coarse_one(
    client: TestClient, banded_run: Path
) -> None:
    asked = {"parameters": {"permeability": [[3, 12], [12, 3]]}}
    coarse, fine = (
        client.post("/models/banded/predict", json=asked | {"refine": refine}).json()
        for refine in (1, 2)
    )
    assert len(fine["lower"]["pressure"]) > len(coarse["lower"]["pressure"])
    assert fine["unlike"] == pytest.approx(coarse["unlike"], rel=0.05)
    drawn = client.post("/models/banded/input", json=asked | {"refine": 2}).json()
    positions, values = (np.array(drawn[name]) for name in ("positions", "values"))
    (score,) = load(banded_run).familiarity(positions, values, grid=drawn["grid"])
    assert fine["unlike"] == pytest.approx(score.worst)


def test_a_run_without_calibration_has_none(client: TestClient) -> None:
    assert client.get("/models/darcy").json()["bands"] is None
    asked = {"parameters": {"permeability": [[3, 12], [3, 3]]}}
    found = client.post("/models/darcy/predict", json=asked).json()
    assert not found.keys() & {"lower", "upper", "unlike"}
