"""From a folder of people's cases to predicted files, by the command."""

import os
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Call

pytestmark = pytest.mark.filterwarnings("ignore::funcattn.surrogate.OutsideTrainingWarning")


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """Twelve clouds with a field, and a table with a number and a group for each."""
    folder = tmp_path / "clouds"
    folder.mkdir()
    rows = ["file,load,kind"]
    for number in range(12):
        random = np.random.default_rng(number)
        positions, load = random.random((int(random.integers(15, 25)), 2)), random.random()
        np.savez(folder / f"cloud_{number}.npz", positions=positions, stress=load * positions[:, 0])
        rows.append(f"cloud_{number}.npz,{load},{'abc'[number // 4]}")
    (tmp_path / "loads.csv").write_text("\n".join(rows) + "\n")
    return folder


def test_inspect_fit_predict_report_and_pack(call: Call, cases: Path) -> None:
    code, said, _ = call("inspect", "clouds", "--parameters", "loads.csv")
    assert code == 0
    assert "12 cases, 16 to 24" in said
    plan = cases.parent / "clouds.toml"
    assert 'inputs = ["load"]' in plan.read_text()
    assert plan.with_suffix(".png").exists()
    network = "network = { width = 8, layers = 1, heads = 2, bases = 4 }\nepochs = 2\n"
    plan.write_text(plan.read_text() + network)
    code, said, _ = call("inspect", "clouds", "--parameters", "loads.csv")
    assert "is there already and stays as it is" in said

    code, said, wrong = call("fit", "clouds.toml", "--group-by", "kind")
    assert code == 0, wrong
    for words in ("this surrogate", "mean of training", "ridge regression", "without attention"):
        assert words in said
    run = cases.parent / "runs" / "clouds"
    assert (run / "report.html").exists()

    (run / "report.html").unlink()
    assert call("report", "runs/clouds")[0] == 0  # the cases are read again
    assert "Worst cases" in (run / "report.html").read_text()

    new = ("clouds/cloud_3.npz", "-o", "out.npz", "--set", "load=0.5")
    code, _, wrong = call("predict", "runs/clouds", *new)
    assert code == 0, wrong
    for words, message in (
        (("--set", "lod=1"), "--set: expected one of load, got 'lod'; did you mean load?"),
        ((), "cloud_3.npz: expected load, a number per case, as in training, got stress; give it"),
        (("--device", "abacus"), "device: expected one of auto, cpu"),
        (("--streamed",), "--streamed, --scratch: expected a benchmark's run, got one on own data"),
    ):
        code, _, wrong = call("predict", "runs/clouds", *new[:3], *words)
        assert code == 1
        assert message in wrong
    got = dict(np.load("out.npz"))
    np.testing.assert_allclose(got["stress_error"], got["stress_predicted"] - got["stress"])

    assert call("pack", "runs/clouds", "-o", "clouds.zip")[0] == 0
    everything = ("clouds", "-o", "all", "--parameters", "loads.csv")
    assert call("predict", "clouds.zip", *everything)[0] == 0
    assert len(list(Path("all").glob("*.npz"))) == 12


def test_numbered_files_are_learned_as_series(call: Call, tmp_path: Path) -> None:
    pyvista = pytest.importorskip("pyvista")
    folder = tmp_path / "flows"
    folder.mkdir()
    plane = pyvista.ImageData(dimensions=(4, 4, 1)).cast_to_unstructured_grid()
    for case in range(12):
        start = np.random.default_rng(case).random(16)
        for frame in range(3):
            plane["heat"] = start * 0.5**frame
            plane.save(folder / f"flow{'abcdefghijkl'[case]}_{frame:03}.vtu")
    code, said, _ = call("inspect", "flows", "--numbered")
    assert code == 0
    assert "12 cases" in said
    assert "3 times each" in said
    plan = tmp_path / "flows.toml"
    small = "network = { width = 8, layers = 1, heads = 2, bases = 4 }\nepochs = 1\n"
    plan.write_text(plan.read_text() + small + "yardsticks = false\n")
    code, said, wrong = call("fit", "flows.toml")
    assert code == 0, said + wrong
    assert call("report", "runs/flows")[0] == 0  # the series are read again as such
    assert call("predict", "runs/flows", "flows", "-o", "out")[0] == 0
    assert np.load("out/flowa.npz")["heat_predicted"].shape == (16, 2)


def test_the_cores_that_are_free_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from funcattn.cli import _threads, commands

    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    found = []
    for load in (0.3, 4.6, 40.0):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        found.append(_threads(commands.Fit))
    said = "of 8 cores are free; OMP_NUM_THREADS sets another number"
    assert found == [(6, f"6 {said}"), (3, f"3 {said}"), (1, f"1 {said}")]
    monkeypatch.setattr(os, "getloadavg", lambda: (0.3, 0.0, 0.0))
    assert _threads(commands.Race)[0] == _threads(commands.Compare)[0] == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert _threads(commands.Fit) == _threads(commands.Race) == (5, "OMP_NUM_THREADS says so")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("fit", "clouds"), "--outputs: expected the names of the fields to predict"),
        (("fit", "clouds", "--outputs", "strain"), "strain"),
        (("fit", "nothing", "--outputs", "stress"), "nothing"),
        (("fit", "clouds", "--outputs", "stress", "--budget", "soon"), "budget: expected a time"),
        (("inspect", "loads.csv"), "loads.csv: expected"),
        (("predict", "clouds", "clouds/cloud_3.npz", "-o", "out.npz"), "settings.json"),
        (("pack", "clouds", "-o", "out.zip"), "without settings.json"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_what_cannot_be_done_is_said_in_one_line(
    call: Call, cases: Path, words: tuple[str, ...], message: str
) -> None:
    code, said, wrong = call(*words)
    complaint = str(code) + said + wrong
    assert code != 0
    assert message in complaint
    assert "Traceback" not in complaint
    assert not (cases.parent / "runs").exists()
