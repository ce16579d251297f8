"""The results of runs as JSON lines, a file a task, a line a run."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from funcattn.experiments.base import identity
from funcattn.experiments.version import code_version
from funcattn.settings import RunSettings, changed
from funcattn.tasks import TASKS
from funcattn.training.checkpoint import write_whole

SAME_NUMBERS = "same_numbers.json"
"""Changes of the code that left numbers as they were, but for which networks, and how that was
seen."""
_NEEDED = ("identity", "code", "task", "model", "seed", "settings")


def run_name(task: str, model: str, seed: int, key: str, code: str) -> str:
    """Of a run's folder; a run by other code is another run."""
    return f"{task}-{model}-seed{seed}-{key}-{code}"


@dataclass(frozen=True)
class Result:
    """What came out of one run."""

    line: Mapping[str, Any]
    current: bool
    """Whether the code that decides its numbers gives the same ones today."""

    @property
    def name(self) -> str:
        """Of the folder in which it was made."""
        return run_name(*(self.line[n] for n in ("task", "model", "seed", "identity", "code")))

    def value(self, path: str) -> float | None:
        """A number by its path, such as "test.relative_l2"; None where the run has none."""
        found: Any = self.line
        for name in path.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        return None if found is None else float(found)


class Results:
    """A folder of JSON lines; nothing in it is ever removed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lines: dict[str, dict[int, list[dict[str, Any]]]] = {}
        """By what is the same for all seeds, and the seed; oldest first."""
        for path in sorted(folder.glob("*.jsonl")):
            for line in read_lines(path):
                seeds = self._lines.setdefault(_identity_now(line), {})
                seeds.setdefault(line["seed"], []).append(line)
        self._same = same_numbers(folder)
        self._versions: dict[tuple[str, str], set[str]] = {}
        """By task and network."""

    def find(self, settings: RunSettings) -> Result | None:
        """The newest result with these settings by this code, or else by older code."""
        return self.of_all_seeds(settings).get(settings.seed)

    def of_all_seeds(self, settings: RunSettings) -> dict[int, Result]:
        """The same for every seed that was run, in order."""
        seeds = self._lines.get(_of_any_seed(settings), {})
        of_what = settings.task, settings.model
        if seeds and of_what not in self._versions:
            self._versions[of_what] = self._like_now(*of_what)
        found = {}
        for seed, lines in sorted(seeds.items()):
            fresh = [line for line in lines if line["code"] in self._versions[of_what]]
            found[seed] = Result((fresh or lines)[-1], current=bool(fresh))
        return found

    def _like_now(self, task: str, model: str) -> set[str]:
        """Versions of the code that give the numbers that today's gives."""
        versions = {code_version(task)}
        for change in reversed(self._same):
            before, after = change["code"].get(task, ("", ""))
            if after in versions and model not in change.get("but_for", ()):
                versions.add(before)
        return versions


def same_numbers(folder: Path) -> list[dict[str, Any]]:
    """What `benchmarks/same_numbers.py` has noted, oldest first."""
    path = folder / SAME_NUMBERS
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def _of_any_seed(settings: RunSettings) -> str:
    return identity(replace(settings, seed=0))


def _identity_now(line: Mapping[str, Any]) -> str:
    """Of settings that were written before there were some of today's: those had their defaults."""
    start = TASKS[line["task"]].defaults("paper", "paper")
    try:
        return _of_any_seed(changed(start, line["settings"]))
    except ValueError:  # a setting that is no more
        return str(line["identity"])


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The results in one file."""
    found = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        try:
            line = json.loads(text)
            found.append(line | {name: line[name] for name in _NEEDED})
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path}, line {number}: expected the result of a run as JSON, got {error}; take "
                "the line out"
            ) from error
    return found


def append_line(path: Path, line: Mapping[str, Any]) -> None:
    """Add a result so that a kill at any moment leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        old = path.read_text() if path.exists() else ""
        write_whole(path, f"{old}{json.dumps(line)}\n")
