"""One run of the queue, in a process of its own: train, test once, measure, append the result.

The folder of a run: cell.json says what to do, progress.json how far it is, log.txt what it said,
run/ holds checkpoints, and of seed 0 at the end the best weights.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from funcattn.bench.memory import peak_rise
from funcattn.data import Store, collate
from funcattn.experiments.base import identity
from funcattn.experiments.results import append_line, run_name
from funcattn.experiments.version import code_version
from funcattn.models import Surrogate
from funcattn.provenance import cpu_seconds, facts
from funcattn.settings import RunSettings, changed
from funcattn.tasks import TASKS, Task
from funcattn.tasks.few_shot import error_by_observations
from funcattn.training.checkpoint import restore_model, write_whole
from funcattn.training.cost import model_cost
from funcattn.training.loop import Interrupted, State, best_checkpoint
from funcattn.training.run import train
from funcattn.training.setup import build_surrogate

DONE, STOPPED, BUSY, CODE_CHANGED = 0, 130, 75, 76
"""How the process of a run ends, if not by an error."""
_PROGRESS_SECONDS = 5.0


@dataclass(frozen=True)
class Cell:
    """What to do, as kept in cell.json."""

    settings: RunSettings
    code: str
    """The version of the code that must run it."""
    results: Path
    """Where the result goes."""
    cache: Path
    """Where made data is kept."""
    command: str

    @property
    def name(self) -> str:
        """Of its folder."""
        s = self.settings
        return run_name(s.task, s.model, s.seed, identity(s), self.code)

    def write(self, folder: Path) -> None:
        """Keep it in its folder."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = {"results": str(self.results.resolve()), "cache": str(self.cache.resolve())}
        said = {"settings": asdict(self.settings), "code": self.code, "command": self.command}
        write_whole(folder / "cell.json", json.dumps(said | paths, indent=1) + "\n")


def read_cell(folder: Path) -> Cell:
    """The cell of a folder."""
    said = json.loads((folder / "cell.json").read_text())
    start = TASKS[said["settings"]["task"]].defaults("paper", "paper")
    return Cell(
        changed(start, said["settings"]),
        said["code"],
        Path(said["results"]),
        Path(said["cache"]),
        said["command"],
    )


def run_cell(folder: Path) -> int:
    """Do what cell.json says, from wherever it was stopped; how it ended."""
    cell = read_cell(folder)
    if code_version(cell.settings.task) != cell.code:
        return CODE_CHANGED
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return BUSY
    try:
        if not (folder / "done").exists():
            _run(cell, folder)
    except Interrupted:
        return STOPPED
    finally:
        lock.release()
    return DONE


def _run(cell: Cell, folder: Path) -> None:
    spent = _Spent(folder / "progress.json")
    run = folder / "run"
    record = train(
        cell.settings,
        run,
        resume=(run / "settings.json").exists(),
        store=Store(cell.cache, workers=1),
        on_step=spent.on_step,
        command=cell.command,
    )
    task = TASKS[cell.settings.task](cell.settings)
    surrogate = build_surrogate(task)
    restore_model(surrogate, best_checkpoint(run).tensors["model"])
    history = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    parameters, operations = model_cost(task)
    line = {
        "identity": identity(cell.settings),
        "code": cell.code,
        "task": cell.settings.task,
        "model": cell.settings.model,
        "seed": cell.settings.seed,
        **{name: record[name] for name in ("test", "test_samples", "validation", "best_epoch")},
        "parameters": parameters,
        "operations": operations,
        "measured": measured(task, surrogate, history[-1], cell),
        "wall_seconds": record["seconds"],
        "cpu_seconds": round(spent.cpu(), 1),
        "data": record["data"],
        "command": cell.command,
        **facts(),
        "settings": record["settings"] | {"data": _without_path(record["settings"]["data"])},
        "curve": {name: [epoch.get(name) for epoch in history] for name in history[0]},
    }
    append_line(cell.results / f"{cell.settings.task}.jsonl", line)
    write_whole(folder / "done", "")
    _tidy(run, keep_weights=cell.settings.seed == 0)


def _without_path(data: Mapping[str, Any]) -> dict[str, Any]:
    """Where files lie on one machine says nothing to others; `data` has their fingerprint."""
    return {name: value for name, value in data.items() if name != "path"}


def _tidy(run: Path, *, keep_weights: bool) -> None:
    """Leave what pictures are drawn from."""
    if not keep_weights:
        shutil.rmtree(run)
        return
    for checkpoint in (run / "checkpoints").glob("step-*"):
        shutil.rmtree(checkpoint)


class _Spent:
    """CPU time over all processes that worked on a run, and how far it is."""

    def __init__(self, path: Path) -> None:
        self.path, self._written = path, 0.0
        self._before = 0.0
        if path.exists():
            self._before = float(json.loads(path.read_text())["cpu_seconds"])

    def cpu(self) -> float:
        return self._before + cpu_seconds()

    def on_step(self, state: State, per_epoch: int) -> None:
        if time.monotonic() - self._written < _PROGRESS_SECONDS:
            return
        self._written = time.monotonic()
        said = {
            "steps": state.epoch * per_epoch + state.step,
            "steps_an_epoch": per_epoch,
            "best_validation": state.best_value,
            "cpu_seconds": self.cpu(),
        }
        write_whole(self.path, json.dumps(said) + "\n")


# Measured beside the test


def measured(
    task: Task, surrogate: Surrogate, last: Mapping[str, float], cell: Cell
) -> dict[str, Any]:
    """What tables show besides test metrics."""
    conditions = [value for name, value in last.items() if name.startswith("condition_")]
    found: dict[str, Any] = {
        "condition": sum(conditions) / len(conditions) if conditions else None,
        **inference_cost(task, surrogate, Store(cell.cache, workers=1)),
    }
    more = _OF_TASK.get(task.name)
    return found if more is None else found | more(surrogate)


def inference_cost(
    task: Task, surrogate: Surrogate, store: Store, rounds: int = 5
) -> dict[str, float]:
    """CPU time (the median, ms) and rise of the peak memory (MB) of one prediction."""
    dtype = next(surrogate.parameters()).dtype
    batch = collate([task.splits(store).validation[0]]).to("cpu", dtype)
    network, times = surrogate.eval(), []
    with torch.no_grad():
        task.predict(network, batch)
        for _ in range(rounds):
            start = time.process_time()
            task.predict(network, batch)
            times.append(1e3 * (time.process_time() - start))
        rise = peak_rise(lambda: task.predict(network, batch))
    return {"inference_ms": sorted(times)[rounds // 2], "inference_mb": rise / 2**20}


def _errors_by_observations(network: Surrogate) -> dict[str, Any]:
    errors = error_by_observations(network.eval())
    return {"mse": {str(size): error for size, error in errors.items()}}


_OF_TASK: dict[str, Callable[[Surrogate], dict[str, Any]]] = {"few_shot": _errors_by_observations}


def main() -> None:
    """Run the cell of the folder that is named on the command line."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    sys.exit(run_cell(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
