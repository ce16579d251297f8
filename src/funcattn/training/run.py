"""A run: a folder with settings, checkpoints, logs, the record of the test, and the report.

settings.json      everything that decides the numbers; can be run again
checkpoints/       step-*: to resume from; best-*: the weights that did best on validation data,
                   both with a copy of the settings, which settings.json is compared with
metrics.jsonl/csv  one line per epoch
record.json        what came out, and how it was made
members/           of an ensemble: the runs of its other networks, 1, 2, ...
report.html        the same, to look at; written by `funcattn.training.report`
checksums.json     of the record, the history, and what a fit to own data keeps beside them

`train` makes a run, `Run` reads one.
"""

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch.distributed as dist
from torch import nn

from funcattn.data import Sample, Store
from funcattn.documents import DocumentError, parse_json
from funcattn.files import write_text
from funcattn.lazy import LazyModule
from funcattn.markup import table
from funcattn.models import NormalisedNetwork
from funcattn.processes import end_with_parent, rank
from funcattn.provenance import cpu_seconds, facts
from funcattn.settings import RunSettings
from funcattn.tasks import TASKS, Splits, Task
from funcattn.training.checkpoint import Checkpoint, CheckpointError, load_checkpoint, restore_model
from funcattn.training.evaluation import evaluate
from funcattn.training.kept import best_checkpoint, check_fingerprint, checkpoint_folders, differing
from funcattn.training.loggers import LoggerName, open_logger
from funcattn.training.loop import State, Trainer, check_parts, saved_state
from funcattn.training.settings import saved_settings
from funcattn.training.setup import (
    RunError,
    build_network,
    check_box,
    device_named,
    read_json,
    read_settings,
)
from funcattn.training.signed import check_signed, write_signed

if TYPE_CHECKING:
    import filelock
    import lightning_fabric
else:
    filelock, lightning_fabric = LazyModule("filelock"), LazyModule("lightning_fabric")

_RECORD = {
    "test": {...: float},
    "test_values": {...: [float]},
    "test_note": str,
    "validation": float,
    "best_epoch": int,
    "settings": {...: Any},
}
_REMOVE = "remove the file; the checkpoints hold its lines too"
_LOST = ("gloo", "NCCL", "Connection")
"""Words of the libraries by which processes talk, when one does not answer any more."""
_LAUNCHER = "FUNCATTN_LAUNCHER"
"""Tells the other processes of a training which process started them."""


