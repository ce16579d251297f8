"""The command: what it prints, what it leaves, and how it refuses."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from funcattn import __version__
from funcattn.data import Store, grid_positions
from funcattn.models import MODELS, diffusion_net
from funcattn.models.laplacians import OperatorCache
from funcattn.serve import load
from funcattn.serve.predictor import OutsideTrainingWarning
from funcattn.tasks import TASKS
from funcattn.tasks.darcy import Darcy
from funcattn.training import run as run_module
from funcattn.training.loop import best_checkpoint
from funcattn.training.run import Run
from funcattn.training.setup import build_network, read_settings

Call = Callable[..., tuple[int, str, str]]
Refused = Callable[[tuple[int, str, str], str], None]


def record_of(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / "record.json").read_text())
    return record


@pytest.mark.parametrize("name", ["", "train", "generate", "evaluate", "predict", "list", "info"])
def test_every_command_has_help(call: Call, name: str) -> None:
    code, out, _ = call(*([name] if name else []), "--help")
    assert code == 0
    assert f"usage: funcattn {name}".strip() in out


def test_the_version_is_printed(call: Call) -> None:
    assert call("--version") == (0, f"{__version__}\n", "")


def test_a_completion_script_is_printed(call: Call) -> None:
    code, out, _ = call("--tyro-print-completion", "bash")
    assert code == 0
    assert "funcattn" in out
    assert "complete " in out


def test_list_names_every_task_and_model(call: Call) -> None:
    code, out, _ = call("list")
    assert code == 0
    words = out.split()
    assert all(name in words for name in (*TASKS, *MODELS))


def test_info_of_a_task_is_its_settings_with_flags_over_them(call: Call) -> None:
    code, out, _ = call("info", "darcy", "--profile", "smoke", "--preset", "paper", "--seed", "7")
    assert code == 0
    shown, _ = json.JSONDecoder().raw_decode(out[out.index("{") :])
    assert shown["seed"] == 7
    assert shown["network"]["width"] == 16
    assert shown["optimisation"]["optimiser"] == "adamw"


def test_info_alone_says_what_the_installation_computes_with(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUNCATTN_NATIVE", "0")
    code, out, _ = call("info")
    assert code == 0
    for words in (__version__, torch.__version__, "switched off by FUNCATTN_NATIVE=0"):
        assert words in out
    assert "Triton" in out


def test_info_of_a_run_is_its_results_and_settings(call: Call, run: Path) -> None:
    code, out, _ = call("info", run)
    assert code == 0
    results, settings = json.JSONDecoder().raw_decode(out.strip())[0], out[out.rindex("\n{") :]
    assert results["test"] == record_of(run)["test"]
    assert "test_values" not in results
    assert json.loads(settings) == record_of(run)["settings"]


def test_generate_makes_data_and_says_so(call: Call, store: Store) -> None:
    code, out, err = call("generate", "darcy", "--profile", "smoke", "--cache", store.folder)
    assert code == 0, err
    assert "20 samples, 0 draws rejected" in out
    path = store.path(Darcy(Darcy.defaults("smoke", "modern")).recipe(), 0)
    assert str(path) in out
    code, out, _ = call("list", "--cache", store.folder)
    assert code == 0
    assert "darcy" in out
    assert "seed 0, nodes 17, keep 1" in out


def test_generate_takes_samples_seed_and_workers_and_extends(call: Call, tmp_path: Path) -> None:
    line = ("generate", "darcy", "--profile", "smoke", "--seed", 3, "--workers", 1)
    for samples in (2, 5):
        code, out, err = call(*line, "--samples", samples, "--cache", tmp_path)
        assert code == 0, err
        assert f"{samples} samples" in out
    (stored,) = Store(tmp_path).sets()
    assert stored.provenance["seed"] == 3
    assert [part["profile"] for part in stored.provenance["made"]] == ["smoke", "smoke"]
    assert "--samples 5" in stored.provenance["made"][1]["command"]


def test_public_files_are_written_and_trained_on(
    call: Call, store: Store, tmp_path: Path, run: Path
) -> None:
    line = ("--profile", "smoke", "--cache", store.folder)
    code, out, err = call("generate", "darcy", *line, "--public", tmp_path / "files")
    assert code == 0, err
    assert "piececonst_r421_N1024_smooth1.mat" in out
    code, _, err = call("train", "darcy", *line, "--data", tmp_path / "files", "--out", "theirs")
    assert code == 0, err
    assert record_of(tmp_path / "theirs")["test"] == record_of(run)["test"]


def test_info_shows_a_set_with_its_provenance_and_a_picture(
    call: Call, store: Store, tmp_path: Path
) -> None:
    code, out, err = call("info", "darcy", "--profile", "smoke", "--cache", store.folder)
    assert code == 0, err
    assert '"rejected": 0' in out
    picture = store.path(Darcy(Darcy.defaults("smoke", "modern")).recipe(), 0).with_suffix(".png")
    assert str(picture) in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    code, out, _ = call("info", "darcy", "--profile", "smoke", "--cache", tmp_path / "empty")
    assert code == 0
    assert "not made yet: funcattn generate darcy --profile smoke" in out


def test_a_task_without_a_solver_has_nothing_to_generate(call: Call, refused: Refused) -> None:
    refused(call("generate", "few_shot"), "few_shot has no data to make")


def test_flags_go_over_the_file_and_the_file_over_the_defaults(
    call: Call, store: Store, tmp_path: Path
) -> None:
    config = tmp_path / "my.toml"
    config.write_text("seed = 5\n[network]\nwidth = 8\n[optimisation]\nepochs = 1\nbatch = 3\n")
    code, out, err = call(
        *("train", "darcy", "--profile", "smoke", "--cache", store.folder, "--config", config),
        *("--optimisation.batch", "6", "--network.heads=4", "--seed", "6"),
    )
    assert code == 0, err
    folder = tmp_path / "runs" / "darcy-smoke-seed6"  # named by the seed that was used
    settings = read_settings(folder)
    assert (settings.seed, settings.optimisation.batch, settings.network.heads) == (6, 6, 4)
    assert (settings.network.width, settings.optimisation.epochs) == (8, 1)
    assert settings.network.layers == 2
    value = record_of(folder)["test"]["relative_l2"]
    assert f"test relative_l2: {value:.5g} (read once, with the weights of epoch 1)" in out
    assert record_of(folder)["command"].startswith("funcattn train darcy --profile smoke")


def test_the_settings_of_a_run_can_be_run_again(
    call: Call, store: Store, run: Path, tmp_path: Path
) -> None:
    config = run / "settings.json"
    code, _, err = call(
        "train", "darcy", "--config", config, "--cache", store.folder, "--out", "again"
    )
    assert code == 0, err
    first, second = record_of(run), record_of(tmp_path / "again")
    assert first["settings"] == second["settings"]
    assert first["test_values"] == second["test_values"]
    for name, tensor in best_checkpoint(run).tensors["model"].items():
        assert torch.equal(tensor, best_checkpoint(tmp_path / "again").tensors["model"][name])


def test_a_finished_run_is_shown_when_resumed_with_its_own_settings_only(
    call: Call, store: Store, run: Path, refused: Refused
) -> None:
    same = ("train", "darcy", "--out", run, "--cache", store.folder, "--resume")
    code, out, err = call(*same)
    assert code == 0, err
    assert "test relative_l2" in out
    assert call(*same, "--optimisation.epochs", "3", "--config", run / "settings.json")[0] == 0
    expected = "--resume: expected the task and settings of the run in"
    refused(call(*same, "--optimisation.epochs", "4"), expected)


def test_threads_are_chosen_by_the_steps_and_kept_by_the_run(
    call: Call, store: Store, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small steps have one, large ones the free cores; a run goes on with those it had."""
    had = torch.get_num_threads()
    assert Run(run).threads == had
    chosen: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: chosen[-1])
    monkeypatch.setattr("funcattn.cli.train.free_cores", lambda: had + 2)
    monkeypatch.setattr("funcattn.cli.train.train", lambda *_, **__: Run(run))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    line = ("train", "darcy", "--profile", "smoke", "--cache", store.folder)

    def last(*more: object) -> tuple[int, str]:
        code, out, err = call(*line, *more)
        assert code == 0, err
        return chosen[-1], out

    threads, out = last("--out", "new")
    assert (threads, "1 thread: its steps are too small to be shared" in out) == (1, True)
    threads, out = last("--out", run, "--resume")
    assert (threads, "as the run had before; missing data is made by" in out) == (had, True)
    monkeypatch.setattr("funcattn.cli.train.SHARED_FROM", 1)
    threads, out = last("--out", "new")
    assert (threads, f"{had + 2} threads: {had + 2} of" in out) == (had + 2, True)
    assert last("--out", "new", "--devices", had + 2)[0] == 1
    monkeypatch.setenv("OMP_NUM_THREADS", str(had + 1))
    assert last("--out", run, "--resume")[0] == had + 1


