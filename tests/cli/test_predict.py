"""`funcattn predict`: files in, files out, and what it refuses."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tests.cli.conftest import Call, Refused

from funcattn.data import grid_positions
from funcattn.serve import load
from funcattn.serve.familiar import OutsideTrainingWarning


@pytest.mark.parametrize(("given", "wanted"), [("npz", "npz"), ("h5", "h5"), ("npz", "hdf5")])
def test_predict_reads_and_writes_files(
    call: Call, run: Path, tmp_path: Path, given: str, wanted: str
) -> None:
    positions = np.stack([grid_positions((9, 9)).numpy()] * 2)
    values = np.where(positions[..., :1] > 0.4, 3.0, 12.0)
    arrays = {"positions": positions, "values": values, "grid": np.array([9, 9])}
    source, target = tmp_path / f"in.{given}", tmp_path / f"out.{wanted}"
    if given == "npz":
        np.savez(source, **arrays)
    else:
        with h5py.File(source, "w") as file:
            for name, array in arrays.items():
                file[name] = array
    code, out, err = call("predict", run, source, "-o", target)
    assert code == 0, err
    assert "prediction (2, 81, 1)" in out
    if wanted == "npz":
        with np.load(target) as file:
            got = file["prediction"]
    else:
        with h5py.File(target) as file:
            got = np.asarray(file["prediction"])
    np.testing.assert_array_equal(got, load(run).predict(positions, values, grid=(9, 9)))
    assert {path.name for path in tmp_path.iterdir()} == {source.name, target.name}


def test_predict_warns_and_goes_on(call: Call, run: Path, tmp_path: Path) -> None:
    positions = grid_positions((9, 9)).numpy()
    np.savez(tmp_path / "in.npz", positions=positions, values=np.full((81, 1), 99.0), grid=[9, 9])
    with pytest.warns(OutsideTrainingWarning, match="trained on 3 to 12 and is asked at 99"):
        assert call("predict", run, "in.npz", "-o", "out.npz")[0] == 0


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"positions": np.zeros((81, 2)), "pressure": np.zeros(81)}, "got positions, pressure"),
        ({"values": np.zeros((81, 1))}, "expected positions, and values, mask,"),
        ({}, "got nothing"),
        ({"positions": np.zeros((81, 3))}, "positions: expected (b, n, 2), got (1, 81, 3)"),
        (
            {"positions": np.zeros((81, 2)), "values": np.full((81, 1), np.nan), "grid": [9, 9]},
            "values: expected finite numbers",
        ),
        (
            {"positions": np.zeros((81, 2)), "values": np.zeros((81, 1)), "mask": np.ones(81)},
            "mask: expected booleans",
        ),
        (
            {"positions": np.array([["a", "b"]] * 81), "values": np.zeros((81, 1))},
            "expected real num",
        ),
        (
            {"positions": np.array([None, 1], dtype=object)},
            "in.npz: expected numbers in positions, got Python objects",
        ),
    ],
)
def test_predict_refuses_what_does_not_fit(
    call: Call, run: Path, tmp_path: Path, arrays: dict[str, Any], said: str, refused: Refused
) -> None:
    np.savez(tmp_path / "in.npz", **arrays)
    refused(call("predict", run, "in.npz", "-o", "out.npz"), said)
    assert not (tmp_path / "out.npz").exists()


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("missing.npz", "out.npz", "No such file"),
        ("missing.h5", "out.npz", "missing.h5"),
        ("broken.npz", "out.npz", "broken.npz: expected an .npz file"),
        ("broken.h5", "out.npz", "file signature not found"),
        ("array.npz", "out.npz", "array.npz: expected an .npz file"),
        ("table.csv", "out.npz", "table.csv: expected a name that ends in .npz, .h5 or .hdf5"),
        ("good.npz", "out.csv", "out.csv: expected a name that ends in .npz, .h5 or .hdf5"),
        ("good.npz", "nowhere/out.npz", "nowhere/out.npz: expected a folder that exists"),
        (
            "text.npz",
            "out.npz",
            "text.npz: expected an .npz file of numpy, got one that is cut short",
        ),
    ],
)
def test_predict_refuses_files_of_other_kinds(
    call: Call, run: Path, tmp_path: Path, source: str, target: str, said: str, refused: Refused
) -> None:
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 and no more")
    (tmp_path / "broken.h5").write_bytes(b"no HDF5")
    (tmp_path / "table.csv").write_text("1,2\n")
    (tmp_path / "text.npz").write_text("1,2\n")
    with (tmp_path / "array.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    positions = grid_positions((9, 9)).numpy()
    np.savez(tmp_path / "good.npz", positions=positions, values=np.full((81, 1), 3.0), grid=[9, 9])
    refused(call("predict", run, source, "-o", target), said)
