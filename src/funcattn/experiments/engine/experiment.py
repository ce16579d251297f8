"""An experiment, and its outcome at a tier.

An experiment is a table or a figure of the paper: trials by row and column, claims, figures.
"""

import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Literal

from matplotlib.figure import Figure

from funcattn.experiments.engine.results import Result, Results
from funcattn.experiments.engine.trial import NotYet, Trial
from funcattn.experiments.tiers import Tier

NOT_IN_PAPER = " (not in the paper)"
"""How the name of a row ends that the paper does not have."""

Printed = Decimal | int | str
"""A number of the paper with all its digits, or "/" where the paper says so."""


@dataclass(frozen=True)
class Column:
    """What a table shows of the trials of a column."""

    title: str
    metric: str = "test.relative_l2"
    """A path into the result of a run."""
    scale: float = 100.0
    larger_is_better: bool = False
    ranked: bool = True
    """Whether one row is the best."""
    quantity: str = "error"
    """The word for its numbers in sentences."""


@dataclass(frozen=True)
class Numbers:
    """One entry of a table: one number per seed, in the units of the column."""

    values: Sequence[float]
    current: bool
    """Whether today's code gives all of them."""

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return statistics.fmean(self.values)

    @property
    def spread(self) -> float:
        """Standard deviation over the seeds, 0 for a single one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


@dataclass(frozen=True)
class Verdict:
    """What the numbers say about a claim."""

    claim: str
    holds: Literal["holds", "does not hold", "undecided", "not yet"]
    """undecided: there are numbers, but seeds differ as much as they do."""
    details: str

    def __str__(self) -> str:
        return f"{self.claim}: {self.holds}{'; ' if self.details else ''}{self.details}"


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
        self, outcome: "Outcome", holds: bool, details: str, used: Sequence[Numbers], doubt: str
    ) -> Verdict:
        """The verdict, with whence and how many seeds the entries have that it used.

        doubt: why the numbers decide nothing, or nothing.
        """
        seeds = min(len(numbers.values) for numbers in used)
        old = "" if all(n.current for n in used) else ", by older code"
        where = f"{outcome.whence}, {seeds} {'seed' if seeds == 1 else 'seeds'}{old}"
        if doubt:
            return Verdict(self.text, "undecided", f"{details} ({where}: {doubt})")
        return Verdict(self.text, "holds" if holds else "does not hold", f"{details} ({where})")


@dataclass(frozen=True)
class Experiment:
    """One table or figure, or several that show the same runs."""

    name: str
    aliases: tuple[str, ...]
    """Its numbers in the paper."""
    title: str
    unit: str
    """What the numbers are, in words."""
    rows: Mapping[str, str]
    """Row names, and how they are printed."""
    columns: Mapping[str, Column]
    trials: Mapping[tuple[str, str], Trial | NotYet]
    """By row and column. An entry that is missing is not asked for."""
    paper: Mapping[str, Mapping[str, Printed]] = field(default_factory=dict)
    """What the paper printed, by row and column."""
    claims: tuple[Claim, ...] = ()
    figures: "Callable[[Outcome], dict[str, Figure]]" = lambda outcome: {}  # noqa: ARG005
    """Draws what can be drawn from the results, by name."""
    more: tuple[Trial, ...] = ()
    """Trials that no table shows."""
    notes: tuple[str, ...] = ()
    """How it differs from the paper."""

    def wanted(self, rows: Collection[str] = ()) -> list[Trial]:
        """Its trials, of some rows or of all, each once, in order."""
        shown = (trial for (row, _), trial in self.trials.items() if not rows or row in rows)
        wanted: list[Trial] = []
        for trial in (*shown, *(() if rows else self.more)):
            if isinstance(trial, Trial) and trial not in wanted:
                wanted.append(trial)
        return wanted

    def in_paper(self, row: str) -> bool:
        """Whether the paper has this row too."""
        return not self.rows[row].endswith(NOT_IN_PAPER)

    def printed(self, row: str, column: str) -> Printed | None:
        """The paper's number, or None where it has none."""
        return self.paper.get(row, {}).get(column)


@dataclass(frozen=True)
class Outcome:
    """An experiment, a tier, and the results that exist."""

    experiment: Experiment
    tier: Tier
    results: Results
    queue: Path
    """The folder of the queue, which keeps weights."""
    cache: Path
    """Where made data is kept."""
    bench: Path
    """What `funcattn bench` measured."""
    _looked_up: dict[tuple[str, str], Numbers | None] = field(default_factory=dict, init=False)

    @property
    def whence(self) -> str:
        """Where its numbers come from, in words."""
        return f"tier {self.tier}"

    def found(self, trial: Trial) -> list[Result]:
        """The results of a trial, one per seed."""
        if trial.refusal(self.tier) is not None:
            return []
        return [*self.results.of_all_seeds(trial, self.tier).values()]

    def all_found(self) -> list[Result]:
        """The results of all trials."""
        return [result for trial in self.experiment.wanted() for result in self.found(trial)]

    def numbers(self, row: str, column: str) -> Numbers | None:
        """An entry of the table, or None where there is none yet."""
        if (row, column) not in self._looked_up:
            self._looked_up[row, column] = self._numbers(row, column)
        return self._looked_up[row, column]

    def column_numbers(self, column: str) -> dict[str, Numbers]:
        """The entries of a column, by row."""
        entries = {row: self.numbers(row, column) for row in self.experiment.rows}
        return {row: numbers for row, numbers in entries.items() if numbers is not None}

    def _numbers(self, row: str, column: str) -> Numbers | None:
        trial = self.experiment.trials.get((row, column))
        if not isinstance(trial, Trial):
            return None
        shown = self.experiment.columns[column]
        results = self.found(trial)
        values = [value for r in results if (value := r.value(shown.metric)) is not None]
        if not values:
            return None
        return Numbers([shown.scale * value for value in values], all(r.current for r in results))

    def why_not(self, row: str, column: str) -> str:
        """Why an entry has no number."""
        trial = self.experiment.trials.get((row, column))
        if trial is None:
            return ""
        if isinstance(trial, NotYet):
            return f"not yet: {trial.why}"
        refusal = trial.refusal(self.tier)
        return "not run" if refusal is None else f"does not fit: {refusal}"

    def done(self) -> tuple[int, int]:
        """How many trials have a result of any seed, and how many can be run."""
        able = [trial for trial in self.experiment.wanted() if trial.refusal(self.tier) is None]
        return sum(bool(self.found(trial)) for trial in able), len(able)

    def run_folder(self, trial: Trial) -> Path | None:
        """The folder with the weights of seed 0, or None where there are none."""
        if trial.refusal(self.tier) is not None:
            return None
        result = self.results.find(trial, self.tier)
        if result is None:
            return None
        folder = self.queue / "cells" / result.name / "run"
        return folder if (folder / "record.json").exists() else None
