"""Bands, audit, break-even and verification at the command line."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Call, Refused

from funcattn.data import Store
from funcattn.data.cases import Case, open_folder, write_case
from funcattn.data.cases.case import Cells
from funcattn.tasks.darcy import Darcy


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


@pytest.fixture
def meshes(tmp_path: Path) -> Path:
    """Forty-five meshes of two triangles each with a field, and a table with a load for each."""
    folder = tmp_path / "meshes"
    folder.mkdir()
    random, rows = np.random.default_rng(0), ["file,load"]
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    cells = Cells(np.array([0, 1, 2, 0, 2, 3]), np.array([0, 3, 6]), np.array([5, 5]))
    for number in range(45):
        load = random.random()
        stress = load * corners[:, 0] + 0.1 * random.standard_normal(4)
        case = Case(f"mesh_{number}", corners, {"stress": stress}, cells=cells)
        write_case(folder / f"mesh_{number}.vtu", case)
        rows.append(f"mesh_{number}.vtu,{load}")
    (tmp_path / "loads.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "meshes.toml").write_text(
        'cases = "meshes"\nparameters = "loads.csv"\ninputs = ["load"]\n'
        'outputs = ["stress"]\nepochs = 2\nyardsticks = false\n'
        "network = { width = 8, layers = 1, heads = 2, bases = 4 }\n"
    )
    return folder


@pytest.mark.filterwarnings("ignore::funcattn.surrogate.OutsideTrainingWarning")
def test_own_meshes_get_the_ends_of_their_bands(call: Call, meshes: Path) -> None:
    """From a folder to files that ParaView shows with their bands, also from a packed run."""
    code, said, wrong = call("fit", "meshes.toml", "--bands", "--ensemble", 2)
    assert code == 0, wrong
    assert "90 % of new samples like those of calibration" in said
    assert "from 9 samples: 9 that the fit put aside" in said
    assert "Bands" in Path("runs/meshes/report.html").read_text()
    mean = json.loads(Path("runs/meshes/ensemble.json").read_text())["test"]
    assert f"{mean['stress']:.4g}" in said  # the error of what is predicted
    assert call("pack", "runs/meshes", "-o", "packed.zip")[0] == 0
    ends = {}
    for run, out in (("runs/meshes", "out.vtu"), ("packed.zip", "packed.vtu")):
        given = (meshes / "mesh_3.vtu", "-o", out, "--set", "load=0.5")
        code, _, wrong = call("predict", run, *given)
        assert code == 0, wrong
        found = open_folder(out)[0].fields
        lower, middle, upper = (
            found[name] for name in ("stress_lower", "stress_predicted", "stress_upper")
        )
        assert (lower < middle).all()
        assert (middle < upper).all()
        np.testing.assert_allclose((lower + upper) / 2, middle, atol=1e-6)
        ends[out] = upper
    np.testing.assert_array_equal(ends["out.vtu"], ends["packed.vtu"])
    # Other cases can calibrate it anew, to another coverage.
    more = ("--cases", meshes, "--coverage", 0.5)
    code, _, wrong = call("calibrate", "runs/meshes", *more)
    assert code == 1
    assert "expected load, a number per case" in wrong
    code, said, wrong = call("calibrate", "runs/meshes", *more, "--parameters", "loads.csv")
    assert code == 0, wrong
    assert "50 % of new samples" in said
    assert "45 that were given" in said


def test_too_few_cases_are_refused_before_training(
    call: Call, meshes: Path, refused: Refused
) -> None:
    for path in sorted(meshes.glob("*.vtu"))[20:]:
        path.unlink()
    table = Path("loads.csv")
    kept = [
        line for line in table.read_text().splitlines() if (meshes / line.split(",")[0]).exists()
    ]
    table.write_text("\n".join(["file,load", *kept]) + "\n")
    refused(call("fit", "meshes.toml", "--bands"), "expected at least 9 cases to put aside")
    assert not Path("runs/meshes").exists()


def test_bands_of_an_ensemble_are_trained_in_one_command(
    call: Call, store: Store, tmp_path: Path
) -> None:
    out = tmp_path / "ensemble"
    flags = ("--profile", "smoke", "--optimisation.epochs", 1, "--workers", 1)
    asked = ("--bands", "--ensemble", 2, *flags, "--cache", store.folder)
    code, said, wrong = call("train", "darcy", "--out", out, *asked)
    assert (code, wrong) == (0, "")
    assert "as far" in said or "lie apart" in said
    bands = json.loads((out / "bands.json").read_text())
    assert (bands["spread"], bands["networks"], bands["samples"]) == ("ensemble", 2, 150)
    assert "Bands" in (out / "report.html").read_text()


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
    page = (own_run / "breakeven.html").read_text()
    assert document["summary"].split(":")[0] in page
    assert "solver: nodes 8" in page


def test_what_is_no_run_is_refused(call: Call, tmp_path: Path, refused: Refused) -> None:
    refused(call("verify", tmp_path), "expected a run, a file of results")
    refused(call("audit", tmp_path), "without settings.json")


@pytest.mark.parametrize("name", ["calibrate", "audit", "breakeven", "verify"])
def test_commands_have_help(call: Call, name: str) -> None:
    code, out, _ = call(name, "--help")
    assert code == 0
    assert f"usage: funcattn {name}" in out
