"""Claims of the paper, as data, and the verdict on each, from the numbers."""

import math
from dataclasses import dataclass
from itertools import pairwise

from funcattn.experiments.experiment import Claim, Numbers, Outcome, Verdict


def _margin(ours: Numbers, theirs: Numbers, *, larger: bool) -> float:
    """By which part of theirs ours is better; negative where it is worse."""
    difference = ours.mean - theirs.mean if larger else theirs.mean - ours.mean
    return difference / abs(theirs.mean)


def _digits(number: float) -> str:
    """Three digits, more of a large number rather than a power of ten.

    >>> _digits(8.2163), _digits(-1461.4)
    ('8.22', '-1,461')
    """
    return f"{number:.3g}" if abs(number) < 1000 else f"{number:,.0f}"


def _in_the_spread(a: Numbers, b: Numbers) -> str:
    if min(len(a.values), len(b.values)) < 2:
        return ""
    within = abs(a.mean - b.mean) < math.hypot(a.spread, b.spread)
    return ", less than the spread of the seeds" if within else ""


@dataclass(frozen=True)
class First(Claim):
    """A row is the best of its column, methods that the paper has not included."""

    row: str
    column: str

    def verdict(self, outcome: Outcome) -> Verdict:
        """Against all rows that have a number."""
        rows = outcome.experiment.rows
        ours = outcome.numbers(self.row, self.column)
        if ours is None:
            return self.not_yet(outcome, self.row, self.column)
        asked = [r for r in rows if r != self.row and (r, self.column) in outcome.experiment.runs]
        found = {row: outcome.numbers(row, self.column) for row in asked}
        others = {row: numbers for row, numbers in found.items() if numbers is not None}
        if not others:
            return Verdict(self.text, "not yet", "no other method has a run")
        larger = outcome.experiment.columns[self.column].larger_is_better
        in_order = sorted(others, key=lambda row: others[row].mean, reverse=larger)
        in_paper = [row for row in in_order if outcome.experiment.in_paper(row)]
        margins = {row: _margin(ours, others[row], larger=larger) for row in others}
        told = [
            f"margin {_digits(100 * margins[row])} % to {rows[row]}"
            + _in_the_spread(ours, others[row])
            for row in dict.fromkeys((in_order[0], *in_paper[:1]))
        ]
        details = ", among the methods of the paper ".join(told)
        details += f", against {len(others)} of {len(asked)} other methods"
        margin = margins[in_order[0]]
        return self.decided(outcome, margin > 0, details, [ours, *others.values()])


@dataclass(frozen=True)
class Below(Claim):
    """In some column, a row is below another by a factor."""

    row: str
    than: str
    columns: tuple[str, ...]
    factor: float = 1.0
    than_columns: tuple[str, ...] = ()
    """Those of the other row, if they are others."""

    def verdict(self, outcome: Outcome) -> Verdict:
        """In the column where it is most so."""
        ratios = []
        for column, theirs in zip(self.columns, self.than_columns or self.columns, strict=True):
            pair = outcome.numbers(self.row, column), outcome.numbers(self.than, theirs)
            for numbers, row, where in zip(
                pair, (self.row, self.than), (column, theirs), strict=True
            ):
                if numbers is None:
                    missing = (row, where)
                    break
            else:
                a, b = pair
                assert a is not None
                assert b is not None
                ratios.append((b.mean / a.mean, a, b))
        if not ratios:
            return self.not_yet(outcome, *missing)
        ratio, ours, other = max(ratios, key=lambda found: found[0])
        details = f"{outcome.experiment.rows[self.than]} over {outcome.experiment.rows[self.row]} "
        details += f"is {_digits(ratio)}{_in_the_spread(ours, other)}"
        return self.decided(outcome, ratio > self.factor, details, [ours, other])


@dataclass(frozen=True)
class Near(Claim):
    """A row is within a part of the best of its column, or all rows are."""

    column: str
    within: float
    row: str | None = None
    """None: the worst row."""

    def verdict(self, outcome: Outcome) -> Verdict:
        """Among the rows that have a number."""
        asked = [r for r in outcome.experiment.rows if (r, self.column) in outcome.experiment.runs]
        found = {row: outcome.numbers(row, self.column) for row in asked}
        known = {row: numbers for row, numbers in found.items() if numbers is not None}
        if self.row is not None and self.row not in known:
            return self.not_yet(outcome, self.row, self.column)
        if len(known) < 2:
            return Verdict(
                self.text, "not yet", f"{len(known)} of {len(asked)} settings have a run"
            )
        best = min(known.values(), key=lambda numbers: numbers.mean)
        ours = known[self.row] if self.row else max(known.values(), key=lambda n: n.mean)
        part = ours.mean / best.mean - 1
        details = (
            f"{_digits(100 * part)} % above the best{_in_the_spread(ours, best) if part else ''}, "
            f"{len(known)} of {len(asked)} settings"
        )
        return self.decided(outcome, part <= self.within, details, list(known.values()))


@dataclass(frozen=True)
class Falls(Claim):
    """A column falls from row to row."""

    column: str
    rows: tuple[str, ...]

    def verdict(self, outcome: Outcome) -> Verdict:
        """If every row has a number."""
        values = []
        for row in self.rows:
            numbers = outcome.numbers(row, self.column)
            if numbers is None:
                return self.not_yet(outcome, row, self.column)
            values.append(numbers)
        falls = all(a.mean > b.mean for a, b in pairwise(values))
        shown = ", ".join(f"{numbers.mean:.4g}" for numbers in values)
        return self.decided(outcome, falls, f"from {self.rows[0]} on: {shown}", values)
