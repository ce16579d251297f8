"""The training loop: epochs, validation, checkpoints, and one test at the end.

All randomness is a function of (seed, epoch, place): the order of the samples, augmentation,
dropout. So a run that is stopped anywhere and resumed from a checkpoint does what the uninterrupted
run does, to the bit on the CPU, and nothing random has to be saved.
"""

import copy
import hashlib
import json
import math
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor, nn

from funcattn.data import Batch, Sample
from funcattn.errors import FuncattnError, Interrupted
from funcattn.models import NormalisedNetwork
from funcattn.settings import RunSettings, shown
from funcattn.tasks.base import Splits, Task
from funcattn.training.checkpoint import (
    Checkpoint,
    CheckpointError,
    load_checkpoint,
    model_tensors,
    optimiser_document,
    optimiser_tensors,
    restore_model,
    restore_optimiser,
    save_checkpoint,
)
from funcattn.training.evaluation import evaluate, on_device
from funcattn.training.kept import (
    changed_settings,
    check_fingerprint,
    checkpoint_folders,
    checkpoint_number,
)
from funcattn.training.optimisation import build_optimisers, build_schedule
from funcattn.training.setup import box_of, check_box

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_KEPT = 2
"""Checkpoints kept besides the best: a damaged one has another behind it."""


class NonFiniteLossError(FuncattnError):
    """A loss that is not a number: the run cannot go on."""


@dataclass
class State:
    """Where a run is."""

    epoch: int = 0
    step: int = 0
    """Steps done in this epoch."""
    losses: float = 0.0
    """Sum of the losses of the samples seen in this epoch."""
    history: list[dict[str, float]] = field(default_factory=list)
    """One line per finished epoch."""
    best_epoch: int | None = None
    best_value: float | None = None
    seconds: float = 0.0


def saved_state(saved: Checkpoint) -> State:
    """Where a run was when a checkpoint was written.

    Raises:
        CheckpointError: a value is missing, or is none that a run can have.
    """
    document = saved.part("state", dict)

    def number(value: object, kind: Any = (int, float)) -> bool:
        return isinstance(value, kind) and not isinstance(value, bool)

    fits: dict[str, Callable[[Any], bool]] = {
        "epoch": lambda v: number(v, int) and 0 <= v < 2**31,
        "step": lambda v: number(v, int) and 0 <= v < 2**31,
        "losses": number,
        "history": lambda v: (
            isinstance(v, list)
            and all(isinstance(e, dict) and all(map(number, e.values())) for e in v)
        ),
        "best_epoch": lambda v: v is None or (number(v, int) and 0 <= v < 2**31),
        "best_value": lambda v: v is None or number(v),
        "seconds": number,
    }
    for name in (*fits, *document):
        if name not in fits or name not in document or not fits[name](document[name]):
            raise CheckpointError(
                f"checkpoint: expected the state of a run in state.json, got {name} = "
                f"{shown(document.get(name))}; take another checkpoint, or train again"
            )
    return State(**document)


