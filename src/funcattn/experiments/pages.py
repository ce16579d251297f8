"""Tables in Markdown and LaTeX, figures, and the page of results; all from the numbers."""

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from funcattn.experiments.base import NotYet, Run
from funcattn.experiments.experiment import Experiment, Numbers, Outcome
from funcattn.training.checkpoint import CheckpointError, write_whole
from funcattn.viz.saving import write_figure

_OLD = "*"
"""Marks numbers of an older version of the code."""
_INTRODUCTION = """\
# The paper's experiments, run here

Built by `funcattn reproduce --tables` from the results of runs, nothing typed by hand. The results
are JSON lines in [results/experiments](../results/experiments), each with settings, seed, commit,
machine, times and curves. `funcattn reproduce --list` shows what has been run, `funcattn reproduce
NAME --tier smoke|cpu|paper` runs more.

Tier `paper` is the paper's own configuration. Tier `cpu` is for two cores: smaller networks, fewer
and smaller samples, fewer epochs, the same for all methods. It trains by Muon where the paper has
AdamW, which left the three networks that were tried half trained
([how that was chosen](../results/tier_cpu.json)); networks without blocks, such as FNO, keep AdamW.
Its errors cannot be compared with the paper's; what can be compared is who is ahead. Entries are
means over seeds ± their standard deviation, with the number of seeds in brackets; the best of ours
is bold; `*` marks code that has changed since, but for [changes that left all numbers of small runs
as they were](../results/experiments/same_numbers.json), to the last bit or to rounding. "Not run"
stands where a run can be started, "not yet" where the method or a setting of it is not here.
"Against 5 of 15 other methods" says how many of them have been run here; a method that the paper
has not counts as any other. Columns without a run are left out here; all are in
[tables](../results/experiments/tables).
"""


def markdown_table(outcome: Outcome, columns: Sequence[str] | None = None) -> str:
    """The paper's numbers beside ours; columns: some of them, default all."""
    experiment = outcome.experiment
    columns = [*experiment.columns] if columns is None else columns
    heads = [
        f"{experiment.columns[column].title}: {who}"
        for column in columns
        for who in _sources(experiment, column)
    ]
    lines = [_line(["", *heads]), "|" + " --- |" * (1 + len(heads))]
    best = _best(outcome)
    for row, name in experiment.rows.items():
        cells = [name]
        for column in columns:
            numbers = outcome.numbers(row, column)
            text = _numbers(numbers, "±") if numbers else _short(outcome.why_not(row, column))
            ours = f"**{text}**" if best.get(column) == row else text
            cells += _beside(experiment, row, column, ours)
        lines.append(_line(cells))
    return "\n".join(lines) + "\n"


def latex_table(outcome: Outcome) -> str:
    """The same for a document that has booktabs."""
    experiment = outcome.experiment
    best = _best(outcome)
    sources = {name: _sources(experiment, name) for name in experiment.columns}
    heads = [
        rf"\multicolumn{{{len(sources[name])}}}{{c}}{{{_escaped(column.title)}}}"
        for name, column in experiment.columns.items()
    ]
    under = [who for of in sources.values() for who in of]
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


def write_results(
    outcomes: Sequence[Outcome],
    page: Path,
    folder: Path,
    on_experiment: Callable[[str], None] = lambda name: None,  # noqa: ARG005
) -> None:
    """Tables and figures into a folder, and the page that shows them."""
    by_name: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_name.setdefault(outcome.experiment.name, []).append(outcome)
    shown = {name: _shown(tiers) for name, tiers in by_name.items()}
    sections = [_INTRODUCTION, _summary([outcome for told in shown.values() for outcome in told])]
    for name, told in shown.items():
        on_experiment(name)
        sections.append(_section(told, page, folder))
    page.parent.mkdir(parents=True, exist_ok=True)
    write_whole(page, "\n".join(sections))


