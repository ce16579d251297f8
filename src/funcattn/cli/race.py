"""`funcattn race`."""

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from funcattn.cli import commands
from funcattn.cli.terminal import refuse
from funcattn.tasks import TASKS, Task
from funcattn.training.entrant import Entrant
from funcattn.training.race import race
from funcattn.training.recipe import RecipeName

_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Race(commands.Race):
    """`funcattn race`."""

    def run(self, rest: Sequence[str], console: Console) -> None:
        """Race, and show a table."""
        refuse(rest)
        recipes: Sequence[RecipeName] = (
            ("shared", "task") if self.recipe == "both" else (self.recipe,)
        )
        task, data = named_changes(self.task, "task")
        for recipe in recipes:
            results = race(
                task,
                [entrant_of(text) for text in self.models],
                budget=seconds_of(self.budget),
                seeds=range(self.seeds),
                cache=self.cache,
                folder=self.out,
                recipe=recipe,
                profile=self.profile,
                data=data,
                tell=console.print,
            )
            title = f"{self.task}, {self.budget}, recipe {recipe}"
            console.print(table_of(results, title, TASKS[task]))


def entrant_of(text: str) -> Entrant:
    """A network of the race, by its name or as name:setting=value,setting=value.

    >>> entrant_of("transolver:layers=3").label
    'transolver layers=3'
    """
    return Entrant(*named_changes(text, "models"))


def named_changes(text: str, what: str) -> tuple[str, dict[str, Any]]:
    """A name, and the settings that follow it.

    >>> named_changes("airfrans:split=aoa", "task")
    ('airfrans', {'split': 'aoa'})
    >>> named_changes("functional_operator:layers=4,surroundings=None", "models")[1]
    {'layers': 4, 'surroundings': None}
    """
    named, _, settings = text.partition(":")
    changes: dict[str, Any] = {}
    for change in filter(None, settings.split(",")):
        name, equals, value = change.partition("=")
        if not (name and equals and value):
            raise ValueError(
                f"{what}: expected a name, or name:setting=value,setting=value, got {text!r}"
            )
        try:
            changes[name] = json.loads(value)
        except ValueError:
            changes[name] = None if value == "None" else value
    return named, changes


def seconds_of(text: str) -> float:
    """A time such as 120s, 2m or 1.5h in seconds.

    >>> seconds_of("120s"), seconds_of("2m"), seconds_of("90")
    (120.0, 120.0, 90.0)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|min|h)?\s*", text)
    if match is None or float(match[1]) == 0:
        raise ValueError(f"budget: expected a time such as 120s, 2m or 1h, got {text!r}")
    return float(match[1]) * _SECONDS[match[2] or "s"]


def table_of(results: Sequence[Mapping[str, Any]], title: str, task: type[Task]) -> Table:
    """A row per entrant, the best mean first; the test of all seeds."""
    metric = f"test {task.headline.replace('_', ' ')}"
    table = Table("network", "parameters", "memory, MB", "steps", metric, title=title)
    by_entrant: dict[str, list[Mapping[str, Any]]] = {}
    for result in results:
        by_entrant.setdefault(result["entrant"], []).append(result)
    for entrant, lines in sorted(
        by_entrant.items(),
        key=lambda pair: statistics.mean(line["test"] for line in pair[1]),
        reverse=task.larger_is_better,
    ):
        table.add_row(
            entrant,
            f"{lines[0]['parameters']:,}",
            f"{lines[0]['megabytes']:,.0f}",
            f"{lines[0]['steps']:,}",
            ", ".join(f"{line['test']:.4g}" for line in lines),
        )
    return table