def test_progress_of_a_resumed_run_counts_its_own_epochs(
    call: Call, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    line = ("train", "darcy", "--out", "a", "--cache", store.folder)
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "_finish", fail)
        code, out, _ = call(*line, "--profile", "smoke", "--optimisation.epochs", "2")
        assert code == 130
        assert "Stopped." in out
    for path in (tmp_path / "a" / "checkpoints").glob("step-*6"):
        path.rename(path.with_name("elsewhere"))
    code, out, err = call(*line, "--resume")
    assert code == 0, err
    assert "epoch 2 of 2" in out


@pytest.mark.parametrize("split", ["validation", "test"])
def test_evaluate_gives_the_numbers_of_the_record(
    call: Call, store: Store, run: Path, split: str
) -> None:
    code, out, _ = call("evaluate", run, "--split", split, "--cache", store.folder)
    assert code == 0
    record = record_of(run)
    value = record["validation"] if split == "validation" else record["test"]["relative_l2"]
    assert out.startswith(f"{split} relative_l2: {value:.5g} +- ")


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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "darzy"], "task: expected one of"),
        (["info", "darzy"], "darzy: expected the folder of a run"),
        (["generate", "darzy"], "got 'darzy'"),
        (["evaluate", "nowhere"], "nowhere: expected the folder of a run"),
        (
            ["predict", "nowhere", "in.npz", "-o", "out.npz"],
            "nowhere: expected the folder of a run",
        ),
        (["list", "models", "--much"], "arguments: expected those of --help, got --much"),
        (["train", "darcy", "--config", "none.toml"], "No such file"),
        (["train", "darcy", "--resume", "--out", "nowhere"], "nowhere: expected the folder"),
        (["train", "darcy", "--profile", "smoke", "--model", "x[/]"], "got 'x[/]'"),
        (["train", "darcy", "--profile", "smoke", "--task", "x"], "expected settings of darcy"),
        (
            ["train", "darcy", "--profile", "smoke", "--data.validation", "0"],
            "data.validation: exp",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(
    call: Call, store: Store, tmp_path: Path, arguments: list[str], said: str, refused: Refused
) -> None:
    if "--data.validation" in arguments:  # other numbers of the same samples
        arguments = [*arguments, "--data.train", "16"]
    if arguments[0] == "train":
        arguments = [*arguments, "--cache", str(store.folder)]
    refused(call(*arguments), said)
    assert not list(tmp_path.glob("**/settings.json"))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.toml", "[network]\nwidht = 3", "a.toml.network: expected one of width, "),
        ("a.toml", "seed = 'one'", "a.toml.seed: expected int, got 'one'"),
        ("a.toml", "[network]\nwidth = 1.5", "a.toml.network.width: expected int, got 1.5"),
        (
            "a.toml",
            "[optimisation]\noptimiser = 'sgd'",
            "expected adam, adamw, muon, muon_batched, lion, soap, got 'sgd'",
        ),
        ("a.toml", "[optimisation]\nbatch = 0", "batch: expected a positive number, got 0"),
        ("a.toml", "[data]\nstride = 3", "use_every: expected a divisor of nodes - 1"),
        ("a.toml", "seed =", "Invalid value"),
        ("a.toml", "task = 'burgers'", "task: expected settings of darcy, got those of 'burgers'"),
        ("a.json", "{", "Expecting property name"),
        ("a.json", "[]", "a.json: expected names with values, got []"),
    ],
)
@pytest.mark.usefixtures("as_a_user")
def test_a_file_of_settings_that_is_wrong_is_refused(
    call: Call, tmp_path: Path, name: str, content: str, said: str, refused: Refused
) -> None:
    (tmp_path / name).write_text(content)
    refused(call("train", "darcy", "--profile", "smoke", "--config", name), said)


