"""A run: a folder with settings, checkpoints, logs, the record of the test, and the report.

settings.json      everything that decides the numbers; can be run again
checkpoints/       step-*: to resume from; best-*: the weights that did best on validation data
metrics.jsonl/csv  a line an epoch
record.json        what came out, and how it was made
report.html        the same, to look at
"""

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch.distributed as dist
from filelock import FileLock, Timeout
from lightning_fabric import Fabric

from funcattn.data import Store
from funcattn.models import Surrogate
from funcattn.provenance import facts
from funcattn.settings import RunSettings
from funcattn.tasks import TASKS, Splits
from funcattn.training.checkpoint import restore_model, write_whole
from funcattn.training.loggers import LoggerName, open_logger
from funcattn.training.loop import State, Trainer, best_checkpoint, check_fingerprint, evaluate
from funcattn.training.report import describe_run
from funcattn.training.setup import RunError, build_surrogate, read_settings
from funcattn.viz import write_run_report


def train(
    settings: RunSettings,
    folder: Path,
    *,
    resume: bool = False,
    store: Store,
    devices: int = 1,
    logger: LoggerName | None = None,
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
    with _only_one(folder), _own_group():
        record = folder / "record.json"
        if record.exists():
            return _reported(folder, store)
        task = TASKS[settings.task](settings)
        splits = task.splits(store)
        surrogate = build_surrogate(task)
        _fit(surrogate, splits, task.outputs)
        fabric = _fabric(devices, settings.precision)
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
        if logger is not None and fabric.is_global_zero:
            trainer.on_epoch = open_logger(logger, folder, settings, trainer.state.epoch)
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
            _reported(folder, store)
        fabric.barrier()
        return _reported(folder, store)


def _fit(surrogate: Surrogate, splits: Splits, outputs: int) -> None:
    """Normalisers and ranges, from training samples only."""
    samples = [splits.train[i] for i in range(len(splits.train))]
    surrogate.fit(
        (s.positions for s in samples),
        (s.values for s in samples if s.values is not None),
        (s.target.reshape(-1, outputs) for s in samples),
    )


def _reported(folder: Path, store: Store) -> dict[str, Any]:
    """The record of a finished run, after its report is there."""
    path = folder / "report.html"
    if not path.exists():
        write_run_report(path, describe_run(folder, store))
    record: dict[str, Any] = json.loads((folder / "record.json").read_text())
    return record


def _finish(trainer: Trainer, folder: Path, command: str) -> None:
    """The one test, and what it is recorded with."""
    task, state = trainer.task, trainer.state
    restore_model(trainer.evaluated, best_checkpoint(folder).tensors["model"])
    metrics, _ = evaluate(task, trainer.evaluated, trainer.splits.test, trainer.fabric)
    record = {
        "task": task.name,
        "test": task.summary(metrics),
        "test_samples": len(trainer.splits.test),
        "test_note": f"read once, with the weights of epoch {state.best_epoch}",
        "validation": state.best_value,
        "best_epoch": state.best_epoch,
        "epochs": state.epoch,
        "seconds": round(state.seconds, 1),
        "parameters": sum(p.numel() for p in trainer.surrogate.network.parameters()),
        "data": trainer.splits.fingerprint,
        "test_values": metrics,
        "command": command or " ".join(sys.argv),
        **facts(),
        "settings": asdict(task.settings),
    }
    if trainer.fabric.is_global_zero:
        write_whole(folder / "record.json", json.dumps(record, indent=1) + "\n")


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
    lock = FileLock(folder / ".lock")
    try:
        if int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0:
            lock.acquire(timeout=0)
    except Timeout:
        raise RunError(f"{folder}: another process is training into this folder") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _own_group() -> Iterator[None]:
    """End the group of processes begun inside, whose threads could abort this one at its end."""
    was_there = dist.is_initialized()
    try:
        yield
    finally:
        if dist.is_initialized() and not was_there:
            dist.destroy_process_group()


def _fabric(devices: int, precision: Any) -> Fabric:
    """On this machine, or as one of the processes that torchrun started on one or several."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return Fabric(accelerator="auto", devices=devices, precision=precision)
    local, world = (int(os.environ[name]) for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE"))
    return Fabric(accelerator="auto", devices=local, num_nodes=world // local, precision=precision)


def evaluate_run(folder: Path, split: str, store: Store) -> dict[str, list[float]]:
    """Metrics of each sample of a split, by the run's best weights."""
    settings = read_settings(folder)
    task = TASKS[settings.task](settings)
    splits = task.splits(store)
    surrogate = build_surrogate(task)
    best = best_checkpoint(folder)
    check_fingerprint(best, splits)
    restore_model(surrogate, best.tensors["model"])
    samples = splits.test if split == "test" else splits.validation
    fabric = Fabric(accelerator="auto", devices=1, precision=settings.precision)
    return evaluate(task, fabric.to_device(surrogate), samples, fabric)[0]
