"""`funcattn train`, `evaluate` and `compare`."""

import json
from pathlib import Path

import pytest
import torch
from tests.cli.conftest import Call, Refused, record_of

from funcattn.data import Store
from funcattn.training import run as run_module
from funcattn.training.kept import best_checkpoint
from funcattn.training.run import Run
from funcattn.training.setup import read_settings


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
