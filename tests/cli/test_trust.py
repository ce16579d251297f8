"""Bands, audit, break-even and verification at the command line."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from funcattn.data import Store
from funcattn.tasks.darcy import Darcy

Call = Callable[..., tuple[int, str, str]]
Refused = Callable[[tuple[int, str, str], str], None]


@pytest.fixture
def own_run(run: Path, tmp_path: Path) -> Path:
    """A copy of the run that may be changed."""
    return Path(shutil.copytree(run, tmp_path / "run"))


@pytest.mark.filterwarnings("ignore:sample 0. unlike the training data")
def test_a_calibrated_run_predicts_bands(
    call: Call, own_run: Path, store: Store, tmp_path: Path
) -> None:
    code, out, err = call(
        "calibrate", own_run, "--samples", 45, "--workers", 1, "--cache", store.folder
    )
    assert (code, err) == (0, "")
    assert "90 % of new samples" in out
    assert "30 samples: 45 fresh ones of the solver" in out
    assert "Bands" in (own_run / "report.html").read_text()
    sample = Darcy(Darcy.defaults("smoke", "modern")).splits(store).test[0]
    given = {"positions": sample.positions[None].numpy(), "values": sample.values[None].numpy()}
    np.savez(tmp_path / "in.npz", **given, grid=np.array(sample.grid))
    code, out, _ = call("predict", own_run, tmp_path / "in.npz", "-o", tmp_path / "out.npz")
    assert code == 0
    written = np.load(tmp_path / "out.npz")
    lower, middle, upper = (
        written[name] for name in ("prediction_lower", "prediction", "prediction_upper")
    )
    assert (lower < middle).all()
    assert (middle < upper).all()


def test_too_few_samples_are_refused(call: Call, run: Path, store: Store, refused: Refused) -> None:
    outcome = call(
        *(
            "calibrate",
            run,
            "--samples",
            8,
            "--coverage",
            0.95,
            "--workers",
            1,
            "--cache",
            store.folder,
        )
    )
    refused(outcome, "expected at least 19 calibration samples, got 8")


def test_an_ensemble_is_trained_tested_and_verified(
    call: Call, store: Store, tmp_path: Path
) -> None:
    out = tmp_path / "ensemble"
    flags = (
        "--profile",
        "smoke",
        "--optimisation.epochs",
        1,
        "--workers",
        1,
        "--cache",
        store.folder,
    )
    code, said, err = call("train", "darcy", "--out", out, "--ensemble", 2, *flags)
    assert (code, err) == (0, "")
    assert "of the mean of 2" in said
    test = json.loads((out / "ensemble.json").read_text())
    assert test["members"] == 2
    code, said, _ = call("evaluate", out, "--split", "test", "--cache", store.folder)
    assert f"{test['test']['relative_l2']:.5g}" in said
    code, said, _ = call("verify", out, "--cached", "--workers", 1, "--cache", store.folder)
    assert code == 0
    assert said.count("holds") >= 2


def test_audit_and_breakeven_write_files(call: Call, own_run: Path, store: Store) -> None:
    code, out, _ = call("audit", own_run, "--samples", 4, "--workers", 1, "--cache", store.folder)
    assert code == 0
    assert "not applicable" in out
    assert (own_run / "audit.html").exists()
    code, out, _ = call(
        "breakeven", own_run, "--samples", 1, "--workers", 1, "--cache", store.folder
    )
    assert code == 0
    document = json.loads((own_run / "breakeven.json").read_text())
    assert document["summary"].split(":")[0] in out.replace("\n", " ")
    assert document["rungs"]


def test_what_is_no_run_is_refused(call: Call, tmp_path: Path, refused: Refused) -> None:
    refused(call("verify", tmp_path), "expected a run, a file of results")
    refused(call("audit", tmp_path), "without settings.json")


@pytest.mark.parametrize("name", ["calibrate", "audit", "breakeven", "verify"])
def test_commands_have_help(call: Call, name: str) -> None:
    code, out, _ = call(name, "--help")
    assert code == 0
    assert f"usage: funcattn {name}" in out
