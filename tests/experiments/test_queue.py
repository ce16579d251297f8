"""The queue: order, workers, failures, and being stopped."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from funcattn.experiments.engine.cell import Cell
from funcattn.experiments.engine.fingerprints import fingerprint_key, fingerprint_of
from funcattn.experiments.engine.queue import Ended, Queue
from funcattn.experiments.engine.results import read_lines
from funcattn.experiments.engine.trial import Trial

Until = Callable[..., None]

# Stands in for the program of a run, which takes seconds to start.
PROGRAM = """
import json, pathlib, sys, time
TOGETHER = 1
folder = pathlib.Path(sys.argv[1])
seed = json.loads((folder / "cell.json").read_text())["settings"]["seed"]
with open(folder.parent / "order", "a") as file:
    file.write(f"{seed} starts\\n")
for _ in range(90000):  # a limit for the case that the others never start
    if (folder.parent / "order").read_text().count("starts") >= TOGETHER:
        break
    time.sleep(0.01)
with open(folder.parent / "order", "a") as file:
    file.write(f"{seed} ends\\n")
if seed == 1:
    raise SystemExit("seed 1 is a bad seed")
sys.exit({2: 75, 3: 76}.get(seed, 0))
"""
WAITS = """
import pathlib, sys, time
(pathlib.Path(sys.argv[1]) / "started").touch()
time.sleep(3600)
(pathlib.Path(sys.argv[1]) / "ended").touch()
"""


def cells(folder: Path, seeds: int) -> list[Cell]:
    return [
        cell_of(Trial("darcy"), seed, folder / "results", folder / "data") for seed in range(seeds)
    ]


def cell_of(trial: Trial, seed: int, results: Path, data: Path) -> Cell:
    code = fingerprint_of(trial).name
    settings = trial.settings("smoke", seed)
    return Cell(settings, fingerprint_key(trial), code, results, data, "the command")


def queue(folder: Path, program: str, workers: int = 1) -> Queue:
    return Queue(folder, workers, program=(sys.executable, "-S", "-c", program), poll_seconds=0.02)


def test_runs_come_in_order_and_a_bad_one_does_not_stop_the_others(tmp_path: Path) -> None:
    told: list[Ended] = []
    this = queue(tmp_path, PROGRAM)
    this.on_end = told.append
    ended = this.run(cells(tmp_path, 5))
    assert ended == told
    assert [each.end for each in ended] == ["done", "failed", "busy", "code changed", "done"]
    assert ended[1].message == "seed 1 is a bad seed"
    order = (tmp_path / "cells/order").read_text().splitlines()
    assert order == [f"{seed} {what}" for seed in range(5) for what in ("starts", "ends")]


def test_two_workers_run_side_by_side(tmp_path: Path) -> None:
    both = PROGRAM.replace("TOGETHER = 1", "TOGETHER = 2")
    queue(tmp_path, both, workers=2).run([*cells(tmp_path, 5)[::4]])
    order = (tmp_path / "cells/order").read_text().splitlines()
    assert sorted(order[:2]) == ["0 starts", "4 starts"]


def test_progress_is_reported(tmp_path: Path) -> None:
    (cell,) = cells(tmp_path, 1)
    this = queue(tmp_path, PROGRAM)
    assert this.fraction_done(cell) == 0
    this.place(cell).mkdir(parents=True)
    progress = {"steps": 3, "steps_per_epoch": 2}
    (this.place(cell) / "progress.json").write_text(json.dumps(progress))
    epochs = cell.settings.optimisation.epochs
    assert this.fraction_done(cell) == pytest.approx(3 / (2 * epochs))


def test_asked_to_stop_it_stops_its_runs(tmp_path: Path, until: Until) -> None:
    this = queue(tmp_path, WAITS, workers=2)

    def ask() -> None:
        try:
            until(lambda: len([*tmp_path.glob("cells/*/started")]) == 2)
        finally:  # without it the queue would wait for its runs
            os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    asking.start()
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        this.run(cells(tmp_path, 3))
    asking.join()
    # Stopped, not waited for: a run that comes to its end says so.
    assert len([*tmp_path.glob("cells/*/started")]) == 2
    assert not [*tmp_path.glob("cells/*/ended")]
    assert signal.getsignal(signal.SIGTERM) is before
    assert not this._working


def test_a_run_at_work_is_not_forgotten(tmp_path: Path) -> None:
    (cell,) = cells(tmp_path, 1)
    this = queue(tmp_path, PROGRAM)
    this.forget(cell)
    cell.write(this.place(cell))
    with (
        FileLock(this.place(cell) / ".lock"),
        pytest.raises(ValueError, match="that another command works on"),
    ):
        this.forget(cell)
    assert this.place(cell).exists()
    this.forget(cell)
    assert not this.place(cell).exists()


@pytest.mark.full
def test_killed_and_resumed_it_gives_the_same_numbers(tmp_path: Path, until: Until) -> None:
    """The real program, killed without warning in the middle of its training."""
    trial = Trial("few_shot", changes={"data": {"train": 800}, "optimisation": {"epochs": 6}})
    lines = []
    for name in ("whole", "killed"):
        folder = tmp_path / name
        this = Queue(folder, poll_seconds=0.1)
        cell = cell_of(trial, 0, folder, tmp_path / "data")
        if name == "killed":
            cell.write(this.place(cell))
            process = subprocess.Popen([*this.program, str(this.place(cell))])
            checkpoints = this.place(cell) / "run/checkpoints"
            try:
                until(lambda folder=checkpoints: [*folder.glob("step-*")], process)
            finally:
                process.kill()
                process.wait()
            assert not (folder / "few_shot.jsonl").exists()
        assert [each.end for each in this.run([cell])] == ["done"]
        lines += read_lines(folder / "few_shot.jsonl")
    whole, resumed = lines
    assert whole["test"] == resumed["test"]
    assert whole["curve"] == resumed["curve"]
    assert whole["measured"]["mse"] == resumed["measured"]["mse"]
