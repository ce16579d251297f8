"""The service, asked in this process."""

import base64
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from starlette.testclient import TestClient

from funcattn import load
from funcattn.data.cases import Case, read_mesh, write_case
from funcattn.serve.drawn import EDITORS
from funcattn.serve.limits import Access, Limits
from funcattn.serve.model import ServedModel

NPZ, HDF5, VTK = "application/x-npz", "application/x-hdf5", "application/vnd.vtk"


def array(packed: Mapping[str, Any]) -> Any:
    kinds = {"float32": "<f4", "int32": "<i4"}
    raw = base64.b64decode(packed["data"])
    return np.frombuffer(raw, kinds[packed["dtype"]]).reshape(packed["shape"])


def events_of(client: TestClient, job: str) -> list[tuple[str, dict[str, Any]]]:
    said = client.get(f"/jobs/{job}/events?arrays=base64").text
    found = []
    for block in said.strip().split("\n\n"):
        name, data = block.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def test_all_models_are_listed_and_described(client: TestClient) -> None:
    listed = client.get("/models").json()["models"]
    assert [each["name"] for each in listed] == [*EDITORS, "waves", "banded"]
    for each in listed:
        found = client.get(f"/models/{each['name']}").json()
        assert found["kind"] == each["kind"]
        assert found["outputs"]
        assert found["limits"]["points"] == Limits().points
        if each["name"] != "waves":
            assert found["sample"]["positions"]
    kinds = {each["name"]: each["kind"] for each in listed}
    assert kinds["darcy"] == "grid"
    assert kinds["burgers"] == "series"
    assert kinds["elasticity"] == "cloud"
    assert kinds["navier_stokes"] == kinds["plasticity"] == "frames"
    assert (kinds["few_shot"], kinds["waves"]) == ("few_shot", "own")


@pytest.mark.parametrize("name", list(EDITORS))
def test_a_prediction_is_that_of_predict_to_the_bit(
    client: TestClient, runs: Mapping[str, Path], name: str
) -> None:
    # As lists, which have all digits; base64 is in single precision.
    sample = client.get(f"/models/{name}").json()["sample"]
    reply = client.post(
        f"/models/{name}/predict?arrays=base64", json={"parameters": sample["parameters"]}
    )
    assert reply.status_code == 200, reply.text
    found = reply.json()
    editor = EDITORS[name](json.loads((runs[name] / "settings.json").read_text())["data"])
    drawing = editor.draw(editor.default(), 1)
    truth = load(runs[name]).predict(
        drawing.positions, drawing.values, context=drawing.context, grid=drawing.grid
    )
    outputs = [array(each) for each in found["outputs"].values()]
    n = len(drawing.positions)
    columns = [each[..., None] if each.shape[-1] == n else each for each in outputs]
    together = np.concatenate(columns, axis=-1)
    if together.ndim == 3:  # (t n c) -> (n t c)
        together = together.swapaxes(0, 1)
    np.testing.assert_array_equal(together.reshape(truth.shape), truth)
    assert found["grid"] == (None if drawing.grid is None else list(drawing.grid))


def test_arrays_go_as_lists_and_as_base64(client: TestClient) -> None:
    sample = client.get("/models/darcy").json()["sample"]
    asked = {name: sample[name] for name in ("positions", "values", "grid")}
    plain = client.post("/models/darcy/predict", json=asked).json()
    values = np.asarray(sample["values"], "<f4")
    asked["values"] = {
        "dtype": "float32",
        "shape": list(values.shape),
        "data": base64.b64encode(values.tobytes()).decode(),
    }
    packed = client.post("/models/darcy/predict?arrays=base64", json=asked).json()
    np.testing.assert_array_equal(
        np.asarray(plain["outputs"]["pressure"], np.float32), array(packed["outputs"]["pressure"])
    )
    assert plain["seconds"] > 0