class Run:
    """A run, from its folder; everything is read when it is first asked for.

    run = Run("runs/darcy")
    run.network(positions, values)      # the weights that did best on validation data

    accept_edited: take settings.json as it is, though it differs from what the network was trained
        with, and other files though they differ from their checksums.
    """

    def __init__(self, folder: str | Path, *, accept_edited: bool = False) -> None:
        self.folder, self.accept_edited = Path(folder), accept_edited

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the task, the network, and what came out."""
        settings = self.settings
        rows: dict[str, object] = {"task": settings.task, "network": settings.model}
        rows["seed"] = settings.seed
        if not self.finished:
            return table(repr(self), rows | {"epochs": f"{self.state.epoch}, not finished"})
        record = self.record
        rows |= {"best epoch": record["best_epoch"], "validation": f"{record['validation']:.4g}"}
        rows |= {f"test, {name}": f"{value:.4g}" for name, value in record["test"].items()}
        return table(repr(self), rows, str(record["test_note"]))

    def file(self, name: str) -> Path:
        """A file of the run that is there, after comparing it with its checksum."""
        path = self.folder / name
        if not self.accept_edited:
            check_signed(path)
        return path

    @cached_property
    def settings(self) -> RunSettings:
        """Everything that decides the numbers."""
        return read_settings(self.folder)

    @cached_property
    def task(self) -> Task:
        """What the run learns."""
        try:
            return TASKS[self.settings.task](self.settings)
        except ValueError as error:
            raise RunError(f"{self.folder / 'settings.json'}: {error}") from error

    @cached_property
    def network(self) -> NormalisedNetwork:
        """The network with its normalisers at the best epoch, ready to predict on the CPU."""
        return self._restored(self.best)

    def member_folder(self, number: int) -> Path:
        """Where another network of an ensemble is, or will be."""
        return self.folder / "members" / str(number)

    @cached_property
    def members(self) -> list["Run"]:
        """The other networks of an ensemble that are trained; none where there is one network."""
        found: list[Run] = []
        while (folder := self.member_folder(len(found) + 1)).is_dir():
            member = Run(folder, accept_edited=self.accept_edited)
            if not member.finished:
                break
            if changes := differing(
                asdict(self.settings), asdict(replace(member.settings, seed=self.settings.seed))
            ):
                raise RunError(
                    f"{folder}: expected a network with the settings of {self.folder} but another "
                    f"seed, got others: {'; '.join(changes)}; remove it"
                )
            found.append(member)
        return found

    @cached_property
    def networks(self) -> list[NormalisedNetwork]:
        """The networks whose mean is the prediction; most runs have one."""
        return [self.network, *(member.network for member in self.members)]

    def _restored(self, best: Checkpoint) -> NormalisedNetwork:
        """The network with the weights of a checkpoint, if its settings are those of the run."""
        self._check_settings(best)
        check_box(best.document, self.task, self.folder)
        network = build_network(self.task)
        restore_model(network, best.group("model"))
        return network.eval()

    def _check_settings(self, best: Checkpoint) -> None:
        """Refuse a settings.json that is not the one that the weights were trained with.

        A changed setting may fit the weights and still give other numbers. Checkpoints of earlier
        versions do not hold the settings, and tell nothing.
        """
        if self.accept_edited or "settings" not in best.document:
            return
        try:
            kept = saved_settings(best.document["settings"])
        except ValueError as error:
            raise CheckpointError(
                f"{self.folder}: expected the settings of the run in its best checkpoint, got "
                f"others ({error}); train it again"
            ) from error
        if changes := differing(asdict(kept), asdict(self.settings)):
            raise RunError(
                f"{self.folder / 'settings.json'}: expected the settings that the network was "
                f"trained with, got others: {'; '.join(changes)}. Bring the old ones back; if they "
                "were changed on purpose, say --accept-edited (in Python: accept_edited=True)"
            )

    @property
    def best(self) -> Checkpoint:
        """The weights that did best on validation data."""
        return best_checkpoint(self.folder)

    @property
    def checkpoints(self) -> list[Path]:
        """Where the run can be resumed, the newest last."""
        return checkpoint_folders(self.folder, "step")

    @property
    def state(self) -> State:
        """How far the run is, by its newest checkpoint that is whole."""
        for folder in reversed(self.checkpoints):
            with suppress(CheckpointError):
                return saved_state(load_checkpoint(folder))
        return State()

    @property
    def threads(self) -> int | None:
        """With how many it was trained last; with as many it goes on to the bit."""
        for folder in reversed(self.checkpoints):
            with suppress(CheckpointError):
                found = load_checkpoint(folder).document.get("threads")
                return found if isinstance(found, int) and 0 < found < 2**15 else None
        return None

    @property
    def finished(self) -> bool:
        """Whether the run was trained to its end and tested."""
        return (self.folder / "record.json").exists()

    @property
    def record(self) -> dict[str, Any]:
        """What came out, and how it was made."""
        if not self.finished:
            epochs = self.settings.optimisation.epochs
            raise RunError(
                f"{self.folder}: expected a finished run, got one with {self.state.epoch} of "
                f"{epochs} epochs; go on by funcattn train {self.settings.task} --out "
                f"{self.folder} --resume"
            )
        record: dict[str, Any] = read_json(self.file("record.json"), _RECORD)
        return record

    @cached_property
    def usual_error(self) -> float | None:
        """On validation data; None of a run that is not finished, or that counts what is right."""
        if not self.finished or TASKS[self.settings.task].larger_is_better:
            return None
        found: float = self.record["validation"]
        return found

    @property
    def history(self) -> list[dict[str, float]]:
        """One line per finished epoch."""
        path = self.folder / "metrics.jsonl"
        if not path.exists():
            return self.state.history
        try:
            return [
                parse_json(line, {...: float}, where=f"{path}, line {number}", advice=_REMOVE)
                for number, line in enumerate(self.file(path.name).read_bytes().splitlines(), 1)
            ]
        except DocumentError as error:
            raise RunError(str(error)) from error

    @property
    def report(self) -> Path:
        """Where the report is, or will be."""
        return self.folder / "report.html"

    def evaluate(
        self, split: Literal["validation", "test"], store: Store, device: str = "auto"
    ) -> dict[str, list[float]]:
        """Metrics of each sample of a split, by the best weights; of an ensemble, by its mean."""
        splits, best = self.task.splits(store), self.best
        check_fingerprint(best, splits)
        samples: Sequence[Sample] = getattr(splits, split)
        fabric = _fabric(device, 1, self.settings.precision)
        networks = [self._restored(best), *(member.network for member in self.members)]
        network = fabric.to_device(nn.ModuleList(networks) if self.members else networks[0])
        return evaluate(self.task, network, samples, fabric)[0]


def train(
    settings: RunSettings,
    folder: Path,
    *,
    resume: bool = False,
    store: Store,
    device: str = "auto",
    devices: int = 1,
    logger: LoggerName | None = None,
    on_step: Callable[[State, int], None] = lambda state, steps: None,  # noqa: ARG005
    command: str = "",
    heeds_signals: bool = True,
    task: Task | None = None,
    prepare: Callable[[NormalisedNetwork], None] = lambda network: None,  # noqa: ARG005
) -> Run:
    """Train, choose the epoch on validation data, test once; the finished run.

    device: auto, cpu, cuda, cuda:1, mps.
    devices: how many processes train together, on as many devices of that kind.
    on_step: called after each step and after each epoch with where the run is, and with the steps
        of an epoch.
    heeds_signals: Ctrl-C and SIGTERM finish the step and save; a worker process leaves them to the
        process that started it.
    task: one that has its samples with it; by default it is made from the settings.
    prepare: called with the network before the first step, to begin with other weights.
    """
    _end_with_launcher()
    run = Run(folder)
    if (folder / "settings.json").exists():
        if not resume:
            raise RunError(f"{folder} holds a run already: resume it, or choose another folder")
        settings = read_settings(folder)  # which resuming compares with the checkpoint's
    elif resume:
        raise RunError(f"{folder}: expected a run to resume, got no settings.json there")
    if devices < 1:
        raise ValueError(f"devices: expected at least 1, got {devices}")
    device_named(device)
    if run.finished:
        return run
    # What cannot be trained is refused before data is made.
    task = task or TASKS[settings.task](settings)
    network = build_network(task)
    prepare(network)
    with _only_one(folder), _own_group():
        splits = task.splits(store)
        check_parts(splits)
        _fit(network, splits, task.problem.output_channels)
        fabric = _launched(_fabric(device, devices, settings.precision))
        trainer = Trainer(
            task,
            splits,
            network,
            folder,
            fabric=fabric,
            on_step=on_step,
            heeds_signals=heeds_signals,
        )
        if fabric.is_global_zero:
            write_text(folder / "settings.json", json.dumps(asdict(settings), indent=1) + "\n")
        trainer.resume()
        # What earlier processes of a run spent is not known.
        resumed, start = trainer.state.epoch + trainer.state.step > 0, cpu_seconds()
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
        spent = {} if resumed else {"cpu_seconds": round(cpu_seconds() - start, 1)}
        _finish(trainer, run, command, spent)
        fabric.barrier()
    return run


def _fit(network: NormalisedNetwork, splits: Splits, outputs: int) -> None:
    """Normalisers and ranges, from training samples only."""
    samples = [splits.train[i] for i in range(len(splits.train))]
    network.fit(
        (s.positions for s in samples),
        (s.values for s in samples if s.values is not None),
        (s.target.reshape(-1, outputs) for s in samples),
    )


def _finish(trainer: Trainer, run: Run, command: str, spent: dict[str, float]) -> None:
    """The one test, and what it is recorded with."""
    task, state = trainer.task, trainer.state
    restore_model(trainer.evaluated, run.best.group("model"))
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
        **spent,
        "parameters": sum(p.numel() for p in trainer.surrogate.network.parameters()),
        "data": trainer.splits.fingerprint,
        "test_values": metrics,
        "command": command or " ".join(sys.argv),
        **facts(),
        "settings": asdict(task.settings),
    }
    if trainer.fabric.is_global_zero:
        write_signed(run.folder / "record.json", json.dumps(record, indent=1) + "\n")


def _write_logs(trainer: Trainer, folder: Path) -> None:
    """One line per epoch, for programs and for spreadsheets."""
    if not trainer.fabric.is_global_zero:
        return
    history = trainer.state.history
    write_signed(folder / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in history))
    table = io.StringIO()
    names = list(dict.fromkeys(name for line in history for name in line))
    writer = csv.DictWriter(table, names)
    writer.writeheader()
    writer.writerows(history)
    write_text(folder / "metrics.csv", table.getvalue())


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Refuse a second process of this machine in the same folder; a dead one holds nothing.

    Where the run does not come to have settings, nothing of it stays.
    """
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / ".lock")
    try:
        if rank() == 0:
            lock.acquire(timeout=0)
    except filelock.Timeout:
        raise RunError(f"{folder}: another process is training into this folder") from None
    try:
        yield
    finally:
        if lock.is_locked and not (folder / "settings.json").exists():
            with suppress(OSError):  # Windows keeps files that are open
                (folder / ".lock").unlink()
                if made:
                    folder.rmdir()
        lock.release()


