"""Yardsticks beside a surrogate: what cheap predictions, and a network without attention, reach."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor

from funcattn.data import Sample, Store, collate
from funcattn.fitting.sizing import seconds_per_epoch
from funcattn.fitting.yardsticks import Yardsticks
from funcattn.settings import RunSettings
from funcattn.tasks.base import Splits
from funcattn.tasks.own import Own
from funcattn.training.run import train
from funcattn.training.settings import with_model
from funcattn.training.signed import write_signed

if TYPE_CHECKING:
    from funcattn.fitting.fitted import FittedSurrogate

SHARE = 0.1
"""Of the time of the surrogate's training that the same network without attention gets."""


def compare(surrogate: "FittedSurrogate", task: Own, splits: Splits) -> dict[str, dict[str, float]]:
    """The test errors of the yardsticks, kept beside the run; made once."""
    path = surrogate.run.folder / "yardsticks.json"
    if path.exists():
        return surrogate.comparison
    made = Yardsticks(splits.train, splits.validation, classes=len(task.data.classes))
    values: dict[str, dict[str, list[float]]] = {}
    for place in range(len(splits.test)):
        sample = splits.test[place]
        for name, guess in made.predictions(sample).items():
            for metric, number in _metrics(task, guess, sample).items():
                values.setdefault(name, {}).setdefault(metric, []).append(number)
    found = {name: task.summary(metrics) for name, metrics in values.items()}
    name, numbers = _without_attention(surrogate, splits)
    found[name] = numbers
    write_signed(path, json.dumps(found, indent=1) + "\n")
    return found


def _metrics(task: Own, guess: Tensor, sample: Sample) -> dict[str, float]:
    batch = collate([sample])
    return {name: float(v) for name, v in task.metrics(guess[None], batch).items()}


def _without_attention(
    surrogate: "FittedSurrogate", splits: Splits
) -> tuple[str, dict[str, float]]:
    """The same network without attention, trained for a share of the surrogate's time."""
    settings = surrogate.run.settings
    other: RunSettings = with_model(settings, "no_attention", "cpu")
    how = other.optimisation
    # Both measured, as the time that passed depends on what else the machine did.
    seconds = SHARE * how.epochs * seconds_per_epoch(settings, splits)
    epochs = max(min(int(seconds / seconds_per_epoch(other, splits)), how.epochs), 1)
    other = replace(other, optimisation=replace(how, epochs=epochs))
    folder = surrogate.run.folder / "no_attention"
    run = train(
        other,
        folder,
        resume=(folder / "settings.json").exists(),
        store=Store(folder),
        task=Own(other, splits),
        device=surrogate.device,
        command="yardstick",
    )
    return f"without attention ({epochs} epochs)", run.record["test"]


def fit_parts(
    surrogate: "FittedSurrogate", splits: Splits, shares: Sequence[float]
) -> dict[int, float]:
    """The validation error by the number of training cases; the whole is the surrogate itself."""
    settings = surrogate.run.settings
    count = len(splits.train)
    curve = {}
    for share in shares:
        size = max(round(share * count), 1)
        if size >= count:
            continue
        how = settings.optimisation
        # As many steps as the whole had: fewer cases, more epochs.
        part = replace(
            settings,
            data=replace(settings.data, train=size),
            optimisation=replace(how, epochs=round(how.epochs * count / size)),
        )
        few = replace(splits, train=splits.train[:size], fingerprint=f"{splits.fingerprint}-{size}")
        folder = surrogate.run.folder / f"part-{size}"
        run = train(
            part,
            folder,
            resume=(folder / "settings.json").exists(),
            store=Store(folder),
            task=Own(part, few, deviations=surrogate.task.deviations),
            device=surrogate.device,
            command="learning curve",
        )
        curve[size] = float(run.record["validation"])
    curve[count] = float(surrogate.run.record["validation"])
    text = json.dumps({str(size): error for size, error in sorted(curve.items())}, indent=1)
    write_signed(surrogate.run.folder / "learning_curve.json", text + "\n")
    return curve
