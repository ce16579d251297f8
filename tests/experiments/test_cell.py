"""One run of the queue: its result, and that nothing is lost or done twice."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from funcattn.data import Store
from funcattn.experiments import EXPERIMENTS
from funcattn.experiments import cell as cell_module
from funcattn.experiments.base import Run, identity
from funcattn.experiments.cell import (
    BUSY,
    CODE_CHANGED,
    DONE,
    STOPPED,
    Cell,
    read_cell,
    run_cell,
)
from funcattn.experiments.results import Results, read_lines
from funcattn.experiments.version import code_version
from funcattn.settings import changed
from funcattn.training import run as run_module
from funcattn.training.loop import Interrupted


@pytest.fixture(autouse=True)
def _without_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "describe_run", lambda *_: None)
    monkeypatch.setattr(run_module, "write_run_report", lambda path, _: path.write_text(""))
    monkeypatch.setattr(os, "fsync", lambda _: None)


def smoke_cell(run: Run, folder: Path, store: Store, seed: int = 0) -> Path:
    """The folder of a run at tier smoke, ready to be run."""
    settings = run.settings("smoke", seed)
    cell = Cell(settings, code_version(run.task), folder / "results", store.folder, "the command")
    cell.write(folder / cell.name)
    return folder / cell.name


def test_what_is_kept_of_a_cell_is_what_it_was(tmp_path: Path, store: Store) -> None:
    folder = smoke_cell(Run("airfoil", changes={"network": {"bases": 5}}), tmp_path, store, seed=2)
    cell = read_cell(folder)
    assert cell.settings == Run("airfoil", changes={"network": {"bases": 5}}).settings("smoke", 2)
    assert cell.name == folder.name
    assert cell.command == "the command"


def test_a_run_leaves_its_result(tmp_path: Path, store: Store) -> None:
    run = Run("darcy")
    folder = smoke_cell(run, tmp_path, store)
    assert run_cell(folder) == DONE
    results = Results(tmp_path / "results")
    found = results.find(run.settings("smoke"))
    assert found is not None
    assert found.current
    assert found.name == folder.name
    line = found.line
    record = json.loads((folder / "run/record.json").read_text())
    assert line["test"] == record["test"]
    assert line["command"] == "the command"
    assert line["parameters"] == record["parameters"]
    assert line["identity"] == identity(run.settings("smoke"))
    assert "path" not in line["settings"]["data"]
    assert line["operations"] > 0
    assert line["measured"]["inference_ms"] > 0
    curve, epochs = line["curve"], run.settings("smoke").optimisation.epochs
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
    folder = smoke_cell(Run("darcy"), tmp_path, store, seed=1)
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

    folder = smoke_cell(Run("darcy"), tmp_path, store)
    monkeypatch.setattr(cell_module, "train", train)
    assert run_cell(folder) == STOPPED
    assert not (tmp_path / "results").exists()


def test_two_do_not_do_the_same(tmp_path: Path, store: Store) -> None:
    folder = smoke_cell(Run("darcy"), tmp_path, store)
    with FileLock(folder / ".lock"):
        assert run_cell(folder) == BUSY
    assert not (folder / "run").exists()


def test_other_code_does_not_go_on_with_it(tmp_path: Path, store: Store) -> None:
    folder = smoke_cell(Run("darcy"), tmp_path, store)
    replace(read_cell(folder), code="of yesterday").write(folder)
    assert run_cell(folder) == CODE_CHANGED
    assert not (folder / "run").exists()


def test_cpu_time_adds_up(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    path.write_text(json.dumps({"cpu_seconds": 1e6}))
    assert cell_module._Spent(path).cpu() > 1e6


def test_few_shot_has_its_error_curve(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = cell_module.error_by_observations
    monkeypatch.setattr(
        cell_module, "error_by_observations", lambda network: few(network, tasks=5, queries=9)
    )
    experiment = EXPERIMENTS["few_shot"]
    run = experiment.runs["softmax", "5"]
    assert isinstance(run, Run)
    assert run_cell(smoke_cell(run, tmp_path, store)) == DONE
    found = Results(tmp_path / "results").find(run.settings("smoke"))
    assert found is not None
    for column in experiment.columns.values():
        value = found.value(column.metric)
        assert value is not None
        assert value > 0


def _runs() -> dict[str, Run]:
    """Every run of every experiment that can be made from nothing."""
    wanted = [run for experiment in EXPERIMENTS.values() for run in experiment.wanted()]
    able = [run for run in wanted if run.task != "rna" and run.refusal("smoke") is None]
    distinct = {identity(run.settings("smoke")): run for run in able}.values()
    return {f"{run.task}-{run.model}-{[*run.changes.values()]}": run for run in distinct}


@pytest.mark.full
@pytest.mark.parametrize("run", _runs().values(), ids=_runs())
def test_every_run_starts_and_fills_its_columns(tmp_path: Path, store: Store, run: Run) -> None:
    assert run_cell(smoke_cell(run, tmp_path, store)) == DONE
    found = Results(tmp_path / "results").find(run.settings("smoke"))
    assert found is not None
    for experiment in EXPERIMENTS.values():
        for (_, name), wanted in experiment.runs.items():
            if wanted == run:
                metric = experiment.columns[name].metric
                # At tier smoke one case may be all that lies outside the range: it has no rank.
                alone = found.line["test_samples"] < 2 and metric.endswith("rank_correlation")
                assert found.value(metric) is not None or alone, (experiment.name, metric)


def test_rna_is_read_from_where_it_lies(tmp_path: Path, store: Store) -> None:
    settings: Any = changed(Run("rna").settings("smoke"), {"data": {"path": "/nowhere"}})
    cell = Cell(settings, code_version("rna"), tmp_path / "results", store.folder, "")
    cell.write(tmp_path / "a")
    with pytest.raises(FileNotFoundError, match="expected the RNA Surface Segmentation Dataset"):
        run_cell(tmp_path / "a")