class Trainer:
    """One run of one task into one folder."""

    def __init__(
        self,
        task: Task,
        splits: Splits,
        surrogate: NormalisedNetwork,
        folder: Path,
        *,
        fabric: "Fabric",
        on_step: Callable[[State, int], None] = lambda state, steps: None,  # noqa: ARG005
        on_epoch: Callable[[Mapping[str, float]], None] = lambda line: None,  # noqa: ARG005
        heeds_signals: bool = True,
    ) -> None:
        self.task, self.splits, self.folder, self.fabric = task, splits, folder, fabric
        self.settings: RunSettings = task.settings
        self.on_step, self.on_epoch, self.heeds_signals = on_step, on_epoch, heeds_signals
        self.state = State()
        self.surrogate = surrogate
        optimisation = self.settings.optimisation
        check_parts(splits)
        self.averaged: NormalisedNetwork | None = None
        if optimisation.ema is not None:
            self.averaged = copy.deepcopy(surrogate)
            fabric.to_device(self.averaged)
        self.group = optimisation.batch * optimisation.accumulate
        self.visits = len(splits.train) * task.visits
        """Training samples that an epoch sees, each as often as the task says."""
        self.steps = math.ceil(self.visits / self.group)
        optimisers = build_optimisers(surrogate, optimisation)
        self.schedules = [build_schedule(o, optimisation, self.steps) for o in optimisers]
        self.model, *self.optimisers = fabric.setup(surrogate, *optimisers)
        # Made once: to look for them among the modules takes longer than what is done with them.
        self._parameters: list[Tensor] = list(surrogate.parameters())
        self._averages: list[Tensor] = []
        if self.averaged is not None:
            self._averages = list(self.averaged.parameters())
        self._stop = 0
        """The signal that asked to stop."""
        self._rate = 0.0
        self._remembered: list[int] = []
        """The best epochs of the checkpoints that are kept, whose weights are kept with them."""
        self._last_save = time.monotonic()

    # Epochs and steps

    def run(self) -> None:
        """Train to the last epoch, from wherever the state is."""
        started = time.monotonic() - self.state.seconds
        epochs = self.settings.optimisation.epochs
        devices = [self.fabric.device] if self.fabric.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), self._signals():
            for epoch in range(self.state.epoch, epochs):
                if self._out_of_patience():
                    break
                order = torch.randperm(self.visits, generator=_random(self.settings.seed, epoch))
                groups = order.split(self.group)
                for step in range(self.state.step, self.steps):
                    self._train(epoch, step, groups[step])
                    self.state.step = step + 1
                    self.state.seconds = time.monotonic() - started
                    self.on_step(self.state, self.steps)
                    due = time.monotonic() - self._last_save > self.settings.checkpoint_seconds
                    if step + 1 < self.steps and self._largest(max(due, self._stop)):
                        self.save()
                self._finish_epoch(epoch)
                self.state.seconds = time.monotonic() - started
                self.on_step(self.state, self.steps)
                self.save()

    def _out_of_patience(self) -> bool:
        """Whether validation has not become better for as many epochs as are waited for."""
        patience, best = self.settings.optimisation.patience, self.state.best_epoch
        at_start = self.state.step == 0  # an epoch that was begun is finished
        return at_start and bool(patience and best and self.state.epoch - best >= patience)

    def _train(self, epoch: int, step: int, places: Tensor) -> None:
        """One step of the optimisers on one group of samples, split over batches and ranks."""
        optimisation = self.settings.optimisation
        if not self.surrogate.training:  # to say it to every module takes its time
            self.model.train()
        batches = places.split(optimisation.batch)
        for number, batch_places in enumerate(batches):
            mine = batch_places[self.fabric.global_rank :: self.fabric.world_size].tolist()
            self._seed(_mixed(self.settings.seed, epoch, step, number, self.fabric.global_rank))
            samples = [
                self.task.augmented(self._visited(i), _random(self.settings.seed, epoch, i + 1))
                for i in mine
            ]
            last = number + 1 == len(batches)
            with self.fabric.no_backward_sync(self.model, enabled=not last):
                # A rank without samples still takes part in the sum of gradients.
                batch = on_device(
                    samples or [self._visited(int(batch_places[0]))], self.settings, self.fabric
                )
                losses = self.task.loss(self.task.predict(self.model, batch), batch)
                losses = losses if samples else 0 * losses
                # Gradients are averaged over the ranks, so each gives its part times their number.
                total = losses.sum() * self.fabric.world_size
                self.fabric.backward(
                    total / len(places) if optimisation.reduction == "mean" else total
                )
            summed = self.fabric.all_reduce(losses.detach().sum(), reduce_op="sum")
            # Looked at when all ranks have it, so that they stop together.
            if not math.isfinite(lost := torch.as_tensor(summed).item()):
                self._stop_at_bad_loss(losses, epoch, step, mine, batch)
            self.state.losses += lost
        largest = math.inf if optimisation.clip is None else optimisation.clip
        if not nn.utils.clip_grad_norm_(self._parameters, largest).isfinite():
            raise NonFiniteLossError(
                f"the gradient of training samples {places.tolist()} is not finite in epoch "
                f"{epoch + 1}, step {step + 1}, though their loss is; the last checkpoint is from "
                "before this step"
            )
        self._rate = self.optimisers[-1].param_groups[0]["lr"]
        for optimiser, schedule in zip(self.optimisers, self.schedules, strict=True):
            optimiser.step()
            optimiser.zero_grad()
            schedule.step()
        self._average()

    @torch.no_grad()
    def _average(self) -> None:
        """A step of the moving average of the weights, where there is one."""
        decay = self.settings.optimisation.ema
        if self.averaged is not None and decay is not None:
            torch._foreach_lerp_(self._averages, self._parameters, 1 - decay)

    def _seed(self, seed: int) -> None:
        """Seed what a step draws from: dropout, and what a task draws."""
        if self.fabric.device.type == "cpu":
            # `torch.manual_seed` also keeps for each kind of device that may come the way to here.
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)

    def _visited(self, place: int) -> Sample:
        """The training sample of one visit of an epoch."""
        return self.splits.train[place % len(self.splits.train)]

    def _stop_at_bad_loss(
        self, losses: Tensor, epoch: int, step: int, places: list[int], batch: Batch
    ) -> NoReturn:
        """Stop at a loss that is no number, and keep the batch for a look."""
        bad = [
            i for i, loss in zip(places, losses.tolist(), strict=False) if not math.isfinite(loss)
        ]
        where = f"in epoch {epoch + 1}, step {step + 1}"
        if not bad:
            raise NonFiniteLossError(f"the loss of another process is not finite {where}")
        kept = self.folder / f"bad_batch_epoch{epoch + 1}_step{step + 1}"
        if self.fabric.world_size > 1:
            kept = kept.with_name(f"{kept.name}_rank{self.fabric.global_rank}")
        shutil.rmtree(kept, ignore_errors=True)
        tensors = {name: t for name, t in vars(batch).items() if isinstance(t, Tensor)}
        document = {"samples": places, "bad": bad, "losses": [str(x) for x in losses.tolist()]}
        save_checkpoint(kept, Checkpoint({"batch": tensors}, document))
        raise NonFiniteLossError(
            f"the loss of training samples {bad} is not finite {where}; the batch is kept in "
            f"{kept}. Look at these samples, lower the learning rate, or clip gradients; the last "
            "checkpoint is from before this step"
        )

    # Evaluation

    @property
    def evaluated(self) -> NormalisedNetwork:
        """The weights that are evaluated and kept: the moving average where there is one."""
        return self.surrogate if self.averaged is None else self.averaged

    def _finish_epoch(self, epoch: int) -> None:
        """Validate, write a line of history, keep the weights if they are the best so far."""
        values, conditions = evaluate(
            self.task, self.evaluated, self.splits.validation, self.fabric
        )
        line = {
            "epoch": float(epoch + 1),
            "train_loss": self.state.losses / self.visits,
            "rate": self._rate,
        }
        summary = self.task.summary(values)
        line |= {f"validation_{name}": number for name, number in summary.items()}
        line |= {f"condition_{i + 1}": number for i, number in enumerate(conditions)}
        value = line[f"validation_{self.task.headline}"]
        if not math.isfinite(value):
            raise NonFiniteLossError(
                f"the validation {self.task.headline} is not finite after epoch {epoch + 1}; the "
                "last checkpoint is from before it"
            )
        best = self.state.best_value
        better = best is None or (value > best if self.task.larger_is_better else value < best)
        self.state.history.append(line)
        if better:
            self.state.best_value, self.state.best_epoch = value, epoch + 1
            if self.fabric.is_global_zero:
                self._save_best(epoch + 1)
        self.state.epoch, self.state.step, self.state.losses = epoch + 1, 0, 0.0
        if self.fabric.is_global_zero:
            self.on_epoch(line)

    # Saving and resuming

    def _save_best(self, epoch: int) -> None:
        folder = self.folder / "checkpoints" / f"best-{epoch:06d}"
        weights = model_tensors(self.evaluated)
        document = {
            "epoch": epoch,
            "fingerprint": self.splits.fingerprint,
            # Under the checkpoint's sum: predictions compare the run's settings with these.
            "settings": asdict(self.settings),
            "box": box_of(self.task.problem),
        }
        save_checkpoint(folder, Checkpoint({"model": weights}, document))

    def save(self) -> None:
        """Write a checkpoint; leave with `Interrupted` if the run was asked to stop."""
        if self.fabric.is_global_zero:
            tensors = {"model": model_tensors(self.surrogate)}
            if self.averaged is not None:
                tensors["averaged"] = model_tensors(self.averaged)
            for i, optimiser in enumerate(self.optimisers):
                tensors[f"optimiser{i}"] = optimiser_tensors(optimiser)
            document = {
                "state": vars(self.state),
                "fingerprint": self.splits.fingerprint,
                "settings": asdict(self.settings),
                "box": box_of(self.task.problem),
                "threads": torch.get_num_threads(),
                "optimisers": [optimiser_document(o) for o in self.optimisers],
            }
            done = self.state.epoch * self.steps + self.state.step
            folder = self.folder / "checkpoints" / f"step-{done:09d}"
            save_checkpoint(folder, Checkpoint(tensors, document))
            self._remembered = [*self._remembered, self.state.best_epoch or 0][-_KEPT:]
            old = checkpoint_folders(self.folder, "step")[:-_KEPT]
            old += [
                f
                for f in checkpoint_folders(self.folder, "best")
                if checkpoint_number(f) < self._remembered[0]
            ]
            for unused in old:
                shutil.rmtree(unused)
        self.fabric.barrier()
        self._last_save = time.monotonic()
        if stop := self._largest(self._stop):
            raise Interrupted(signal.Signals(stop).name)

    def _largest(self, number: int) -> int:
        """The largest of the processes' numbers, so that what one has to do, all do."""
        tensor = torch.tensor(number, device=self.fabric.device)
        return int(torch.as_tensor(self.fabric.all_reduce(tensor, reduce_op="max")))

    def resume(self) -> bool:
        """Go back to the newest whole checkpoint; False where there is none."""
        problems = []
        for folder in reversed(checkpoint_folders(self.folder, "step")):
            try:
                saved = load_checkpoint(folder)
            except CheckpointError as error:
                problems.append(str(error))
                continue
            check_fingerprint(saved, self.splits)
            if changes := changed_settings(saved, self.settings):
                raise CheckpointError(
                    f"the settings of the run were changed since {folder} was written: "
                    f"{'; '.join(changes)}. Bring the old ones back, or start a new run"
                )
            check_box(saved.document, self.task, folder)
            state = saved_state(saved)
            done = state.epoch * self.steps + state.step
            restore_model(self.surrogate, saved.group("model"))
            if self.averaged is not None:
                restore_model(self.averaged, saved.group("averaged"))
            self.state, self._remembered = state, [state.best_epoch or 0]
            documents = saved.part("optimisers", list)
            if len(documents) != len(self.optimisers):
                raise CheckpointError(
                    f"{folder}: expected the states of {len(self.optimisers)} optimisers, got "
                    f"{len(documents)}; start a new run"
                )
            for i, (optimiser, schedule) in enumerate(
                zip(self.optimisers, self.schedules, strict=True)
            ):
                restore_optimiser(optimiser, saved.group(f"optimiser{i}"), documents[i])
                schedule.load_state_dict({"last_epoch": done, "_step_count": done + 1})
            self._forget_after(done)
            return True
        if problems:
            raise CheckpointError("no checkpoint of the run is whole: " + "; ".join(problems))
        self._forget_after(0)
        return False

    def _forget_after(self, done: int) -> None:
        """Remove what the run will write again: the damaged, the unfinished, the weights to come.

        The weights of an epoch may come out otherwise elsewhere (another device, more threads), so
        they are not kept from before. Also what a run was killed before it could remove.
        """
        if not self.fabric.is_global_zero:
            return
        steps = checkpoint_folders(self.folder, "step")
        later = [f for f in steps if checkpoint_number(f) > done]
        older = [f for f in steps if checkpoint_number(f) <= done][:-_KEPT]
        later += [
            f
            for f in checkpoint_folders(self.folder, "best")
            if checkpoint_number(f) > self.state.epoch
        ]
        for unused in (*older, *later, *(self.folder / "checkpoints").glob(".*.part")):
            shutil.rmtree(unused)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM end the run after the current step, with everything saved."""

        def ask(number: int, frame: Any) -> None:  # noqa: ARG001
            self._stop = number

        if not self.heeds_signals or threading.current_thread() is not threading.main_thread():
            yield  # signals go to the main thread
            return
        caught = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, ask) for number in caught]
        try:
            yield
        finally:
            for number, handler in zip(caught, before, strict=True):
                signal.signal(number, handler)


def check_parts(splits: Splits) -> None:
    """Refuse data without samples to train, to choose the epoch, or to test with."""
    for part in ("train", "validation", "test"):
        if not len(getattr(splits, part)):
            raise ValueError(f"data.{part}: expected at least one sample, got none")


def _mixed(*numbers: int) -> int:
    """One seed from several numbers."""
    return int.from_bytes(hashlib.sha256(json.dumps(numbers).encode()).digest()[:7], "little")


def _random(*numbers: int) -> torch.Generator:
    return torch.Generator().manual_seed(_mixed(*numbers))
