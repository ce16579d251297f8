"""One run of the queue, in its own process: train, test once, measure, append the result.

The folder of a run holds cell.json (what to do), progress.json (how far it is), log.txt (what it
printed) and run/ (checkpoints; at the end, for seed 0 only, the best weights).
"""

import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from funcattn.data import Store, collate
from funcattn.documents import read_json
from funcattn.errors import Interrupted
from funcattn.experiments.engine.fingerprints import stored
from funcattn.experiments.engine.results import append_line, run_name
from funcattn.experiments.engine.trial import identity
from funcattn.experiments.measures import MEASURES
from funcattn.files import write_text
from funcattn.models import NormalisedNetwork
from funcattn.ops.memory import peak_rise
from funcattn.provenance import cpu_seconds, facts
from funcattn.settings import RunSettings
from funcattn.tasks import TASKS, Task
from funcattn.training.cost import model_cost
from funcattn.training.loop import State
from funcattn.training.run import train
from funcattn.training.settings import saved_settings

DONE, STOPPED, BUSY, CODE_CHANGED = 0, 130, 75, 76
"""Exit codes of the process of a run, except errors."""
_PROGRESS_SECONDS = 5.0


@dataclass(frozen=True)
class Cell:
    """What to do, as kept in cell.json."""

    settings: RunSettings
    fingerprint: str
    """The key of the stored numbers that belong to it."""
    code: str
    """The name of those numbers: what the code must give that runs it."""
    results: Path
    """Where the result goes."""
    cache: Path
    """Where made data is kept."""
    command: str

    @property
    def name(self) -> str:
        """The name of its folder."""
        s = self.settings
        return run_name(s.task, s.model, s.seed, identity(s), self.code)

    def write(self, folder: Path) -> None:
        """Keep it in its folder."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = {"results": str(self.results.resolve()), "cache": str(self.cache.resolve())}
        content = {
            "settings": asdict(self.settings),
            "fingerprint": self.fingerprint,
            "code": self.code,
            "command": self.command,
            **paths,
        }
        write_text(folder / "cell.json", json.dumps(content, indent=1) + "\n")


def read_cell(folder: Path) -> Cell:
    """The cell of a folder."""
    words = ("fingerprint", "code", "results", "cache", "command")
    shape = {"settings": {...: Any}, **dict.fromkeys(words, str)}
    content = read_json(folder / "cell.json", shape, advice="remove the folder")
    return Cell(
        saved_settings(content["settings"]),
        content["fingerprint"],
        content["code"],
        Path(content["results"]),
        Path(content["cache"]),
        content["command"],
    )


def run_cell(folder: Path) -> int:
    """Do what cell.json says, from where it was stopped, and return an exit code."""
    cell = read_cell(folder)
    if stored()[cell.fingerprint].name != cell.code:
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
    store = Store(cell.cache, workers=1)
    TASKS[cell.settings.task](cell.settings).splits(store)  # before the clock of the run starts
    progress = _Progress(folder / "progress.json")
    place = folder / "run"
    run = train(
        cell.settings,
        place,
        resume=(place / "settings.json").exists(),
        store=store,
        on_step=progress.on_step,
        command=cell.command,
    )
    record, history = run.record, run.history
    parameters, operations = model_cost(run.task)
    line = {
        "identity": identity(cell.settings),
        "code": cell.code,
        "task": cell.settings.task,
        "model": cell.settings.model,
        "seed": cell.settings.seed,
        **{name: record[name] for name in ("test", "test_samples", "validation", "best_epoch")},
        "median": {n: statistics.median(each) for n, each in record["test_values"].items()},
        "parameters": parameters,
        "operations": operations,
        "measured": measured(run.task, run.network, history[-1], cell),
        "wall_seconds": record["seconds"],
        "cpu_seconds": round(progress.cpu(), 1),
        "data": record["data"],
        "command": cell.command,
        **facts(),
        "settings": record["settings"] | {"data": _without_path(record["settings"]["data"])},
        "curve": {name: [epoch.get(name) for epoch in history] for name in history[0]},
    }
    append_line(cell.results / f"{cell.settings.task}.jsonl", line)
    write_text(folder / "done", "")
    _tidy(place, keep_weights=cell.settings.seed == 0)


def _without_path(data: Mapping[str, Any]) -> dict[str, Any]:
    """Where files lie on one machine means nothing elsewhere; `data` has their fingerprint."""
    return {name: value for name, value in data.items() if name != "path"}


def _tidy(run: Path, *, keep_weights: bool) -> None:
    """Keep only what pictures are drawn from."""
    if not keep_weights:
        shutil.rmtree(run)
        return
    for checkpoint in (run / "checkpoints").glob("step-*"):
        shutil.rmtree(checkpoint)


class _Progress:
    """CPU time over all processes that worked on a run, and how far it is."""

    def __init__(self, path: Path) -> None:
        self.path, self._written = path, 0.0
        self._before, self._start = 0.0, cpu_seconds()
        if path.exists():
            self._before = read_json(path, {"cpu_seconds": float})["cpu_seconds"]

    def cpu(self) -> float:
        return self._before + cpu_seconds() - self._start

    def on_step(self, state: State, per_epoch: int) -> None:
        if time.monotonic() - self._written < _PROGRESS_SECONDS:
            return
        self._written = time.monotonic()
        content = {
            "steps": state.epoch * per_epoch + state.step,
            "steps_per_epoch": per_epoch,
            "best_validation": state.best_value,
            "cpu_seconds": self.cpu(),
        }
        write_text(self.path, json.dumps(content) + "\n")


def measured(
    task: Task, surrogate: NormalisedNetwork, last: Mapping[str, float], cell: Cell
) -> dict[str, Any]:
    """What tables show besides the metrics of the test."""
    conditions = [value for name, value in last.items() if name.startswith("condition_")]
    values: dict[str, Any] = {
        "condition": sum(conditions) / len(conditions) if conditions else None,
        **inference_cost(task, surrogate, Store(cell.cache, workers=1)),
    }
    more = MEASURES.get(task.name)
    return values if more is None else values | more(surrogate)


def inference_cost(
    task: Task, surrogate: NormalisedNetwork, store: Store, rounds: int = 5
) -> dict[str, float]:
    """Of one prediction: median CPU time in ms, and rise of the peak memory in MB."""
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


def main() -> None:
    """Run the cell of the folder that the command line names."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    sys.exit(run_cell(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
