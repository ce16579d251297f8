"""A network at the start of a race: what decides its numbers, and what is done with it."""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from funcattn.data import Store
from funcattn.models import NormalisedNetwork
from funcattn.models.functional_operator import (
    FunctionalOperatorSettings,
    reach_of_surroundings,
)
from funcattn.ops.memory import peak_rise
from funcattn.settings import Profile, changed
from funcattn.tasks import TASKS, Task
from funcattn.training.lap import Lap, error_of, metrics_of
from funcattn.training.recipe import OWN_FEATURES, SHARED, RecipeName, network_of
from funcattn.training.settings import default_settings
from funcattn.training.unit import unit_seconds

_SEARCHED = 0.1
"""Part of the budget that each rate of the search gets."""
MEASURED_STEPS = (5, 15)
"""Steps before the measurement, and steps that are measured."""

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
        before, counted = MEASURED_STEPS
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


def _count(model: NormalisedNetwork) -> int:
    return sum(p.numel() for p in model.network.parameters())
