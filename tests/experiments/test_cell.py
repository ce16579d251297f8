"""One run of the queue: its result, and that nothing is lost or done twice."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from funcattn.data import Store
from funcattn.experiments import EXPERIMENTS, measures
from funcattn.experiments.engine import cell as cell_module
from funcattn.experiments.engine.cell import (
    BUSY,
    CODE_CHANGED,
    DONE,
    STOPPED,
    Cell,
    read_cell,
    run_cell,
)
from funcattn.experiments.engine.fingerprints import fingerprint_key, fingerprint_of
from funcattn.experiments.engine.results import Results, read_lines
from funcattn.experiments.engine.trial import Trial, identity
from funcattn.settings import changed
from funcattn.training import run as run_module
from funcattn.training.loop import Interrupted


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


def smoke_cell(trial: Trial, folder: Path, store: Store, seed: int = 0) -> Path:
    """The folder of a trial at tier smoke, ready to be run."""
    cell = Cell(
        trial.settings("smoke", seed),
        fingerprint_key(trial),
        fingerprint_of(trial).name,
        folder / "results",
        store.folder,
        "the command",
    )
    cell.write(folder / cell.name)
    return folder / cell.name


def test_what_is_kept_of_a_cell_is_what_it_was(tmp_path: Path, store: Store) -> None:
    folder = smoke_cell(
        Trial("airfoil", changes={"network": {"bases": 5}}), tmp_path, store, seed=2
    )
    cell = read_cell(folder)
    assert cell.settings == Trial("airfoil", changes={"network": {"bases": 5}}).settings("smoke", 2)
    assert cell.name == folder.name
    assert cell.command == "the command"


def test_a_run_leaves_its_result(tmp_path: Path, store: Store) -> None:
    trial = Trial("darcy")
    folder = smoke_cell(trial, tmp_path, store)
    assert run_cell(folder) == DONE
    results = Results(tmp_path / "results")
    found = results.find(trial, "smoke")
    assert found is not None
    assert found.current
    assert found.name == folder.name
    line = found.line
    record = json.loads((folder / "run/record.json").read_text())
    assert line["test"] == record["test"]
    assert line["command"] == "the command"
    assert line["parameters"] == record["parameters"]
    assert line["identity"] == identity(trial.settings("smoke"))
    assert "path" not in line["settings"]["data"]
    assert line["operations"] > 0
    assert line["measured"]["inference_ms"] > 0
    curve, epochs = line["curve"], trial.settings("smoke").optimisation.epochs
    assert curve["epoch"] == [float(epoch + 1) for epoch in range(epochs)]
    last = [curve[f"condition_{layer}"][-1] for layer in (1, 2)]
    assert line["measured"]["condition"] == pytest.approx(sum(last) / 2)
    assert {p.name.split("-")[0] for p in (folder / "run/checkpoints").iterdir()} == {"best"}
    # Again, nothing is done.
    assert run_cell(folder) == DONE
    assert len(read_lines(tmp_path / "results/darcy.jsonl")) == 1


def test_stopped_before_its_line_was_written_it_is_not_tested_again(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = smoke_cell(Trial("darcy"), tmp_path, store, seed=1)
    with monkeypatch.context() as patch:
        patch.setattr(cell_module, "append_line", _killed)
        with pytest.raises(KeyboardInterrupt):
            run_cell(folder)
    record = json.loads((folder / "run/record.json").read_text())
    monkeypatch.setattr(run_module, "evaluate", _killed)
    assert run_cell(folder) == DONE
    (line,) = read_lines(tmp_path / "results/darcy.jsonl")
    assert line["test"] == record["test"]
    assert not (folder / "run").exists()  # of other seeds than 0 no weights are kept


def _killed(*given: object) -> None:  # noqa: ARG001
    raise KeyboardInterrupt


def test_asked_to_stop_it_says_so(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(*given: object, **named: object) -> None:  # noqa: ARG001
        raise Interrupted("SIGTERM")

    folder = smoke_cell(Trial("darcy"), tmp_path, store)
    monkeypatch.setattr(cell_module, "train", train)
    assert run_cell(folder) == STOPPED
    assert not (tmp_path / "results").exists()


def test_two_do_not_do_the_same(tmp_path: Path, store: Store) -> None:
    folder = smoke_cell(Trial("darcy"), tmp_path, store)
    with FileLock(folder / ".lock"):
        assert run_cell(folder) == BUSY
    assert not (folder / "run").exists()


def test_other_code_does_not_go_on_with_it(tmp_path: Path, store: Store) -> None:
    folder = smoke_cell(Trial("darcy"), tmp_path, store)
    replace(read_cell(folder), code="of yesterday").write(folder)
    assert run_cell(folder) == CODE_CHANGED
    assert not (folder / "run").exists()


def test_cpu_time_adds_up_from_the_start_of_the_run(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    path.write_text(json.dumps({"cpu_seconds": 1e6}))
    progress = cell_module._Progress(path)
    assert 0 <= progress.cpu() - 1e6 < 0.5  # that of this process before is seconds


def test_data_is_made_before_the_clock_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = Store(tmp_path / "data")

    def started(path: Path) -> None:
        del path
        assert len(empty.sets()) == 1
        raise KeyboardInterrupt

    folder = smoke_cell(Trial("darcy"), tmp_path, empty)
    monkeypatch.setattr(cell_module, "_Progress", started)
    with pytest.raises(KeyboardInterrupt):
        run_cell(folder)


def test_few_shot_has_its_error_curve(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = measures.error_by_observations
    monkeypatch.setattr(
        measures, "error_by_observations", lambda network: few(network, tasks=5, queries=9)
    )
    experiment = EXPERIMENTS["few_shot"]
    trial = experiment.trials["softmax", "5"]
    assert isinstance(trial, Trial)
    assert run_cell(smoke_cell(trial, tmp_path, store)) == DONE
    found = Results(tmp_path / "results").find(trial, "smoke")
    assert found is not None
    for column in experiment.columns.values():
        value = found.value(column.metric)
        assert value is not None
        assert value > 0


def _trials() -> dict[str, Trial]:
    """Every trial of every experiment that needs no data from elsewhere."""
    wanted = [trial for experiment in EXPERIMENTS.values() for trial in experiment.wanted()]
    able = [trial for trial in wanted if trial.task != "rna" and trial.refusal("smoke") is None]
    distinct = {identity(trial.settings("smoke")): trial for trial in able}.values()
    return {f"{each.task}-{each.model}-{[*each.changes.values()]}": each for each in distinct}


@pytest.mark.full
@pytest.mark.parametrize("trial", _trials().values(), ids=_trials())
def test_every_trial_fills_its_columns(tmp_path: Path, store: Store, trial: Trial) -> None:
    assert run_cell(smoke_cell(trial, tmp_path, store)) == DONE
    found = Results(tmp_path / "results").find(trial, "smoke")
    assert found is not None
    for experiment in EXPERIMENTS.values():
        for (_, name), wanted in experiment.trials.items():
            if wanted == trial:
                metric = experiment.columns[name].metric
                # At tier smoke one case may be all that lies outside the range: it has no rank.
                alone = found.line["test_samples"] < 2 and metric.endswith("rank_correlation")
                assert found.value(metric) is not None or alone, (experiment.name, metric)


def test_rna_is_read_from_where_it_lies(tmp_path: Path, store: Store) -> None:
    trial = Trial("rna")
    settings: Any = changed(trial.settings("smoke"), {"data": {"path": "/nowhere"}})
    code = fingerprint_of(trial).name
    cell = Cell(settings, fingerprint_key(trial), code, tmp_path / "results", store.folder, "")
    cell.write(tmp_path / "a")
    with pytest.raises(FileNotFoundError, match="expected the RNA Surface Segmentation Dataset"):
        run_cell(tmp_path / "a")