def test_an_input_out_of_range_is_answered_with_a_warning(client: TestClient) -> None:
    asked = {"parameters": {"permeability": [[3.0, 100.0], [3.0, 3.0]]}}
    found = client.post("/models/darcy/predict", json=asked).json()
    assert "trained on 3 to 12 and is asked at 3 to 100" in found["warnings"][0]
    asked = {"parameters": {"permeability": [[3.0, 12.0], [3.0, 3.0]]}}
    assert client.post("/models/darcy/predict", json=asked).json()["warnings"] == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "expected JSON"),
        (b"[1, 2]", "expected"),
        (b"{" * 100_000, "expected JSON"),
        (b'{"parameters": 3}', "parameters: expected names"),
        (b'{"positions": [[0, 0]]}', "values: expected (1, 1, 1)"),
        (b'{"positions": "../../etc/passwd"}', "expected an array of numbers"),
        (b'{"positions": [[NaN, 0]], "values": [[1]], "grid": [1, 1]}', "finite"),
        (b'{"positions": [[0, 0]], "values": [[1]], "grid": [5, 1]}', "grid: expected 2 axis"),
        (b'{"positions": [[0, 0]], "values": [[1e300]], "grid": [1, 1]}', "expected"),
        (b'{"path": "x"}', "body: expected one of"),
        (b'{"parameters": {}, "refine": 3}', "refine: expected one of"),
        (b'{"parameters": {"permeability": {"dtype": "O", "shape": [1], "data": ""}}}', "dtype"),
    ],
)
def test_a_malformed_request_is_refused_in_our_words(
    client: TestClient, body: bytes, words: str
) -> None:
    reply = client.post(
        "/models/darcy/predict", content=body, headers={"content-type": "application/json"}
    )
    assert reply.status_code == 422
    assert words in reply.json()["detail"]


def test_unknown_names_and_kinds_are_refused(client: TestClient) -> None:
    assert client.get("/models/nothing").status_code == 404
    assert client.get("/models/..%2F..%2Fetc").status_code == 404
    assert client.get("/static/../app.py").status_code == 404
    assert client.get("/static/%2e%2e/app.py").status_code == 404
    assert client.get("/jobs/../events").status_code == 404
    assert client.delete("/jobs/0123").status_code == 404
    pickled = client.post(
        "/models/darcy/predict",
        content=b"\x80\x04.",
        headers={"content-type": "application/python-pickle"},
    )
    assert pickled.status_code == 422
    assert "Content-Type: expected" in pickled.json()["detail"]


