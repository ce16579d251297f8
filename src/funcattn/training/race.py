"""A race: several networks, each with the same CPU time on one core, on one task.

1. The step of a network is measured in a fresh process, in CPU seconds. The budget over the step is
   the number of its steps, and its schedule ends with the last of them. CPU seconds are longer on
   a busy machine, which shares its caches: so a fixed piece of work is timed after every step, and
   the step counts in units of that work, whose least time is measured once for all networks.
2. Five rates are tried on the training data, each for a tenth of the budget, and further ones while
   the best is at an end. All networks get the same five. Of the rates whose validation error is
   within 5 % of the least the middle one is taken, of two the smaller: short trainings favour large
   rates. Where so short a training teaches nothing all five tie, and the recipe's own rate stays.
3. For each seed the network is trained for the whole budget. The final weights or their moving
   average are chosen on validation data, and the test data are read once.

Every piece is one line of JSON, written when it is done. A race that was stopped goes on after its
last whole piece. The time for validation is not in the budget.

`recipe` says how all networks are trained; see `funcattn.training.recipe`.
"""

import json
import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache as kept
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from funcattn.data import Store
from funcattn.documents import DocumentError, parse_sealed, sealed
from funcattn.models import NormalisedNetwork
from funcattn.models.functional_operator import (
    FunctionalOperatorSettings,
    reach_of_surroundings,
)
from funcattn.ops.memory import peak_rise
from funcattn.processes import end_with_pool
from funcattn.processor import name as processor_name
from funcattn.provenance import facts
from funcattn.settings import Profile, changed
from funcattn.tasks import TASKS, Task
from funcattn.training.lap import Lap, error_of, metrics_of
from funcattn.training.recipe import OWN_FEATURES, SHARED, RecipeName, network_of
from funcattn.training.settings import default_settings

RATE_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""What the recipe's rates are multiplied by in the search."""
_SEARCHED = 0.1
"""Part of the budget that each rate of the search gets."""
_FURTHEST = 16.0
"""How far the search goes at most, up and down."""
_AS_GOOD = 1.05
"""Errors of the search that are this close count as the same."""
_MEASURED = (5, 15)
"""Steps before the measurement, and steps that are measured."""
_ALIKE = 1.25
"""Least times of the fixed piece of work that differ by less are those of one kind of processor."""

