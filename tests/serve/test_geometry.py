"""Answers in another form than the question's: meshes as JSON, drawn inputs as meshes."""

import numpy as np
from starlette.testclient import TestClient

from funcattn.data.cases.case import Cells
from funcattn.serve.geometry import triangles

VTU = "application/vnd.vtk"


def test_parameters_are_answered_as_a_mesh_and_the_mesh_as_json(client: TestClient) -> None:
    asked = {"parameters": {"angle": 1.0}}
    plain = client.post("/models/waves/predict", json=asked).json()
    file = client.post("/models/waves/predict", json=asked, headers={"Accept": VTU})
    assert file.headers["content-type"] == VTU
    headers = {"Content-Type": VTU, "Accept": "application/json"}
    again = client.post(
        "/models/waves/predict?set=angle=1", content=file.content, headers=headers
    ).json()
    assert np.shape(plain["positions"]) == np.shape(again["positions"]) == (30, 2)
    np.testing.assert_allclose(again["positions"], plain["positions"], rtol=1e-6)
    np.testing.assert_allclose(
        again["outputs"]["height"], plain["outputs"]["height"], rtol=1e-4, atol=1e-6
    )


def test_a_benchmark_has_no_mesh_to_give(client: TestClient) -> None:
    values = np.full((4, 4), 3.0).tolist()
    reply = client.post(
        "/models/darcy/predict",
        json={"parameters": {"permeability": values}},
        headers={"Accept": VTU},
    )
    assert reply.status_code == 422
    assert "own data" in reply.json()["detail"]


def test_quadrilaterals_are_halved_and_only_the_outside_of_tetrahedra_is_drawn() -> None:
    quad = Cells(np.arange(4), np.array([0, 4]), np.array([9]))
    assert triangles(quad).tolist() == [[0, 1, 2], [0, 2, 3]]
    # Two tetrahedra on both sides of the face 1 2 3.
    pair = Cells(np.array([0, 1, 2, 3, 4, 1, 2, 3]), np.array([0, 4, 8]), np.array([10, 10]))
    faces = {tuple(sorted(each)) for each in triangles(pair).tolist()}
    assert len(faces) == 6
    assert (1, 2, 3) not in faces