@contextmanager
def _own_group() -> Iterator[None]:
    """End the group of processes begun inside, whose threads could abort this one at its end."""
    was_there = dist.is_initialized()
    try:
        yield
    except RuntimeError as error:
        lost = dist.is_initialized() and any(word in str(error) for word in _LOST)
        if not lost:
            raise
        raise RunError(
            "devices: expected all processes that train together, got one that died or cannot be "
            "reached; see what it said, then go on with --resume"
        ) from error
    finally:
        if dist.is_initialized() and not was_there:
            dist.destroy_process_group()


def _fabric(device: str, devices: int, precision: Any) -> "lightning_fabric.Fabric":
    """On this machine, or as one of the processes that torchrun started on one or several."""
    kind, _, number = device.partition(":")
    options: dict[str, Any] = {"accelerator": kind, "precision": precision}
    if "TORCHELASTIC_RUN_ID" in os.environ:
        local, world = (int(os.environ[name]) for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE"))
        return lightning_fabric.Fabric(devices=local, num_nodes=world // local, **options)
    if number and devices > 1:
        raise ValueError(f"device: expected {kind} for {devices} processes, got {device!r}")
    return lightning_fabric.Fabric(devices=[int(number)] if number else devices, **options)


def _launched(fabric: "lightning_fabric.Fabric") -> "lightning_fabric.Fabric":
    """Start the processes that train together."""
    os.environ[_LAUNCHER] = str(os.getpid())
    try:
        fabric.launch()
    finally:
        del os.environ[_LAUNCHER]
    return fabric


def _end_with_launcher() -> None:
    """Started by another process, to train together with it or by torchrun: end with that one."""
    if _LAUNCHER in os.environ:
        end_with_parent(int(os.environ.pop(_LAUNCHER)))
    elif "TORCHELASTIC_RUN_ID" in os.environ:
        end_with_parent(os.getppid())
