"""What a run leaves in its folder."""

import csv
import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from funcattn.data import Store
from funcattn.models import MODELS
from funcattn.settings import RunSettings, changed
from funcattn.tasks import TASKS
from funcattn.tasks.darcy import Darcy
from funcattn.training.checkpoint import CheckpointError, model_tensors, restore_model
from funcattn.training.kept import best_checkpoint
from funcattn.training.loop import State
from funcattn.training.report import write_report
from funcattn.training.run import Run, train
from funcattn.training.settings import with_model
from funcattn.training.setup import RunError, build_network, read_settings


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without waiting for the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def smoke(**changes: Any) -> RunSettings:
    return changed(Darcy.defaults("smoke", "modern"), changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Path:
    """A run as a user makes it."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    train(smoke(), folder, store=store, command="funcattn train darcy")
    return folder


def record_of(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / "record.json").read_text())
    return record


def test_the_record_says_what_came_out_and_how(finished: Path) -> None:
    record = record_of(finished)
    values = record["test_values"]["relative_l2"]
    assert len(values) == record["test_samples"] == 4
    assert record["test"] == {"relative_l2": pytest.approx(np.mean(values))}
    assert record["command"] == "funcattn train darcy"
    assert record["settings"] == json.loads((finished / "settings.json").read_text())
    assert set(record["versions"]) == {"python", "funcattn", "torch", "numpy"}
    assert record["commit"]
    assert record["seconds"] > 0
    task = Darcy(smoke())
    network = build_network(task).network
    assert record["parameters"] == sum(p.numel() for p in network.parameters())


def test_the_logs_have_a_line_an_epoch_and_agree(finished: Path) -> None:
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    with (finished / "metrics.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [{name: float(value) for name, value in row.items()} for row in table] == lines
    record = record_of(finished)
    best = min(lines, key=lambda line: line["validation_relative_l2"])
    assert record["best_epoch"] == best["epoch"]
    assert record["validation"] == best["validation_relative_l2"]
    assert {"train_loss", "rate", "condition_1", "condition_2"} < set(best)


def test_training_draws_nothing_and_a_report_is_made_from_the_run(
    finished: Path, store: Store
) -> None:
    run = Run(finished)
    assert not run.report.exists()
    assert write_report(run, store) == run.report
    text = run.report.read_text()
    assert "<html" in text
    run.report.write_text("mine")
    write_report(run, store)
    assert run.report.read_text() == "mine"


def test_a_run_is_read_from_its_folder(finished: Path, store: Store) -> None:
    run = Run(str(finished))
    assert run.settings == smoke()
    assert isinstance(run.task, Darcy)
    assert run.finished
    assert run.record == record_of(finished)
    assert [line["epoch"] for line in run.history] == [1, 2, 3]
    assert run.state.epoch == 3
    assert run.checkpoints
    assert run.network is run.network
    assert not run.network.training
    kept = best_checkpoint(finished).tensors["model"]
    for name, tensor in model_tensors(run.network).items():
        assert torch.equal(tensor, kept[name]), name
    assert train(smoke(), finished, store=store, resume=True).record == run.record


def test_a_run_that_was_stopped_says_how_far_it_is(tmp_path: Path, store: Store) -> None:
    def stop(state: State, _: int) -> None:
        if (state.epoch, state.step) == (2, 1):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(smoke(), tmp_path / "a", store=store, on_step=stop)
    run = Run(tmp_path / "a")
    assert not run.finished
    assert run.state.epoch == 2
    with pytest.raises(
        RunError, match=r"expected a finished run, got one with 2 of 3 epochs; go on"
    ):
        _ = run.record
    (run.folder / "metrics.jsonl").unlink()  # as after kill -9
    assert [line["epoch"] for line in run.history] == [1, 2]


def test_progress_knows_the_best_epoch_as_soon_as_it_is_over(tmp_path: Path, store: Store) -> None:
    told: list[tuple[int, int, int, int | None]] = []

    def tell(state: State, _: int) -> None:
        told.append((state.epoch, state.step, len(state.history), state.best_epoch))

    train(smoke(optimisation={"epochs": 2}), tmp_path / "a", store=store, on_step=tell)
    assert [line[:3] for line in told] == [
        *[(0, 1, 0), (0, 2, 0), (0, 3, 0), (1, 0, 1)],
        *[(1, 1, 1), (1, 2, 1), (1, 3, 1), (2, 0, 2)],
    ]
    assert [best for *_, best in told[:4]] == [None, None, None, 1]
    assert told[-1][3] == record_of(tmp_path / "a")["best_epoch"]


@pytest.mark.parametrize("there", [False, True], ids=["no folder", "a folder of the user"])
def test_a_refused_training_leaves_nothing(tmp_path: Path, store: Store, there: bool) -> None:
    folder = tmp_path / "a"
    if there:
        folder.mkdir()
    muon = {"optimisation": {"optimiser": "muon"}}
    for settings, message in (
        (smoke(data={"train": 0, "validation": 16}), "data.train: expected at least one sample"),
        (changed(with_model(smoke(), "fno", "smoke"), muon), "muon"),  # refused by the optimiser
    ):
        with pytest.raises(ValueError, match=message):
            train(settings, folder, store=store)
        assert folder.exists() == there
        assert not there or not list(folder.iterdir())


def test_a_network_that_cannot_take_the_task_is_refused_before_data_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(*_: object) -> None:
        raise AssertionError("data was made")

    monkeypatch.setattr(Store, "made", made)
    settings = with_model(TASKS["elasticity"].defaults("smoke", "modern"), "fno", "smoke")
    with pytest.raises(ValueError, match="it needs points on a grid"):
        train(settings, tmp_path / "a", store=Store(tmp_path / "data"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": 0}, "devices: expected at least 1, got 0"),
        ({"device": "cuda:99"}, "device: expected one of auto, cpu.*, got 'cuda:99'"),
        ({"device": "abacus"}, "device: expected one of auto, cpu"),
    ],
)
def test_devices_that_are_not_there_are_refused(
    tmp_path: Path, store: Store, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        train(smoke(), tmp_path / "a", store=store, **options)
    assert not (tmp_path / "a").exists()


def test_the_best_weights_give_the_recorded_numbers(finished: Path, store: Store) -> None:
    record = record_of(finished)
    assert Run(finished).evaluate("test", store) == record["test_values"]
    validation = Run(finished).evaluate("validation", store)
    assert np.mean(validation["relative_l2"]) == pytest.approx(record["validation"], rel=1e-12)


def test_normalisers_and_ranges_are_those_of_the_training_samples(
    finished: Path, store: Store
) -> None:
    task = Darcy(smoke())
    splits = task.splits(store)
    surrogate = build_network(task)
    restore_model(surrogate, best_checkpoint(finished).tensors["model"])
    inputs, targets = (getattr(splits.train, name) for name in ("inputs", "targets"))
    assert len(inputs) == 12
    for fields, normaliser in (
        (inputs, surrogate.input_normaliser),
        (targets, surrogate.output_normaliser),
    ):
        assert normaliser is not None
        exact = fields.astype(np.float64)
        np.testing.assert_allclose(normaliser.mean, [exact.mean()], rtol=1e-6)
        np.testing.assert_allclose(normaliser.scale, [exact.std(ddof=1)], rtol=1e-5)
    assert surrogate.value_range.tolist() == [[inputs.min()], [inputs.max()]]
    assert surrogate.position_range.tolist() == [[0, 0], [1, 1]]


@pytest.mark.parametrize("preset", ["paper", "modern"])
@pytest.mark.parametrize("profile", ["paper", "cpu", "smoke"])
def test_settings_are_read_back_as_they_were_written(tmp_path: Path, profile, preset) -> None:
    for task in TASKS.values():
        settings = task.defaults(profile, preset)
        (tmp_path / "settings.json").write_text(json.dumps(asdict(settings)))
        assert read_settings(tmp_path) == settings


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, store: Store) -> None:
    with pytest.raises(RunError, match=r"expected the folder of a run, got one without settings"):
        Run(tmp_path).evaluate("validation", store)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("model", list(MODELS))
def test_every_model_trains(tmp_path: Path, store: Store, model: str) -> None:
    settings = with_model(smoke(optimisation={"epochs": 1}), model, "smoke")
    record = train(settings, tmp_path / "a", store=store).record
    assert record["settings"]["model"] == model
    assert np.isfinite(record["test"]["relative_l2"])
    # From its folder it is the same network.
    assert Run(tmp_path / "a").evaluate("test", store) == record["test_values"]


def test_data_that_are_not_those_of_the_run_are_refused(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    shutil.copytree(finished, folder)
    path = folder / "settings.json"
    settings = json.loads(path.read_text())
    settings["data"]["seed"] = 1
    path.write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match="the data changed since the run began"):
        Run(folder).evaluate("validation", Store(tmp_path / "data"))