def npz(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def hdf5(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        for name, values in arrays.items():
            file[name] = values
    return stream.getvalue()


@pytest.mark.parametrize(("kind", "write"), [(NPZ, npz), (HDF5, hdf5)])
def test_a_file_of_arrays_is_answered_in_kind(
    client: TestClient, runs: Mapping[str, Path], tmp_path: Path, kind: str, write: Any
) -> None:
    sample = client.get("/models/darcy").json()["sample"]
    arrays = {name: np.array(sample[name]) for name in ("positions", "values", "grid")}
    reply = client.post(
        "/models/darcy/predict", content=write(**arrays), headers={"content-type": kind}
    )
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == kind
    assert json.loads(reply.headers["x-funcattn-warnings"]) == []
    (tmp_path / "answer").write_bytes(reply.content)
    if kind == NPZ:
        with np.load(tmp_path / "answer") as file:
            found = file["prediction"]
    else:
        with h5py.File(tmp_path / "answer") as file:
            found = np.array(file["prediction"])
    truth = load(runs["darcy"]).predict(arrays["positions"], arrays["values"], grid=(9, 9))
    np.testing.assert_array_equal(found, truth)


def test_a_file_with_objects_or_damage_is_refused(client: TestClient, tmp_path: Path) -> None:
    whole = npz(positions=np.zeros((4, 2)))
    objects = npz(positions=np.array([{"a": 1}, None], object))
    for kind, body in (
        (NPZ, objects),
        (NPZ, whole[:-30]),
        (NPZ, b""),
        (HDF5, b"\x89HDF\r\n\x1a\n" + bytes(100)),
        (VTK, b"<VTKFile><a/></VTKFile>"),
    ):
        reply = client.post("/models/darcy/predict", content=body, headers={"content-type": kind})
        assert reply.status_code == 422, (kind, reply.text)
        assert reply.json()["detail"].startswith("body")
        assert str(tmp_path) not in reply.text
        assert "/tmp" not in reply.text


def test_a_mesh_is_answered_with_its_predicted_field(client: TestClient, tmp_path: Path) -> None:
    positions = np.random.default_rng(0).uniform(size=(30, 2))
    write_case(tmp_path / "in.vtu", Case("in", positions, parameters={"angle": 1.0}))
    body = (tmp_path / "in.vtu").read_bytes()
    reply = client.post("/models/waves/predict", content=body, headers={"content-type": VTK})
    assert reply.status_code == 200, reply.text
    (tmp_path / "out.vtu").write_bytes(reply.content)
    answered = read_mesh(tmp_path / "out.vtu")
    asked = {"positions": positions.tolist(), "parameters": {"angle": 1.0}}
    found = client.post("/models/waves/predict", json=asked).json()
    np.testing.assert_allclose(
        np.ravel(answered["height_predicted"]), found["outputs"]["height"], atol=1e-6
    )
    # The file's own number wins over a default, and a setting over both.
    headers = {"content-type": VTK}
    default = client.post("/models/waves/predict?default=angle=0", content=body, headers=headers)
    assert default.content == reply.content
    set_ = client.post("/models/waves/predict?set=angle=0", content=body, headers=headers)
    assert set_.content != reply.content
    # A number that the file does not have is given beside it.
    write_case(tmp_path / "in.vtu", Case("in", positions))
    body = (tmp_path / "in.vtu").read_bytes()
    assert client.post("/models/waves/predict", content=body, headers=headers).status_code == 422
    again = client.post("/models/waves/predict?set=angle=1", content=body, headers=headers)
    assert again.status_code == 200, again.text
    default = client.post("/models/waves/predict?default=angle=1", content=body, headers=headers)
    assert default.content == again.content
    wrong = client.post("/models/waves/predict?set=angel=1", content=body, headers=headers)
    assert "did you mean angle" in wrong.json()["detail"]


def test_a_run_on_own_data_has_sliders(client: TestClient, own_run: Path) -> None:
    form = client.get("/models/waves").json()["editor"]
    assert form["kind"] == "sliders"
    (slider,) = form["sliders"]
    assert slider["name"] == "angle"
    assert 0.0 <= slider["min"] < slider["max"] <= 2.0
    found = client.post("/models/waves/predict", json={"parameters": {"angle": 1.5}}).json()
    mesh = np.load(own_run / "positions.npy")[None]
    truth = load(own_run).predict(positions=mesh, parameters={"angle": np.array([1.5])})
    truth = truth["height"][0]
    np.testing.assert_array_equal(np.float32(found["outputs"]["height"]), np.float32(truth))
    far = client.post("/models/waves/predict", json={"parameters": {"angle": 50.0}}).json()
    assert "angle is 50" in far["warnings"][0]
    wrong = client.post("/models/waves/predict", json={"parameters": {"angel": 1}})
    assert wrong.status_code == 422


def test_a_layer_shows_its_basis_and_map(client: TestClient) -> None:
    described = client.get("/models/elasticity").json()
    asked = {"parameters": {"radii": [0.3] * 11}, "layer": 1, "head": 1}
    found = client.post("/models/elasticity/inspect", json=asked).json()
    assert found["layers"] == described["layers"] == 2
    assert found["heads"] == 2
    basis, transported = np.array(found["basis"]), np.array(found["map"])
    assert basis.shape == (8, 972)
    assert transported.shape == (8, 8)
    np.testing.assert_allclose(basis.sum(0), 1.0, atol=1e-5)  # a partition of unity
    for wrong in ({"layer": 2}, {"head": 2}, {"layer": "a"}, {"head": -1}):
        reply = client.post("/models/elasticity/inspect", json=asked | wrong)
        assert reply.status_code == 422


def test_fewer_observations_than_in_training_are_warned_about(client: TestClient) -> None:
    sample = client.get("/models/few_shot").json()["sample"]["parameters"]
    asked = {"parameters": {"observations": sample["observations"]}}
    assert client.post("/models/few_shot/predict", json=asked).json()["warnings"] == []
    asked["parameters"]["observations"] = sample["observations"][:3]
    found = client.post("/models/few_shot/predict", json=asked).json()["warnings"]
    assert "is given 3" in found[0]


def test_a_job_tells_its_progress_and_its_answer(client: TestClient) -> None:
    asked = {"parameters": {"radii": [0.3] * 11}}
    begun = client.post("/models/elasticity/solve", json=asked)
    assert begun.status_code == 202
    events = events_of(client, begun.json()["job"])
    assert {name for name, _ in events[:-1]} == {"progress"}
    done = [data["done"] for _, data in events[:-1]]
    assert done == sorted(done)
    name, found = events[-1]
    assert name == "result"
    editor = EDITORS["elasticity"]({})
    truth = editor.solve(asked["parameters"], 1, lambda done: None)  # noqa: ARG005
    np.testing.assert_allclose(
        array(found["outputs"]["von Mises stress"]), truth["von Mises stress"], rtol=1e-6
    )
    assert array(found["positions"]).shape == (972, 2)
    assert found["seconds"] > 0
    # Asked again, it tells the same.
    assert events_of(client, begun.json()["job"])[-1][0] == "result"


def test_a_job_can_be_cancelled_and_jobs_are_bounded(
    models: Mapping[str, ServedModel], service_of: Callable[..., TestClient]
) -> None:
    with service_of(models, Limits(jobs=1, seconds=300.0)) as client:
        long = {"parameters": {"heights": [0, 8, 0, 8, 0, 8, 0, 8]}, "refine": 4}
        begun = client.post("/models/plasticity/solve", json=long)
        assert begun.status_code == 202
        crowded = client.post("/models/plasticity/solve", json=long)
        assert crowded.status_code == 503
        assert int(crowded.headers["retry-after"]) >= 1
        job = begun.json()["job"]
        assert client.delete(f"/jobs/{job}").status_code == 204
        assert events_of(client, job)[-1] == ("error", {"detail": "cancelled"})


def test_a_solver_that_fails_says_why(client: TestClient) -> None:
    steep = np.where(np.arange(1024) % 64 < 32, 1e4, -1e4).tolist()
    begun = client.post("/models/burgers/solve", json={"parameters": {"initial": steep}})
    name, data = events_of(client, begun.json()["job"])[-1]
    assert name == "error"
    assert "expected an error of at most" in data["detail"]
    none = client.post("/models/few_shot/solve", json={"parameters": {"observations": [[0, 0]]}})
    assert none.status_code == 422


def test_limits_on_size(
    models: Mapping[str, ServedModel], service_of: Callable[..., TestClient]
) -> None:
    with service_of(models, Limits(points=100, body=10_000, seconds=300.0)) as client:
        large = client.post("/models/darcy/predict", content=bytes(20_000))
        assert large.status_code == 413

        def pieces() -> Any:
            for _ in range(20):
                yield bytes(1000)

        assert client.post("/models/darcy/predict", content=pieces()).status_code == 413
        asked = {"parameters": {"permeability": [[3, 12], [3, 3]]}}
        assert client.post("/models/darcy/predict", json=asked).status_code == 200
        many = client.post("/models/darcy/predict", json=asked | {"refine": 4})
        assert many.status_code == 422
        assert "expected at most 100, got" in many.json()["detail"]
        assert client.post("/models/darcy/input", json=asked | {"refine": 4}).status_code == 422


def test_a_token_is_asked_for(
    models: Mapping[str, ServedModel], service_of: Callable[..., TestClient]
) -> None:
    with service_of(models, access=Access(token="a secret")) as client:
        for path in ("/health", "/docs", "/openapi.json", "/"):
            assert client.get(path).status_code == 200
        for given in ({}, {"authorization": "Bearer no"}, {"authorization": "Basic a secret"}):
            reply = client.get("/models", headers=given)
            assert reply.status_code == 401
            assert reply.headers["www-authenticate"] == "Bearer"
        allowed = client.get("/models", headers={"authorization": "Bearer a secret"})
        assert allowed.status_code == 200
        assert client.get("/metrics").status_code == 401


def test_pages_of_other_hosts_are_refused_unless_allowed(
    models: Mapping[str, ServedModel], service_of: Callable[..., TestClient]
) -> None:
    ours = Access(origins=("https://lab.example",), hosts=("localhost",))
    with service_of(models, access=ours) as client:
        assert client.get("/models", headers={"origin": "http://localhost"}).status_code == 200
        refused = client.post(
            "/models/darcy/random", json={}, headers={"origin": "https://evil.example"}
        )
        assert refused.status_code == 403
        assert "access-control-allow-origin" not in refused.headers
        assert client.get("/models", headers={"origin": "null"}).status_code == 403
        allowed = client.get("/models", headers={"origin": "https://lab.example"})
        assert allowed.headers["access-control-allow-origin"] == "https://lab.example"
        before = client.options("/models", headers={"origin": "https://lab.example"})
        assert before.status_code == 204
        # A name of another host that leads here is no way in either.
        assert client.get("/models", headers={"host": "evil.example"}).status_code == 403


def test_pages_ask_nothing_of_other_hosts(client: TestClient) -> None:
    for path in ("/docs", "/"):
        page = client.get(path)
        assert page.status_code == 200
        assert "default-src 'self'" in page.headers["content-security-policy"]
        for word in ("http://", "https://", 'src="//'):
            outside = page.text.replace("http://www.w3.org", "")
            assert word not in outside
    described = client.get("/openapi.json").json()
    for path in ("/models/{name}/predict", "/jobs/{job}/events", "/health"):
        assert path in described["paths"]
        assert path in client.get("/docs").text


def test_metrics_count_requests(client: TestClient) -> None:
    client.get("/health")
    client.post("/models/darcy/predict", json={})
    asked = {"parameters": {"permeability": [[3, 12], [3, 3]]}}
    client.post("/models/darcy/predict", json=asked)
    text = client.get("/metrics").text
    line = 'funcattn_requests_total{method="POST",route="/models/{name}/predict",status="%d"} 1.0'
    assert line % 200 in text
    assert line % 422 in text
    assert "funcattn_batch_questions_count 1.0" in text
    assert "funcattn_questions 0.0" in text