def test_a_flag_that_is_wrong_gets_a_suggestion(call: Call) -> None:
    code, out, err = call("train", "darcy", "--profile", "smoke", "--network.widht", "3")
    assert code == 2
    assert "did you mean --network.width?" in out + err
    code, out, err = call("train", "darcy", "--profile", "smoke", "--network.width", "wide")
    assert code == 2
    assert "wide" in out + err
    code, out, err = call("train", "darcy", "--profile", "smoke", "--optimisation.batch", "0")
    assert code == 2
    assert "batch: expected a positive number, got 0" in " ".join((out + err).split())


def test_a_run_is_not_overwritten(call: Call, store: Store, run: Path, refused: Refused) -> None:
    line = ("train", "darcy", "--profile", "smoke", "--cache", store.folder, "--out", run)
    refused(call(*line), f"{run} holds a run already: resume it, or choose another folder")


def test_a_long_message_stays_on_one_line(call: Call, tmp_path: Path, refused: Refused) -> None:
    folder = tmp_path / ("a" * 100) / ("b [red]" + "c" * 100)
    folder.mkdir(parents=True)
    refused(call("evaluate", folder), f"{folder}: expected the folder of a run")


def test_what_is_missing_is_named_with_the_way_to_install_it(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "funcattn.cli", raising=False)
    monkeypatch.setitem(sys.modules, "tyro", None)
    code, _, _ = call("list")
    assert code == (
        "funcattn: the command needs tyro, which is not installed: pip install 'funcattn[train]'"
    )