ELSEWHERE: Mapping[str, Callable[[Any], Mapping[str, Any]]] = {
    "darcy": lambda data: {"use_every": data.use_every // 2},
    "burgers": lambda data: {"test_every": data.use_every},
}
"""Other resolutions at which the test samples of a task are read too: changes of data settings."""


@dataclass(frozen=True)
class Entrant:
    """A network in a race: its name in the registry, and changes to its settings for the task."""

    model: str
    network: Mapping[str, Any] = field(default_factory=dict)
    optimisation: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The model with what is changed."""
        changes = {**self.network, **self.optimisation}
        return " ".join([self.model, *(f"{name}={value}" for name, value in changes.items())])


@dataclass(frozen=True)
class Start:
    """An entrant at the start of a race: all that decides its numbers but rate, steps and seed."""

    name: str
    """Of the task."""
    entrant: Entrant
    recipe: RecipeName
    profile: Profile
    cache: Path
    data: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the task's settings of its data."""

    @property
    def task(self) -> Task:
        """The task with the settings of the entrant."""
        settings = default_settings(self.name, self.profile, "modern", self.entrant.model)
        if self.recipe == "shared":
            settings = replace(settings, optimisation=SHARED)
        network = dict(self.entrant.network)
        if self.entrant.model != OWN_FEATURES:
            network.pop("surroundings", None)
        changes = {
            "data": self.data,
            "network": network,
            "optimisation": self.entrant.optimisation,
        }
        return TASKS[self.name](changed(settings, changes))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that decide the numbers, without those that the race decides itself."""
        settings = asdict(self.task.settings)
        for unused in ("seed", "checkpoint_seconds"):
            settings.pop(unused, None)
        settings["optimisation"].pop("epochs")
        # Where files lie on one machine means nothing elsewhere; a run has their fingerprint.
        settings["data"].pop("path", None)
        # As a number, so that lines mean the same where a default has changed.
        if self.surroundings is not None or "surroundings" in settings["network"]:
            settings["network"]["surroundings"] = self.surroundings
        return settings

    @property
    def surroundings(self) -> float | None:
        """The least reach of the surroundings that the network gets; None: it gets none.

        Raises:
            ValueError: it is no reach, or the points or the recipe have no place for one.
        """
        task = self.task
        own, problem = task.settings.network, task.problem
        if isinstance(own, FunctionalOperatorSettings):
            return reach_of_surroundings(own.surroundings, problem)
        asked = self.entrant.network.get("surroundings")
        if asked is None:
            return None
        if problem.grid or self.recipe != "shared":
            raise ValueError(
                f"surroundings: expected a cloud of points and the shared recipe, got {self.name}, "
                f"{'a grid' if problem.grid else 'a cloud'}, and recipe {self.recipe}; leave "
                f"surroundings of {self.entrant.model} out"
            )
        checked = changed(FunctionalOperatorSettings(), {"surroundings": asked}, "models")
        return reach_of_surroundings(checked.surroundings, problem)

    def lap(self, *, steps: int, factor: float = 1.0, seed: int = 0) -> Lap:
        """A training with rates times a factor, not run yet."""
        task = self.task
        how = task.settings.optimisation
        scaled = replace(how, rate=factor * how.rate, muon_rate=factor * how.muon_rate)
        task = TASKS[self.name](replace(task.settings, optimisation=scaled, seed=seed))
        model = network_of(task, self.recipe, self.surroundings)
        return Lap(task, task.splits(Store(self.cache)), model, steps=steps, seed=seed)

    def measured(self) -> dict[str, Any]:
        """The step in this process: in units of `unit_seconds`, with memory and parameters."""
        torch.set_num_threads(1)
        before, counted = _MEASURED
        lap = self.lap(steps=before + counted)
        units: list[float] = []
        rise = peak_rise(
            lambda: lap.run(watch=False, after_step=lambda: units.append(unit_seconds()))
        )
        ratios = [step / unit for step, unit in zip(lap.spent, units, strict=True)]
        return {
            "step_units": statistics.median(ratios[before:]),
            "megabytes": round(rise / 2**20, 1),
            "parameters": _count(lap.model),
        }

    def tried(self, factor: float, steps: int) -> dict[str, Any]:
        """A rate of the search: the better validation error of final and averaged weights."""
        lap = self.lap(steps=max(round(_SEARCHED * steps), 10), factor=factor).run(watch=False)
        return {"validation": lap.chosen()[0], "cpu_seconds": round(lap.seconds, 2)}

    def finished(self, factor: float, steps: int, seed: int) -> dict[str, Any]:
        """A whole training, and its one test."""
        lap = self.lap(steps=steps, factor=factor, seed=seed).run()
        validation, averaged = lap.chosen()
        model = lap.averaged if averaged else lap.model
        values = metrics_of(lap.task, model, lap.splits.test)
        metrics = lap.task.summary(values)
        line = {
            "validation": validation,
            "averaged": averaged,
            "test": metrics[lap.task.headline],
            "metrics": metrics,
            "medians": {name: statistics.median(values[name]) for name in values},
            "steps": steps,
            "cpu_seconds": round(lap.seconds, 2),
            "curve": lap.curve,
            "parameters": _count(model),
            "data": lap.splits.fingerprint,
        }
        if self.name in ELSEWHERE:
            other = ELSEWHERE[self.name](lap.task.settings.data)
            task = TASKS[self.name](changed(lap.task.settings, {"data": other}))
            samples = task.splits(Store(self.cache)).test
            line["test_elsewhere"] = {**other, "test": error_of(task, model, samples)}
        return line


def unit_seconds(times: int = 1) -> float:
    """CPU seconds of a fixed piece of work, not unlike that of a layer: the least of so many.

    It works in memory that it keeps: new memory costs more in some processes than in others, by
    what the network before has left to the allocator.
    """
    x, weight, y = _unit_tensors()
    least = math.inf
    for _ in range(times):
        began = time.process_time()
        for _ in range(4):
            torch.mm(x, weight, out=y)
            torch.tanh(y, out=y)
        least = min(least, time.process_time() - began)
    return least


@kept
def _unit_here() -> float:
    """The unit, in a process that has done nothing else."""
    found: float = _in_a_process(unit_seconds, 1000)
    return found


def _refuse_another_processor(records: "Records") -> None:
    """Whether times of this processor may stand beside those of the file.

    Raises:
        ValueError: they may not.
    """
    for line in records.lines:
        if line.get("key", {}).get("piece") != "unit":
            continue
        then, here = line["seconds"], _unit_here()
        if not 1 / _ALIKE < here / then < _ALIKE:
            raise ValueError(
                f"{records.path}: expected the kind of processor that this race began on, where "
                f"its fixed piece of work takes {1000 * then:.3g} ms, got {processor_name()}, "
                f"where it takes {1000 * here:.3g} ms; choose another folder (--out)"
            )


@kept
def _unit_tensors() -> tuple[Tensor, Tensor, Tensor]:
    return torch.ones(2048, 64), torch.eye(64), torch.empty(2048, 64)


class Records:
    """The lines of a race: one for each piece that is done, found again by what decides it."""

    def __init__(
        self,
        path: Path,
        before: Callable[["Records"], None] = lambda records: None,  # noqa: ARG005
    ) -> None:
        self.path = path
        self.before = before
        """Called before a piece is made."""
        self.lines: list[dict[str, Any]] = []
        for text in path.read_bytes().splitlines() if path.exists() else []:
            # What was damaged, or cut when the race was killed, is made again.
            with suppress(DocumentError):
                self.lines.append(parse_sealed(text, where=str(path), advice="remove the line"))

    def piece(
        self, key: Mapping[str, Any], make: Callable[[], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """The line with this key; where there is none it is made and written."""
        wanted = json.loads(json.dumps(key))
        for line in self.lines:
            if chosen(line.get("key")) == chosen(wanted):
                return line
        self.before(self)
        line = {"key": wanted, **make(), "command": _command(), **facts()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = self.path.read_bytes() if self.path.exists() else b""
        cut = bool(text) and not text.endswith(b"\n")
        with self.path.open("a") as file:
            file.write(("\n" if cut else "") + sealed(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.lines.append(line)
        return line


def race(
    name: str,
    entrants: Sequence[Entrant],
    *,
    budget: float,
    seeds: Sequence[int] = (0, 1, 2),
    cache: Path,
    folder: Path,
    recipe: RecipeName = "shared",
    profile: Profile = "cpu",
    data: Mapping[str, Any] | None = None,
    tell: Callable[[str], None] = lambda text: None,  # noqa: ARG005
) -> list[dict[str, Any]]:
    """Run a race and return its finished trainings, one for each entrant and seed.

    budget: CPU seconds of each training. cache: where data is kept. folder: the lines are in
    `{folder}/{name}.jsonl`. data: changes to the task's settings of its data. tell: called with a
    line of text after each piece.
    """
    if not budget > 0 or not seeds or not entrants:
        raise ValueError(
            f"race: expected a positive budget, entrants and seeds, got {budget}, "
            f"{len(entrants)} entrants and {len(seeds)} seeds"
        )
    records = Records(folder / f"{name}.jsonl", before=_refuse_another_processor)
    results: list[dict[str, Any]] = []
    for entrant in entrants:
        results += _raced(
            Start(name, entrant, recipe, profile, cache, data or {}), records, budget, seeds, tell
        )
    return results


def _raced(
    start: Start,
    records: Records,
    budget: float,
    seeds: Sequence[int],
    tell: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Measurement, search and trainings of one entrant."""
    label, task = start.entrant.label, start.task
    known: dict[str, Any] = {"task": start.name, "recipe": start.recipe, "settings": start.settings}
    machine = {name: facts()[name] for name in ("machine", "threads")}
    unit = records.piece(
        {"piece": "unit", **machine},
        lambda: {"seconds": _unit_here()},
    )

    def measured() -> dict[str, Any]:
        # Data is made here, as a process of a pool cannot start workers; so are refusals.
        start.lap(steps=sum(_MEASURED))
        found: dict[str, Any] = _in_a_process(start.measured)
        return found

    step = records.piece({"piece": "step", **known}, measured)
    seconds = step["step_units"] * unit["seconds"]
    steps = max(round(budget / seconds), 20)
    tell(f"{label}: {1000 * seconds:.1f} ms per step, {steps} steps")
    known["budget"] = budget

    def error(factor: float) -> float:
        key = {"piece": "rate", **known, "factor": factor}
        line = records.piece(key, lambda: start.tried(factor, steps))
        found: float = line["validation"]
        tell(f"{label}: rates times {factor:g}: validation {found:.4g}")
        return found

    best = searched(error, larger_is_better=task.larger_is_better)
    results = []
    for seed in seeds:
        key = {"piece": "run", **known, "factor": best, "seed": seed}
        line = records.piece(key, lambda seed=seed: start.finished(best, steps, seed))  # type: ignore[misc]
        tell(f"{label}, seed {seed}: test {line['test']:.4g}")
        results.append({**step, **line, "entrant": label})
    return results


def searched(error: Callable[[float], float], *, larger_is_better: bool = False) -> float:
    """The factor of the rates that a search takes; error: the metric after a short training.

    >>> searched(lambda factor: abs(factor - 0.1))
    0.125
    >>> searched(lambda factor: 1.0 if factor < 3 else 0.98)
    1.0
    """
    sign = -1.0 if larger_is_better else 1.0
    cost: dict[float, float] = {}

    def look(factor: float) -> None:
        value = error(factor)
        cost[factor] = sign * value if math.isfinite(value) else math.inf

    def taken() -> float:
        least = min(cost.values())
        near = least * _AS_GOOD if least >= 0 else least / _AS_GOOD
        return statistics.median_low(factor for factor in cost if cost[factor] <= near)

    for factor in RATE_FACTORS:
        look(factor)
    while (lowest := min(cost)) == taken() and lowest > 1 / _FURTHEST:
        look(lowest / 2)
    while (highest := max(cost)) == taken() and highest < _FURTHEST:
        look(2 * highest)
    return taken()


def chosen(value: Any) -> Any:
    """A key without what is None: settings that came later are the network's own choice."""
    if not isinstance(value, Mapping):
        return value
    return {name: chosen(each) for name, each in value.items() if each is not None}


def _command() -> str:
    """What was typed, without the folder of the program."""
    program = Path(sys.argv[0]).name
    return " ".join(["funcattn" if program == "__main__.py" else program, *sys.argv[1:]])


def _in_a_process(measure: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a process that has done nothing else."""
    with multiprocessing.get_context("spawn").Pool(1, initializer=end_with_pool) as pool:
        return pool.apply(measure, arguments)


def _count(model: NormalisedNetwork) -> int:
    return sum(p.numel() for p in model.network.parameters())