def _shown(tiers: Sequence[Outcome]) -> list[Outcome]:
    """Of one experiment: those tiers that have results of their own, or the last if none has."""
    found = {
        outcome.tier: {r.name for run in outcome.experiment.wanted() for r in outcome.found(run)}
        for outcome in tiers
    }
    told: list[Outcome] = []
    by_size = sorted(tiers, key=lambda o: (len(found[o.tier]), tiers.index(o)))
    for outcome in reversed(by_size):
        if not any(found[outcome.tier] <= found[other.tier] for other in told):
            told.append(outcome)
    return sorted(told, key=tiers.index) if found[told[0].tier] else list(tiers[-1:])


def _summary(shown: Sequence[Outcome]) -> str:
    """How many of the paper's claims hold, and what was found where."""
    found = [(o.experiment, c.verdict(o)) for o in shown for c in o.experiment.claims]
    counts = [
        sum(verdict.holds == holds for _, verdict in found)
        for holds in ("holds", "does not hold", "not yet")
    ]
    lines = [
        "## The paper's claims\n",
        "Of {} claims {} hold here, {} do not, {} wait for runs.\n".format(len(found), *counts),
        "| | here | by how much | |",
        "| --- | --- | --- | --- |",
        *(
            _line([v.claim, v.holds, v.details, f"[{e.name}](#{_anchor(e)})"])
            for e, v in found
            if v.holds != "not yet"
        ),
    ]
    return "\n".join(lines) + "\n"


def _heading(experiment: Experiment) -> str:
    return f"{experiment.title} (`{experiment.name}`: {', '.join(experiment.aliases)})"


def _anchor(experiment: Experiment) -> str:
    """Of its heading, as GitHub makes it."""
    kept = (letter for letter in _heading(experiment).lower() if letter.isalnum() or letter in " _")
    return "".join(kept).replace(" ", "-")


def _section(told: Sequence[Outcome], page: Path, folder: Path) -> str:
    """Of one experiment, at the tiers that are told of."""
    experiment = told[0].experiment
    parts = [f"## {_heading(experiment)}\n"]
    for outcome in told:
        done, able = outcome.done()
        if able:
            parts.append(
                f"Tier `{outcome.tier}`: {done} of {able} runs.{_sentence(experiment.unit)}"
                f"{_how_made(outcome)}\n"
            )
        if experiment.columns:
            run = [c for c in experiment.columns if _any_number(outcome, c)]
            parts += [markdown_table(outcome, run or None), _costs(outcome, run)]
            for suffix, table in (("md", markdown_table), ("tex", latex_table)):
                path = folder / "tables" / f"{experiment.name}-{outcome.tier}.{suffix}"
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, table(outcome))
        parts.append(_verdicts(outcome))
        parts += _pictures(outcome, page, folder / "pictures")
    parts.append("".join(f"- Note: {note}\n" for note in experiment.notes))
    return "\n".join(part for part in parts if part)


def _costs(outcome: Outcome, columns: Sequence[str]) -> str:
    """What those who are compared cost: a table, empty where nothing was run."""
    runs = outcome.experiment.runs
    different: dict[str, list[Run | NotYet | None]] = {}
    for column in columns:  # several may show the same runs
        its = [runs.get((row, column)) for row in outcome.experiment.rows]
        if its not in different.values():
            different[column] = its
    lines = []
    for row, name in outcome.experiment.rows.items():
        found = [_cost(outcome, runs.get((row, column))) for column in different]
        if any(found):
            lines.append(_line([name, *found]))
    if not lines:
        return ""
    titles = [outcome.experiment.columns[column].title for column in different]
    head = _line(["", *(titles if len(titles) > 1 else ["a run"])])
    rule = "|" + " --- |" * (1 + len(different))
    return "\n".join(["Parameters, and minutes of one core:\n", head, rule, *lines]) + "\n"


def _cost(outcome: Outcome, run: Run | NotYet | None) -> str:
    found = outcome.found(run) if isinstance(run, Run) else []
    if not found:
        return ""
    minutes = statistics.fmean(result.line["cpu_seconds"] for result in found) / 60
    return f"{found[0].line['parameters']:,}, {minutes:.1f} min"


