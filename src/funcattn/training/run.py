"""A run: a folder with settings, checkpoints, logs, the record of the test, and the report.

settings.json      everything that decides the numbers; can be run again
checkpoints/       step-*: to resume from; best-*: the weights that did best on validation data
metrics.jsonl/csv  a line an epoch
record.json        what came out, and how it was made
report.html        the same, to look at
"""

import csv
import fcntl
import io
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from funcattn.models import Surrogate
from funcattn.settings import RunSettings
from funcattn.tasks import TASKS, Splits
from funcattn.training.checkpoint import restore_model, write_whole
from funcattn.training.loop import State, Trainer, best_checkpoint, evaluate
from funcattn.training.report import describe_run
from funcattn.training.setup import RunError, build_surrogate, read_settings
from funcattn.viz import write_run_report


def train(
    settings: RunSettings,
    folder: Path,
    *,
    resume: bool = False,
    cache: Path,
    devices: int = 1,
    on_data: Callable[[int, int], None] = lambda done, total: None,  # noqa: ARG005
    on_step: Callable[[State, int], None] = lambda state, steps: None,  # noqa: ARG005
    command: str = "",
    heeds_signals: bool = True,
) -> dict[str, Any]:
    """Train, choose the epoch on validation data, test once, and return the record.

    heeds_signals: Ctrl-C and SIGTERM finish the step and save; a worker process leaves them to the
    process that started it.
    """
    if (folder / "settings.json").exists():
        if not resume:
            raise RunError(f"{folder} holds a run already: resume it, or choose another folder")
        settings = read_settings(folder)
    elif resume:
        raise RunError(f"{folder}: expected a run to resume, got no settings.json there")
    folder.mkdir(parents=True, exist_ok=True)
    with _only_one(folder):
        record = folder / "record.json"
        if record.exists():
            return _reported(folder, cache)
        task = TASKS[settings.task](settings)
        splits = task.splits(cache, on_data)
        surrogate = build_surrogate(task)
        _fit(surrogate, splits, task.outputs)
        fabric = Fabric(accelerator="auto", devices=devices, precision=settings.precision)
        fabric.launch()
        trainer = Trainer(
            task,
            splits,
            surrogate,
            folder,
            fabric=fabric,
            on_step=on_step,
            heeds_signals=heeds_signals,
        )
        if fabric.is_global_zero:
            write_whole(folder / "settings.json", json.dumps(asdict(settings), indent=1) + "\n")
        trainer.resume()
        try:
            trainer.run()
        except BaseException:
            # A full disk is what may have stopped the run: say that, not that a log failed too.
            with suppress(OSError):
                _write_logs(trainer, folder)
            raise
        _write_logs(trainer, folder)
        _finish(trainer, folder, command)
        if fabric.is_global_zero:
            _reported(folder, cache)
        fabric.barrier()
        return _reported(folder, cache)


def _fit(surrogate: Surrogate, splits: Splits, outputs: int) -> None:
    """Normalisers and ranges, from training samples only."""
    samples = [splits.train[i] for i in range(len(splits.train))]
    surrogate.fit(
        (s.positions for s in samples),
        (s.values for s in samples if s.values is not None),
        (s.target.reshape(-1, outputs) for s in samples),
    )


def _reported(folder: Path, cache: Path) -> dict[str, Any]:
    """The record of a finished run, after its report is there."""
    path = folder / "report.html"
    if not path.exists():
        write_run_report(path, describe_run(folder, cache))
    record: dict[str, Any] = json.loads((folder / "record.json").read_text())
    return record


def _finish(trainer: Trainer, folder: Path, command: str) -> None:
    """The one test, and what it is recorded with."""
    task, state = trainer.task, trainer.state
    restore_model(trainer.evaluated, best_checkpoint(folder).tensors["model"])
    metrics, _ = evaluate(task, trainer.evaluated, trainer.splits.test, trainer.fabric)
    record = {
        "task": task.name,
        "test": {name: sum(values) / len(values) for name, values in metrics.items()},
        "test_samples": len(trainer.splits.test),
        "test_note": f"read once, with the weights of epoch {state.best_epoch}",
        "validation": state.best_value,
        "best_epoch": state.best_epoch,
        "epochs": state.epoch,
        "seconds": round(state.seconds, 1),
        "parameters": sum(p.numel() for p in trainer.surrogate.network.parameters()),
        "data": trainer.splits.fingerprint,
        "test_values": metrics,
        **facts(command),
        "settings": asdict(task.settings),
    }
    if trainer.fabric.is_global_zero:
        write_whole(folder / "record.json", json.dumps(record, indent=1) + "\n")


def facts(command: str) -> dict[str, Any]:
    """How a number came to be: command, commit, machine, versions."""
    return {
        "command": command or " ".join(sys.argv),
        "commit": _commit(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "threads": torch.get_num_threads(),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("funcattn", "torch", "numpy")},
        },
    }


def _commit() -> str:
    """The commit of the source this runs from, marked where the tree differs from it."""
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        run = subprocess.run(
            describe, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return run.stdout.strip()


def _write_logs(trainer: Trainer, folder: Path) -> None:
    """A line an epoch, for programs and for spreadsheets."""
    if not trainer.fabric.is_global_zero:
        return
    history = trainer.state.history
    write_whole(folder / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in history))
    table = io.StringIO()
    names = list(dict.fromkeys(name for line in history for name in line))
    writer = csv.DictWriter(table, names)
    writer.writeheader()
    writer.writerows(history)
    write_whole(folder / "metrics.csv", table.getvalue())


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Refuse a second process of this machine in the same folder; a dead one holds nothing."""
    rank = int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")))
    with (folder / ".lock").open("w") as file:
        try:
            if rank == 0:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(f"{folder}: another process is training into this folder") from None
        yield


def evaluate_run(folder: Path, split: str, cache: Path) -> dict[str, list[float]]:
    """Metrics of each sample of a split, by the run's best weights."""
    settings = read_settings(folder)
    task = TASKS[settings.task](settings)
    splits = task.splits(cache, lambda done, total: None)  # noqa: ARG005
    surrogate = build_surrogate(task)
    restore_model(surrogate, best_checkpoint(folder).tensors["model"])
    samples = splits.test if split == "test" else splits.validation
    fabric = Fabric(accelerator="auto", devices=1, precision=settings.precision)
    return evaluate(task, fabric.to_device(surrogate), samples, fabric)[0]
