"""Kinds of claims, and how numbers decide them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from funcattn.experiments.engine.certainty import doubt, probability
from funcattn.experiments.engine.experiment import Claim, Numbers, Outcome, Verdict


def times(number: float) -> str:
    """How many times as much, with three digits; a large number without a power of ten.

    >>> times(8.2163), times(1461.4)
    ('8.22 times', '1,461 times')
    """
    return f"{number:.3g} times" if abs(number) < 1000 else f"{number:,.0f} times"


def compared(quantity: str, name: str, ours: float, other: str, theirs: float) -> str:
    """Two numbers in words, the larger one first, such that the factor is never below one.

    >>> compared("error", "LNO", 13.5, "FLARE", 0.69)
    'the error of LNO is 19.6 times that of FLARE'
    >>> compared("error", "FNO", 1.0, "LNO", 2.0)
    'the error of LNO is 2 times that of FNO'
    >>> compared("rank correlation", "FNO", -0.5, "LNO", 0.25)
    'the rank correlation is -0.5 of FNO, 0.25 of LNO'
    """
    if min(ours, theirs) <= 0:
        return f"the {quantity} is {ours:.3g} of {name}, {theirs:.3g} of {other}"
    if ours < theirs:
        name, ours, other, theirs = other, theirs, name, ours
    return f"the {quantity} of {name} is {times(ours / theirs)} that of {other}"


def _doubt(a: Numbers, b: Numbers, known: Iterable[Numbers], factor: float = 1.0) -> str:
    """Why a is perhaps b times a factor, or nothing."""
    others = [numbers.values for numbers in known if numbers is not a and numbers is not b]
    return doubt(probability(a.values, b.values, others, factor=factor))


@dataclass(frozen=True)
class First(Claim):
    """A row is the best of its column; methods that the paper does not have count too."""

    row: str
    column: str

    def verdict(self, outcome: Outcome) -> Verdict:
        """Against all rows that have a number."""
        experiment = outcome.experiment
        column = experiment.columns[self.column]
        entries = outcome.column_numbers(self.column)
        if self.row not in entries:
            return self.not_yet(outcome, self.row, self.column)
        ours = entries.pop(self.row)
        if not entries:
            return Verdict(self.text, "not yet", "no other method has a run")
        by_rank = sorted(
            entries, key=lambda row: entries[row].mean, reverse=column.larger_is_better
        )
        best = by_rank[0]
        in_paper = [row for row in by_rank if experiment.in_paper(row)]
        sentences = [
            self._compared(outcome, ours, row, entries[row])
            for row in dict.fromkeys((best, *in_paper[:1]))
        ]
        asked = sum(column == self.column for _, column in experiment.trials) - 1
        details = "; among the methods of the paper, ".join(sentences)
        details += f"; {len(entries)} of {asked} other methods have a run"
        theirs = entries[best].mean
        ahead = ours.mean > theirs if column.larger_is_better else ours.mean < theirs
        why = _doubt(ours, entries[best], entries.values())
        return self.decided(outcome, ahead, details, [ours, *entries.values()], why)

    def _compared(self, outcome: Outcome, ours: Numbers, row: str, theirs: Numbers) -> str:
        rows, column = outcome.experiment.rows, outcome.experiment.columns[self.column]
        return compared(column.quantity, rows[self.row], ours.mean, rows[row], theirs.mean)


@dataclass(frozen=True)
class Below(Claim):
    """In some column, a row is below another by a factor."""

    row: str
    than: str
    columns: tuple[str, ...]
    factor: float = 1.0
    than_columns: tuple[str, ...] = ()
    """Those of the other row, if they differ."""

    def verdict(self, outcome: Outcome) -> Verdict:
        """In the column where the factor is largest."""
        pairs: list[tuple[str, Numbers, Numbers]] = []
        missing = (self.row, self.columns[0])
        for column, other in zip(self.columns, self.than_columns or self.columns, strict=True):
            ours, theirs = outcome.numbers(self.row, column), outcome.numbers(self.than, other)
            if ours is None:
                missing = (self.row, column)
            elif theirs is None:
                missing = (self.than, other)
            else:
                pairs.append((column, ours, theirs))
        if not pairs:
            return self.not_yet(outcome, *missing)
        column, ours, theirs = max(pairs, key=lambda pair: pair[2].mean / pair[1].mean)
        rows, quantity = outcome.experiment.rows, outcome.experiment.columns[column].quantity
        details = compared(quantity, rows[self.row], ours.mean, rows[self.than], theirs.mean)
        holds = theirs.mean / ours.mean > self.factor
        why = _doubt(theirs, ours, outcome.column_numbers(column).values(), self.factor)
        return self.decided(outcome, holds, details, [ours, theirs], why)


@dataclass(frozen=True)
class Near(Claim):
    """A row is within a fraction of the best of its column, or all rows are."""

    column: str
    within: float
    row: str | None = None
    """None: the worst row."""

    def verdict(self, outcome: Outcome) -> Verdict:
        """Among the rows that have a number."""
        rows, trials = outcome.experiment.rows, outcome.experiment.trials
        asked = [row for row in rows if (row, self.column) in trials]
        known = outcome.column_numbers(self.column)
        if self.row is not None and self.row not in known:
            return self.not_yet(outcome, self.row, self.column)
        settings = f"{len(known)} of {len(asked)} settings have a run"
        if len(known) < 2:
            return Verdict(self.text, "not yet", settings)

        def mean(row: str) -> float:
            return known[row].mean

        best, judged = min(known, key=mean), self.row or max(known, key=mean)
        ratio = mean(judged) / mean(best)
        quantity = outcome.experiment.columns[self.column].quantity
        if judged == best:
            details = f"{rows[best]} is the best"
        else:
            details = compared(quantity, rows[judged], mean(judged), rows[best], mean(best))
            details += ", the best"
        holds = ratio - 1 <= self.within
        why = _doubt(known[judged], known[best], known.values(), 1 + self.within)
        return self.decided(outcome, holds, f"{details}; {settings}", [*known.values()], why)


@dataclass(frozen=True)
class Falls(Claim):
    """A column falls from row to row."""

    column: str
    rows: tuple[str, ...]

    def verdict(self, outcome: Outcome) -> Verdict:
        """If every row has a number."""
        values: list[Numbers] = []
        for row in self.rows:
            numbers = outcome.numbers(row, self.column)
            if numbers is None:
                return self.not_yet(outcome, row, self.column)
            values.append(numbers)
        falls = all(a.mean > b.mean for a, b in pairwise(values))
        doubts = [(_doubt(a, b, values), a.mean > b.mean) for a, b in pairwise(values)]
        surely_not = any(not why and not lower for why, lower in doubts)
        why = "" if surely_not else next((why for why, _ in doubts if why), "")
        return self.decided(outcome, falls, self._list(outcome, values), values, why)

    def _list(self, outcome: Outcome, values: Sequence[Numbers]) -> str:
        names = outcome.experiment.rows
        return ", ".join(
            f"{numbers.mean:.4g} at {names[row]}"
            for row, numbers in zip(self.rows, values, strict=True)
        )
