"""What the command says when something is not as it should be."""

import io
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from tests.cli.conftest import Call, Refused

from funcattn.cli import guard, show
from funcattn.cli.settings import resolved
from funcattn.cli.terminal import print_table
from funcattn.data import Store, grid_positions
from funcattn.settings import changed
from funcattn.tasks.darcy import Darcy
from funcattn.training.loop import State
from funcattn.training.run import train
from funcattn.training.settings import with_model


def test_an_unknown_setting_is_refused_with_those_that_apply(call: Call, refused: Refused) -> None:
    line = ("train", "darcy", "--profile", "smoke")
    outcome = call(*line, "--network.widht", "3")
    refused(outcome, "--network.widht: expected a setting that funcattn has on darcy", code=2)
    assert "--network.width, --network.layers" in outcome[2]
    assert "--optimisation" not in outcome[2]
    assert "did you mean --network.width?" in outcome[2]
    outcome = call(*line, "--sede=3")
    refused(outcome, "did you mean --seed?", code=2)
    assert "--optimisation.rate" in outcome[2]


def test_the_network_is_chosen_before_its_settings_are(tmp_path: Path) -> None:
    config = tmp_path / "a.toml"
    config.write_text("model = 'fno'\n[network]\nwidth = 24\n")
    flags = ["--network.layers=3", "--model", "lno"]
    ours = resolved("darcy", "cpu", "modern", None, [])
    fno = resolved("darcy", "cpu", "modern", config, [])
    lno = resolved("darcy", "cpu", "modern", config, flags)
    assert (ours.model, fno.model, lno.model) == ("funcattn", "fno", "lno")
    assert fno.network == replace(with_model(ours, "fno", "cpu").network, width=24)
    assert lno.network == replace(with_model(ours, "lno", "cpu").network, width=24, layers=3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["info", "darci"], "darci: expected the folder of a run, or a task: one of few_shot, "),
        (["info", "darci"], "; did you mean darcy?"),
        (["train", "darci"], "got 'darci'; did you mean darcy?"),
        (["list", "models", "--task", "darci"], "did you mean darcy?"),
        (["train", "darcy", "--devices", "0"], "--devices: expected at least 1 process, got 0"),
        (["train", "darcy", "--device", "abacus"], "device: expected one of auto, cpu"),
        (
            ["train", "darcy", "--data.train", "0", "--data.validation", "16"],
            "data.train: expected at least one sample, got none",
        ),
        (["train", "elasticity", "--model", "fno"], "got 'fno': it needs points on a grid"),
    ],
)
def test_what_cannot_be_done_leaves_nothing(
    call: Call, refused: Refused, store: Store, tmp_path: Path, arguments: list[str], said: str
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for path in store.folder.glob("darcy-*.h5"):
        shutil.copy(path, data)
    before = set(data.glob("*.h5"))
    if arguments[0] == "train":
        arguments = [*arguments, "--profile", "smoke", "--cache", str(data)]
    refused(call(*arguments), said)
    assert not list(tmp_path.rglob(".lock"))
    assert not list(tmp_path.glob("runs/*"))
    assert set(data.glob("*.h5")) == before


@pytest.mark.parametrize(("name", "kind"), [("a.toml", "TOML"), ("a.json", "JSON")])
def test_a_file_that_cannot_be_read_is_named(
    call: Call, refused: Refused, tmp_path: Path, name: str, kind: str
) -> None:
    (tmp_path / name).write_text("seed =")
    said = f"{name}: expected settings as {kind}, got "
    refused(call("train", "darcy", "--config", name), said)


def test_a_run_resumed_with_other_settings_names_them(
    call: Call, refused: Refused, run: Path
) -> None:
    line = ("train", "darcy", "--out", run, "--resume")
    said = "got others: optimisation.epochs was 3 and is 4; seed was 0 and is 1"
    refused(call(*line, "--optimisation.epochs", "4", "--seed", "1"), said)
    refused(call("train", "burgers", "--out", run, "--resume"), "got others: task was darcy")


def test_info_of_a_run_that_was_stopped_says_so(call: Call, store: Store, tmp_path: Path) -> None:
    def stop(state: State, _: int) -> None:
        if state.epoch == 2 and state.step:
            raise KeyboardInterrupt

    settings = changed(Darcy.defaults("smoke", "modern"), {"optimisation": {"epochs": 5}})
    with pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "a", store=store, on_step=stop)
    code, out, _ = call("info", "a")
    assert code == 0
    assert out.startswith("Unfinished: 2 of 5 epochs, the best in epoch ")
    assert "Go on by funcattn train darcy --out a --resume\n" in out
    code, out, _ = call("evaluate", "a", "--cache", store.folder)
    assert code == 0  # by the best weights so far


