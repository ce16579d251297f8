"""What a surrogate saves: its cost beside the solver made as inaccurate as the surrogate is.

A solver that is far more accurate than the surrogate is a weak baseline: on a coarser mesh, with
the same error, it is cheaper. That is what one prediction is compared with here.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from funcattn.data import collate
from funcattn.tasks.solved import Generated
from funcattn.trust.ladders import LADDERS, Rung, climb
from funcattn.trust.subject import Subject

ROUNDS = 5


@dataclass(frozen=True)
class BreakEven:
    """Costs in CPU seconds, and after how many predictions the surrogate has paid."""

    task: str
    model: str
    samples: int
    """Test samples on which errors and times were measured."""
    error: float
    """Of the surrogate, in the task's metric."""
    data_seconds: float
    """To make the samples for training and validation."""
    training_seconds: float
    training_note: str
    inference_seconds: float
    """Of one prediction, one at a time."""
    rungs: Sequence[Rung]
    reference_seconds: float
    """Of one solve as the data was made."""

    @property
    def equal(self) -> Rung | None:
        """The cheapest mesh on which the solver is as accurate; None where no one is."""
        good = [rung for rung in self.rungs if rung.error <= self.error]
        return min(good, key=lambda rung: rung.seconds) if good else None

    @property
    def solver_seconds(self) -> float:
        """Of one solve with the error of the surrogate."""
        return self.reference_seconds if self.equal is None else self.equal.seconds

    @property
    def speed_up(self) -> float:
        """Of one prediction, over the solver with the same error."""
        return self.solver_seconds / self.inference_seconds

    @property
    def weak_speed_up(self) -> float:
        """The same over the solver as the data was made, which is what is often published."""
        return self.reference_seconds / self.inference_seconds

    @property
    def predictions(self) -> float:
        """After how many it pays; infinite if never."""
        saved = self.solver_seconds - self.inference_seconds
        spent = self.data_seconds + self.training_seconds
        return spent / saved if saved > 0 else math.inf

    def in_words(self) -> str:
        """The verdict."""
        mesh = "the mesh of the data" if self.equal is None else self.equal.in_words()
        text = (
            f"One prediction takes {1e3 * self.inference_seconds:.3g} ms, the solver with the same "
            f"error ({mesh}) {1e3 * self.solver_seconds:.3g} ms: {self.speed_up:.3g} times as "
            f"fast. (Over the solver as the data was made it would be {self.weak_speed_up:.3g}.) "
        )
        if math.isinf(self.predictions):
            return text + "It never pays."
        return text + (
            f"With {self.data_seconds:.3g} s for data and {self.training_seconds:.3g} s for "
            f"training, it pays after {math.ceil(self.predictions):,} predictions."
        )


def breakeven(
    subject: Subject,
    *,
    count: int = 6,
    training_seconds: float | None = None,
    advance: Callable[[int, int], None] = lambda done, total: None,  # noqa: ARG005
) -> BreakEven:
    """Measure, with so many samples of the test.

    training_seconds: CPU time of the training, where the run has not recorded it.
    """
    task = subject.task
    if not subject.has_solver or not isinstance(task, Generated):
        raise ValueError(
            "breakeven: expected a run whose data a solver of ours made, got one on data from "
            "elsewhere; compare the time of a prediction with that of your own solver, run until "
            "it is as inaccurate"
        )
    if getattr(task.data, "split", "full") not in ("full", "scarce"):
        raise ValueError(
            f"breakeven: expected a run that is tested where it was trained, got one with the "
            f"split {getattr(task.data, 'split', '')!r}; train with --data.split full"
        )
    made = subject.store.made(task.recipe(), task.data.seed, task.count)
    each = float(made.provenance["seconds_per_sample"])
    test = subject.splits.test
    count = min(count, len(test))
    samples = [test[i] for i in range(count)]
    learned = task.data.train + task.data.validation
    seconds, note = training_seconds, "as given"
    if seconds is None:
        seconds, note = _training(subject)
    rungs = []
    for rung in climb(subject, samples, range(learned, learned + count)):
        rungs.append(rung)
        advance(len(rungs), len(LADDERS[task.name]))
    return BreakEven(
        task=task.name,
        model=subject.run.settings.model,
        samples=count,
        error=float(subject.errors(samples).mean()),
        data_seconds=learned * each,
        training_seconds=seconds,
        training_note=note,
        inference_seconds=_inference(subject, samples[0]),
        rungs=rungs,
        reference_seconds=each,
    )


def _training(subject: Subject) -> tuple[float, str]:
    """CPU seconds of all networks of the run, as recorded."""
    records = [run.record for run in (subject.run, *subject.run.members)]
    note = "CPU seconds of the record"
    if any("cpu_seconds" not in record for record in records):
        note = "wall-clock seconds of the record, which has no CPU seconds: too many at most"
    return sum(float(each.get("cpu_seconds", each["seconds"])) for each in records), note


def _inference(subject: Subject, sample: Any) -> float:
    batch, times = collate([sample]), []
    for _ in range(ROUNDS + 1):
        start = time.process_time()
        subject.predictions(batch)
        times.append(time.process_time() - start)
    return sorted(times[1:])[ROUNDS // 2]
