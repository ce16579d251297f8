"""What an experiment is, and what came out of it at a tier.

An experiment is a table or a figure of the paper: runs by row and column, claims, figures.
"""

import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Literal

from matplotlib.figure import Figure

from funcattn.experiments.base import Column, NotYet, Run, paper
from funcattn.experiments.results import Result, Results
from funcattn.experiments.tiers import Tier

NOT_IN_PAPER = " (not in the paper)"
"""How the name of a row ends that is an addition."""


@dataclass(frozen=True)
class Numbers:
    """One entry of a table: a number a seed, in the units of the column."""

    values: Sequence[float]
    current: bool
    """Whether all are by the code as it is now."""

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return statistics.fmean(self.values)

    @property
    def spread(self) -> float:
        """Standard deviation over the seeds; 0 of a single one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


@dataclass(frozen=True)
class Verdict:
    """What the numbers say of a claim."""

    claim: str
    holds: Literal["holds", "does not hold", "not yet"]
    details: str

    def __str__(self) -> str:
        return f"{self.claim}: {self.holds}{', ' if self.details else ''}{self.details}"


@dataclass(frozen=True)
class Claim(ABC):
    """One sentence of the paper that numbers can decide."""

    text: str

    @abstractmethod
    def verdict(self, outcome: "Outcome") -> Verdict:
        """Whether it holds."""

    def not_yet(self, outcome: "Outcome", row: str, column: str) -> Verdict:
        """The verdict where an entry that it needs has no number."""
        _, _, why = outcome.why_not(row, column).partition(": ")
        name = outcome.experiment.rows[row]
        return Verdict(self.text, "not yet", f"{name}: {why}" if why else "")

    def decided(
        self, outcome: "Outcome", holds: bool, details: str, used: Sequence[Numbers]
    ) -> Verdict:
        """The verdict, with the tier and the number of seeds of the entries that it used."""
        seeds = min(len(numbers.values) for numbers in used)
        old = "" if all(n.current for n in used) else ", by older code"
        where = f"at tier {outcome.tier}, {seeds} {'seed' if seeds == 1 else 'seeds'}"
        return Verdict(self.text, "holds" if holds else "does not hold", f"{where}, {details}{old}")


@dataclass(frozen=True)
class Experiment:
    """One table or figure (or several that show the same runs)."""

    name: str
    aliases: tuple[str, ...]
    """Its numbers in the paper."""
    title: str
    unit: str
    """What the numbers are, in words."""
    rows: Mapping[str, str]
    """Names, and how they are printed."""
    columns: Mapping[str, Column]
    runs: Mapping[tuple[str, str], Run | NotYet]
    """By row and column; an entry that is not there is not asked for."""
    claims: tuple[Claim, ...] = ()
    figures: "Callable[[Outcome], dict[str, Figure]]" = lambda outcome: {}  # noqa: ARG005
    """What can be drawn from what there is, by name."""
    more: tuple[Run, ...] = ()
    """Runs that no table shows."""
    notes: tuple[str, ...] = ()
    """In what it differs from the paper."""

    def wanted(self, rows: Collection[str] = ()) -> list[Run]:
        """Its runs, of some rows or all, each once, in order."""
        wanted: list[Run] = []
        shown = (run for (row, _), run in self.runs.items() if not rows or row in rows)
        for run in (*shown, *(() if rows else self.more)):
            if isinstance(run, Run) and run not in wanted:
                wanted.append(run)
        return wanted

    def in_paper(self, row: str) -> bool:
        """Whether the paper has this row too."""
        return not self.rows[row].endswith(NOT_IN_PAPER)

    def printed(self, row: str, column: str) -> Decimal | int | str | None:
        """The paper's number, "/" where it says so, None where it has none."""
        found: Decimal | int | str | None = paper()[self.name].get(row, {}).get(column)
        return found


@dataclass(frozen=True)
class Outcome:
    """An experiment, a tier, and the results there are."""

    experiment: "Experiment"
    tier: Tier
    results: Results
    kept: Path
    """The folder of the queue, where weights are."""
    cache: Path
    """Where made data is kept."""
    bench: Path
    """What `funcattn bench` measured."""
    _looked_up: dict[tuple[str, str], Numbers | None] = field(default_factory=dict, init=False)

    def found(self, run: Run) -> list[Result]:
        """The results of a run, one a seed."""
        if run.refusal(self.tier) is not None:
            return []
        return [*self.results.of_all_seeds(run.settings(self.tier)).values()]

    def numbers(self, row: str, column: str) -> Numbers | None:
        """An entry of the table, None where there is none yet."""
        if (row, column) not in self._looked_up:
            self._looked_up[row, column] = self._numbers(row, column)
        return self._looked_up[row, column]

    def _numbers(self, row: str, column: str) -> Numbers | None:
        run = self.experiment.runs.get((row, column))
        if not isinstance(run, Run):
            return None
        shown = self.experiment.columns[column]
        found = [(r, r.value(shown.metric)) for r in self.found(run)]
        values = [shown.scale * value for _, value in found if value is not None]
        if not values:
            return None
        return Numbers(values, all(result.current for result, _ in found))

    def why_not(self, row: str, column: str) -> str:
        """Why an entry has no number."""
        run = self.experiment.runs.get((row, column))
        if run is None:
            return ""
        if isinstance(run, NotYet):
            return f"not yet: {run.why}"
        refusal = run.refusal(self.tier)
        return "not run" if refusal is None else f"not yet: {refusal}"

    def done(self) -> tuple[int, int]:
        """Runs with a result of any seed, and all runs that can be run."""
        able = [run for run in self.experiment.wanted() if run.refusal(self.tier) is None]
        return sum(bool(self.found(run)) for run in able), len(able)

    def run_folder(self, run: Run) -> Path | None:
        """The kept weights of seed 0, None where there are none."""
        if run.refusal(self.tier) is not None:
            return None
        result = self.results.find(run.settings(self.tier))
        folder = None if result is None else self.kept / "cells" / result.name / "run"
        return folder if folder is not None and (folder / "record.json").exists() else None
