"""What networks reached at equal time, from the lines that races wrote."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from funcattn.experiments.engine.experiment import Numbers, Outcome
from funcattn.experiments.engine.trial import Trial
from funcattn.models import MODELS
from funcattn.models.functional_operator import reach_of_surroundings
from funcattn.tasks import TASKS
from funcattn.training.race import searched
from funcattn.training.race_records import Records, chosen
from funcattn.training.recipe import SHARED
from funcattn.training.settings import default_settings

FITTED = ("layers", "width")
"""Sizes of a network that may be fitted to a budget; with other changes it is another network."""


@dataclass(frozen=True)
class Standing:
    """What a network has on a task after a race of some budget."""

    task: str
    data: Mapping[str, str]
    """Which of the task's sets, where it is not its own."""
    budget: float
    """CPU seconds."""
    model: str
    changes: Mapping[str, Any]
    """Settings of the network that are not its own for the task."""
    step: Mapping[str, Any]
    """The line of the measured step."""
    runs: Sequence[Mapping[str, Any]]
    """The lines of finished trainings, one for each seed."""
    surroundings: float | None = None
    """The least reach of those of the points that it gets as input."""

    @property
    def name(self) -> str:
        """The network, with the settings that are not its own."""
        changes = (f"{name}={value}" for name, value in self.changes.items())
        return " ".join([f"`{self.model}`", *changes])

    @property
    def ablated(self) -> dict[str, Any]:
        """The changes that make another network of it."""
        return {name: value for name, value in self.changes.items() if name not in FITTED}

    @property
    def errors(self) -> list[float]:
        """Test errors of the seeds; where a task counts what is right, the share of the rest."""
        return [self.as_error(run["test"]) for run in self.runs]

    @property
    def validation(self) -> float:
        """Validation error, mean over the seeds."""
        return statistics.fmean(self.as_error(run["validation"]) for run in self.runs)

    @property
    def mean(self) -> float:
        """Test error, mean over the seeds."""
        return statistics.fmean(self.errors)

    def as_error(self, metric: float) -> float:
        """The task's metric, smaller for better."""
        return 1 - metric if TASKS[self.task].larger_is_better else metric

    def values(self, path: str) -> list[float]:
        """A metric of the seeds by its path, such as "test.relative_l2"; of those that have it."""
        part, _, metric = path.partition(".")
        if (part, metric) == ("test", TASKS[self.task].headline):
            return [run["test"] for run in self.runs]
        where = {"test": "metrics", "median": "medians"}.get(part, "")
        found = (run.get(where, {}).get(metric) for run in self.runs)
        return [value for value in found if value is not None]


def standings(folder: Path) -> list[Standing]:
    """All races in a folder with the shared recipe and today's settings, the best of a task first.

    A network counts with the rate that the search takes by today's rule.
    """
    found = [
        standing
        for task in TASKS
        if (folder / f"{task}.jsonl").exists()
        for standing in _of_task(task, Records(folder / f"{task}.jsonl").lines)
    ]
    order = [*TASKS]
    return sorted(
        found,
        key=lambda s: (
            order.index(s.task),
            [*s.data.values()],
            s.surroundings or 0.0,
            s.budget,
            s.mean,
        ),
    )


def _of_task(task: str, lines: Sequence[Mapping[str, Any]]) -> list[Standing]:
    steps, groups = dict[str, Mapping[str, Any]](), dict[str, list[Mapping[str, Any]]]()
    for line in lines:
        key = chosen(line["key"])
        piece = key.pop("piece")
        if key.get("recipe") != "shared":
            continue
        if piece == "step":
            steps[_text(key)] = line
        else:
            key.pop("factor")
            key.pop("seed", None)
            groups.setdefault(_text(key), []).append(line)
    found = []
    for text, group in groups.items():
        key = json.loads(text)
        budget = key.pop("budget")
        changes, factor = _changes(task, key["settings"]), _taken(group, task)
        runs = [
            line
            for line in group
            if line["key"]["piece"] == "run" and line["key"]["factor"] == factor
        ]
        if changes is not None and runs:
            runs.sort(key=lambda line: line["key"]["seed"])
            data, network = changes
            model, step = key["settings"]["model"], steps[_text(key)]
            around = key["settings"]["network"].get("surroundings")
            found.append(Standing(task, data, budget, model, network, step, runs, around))
    return found