@pytest.mark.parametrize(
    ("package", "arguments", "said"),
    [
        ("onnxscript", ["export", "RUN", "-o", "a.onnx"], "pip install 'funcattn[onnx]'"),
        (
            "neuralop",
            ["train", "darcy", "--profile", "smoke", "--model", "tfno"],
            "pip install 'funcattn[baselines]'",
        ),
    ],
)
def test_a_missing_extra_is_named_with_the_way_to_install_it(
    call: Call,
    refused: Refused,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    package: str,
    arguments: list[str],
    said: str,
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    refused(call(*(run if word == "RUN" else word for word in arguments)), said)
    assert not list(tmp_path.iterdir())


def test_predictions_are_made_on_the_device_that_is_asked_for(
    call: Call, refused: Refused, run: Path, tmp_path: Path
) -> None:
    positions = grid_positions((9, 9)).numpy()
    np.savez(tmp_path / "in.npz", positions=positions, values=np.full((81, 1), 5.0), grid=[9, 9])
    line = ("predict", run, "in.npz", "-o", "out.npz", "--device")
    assert call(*line, "cpu")[0] == 0
    refused(call(*line, "cuda:99"), "device: expected one of auto, cpu")


def test_a_table_is_printed_whole_in_a_narrow_window() -> None:
    headers = ["model", *(f"metric_{i}" for i in range(9)), "parameters"]
    rows = [[name, *(f"{name}{i:.5f}" for i in range(9)), "1,234"] for name in ("funcattn", "fno")]
    out = io.StringIO()
    print_table(Console(file=out, width=80), headers, rows)
    lines = out.getvalue().splitlines()
    assert all(len(line.rstrip()) <= 80 for line in lines)
    words = out.getvalue().split()
    assert all(cell in words for cell in (*headers, *rows[0], *rows[1]))
    for name in ("funcattn", "fno"):  # each part begins with the name
        assert words.count(name) == words.count("model") > 1


def test_what_nobody_expected_is_one_line_and_a_report_without_personal_paths(
    call: Call, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "somebody"
    monkeypatch.setattr(guard, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("HOME", str(home))

    def fail(*_: object) -> None:
        raise RuntimeError(f"no good in {home}/data\nand more of it")

    monkeypatch.setattr(show.List, "run", fail)
    outcome = call("list", "--cache", home / "data")
    (report,) = (tmp_path / "cache" / "errors").iterdir()
    refused(outcome, f"unexpected RuntimeError: no good in {home}/data; please send the developers")
    assert str(report) in outcome[2]
    text = report.read_text()
    assert "Traceback" in text
    assert "command   funcattn list --cache ~/data" in text
    assert "RuntimeError: no good in ~/data\nand more of it" in text
    for path in (home, guard.PACKAGE, tmp_path, Path(sys.prefix)):
        assert str(path) not in text
    assert "<funcattn>" in text


def test_an_error_of_another_library_is_reported_too(
    call: Call, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(show.List, "run", lambda *_: np.zeros(3).reshape(2, 2))
    refused(call("list"), "unexpected ValueError: cannot reshape array of size 3")
    monkeypatch.setattr(guard, "CACHE", Path("/dev/null/nowhere"))
    refused(call("list"), "no report of it could be written to /dev/null/nowhere")


def test_a_warning_is_one_line_without_source() -> None:
    code = """
import warnings
from funcattn.cli.guard import one_line_errors

@one_line_errors
def main():
    warnings.warn("the prediction may be far off", UserWarning)

main()
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr == "funcattn: warning: the prediction may be far off\n"


def test_a_reader_that_has_enough_is_no_error() -> None:
    line = f"{sys.executable} -m funcattn --help | head -1"
    ran = subprocess.run(line, shell=True, capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("usage: funcattn")
    assert ran.stderr == ""


def test_the_command_can_be_imported_where_there_is_no_module_resource() -> None:
    code = """
import sys
sys.modules["resource"] = None
import funcattn.cli.bench, funcattn.cli.train, funcattn.cli.reproduce
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