def _any_number(outcome: Outcome, column: str) -> bool:
    return any(outcome.numbers(row, column) is not None for row in outcome.experiment.rows)


def _verdicts(outcome: Outcome) -> str:
    """One line for each claim that is decided, and one for all that are not."""
    found = [claim.verdict(outcome) for claim in outcome.experiment.claims]
    lines = [f"- {verdict}\n" for verdict in found if verdict.holds != "not yet"]
    waiting = [v.claim + (f" ({v.details})" if v.details else "") for v in found]
    waiting = [text for text, v in zip(waiting, found, strict=True) if v.holds == "not yet"]
    if waiting:
        lines.append(f"- not yet decided: {'; '.join(waiting)}\n")
    return "".join(lines)


def _pictures(outcome: Outcome, page: Path, folder: Path) -> list[str]:
    """Draw what can be drawn, and show all there are: weights stay where they were trained."""
    name, said = outcome.experiment.name, []
    try:
        for title, figure in outcome.experiment.figures(outcome).items():
            write_figure(figure, folder / f"{title}-{outcome.tier}")
    except CheckpointError as error:
        said.append(f"The pictures are of an older version of the code: {error}.\n")
    for path in sorted(folder.glob(f"{name}*-{outcome.tier}.png")):
        where = Path(os.path.relpath(path, page.parent)).as_posix()
        said.append(f"![{path.stem.replace('_', ' ')}]({where})\n")
    return said


def _how_made(outcome: Outcome) -> str:
    lines = [r.line for run in outcome.experiment.wanted() for r in outcome.found(run)]
    if not lines:
        return ""
    commits, machines = ({line[what] for line in lines} for what in ("commit", "machine"))
    hours = sum(line["cpu_seconds"] for line in lines) / 3600
    return (
        f" {len(lines)} result{'s' if len(lines) > 1 else ''} with all seeds, {hours:.2g} hours of "
        f"one core; commit {', '.join(sorted(commits))}; {'; '.join(sorted(machines))}."
    )


def _best(outcome: Outcome) -> dict[str, str]:
    """The row that is ahead in each column with two numbers or more."""
    best = {}
    for name, column in outcome.experiment.columns.items():
        if not column.ranked:
            continue
        found = {row: outcome.numbers(row, name) for row in outcome.experiment.rows}
        means = {row: numbers.mean for row, numbers in found.items() if numbers is not None}
        if len(means) > 1:
            best[name] = (max if column.larger_is_better else min)(
                means, key=lambda row: means[row]
            )
    return best


def _numbers(numbers: Numbers, sign: str) -> str:
    spread = f" {sign} {numbers.spread:.2g}" if len(numbers.values) > 1 else ""
    return f"{numbers.mean:.3g}{spread} ({len(numbers.values)}){'' if numbers.current else _OLD}"


def _sources(experiment: Experiment, column: str) -> list[str]:
    """Whose numbers a column has: some of the paper's are only in its figures."""
    printed = any(experiment.printed(row, column) is not None for row in experiment.rows)
    return ["paper", "ours"] if printed else ["ours"]


def _beside(experiment: Experiment, row: str, column: str, ours: str) -> list[str]:
    """The paper's number and ours."""
    printed = experiment.printed(row, column)
    both = ["" if printed is None else f"{printed}", ours]
    return both[-len(_sources(experiment, column)) :]


def _short(why: str) -> str:
    """Tables have no room for reasons."""
    return why.partition(":")[0]


def _sentence(words: str) -> str:
    return f" {words[:1].upper()}{words[1:]}." if words else ""


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escaped(text: str) -> str:
    table: Mapping[str, str] = {"%": r"\%", "&": r"\&", "_": r"\_", "#": r"\#"}
    return "".join(table.get(letter, letter) for letter in text)