def _taken(group: Sequence[Mapping[str, Any]], task: str) -> float | None:
    """The rate that a finished search takes."""
    rates = {
        line["key"]["factor"]: line["validation"]
        for line in group
        if line["key"]["piece"] == "rate"
    }
    try:
        return searched(lambda factor: rates[factor], larger_is_better=TASKS[task].larger_is_better)
    except KeyError:
        return None


def _changes(
    task: str, settings: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, Any]] | None:
    """What is not the task's own, of the data and of the network.

    None if it is not as today otherwise: of the data, words choose another set, and other sizes
    are those of older code.
    """
    model = settings["model"]
    if model not in MODELS:
        return None
    defaults = default_settings(task, "cpu", "modern", model)
    today = asdict(defaults)
    if "surroundings" in today["network"]:
        # As lines have it.
        asked, problem = today["network"]["surroundings"], TASKS[task](defaults).problem
        today["network"]["surroundings"] = reach_of_surroundings(asked, problem)
    today = chosen(json.loads(json.dumps(today)))
    recipe = chosen({name: value for name, value in asdict(SHARED).items() if name != "epochs"})
    known = {f.name for f in fields(MODELS[model].form(TASKS[task].problem).settings)}
    known.add("surroundings")
    data = _different(settings["data"], today["data"])
    network = _different(settings["network"], today["network"])
    words = all(isinstance(value, str) for value in data.values())
    if not words or settings["optimisation"] != recipe or not known >= settings["network"].keys():
        return None
    return data, network


def _different(own: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """What differs, by name; None where it was left to the network."""
    names = sorted(own.keys() | usual.keys())
    return {name: own.get(name) for name in names if own.get(name) != usual.get(name)}


@dataclass(frozen=True)
class Raced(Outcome):
    """An experiment with the numbers of races: equal time in place of equal epochs."""

    budget: float = 120.0
    standings: Sequence[Standing] = ()

    @property
    def whence(self) -> str:
        """The budget."""
        return f"at equal time, {minutes(self.budget)}"

    def _numbers(self, row: str, column: str) -> Numbers | None:
        """Of the sizes that a network was given, those with the least validation error count."""
        trial, shown = self.experiment.trials.get((row, column)), self.experiment.columns[column]
        if not isinstance(trial, Trial) or trial.changes.keys() - {"network", "data"}:
            return None
        today = asdict(default_settings(trial.task, "cpu", "modern", trial.model))
        data, network = (
            {
                n: value
                for n, value in trial.changes.get(part, {}).items()
                if today[part][n] != value
            }
            for part in ("data", "network")
        )
        own = [
            s
            for s in self.standings
            if (s.task, s.model, s.budget) == (trial.task, trial.model, self.budget)
            and (s.data, s.ablated) == (data, network)
            and s.values(shown.metric)
        ]
        if not own:
            return None
        best = min(own, key=lambda s: s.validation)
        return Numbers([shown.scale * value for value in best.values(shown.metric)], current=True)


def at_equal_time(outcome: Outcome, raced: Sequence[Standing]) -> Raced:
    """The same experiment with the numbers of races."""
    return Raced(
        outcome.experiment,
        outcome.tier,
        outcome.results,
        outcome.queue,
        outcome.cache,
        outcome.bench,
        standings=raced,
    )


def _text(key: Mapping[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)


def minutes(budget: float) -> str:
    """A budget in words.

    >>> minutes(120.0), minutes(90.0)
    ('2 min', '1.5 min')
    """
    return f"{budget / 60:g} min"
