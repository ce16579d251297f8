"""The table of an experiment in Markdown and in LaTeX."""

from collections.abc import Mapping, Sequence

from funcattn.experiments.engine.experiment import Experiment, Numbers, Outcome
from funcattn.experiments.engine.races import Standing, at_equal_time

_OLD = "*"
"""Marks numbers that today's code does not give any more."""


def markdown_table(
    outcome: Outcome,
    columns: Sequence[str] | None = None,
    raced: Sequence[Standing] = (),
    *,
    whole: bool = True,
) -> str:
    """The paper's numbers beside those of here, in some columns or in all.

    whole: with the rows that have no number from here in these columns.
    """
    experiment, races = outcome.experiment, at_equal_time(outcome, raced)
    columns = [*experiment.columns] if columns is None else columns
    heads = [
        f"{experiment.columns[column].title}: {who}"
        for column in columns
        for who in _sources(experiment, column)
    ]
    lines = [line_of(["", *heads]), "|" + " --- |" * (1 + len(heads))]
    best = _best(outcome)
    for row, name in experiment.rows.items():
        cells = [name]
        if not whole and not any(outcome.numbers(row, column) for column in columns):
            continue
        for column in columns:
            numbers = outcome.numbers(row, column)
            if numbers:
                text = _numbers(numbers, "±")
            elif races.numbers(row, column):
                text = "at equal time"
            else:
                text = _short(outcome.why_not(row, column))
            ours = f"**{text}**" if best.get(column) == row else text
            cells += _beside(experiment, row, column, ours)
        lines.append(line_of(cells))
    return "\n".join(lines) + "\n"


def latex_table(outcome: Outcome) -> str:
    """The same for a LaTeX document that uses booktabs."""
    experiment = outcome.experiment
    best = _best(outcome)
    sources = {name: _sources(experiment, name) for name in experiment.columns}
    heads = [
        rf"\multicolumn{{{len(sources[name])}}}{{c}}{{{_escaped(column.title)}}}"
        for name, column in experiment.columns.items()
    ]
    under = [who for column in sources.values() for who in column]
    lines = [
        rf"\begin{{tabular}}{{l{'c' * len(under)}}}",
        r"\toprule",
        " & ".join(["", *heads]) + r" \\",
        " & ".join(["", *under]) + r" \\",
        r"\midrule",
    ]
    for row, name in experiment.rows.items():
        cells = [_escaped(name)]
        for column in experiment.columns:
            numbers = outcome.numbers(row, column)
            text = _numbers(numbers, r"$\pm$") if numbers else "--"
            ours = rf"\textbf{{{text}}}" if best.get(column) == row else text
            cells += _beside(experiment, row, column, ours)
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _best(outcome: Outcome) -> dict[str, str]:
    """The best row of each column that has at least two numbers."""
    best = {}
    for name, column in outcome.experiment.columns.items():
        if not column.ranked:
            continue
        means = {row: numbers.mean for row, numbers in outcome.column_numbers(name).items()}
        if len(means) > 1:
            best[name] = (max if column.larger_is_better else min)(
                means, key=lambda row: means[row]
            )
    return best


def _numbers(numbers: Numbers, sign: str) -> str:
    spread = f" {sign} {numbers.spread:.2g}" if len(numbers.values) > 1 else ""
    return f"{numbers.mean:.3g}{spread} ({len(numbers.values)}){'' if numbers.current else _OLD}"


def _sources(experiment: Experiment, column: str) -> list[str]:
    """Whose numbers a column has: some of the paper's numbers are only in its figures."""
    printed = any(experiment.printed(row, column) is not None for row in experiment.rows)
    return ["paper", "here"] if printed else ["here"]


def _beside(experiment: Experiment, row: str, column: str, ours: str) -> list[str]:
    """The paper's number and ours."""
    printed = experiment.printed(row, column)
    both = ["" if printed is None else f"{printed}", ours]
    return both[-len(_sources(experiment, column)) :]


def _short(why: str) -> str:
    """Without the reason, for which tables have no room."""
    return why.partition(":")[0]


def line_of(cells: Sequence[str]) -> str:
    """A line of a table in Markdown."""
    return "| " + " | ".join(cells) + " |"


def _escaped(text: str) -> str:
    table: Mapping[str, str] = {"%": r"\%", "&": r"\&", "_": r"\_", "#": r"\#"}
    return "".join(table.get(letter, letter) for letter in text)
