"""What the service shows of a network: a basis where one is learned, else what a grid has."""

from pathlib import Path

import numpy as np
import pytest
from tests.serve.conftest import untrained_run

from funcattn.fitting.served import served
from funcattn.serve.inside import looked_inside


def test_blocks_on_a_grid_show_their_waves_and_the_last_its_metric(tmp_path: Path) -> None:
    model = served(untrained_run("darcy", tmp_path / "darcy", "functional_operator"))
    assert model.layers == 2
    assert model.editor is not None
    question = model.asked({"parameters": model.editor.default()})
    first, last = (model.inspected(question, layer, 0) for layer in (0, 1))
    assert first["gains"].shape == last["gains"].shape == (4, 4)
    assert "coefficient" not in first
    assert last["coefficient"].shape == (question.batch.positions.shape[1],)
    assert np.all(last["coefficient"] > 0)
    assert last["map"].shape == (16, 16)
    np.testing.assert_allclose(last["map"], last["map"].T, rtol=1e-4, atol=1e-6)
    assert np.all(np.linalg.eigvalsh(last["map"].astype(float)) > 0)
    assert "no layer has a learned basis" in first["about"]
    assert "coefficient" in last["about"]
    for wrong in ((2, 0), (0, 1), (-1, 0)):
        with pytest.raises(ValueError, match="expected 0 to"):
            model.inspected(question, *wrong)


def test_blocks_on_a_circle_show_their_waves(tmp_path: Path) -> None:
    model = served(untrained_run("burgers", tmp_path / "burgers", "functional_operator"))
    assert model.editor is not None
    question = model.asked({"parameters": model.editor.default()})
    found = model.inspected(question, 0, 0)
    assert found["gains"].shape == (4,)
    assert not found["along_axes"]
    assert found["map"] is None


def test_blocks_on_a_torus_show_the_waves_of_each_axis(tmp_path: Path) -> None:
    model = served(untrained_run("navier_stokes", tmp_path / "flow", "functional_operator"))
    assert model.editor is not None
    found = model.inspected(model.asked({"parameters": model.editor.default()}), 0, 0)
    assert found["gains"].shape == (2, 4)
    assert found["along_axes"]


def test_a_partition_without_a_solve_says_that_it_has_no_map(tmp_path: Path) -> None:
    model = served(untrained_run("elasticity", tmp_path / "elasticity", "functional_operator"))
    assert model.editor is not None
    found = model.inspected(model.asked({"parameters": model.editor.default()}), 0, 0)
    assert found["basis"].shape[1] == 972
    assert found["map"] is None
    assert "no map C" in found["about"]


def test_other_networks_say_that_they_have_no_layers(tmp_path: Path) -> None:
    model = served(untrained_run("darcy", tmp_path / "darcy", "fno"))
    assert model.layers == 0
    with pytest.raises(ValueError, match="a network whose layers have a basis"):
        looked_inside(model.run.network, lambda: None, 0, 0)
