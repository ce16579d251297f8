"""Runs on own data of other kinds than steady fields: labels, and series; and surfaces in space."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from funcattn.data.cases import Case, write_case
from funcattn.data.cases.case import Cells
from funcattn.data.cases.meshes import read_mesh
from funcattn.fitting.served import served
from funcattn.surrogate import Surrogate

VTU, NPZ = "application/vnd.vtk", "application/x-npz"
SMALL = {"width": 8, "layers": 1, "bases": 4}


@pytest.fixture
def serve(service_of: Callable[..., TestClient], tmp_path: Path) -> Callable[..., TestClient]:
    """A service of a surrogate, under the name `mine`."""

    def made(surrogate: Surrogate) -> TestClient:
        return service_of({"mine": served(surrogate.save(tmp_path / "mine"))})

    return made


def quick(**more: Any) -> Surrogate:
    return Surrogate(epochs=1, network=SMALL, yardsticks=False, **more)


def test_labels_are_answered_as_labels(serve: Callable[..., TestClient], tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    positions = [random.uniform(size=(20 + i, 2)) for i in range(8)]
    labels = [(points[:, 0] > 0.5).astype(np.int64) + 3 for points in positions]
    surrogate = quick().fit(None, labels, positions=positions)
    (truth,) = surrogate.predict(positions=positions[:1])
    name = surrogate.data.outputs[0].name
    with serve(surrogate) as client:
        described = client.get("/models/mine").json()
        assert described["outputs"][0]["channels"] == 1
        assert described["outputs"][0]["labels"] == [3, 4]
        assert described["editor"]["kind"] == "upload"
        asked = {"positions": positions[0].tolist()}
        found = client.post("/models/mine/predict", json=asked).json()["outputs"][name]
        assert found == truth.tolist()
        write_case(tmp_path / "in.vtu", Case("in", positions[0]))
        reply = client.post(
            "/models/mine/predict",
            content=(tmp_path / "in.vtu").read_bytes(),
            headers={"content-type": VTU},
        )
    (tmp_path / "out.vtu").write_bytes(reply.content)
    out = read_mesh(tmp_path / "out.vtu")
    np.testing.assert_array_equal(np.ravel(out[f"{name}_predicted"]), truth)


@pytest.mark.parametrize("time", ["steps", "times"])
def test_a_series_is_sent_and_answered_as_a_file(
    serve: Callable[..., TestClient], tmp_path: Path, time: Any
) -> None:
    random = np.random.default_rng(0)
    start = random.normal(size=(10, 6))
    times = np.linspace(0, 1, 5)
    series = start[..., None] * np.exp(-times)  # (N n t)
    given = None if time == "steps" else {"begin": start}
    surrogate = quick(time=time).fit(given, {"state": series}, grid=(6,), times=times)
    known = (
        {"state": series[0][:, :1]}
        if time == "steps"
        else {"begin": np.repeat(start[0][:, None], 5, 1)}
    )
    told = times[:1] if time == "steps" else times
    case = Case("one", np.linspace(0, 1, 6)[:, None], known, times=told, grid=(6,))
    truth = surrogate.predict(case)["state"]
    write_case(tmp_path / "in.npz", case)
    body = (tmp_path / "in.npz").read_bytes()
    with serve(surrogate) as client:
        described = client.get("/models/mine").json()
        assert described["frames"] == surrogate.data.frames
        file = client.post("/models/mine/predict", content=body, headers={"content-type": NPZ})
        assert file.status_code == 200, file.text
        headers = {"content-type": NPZ, "accept": "application/json"}
        plain = client.post("/models/mine/predict", content=body, headers=headers).json()
        refused = client.post(
            "/models/mine/predict", content=body, headers=headers | {"accept": VTU}
        )
    answered = np.load(io.BytesIO(file.content))["state_predicted"]
    np.testing.assert_allclose(np.squeeze(answered), np.squeeze(truth), rtol=1e-6)
    np.testing.assert_allclose(plain["outputs"]["state"], np.squeeze(truth).T, rtol=1e-6)
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith("body: expected one time in a .vtu")


def test_a_surface_in_space_comes_back_with_its_triangles(
    serve: Callable[..., TestClient], tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], float)
    faces = [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]]
    cells = Cells(np.ravel(faces), np.arange(0, 13, 3), np.full(4, 5))
    cases = [
        Case(f"{i}", corners * size, {"heat": size * corners[:, 0]}, cells=cells)
        for i, size in enumerate(random.uniform(1, 2, 8))
    ]
    surrogate = quick().fit(cases, ["heat"])
    write_case(tmp_path / "in.vtu", Case("in", 1.5 * corners, cells=cells))
    with serve(surrogate) as client:
        found = client.post(
            "/models/mine/predict",
            content=(tmp_path / "in.vtu").read_bytes(),
            headers={"content-type": VTU, "accept": "application/json"},
        ).json()
    assert found["triangles"] == faces
    assert np.shape(found["positions"]) == (4, 3)
    assert len(found["outputs"]["heat"]) == 4
