"""The results of runs as JSON lines: one file per task, one line per run."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from funcattn.documents import parse_sealed, sealed
from funcattn.experiments.engine.fingerprints import fingerprint_of
from funcattn.experiments.engine.trial import Trial, identity
from funcattn.experiments.tiers import Tier
from funcattn.files import write_text
from funcattn.settings import RunSettings
from funcattn.training.settings import saved_settings

_LINE = {
    **dict.fromkeys(("identity", "code", "task", "model"), str),
    "seed": int,
    "settings": {...: Any},
}


def run_name(task: str, model: str, seed: int, key: str, code: str) -> str:
    """The name of a run's folder. A run by code that gives other numbers is another run."""
    return f"{task}-{model}-seed{seed}-{key}-{code}"


@dataclass(frozen=True)
class Result:
    """The outcome of one run."""

    line: Mapping[str, Any]
    current: bool
    """Whether today's code gives the same numbers."""

    @property
    def name(self) -> str:
        """The name of the folder in which it was made."""
        return run_name(*(self.line[n] for n in ("task", "model", "seed", "identity", "code")))

    def value(self, path: str) -> float | None:
        """A number by its path, such as "test.relative_l2", or None where the run has none."""
        value: Any = self.line
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return None if value is None else float(value)


class Results:
    """A folder of JSON lines. Nothing is ever removed from it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lines: dict[str, dict[int, list[dict[str, Any]]]] = {}
        """By the identity without seed, and by seed; oldest first."""
        for path in sorted(folder.glob("*.jsonl")):
            for line in read_lines(path):
                seeds = self._lines.setdefault(_identity_now(line), {})
                seeds.setdefault(line["seed"], []).append(line)

    def find(self, trial: Trial, tier: Tier, seed: int = 0) -> Result | None:
        """The newest result with today's numbers, or else the newest by older code."""
        return self.of_all_seeds(trial, tier).get(seed)

    def of_all_seeds(self, trial: Trial, tier: Tier) -> dict[int, Result]:
        """The same for every seed that was run, in order."""
        seeds = self._lines.get(_without_seed(trial.settings(tier)), {})
        if not seeds:
            return {}
        names = fingerprint_of(trial).names
        results = {}
        for seed, lines in sorted(seeds.items()):
            fresh = [line for line in lines if line["code"] in names]
            results[seed] = Result((fresh or lines)[-1], current=bool(fresh))
        return results


def _without_seed(settings: RunSettings) -> str:
    return identity(replace(settings, seed=0))


def _identity_now(line: Mapping[str, Any]) -> str:
    """The identity of settings that may lack some of today's, which then had their defaults."""
    try:
        return _without_seed(saved_settings(line["settings"]))
    except ValueError:  # a setting that no longer exists
        return str(line["identity"])


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The results in one file."""
    return [
        parse_sealed(text, _LINE, where=f"{path}, line {number}", advice="remove the line")
        for number, text in enumerate(path.read_bytes().splitlines(), 1)
    ]


def append_line(path: Path, line: Mapping[str, Any]) -> None:
    """Add a result so that a kill at any moment leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        old = path.read_text() if path.exists() else ""
        write_text(path, f"{old}{sealed(line)}\n")
