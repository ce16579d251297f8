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

from funcattn.data import Store
from funcattn.models import MODELS
from funcattn.settings import RunSettings, changed
from funcattn.tasks import TASKS
from funcattn.tasks.darcy import Darcy
from funcattn.training import run as run_module
from funcattn.training.checkpoint import CheckpointError, restore_model
from funcattn.training.loop import best_checkpoint
from funcattn.training.run import evaluate_run, train
from funcattn.training.setup import RunError, build_surrogate, read_settings, with_model


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without reports, and without waiting for the disk."""
    monkeypatch.setattr(run_module, "describe_run", lambda *_: None)
    monkeypatch.setattr(run_module, "write_run_report", lambda path, _: path.write_text(""))
    monkeypatch.setattr(os, "fsync", lambda _: None)


def smoke(**changes: Any) -> RunSettings:
    return changed(Darcy.defaults("smoke", "modern"), changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Path:
    """A run as a user makes it, with its report."""
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
    network = build_surrogate(task).network
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


def test_a_report_that_is_missing_is_made_when_the_run_is_asked_for_again(
    finished: Path, store: Store
) -> None:
    report = finished / "report.html"
    assert "<html" in report.read_text()
    report.unlink()
    assert train(smoke(), finished, store=store, resume=True) == record_of(finished)
    assert "<html" in report.read_text()


def test_a_report_that_fails_does_not_lose_the_record(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no pictures today")

    monkeypatch.setattr(run_module, "describe_run", fail)
    settings = smoke(optimisation={"epochs": 1})
    with pytest.raises(RuntimeError, match="no pictures"):
        train(settings, tmp_path / "a", store=store)
    assert record_of(tmp_path / "a")["epochs"] == 1


def test_the_best_weights_give_the_recorded_numbers(finished: Path, store: Store) -> None:
    record = record_of(finished)
    assert evaluate_run(finished, "test", store) == record["test_values"]
    validation = evaluate_run(finished, "validation", store)
    assert np.mean(validation["relative_l2"]) == pytest.approx(record["validation"], rel=1e-12)


def test_normalisers_and_ranges_are_those_of_the_training_samples(
    finished: Path, store: Store
) -> None:
    task = Darcy(smoke())
    splits = task.splits(store)
    surrogate = build_surrogate(task)
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
        evaluate_run(tmp_path, "validation", store)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("model", list(MODELS))
def test_every_model_trains(tmp_path: Path, store: Store, model: str) -> None:
    settings = with_model(smoke(optimisation={"epochs": 1}), model, "smoke")
    record = train(settings, tmp_path / "a", store=store)
    assert record["settings"]["model"] == model
    assert np.isfinite(record["test"]["relative_l2"])
    # From its folder it is the same network.
    assert evaluate_run(tmp_path / "a", "test", store) == record["test_values"]


def test_data_that_are_not_those_of_the_run_are_refused(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    shutil.copytree(finished, folder)
    path = folder / "settings.json"
    settings = json.loads(path.read_text())
    settings["data"]["seed"] = 1
    path.write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match="the data changed since the run began"):
        evaluate_run(folder, "validation", Store(tmp_path / "data"))
