"""One training of a given number of steps, whose CPU time is measured: a lap of a race.

Unlike a run, a lap has no folder, no checkpoints and no epochs: its schedule ends at its last step.
"""

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import nn

from funcattn.data import Sample, collate
from funcattn.models import NormalisedNetwork
from funcattn.tasks import Splits, Task
from funcattn.training.optimisation import build_optimisers, build_schedule

_MOMENTS = 8
"""How often the validation error is looked at on the way."""
_EVALUATED = 10
"""Samples of a batch in evaluation."""


class Lap:
    """A network with its optimisers, its moving average, the CPU time it took, and its curve.

    The weights are drawn by whoever builds the model; the order of the samples comes from `seed`.
    """

    def __init__(
        self, task: Task, splits: Splits, model: NormalisedNetwork, *, steps: int, seed: int
    ) -> None:
        self.task, self.splits, self.model, self.steps, self.seed = task, splits, model, steps, seed
        self.how = task.settings.optimisation
        samples = [splits.train[i] for i in range(len(splits.train))]
        self.model.fit(
            (s.positions for s in samples),
            (s.values for s in samples if s.values is not None),
            (s.target.reshape(-1, task.problem.output_channels) for s in samples),
        )
        self.averaged = copy.deepcopy(model)
        self.optimisers = build_optimisers(model, self.how)
        one_epoch = replace(self.how, epochs=1)
        self.schedules = [build_schedule(o, one_epoch, steps) for o in self.optimisers]
        self.spent: list[float] = []
        """CPU seconds of each step."""
        self.curve: list[tuple[float, float]] = []
        """CPU seconds so far, and the validation error of the averaged weights then."""
        self.failed = False
        """Whether a loss or a gradient was not finite, which ends the lap."""

    @property
    def seconds(self) -> float:
        """CPU time of all steps; validation is not in it."""
        return sum(self.spent)

    def run(self, *, watch: bool = True, after_step: Callable[[], None] = lambda: None) -> "Lap":
        """All steps. watch: look at the validation error on the way.

        The time of `after_step`, as that of validation, is not counted.
        """
        moments = {math.ceil(self.steps * (i + 1) / _MOMENTS) for i in range(_MOMENTS)}
        batches = self._batches()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            for step in range(1, self.steps + 1):
                began = time.process_time()
                self.failed = not self._step(next(batches), step)
                self.spent.append(time.process_time() - began)
                if self.failed:
                    break
                after_step()
                if watch and step in moments:
                    error = error_of(self.task, self.averaged, self.splits.validation)
                    self.curve.append((round(self.seconds, 2), error))
        return self

    def chosen(self) -> tuple[float, bool]:
        """The better validation error, and whether it is that of the averaged weights.

        The error of a lap that failed is infinite.
        """
        if self.failed:
            return math.inf, False
        final, averaged = (
            error_of(self.task, model, self.splits.validation)
            for model in (self.model, self.averaged)
        )
        if goodness(averaged, self.task) > goodness(final, self.task):
            return averaged, True
        return final, False

    def _step(self, samples: list[Sample], step: int) -> bool:
        self.model.train()
        batch = collate(samples)
        losses = self.task.loss(self.task.predict(self.model, batch), batch)
        loss = losses.mean() if self.how.reduction == "mean" else losses.sum()
        loss.backward()
        largest = math.inf if self.how.clip is None else self.how.clip
        size = nn.utils.clip_grad_norm_(self.model.parameters(), largest)
        if not bool(loss.isfinite()) or not bool(size.isfinite()):
            return False
        for optimiser, schedule in zip(self.optimisers, self.schedules, strict=True):
            optimiser.step()
            optimiser.zero_grad()
            schedule.step()
        # Early on the average is over the few steps there were.
        decay = min(self.how.ema or 0.0, step / (step + 10))
        for old, new in zip(self.averaged.parameters(), self.model.parameters(), strict=True):
            old.detach().lerp_(new.detach(), 1 - decay)
        return True

    def _batches(self) -> Iterator[list[Sample]]:
        train, size = self.splits.train, min(self.how.batch, len(self.splits.train))
        random = torch.Generator().manual_seed(self.seed)
        while True:
            order = torch.randperm(len(train), generator=random).tolist()
            for start in range(0, len(order) - size + 1, size):
                places = order[start : start + size]
                yield [self.task.augmented(train[i], random) for i in places]


def goodness(value: float, task: Task) -> float:
    """A number that is larger for a better metric; a metric that is no number is the worst."""
    if not math.isfinite(value):
        return -math.inf
    return value if task.larger_is_better else -value


def error_of(task: Task, model: nn.Module, samples: Sequence[Sample]) -> float:
    """The headline metric of a set."""
    return task.summary(metrics_of(task, model, samples))[task.headline]


@torch.no_grad()
def metrics_of(task: Task, model: nn.Module, samples: Sequence[Sample]) -> dict[str, list[float]]:
    """All metrics of the samples of a set, one number for each sample."""
    model.eval()
    values: dict[str, list[float]] = {}
    for start in range(0, len(samples), _EVALUATED):
        places = range(start, min(start + _EVALUATED, len(samples)))
        batch = collate([samples[i] for i in places])
        for name, numbers in task.metrics(task.predict(model, batch), batch).items():
            values.setdefault(name, []).extend(numbers.double().tolist())
    return values