def test_the_library_is_imported_without_what_the_command_needs() -> None:
    script = """
import sys
for name in ("tyro", "rich", "h5py", "lightning_fabric", "safetensors", "platformdirs", "scipy",
             "matplotlib", "jinja2"):
    sys.modules[name] = None
import funcattn, torch
model = funcattn.OperatorTransformer(space=2, inputs=1, outputs=1, width=16, layers=1)
print(tuple(model(torch.rand(1, 5, 2), torch.rand(1, 5, 1)).shape))
"""
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert run.stdout == "(1, 5, 1)\n", run.stderr


def listed(call: Call, task: str) -> dict[str, str]:
    """What `list models` says of each network."""
    code, out, _ = call("list", "models", "--task", task, "--profile", "smoke")
    assert code == 0
    # A table that is too wide goes on below, so that a network may have several lines.
    lines: dict[str, str] = {}
    for line in filter(str.strip, out.splitlines()):
        name = line.split()[0]
        lines[name] = lines.get(name, "") + line
    return lines


def test_list_models_shows_what_each_costs_and_which_cannot(call: Call) -> None:
    lines = listed(call, "elasticity")
    for name in MODELS:
        assert name in lines
    assert "it needs points" in lines["fno"]
    task = TASKS["elasticity"](TASKS["elasticity"].defaults("smoke", "modern"))
    parameters = sum(p.numel() for p in build_network(task).network.parameters())
    assert f"{parameters:,}" in lines["funcattn"]


def test_networks_are_listed_without_the_packages_that_some_need(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("ptwt", "robust_laplacian"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(diffusion_net, "_CACHE", OperatorCache())  # with nothing made before
    lines = listed(call, "darcy")
    for name in ("wno", "diffusion_net"):
        assert "pip install" in lines[name]


def test_compare_trains_all_and_goes_on_where_it_was(call: Call, tmp_path: Path) -> None:
    asked = ["compare", "darcy", "--models", "fno", "no_attention", "--profile", "smoke"]
    asked += ["--out", str(tmp_path / "c"), "--cache", str(tmp_path), "--optimisation.epochs", "1"]
    code, out, _ = call(*asked)
    assert code == 0
    text = (tmp_path / "c" / "comparison.md").read_text()
    records = {
        model: json.loads((tmp_path / "c" / model / "record.json").read_text())
        for model in ("fno", "no_attention")
    }
    for model, record in records.items():
        assert f"| {model} | {record['test']['relative_l2']:.4g} |" in text
        assert record["settings"]["model"] == model
        assert model in out
    # The better one comes first.
    better, worse = sorted(records, key=lambda model: records[model]["test"]["relative_l2"])
    assert text.index(better) < text.index(worse)
    again = call(*asked)
    assert again[0] == 0
    assert (tmp_path / "c" / "comparison.md").read_text() == text
    code, _, said = call(*asked, "--optimisation.rate", "0.5")
    assert code == 1
    assert "expected the settings that are asked for now, got a run with others" in said


def test_compare_refuses_before_anything_is_trained(call: Call, tmp_path: Path) -> None:
    code, _, said = call(
        "compare", "elasticity", "--models", "funcattn", "fno", "--profile", "smoke",
        "--out", str(tmp_path / "c"), "--cache", str(tmp_path),
    )  # fmt: skip
    assert code == 1
    assert "got 'fno': it needs points on a grid" in said
    assert not (tmp_path / "c").exists()


def test_a_network_comes_with_settings_of_its_own_and_flags_go_over_them(call: Call) -> None:
    def shown(*flags: str) -> Any:
        code, out, _ = call("info", "darcy", "--profile", "cpu", *flags)
        assert code == 0
        return json.JSONDecoder().raw_decode(out[out.index("{") :])[0]

    assert shown("--model", "fno")["network"]["width"] == 32
    assert shown("--model", "fno", "--network.width", "20")["network"]["width"] == 20
    assert shown("--model", "fno")["optimisation"]["optimiser"] == "adamw"
    theirs, ours = shown("--model", "galerkin")["network"], shown()["network"]
    assert {name: ours[name] for name in theirs} == theirs
    assert ours.keys() - theirs.keys() == {"bases", "share_basis", "basis", "projection", "ridge"}
    assert shown("--model", "galerkin")["optimisation"]["optimiser"] == "muon"
