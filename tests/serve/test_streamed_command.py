"""`funcattn predict --streamed`: from files larger than memory to a file."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from funcattn import cli
from funcattn.data import Store, grid_positions
from funcattn.serve import load
from funcattn.settings import changed
from funcattn.tasks.darcy import Darcy
from funcattn.training.run import train

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Path:
    changes = {"optimisation": {"epochs": 1}, "network": {"reach": None}}
    folder = tmp_path_factory.mktemp("runs") / "points"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        train(changed(Darcy.defaults("smoke", "modern"), changes), folder, store=store)
    return folder


@pytest.fixture
def mesh(tmp_path: Path) -> dict[str, Any]:
    """Arrays, and a folder `mesh` with the same in files."""
    positions = grid_positions((9, 9)).numpy()
    values = np.where(positions[:, :1] > 0.4, 3.0, 12.0)
    arrays = {"positions": positions, "values": values, "weights": positions[:, 0] + 0.5}
    (tmp_path / "mesh").mkdir()
    for name, array in arrays.items():
        np.save(tmp_path / "mesh" / f"{name}.npy", array)
    return arrays


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Call:
    """The command in this process: exit code, what it printed, what it complained of."""
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)

    def called(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["funcattn", *map(str, arguments)])
        code: Any = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return called


@pytest.mark.parametrize("more", [(), ("--scratch", ".")], ids=["recomputed", "scratch file"])
def test_a_mesh_in_files_is_predicted_into_a_file(
    call: Call, run: Path, mesh: dict[str, Any], tmp_path: Path, more: tuple[str, ...]
) -> None:
    code, out, err = call("predict", run, "mesh", "-o", "out.npy", "--streamed", *more)
    assert code == 0, err
    assert "out.npy: prediction" in out
    expected = load(run).predict(**mesh)
    np.testing.assert_allclose(np.load("out.npy"), expected, rtol=1e-5, atol=1e-7)
    assert {path.name for path in tmp_path.iterdir()} == {"mesh", "out.npy"}


@pytest.mark.usefixtures("mesh")
def test_weights_of_training_are_not_forgotten(call: Call, run: Path) -> None:
    Path("mesh/weights.npy").unlink()
    code, _, err = call("predict", run, "mesh", "-o", "out.npy", "--streamed")
    assert code == 1
    assert (
        "weights: expected the quadrature weights of the points, as darcy was trained with" in err
    )
    assert not Path("out.npy").exists()


@pytest.mark.usefixtures("as_a_user", "mesh")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("mesh", "-o", "out.npz", "--streamed"), "out: expected a name that ends in .npy"),
        (("nowhere", "-o", "out.npy", "--streamed"), "positions.npy"),
        (("mesh", "-o", "there/out.npy", "--streamed"), "there/out.npy: expected a folder"),
        (("mesh", "-o", "out.npy", "--streamed", "--scratch", "there"), "No such file"),
        (("mesh", "-o", "out.npz", "--scratch", "."), "--scratch: expected --streamed with it"),
    ],
)
def test_what_cannot_be_done_is_reported_in_one_line(
    call: Call, run: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    code, _, err = call("predict", run, *arguments)
    assert code == 1
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"mesh"}
