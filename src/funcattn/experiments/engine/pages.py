"""The page of results: claims, tables and figures, all made from the numbers."""

import os
import statistics
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from funcattn.experiments.engine.experiment import Claim, Experiment, Outcome, Verdict
from funcattn.experiments.engine.race_page import section as races_section
from funcattn.experiments.engine.races import Standing, at_equal_time, standings
from funcattn.experiments.engine.trial import NotYet, Trial
from funcattn.experiments.engine.typeset import latex_table, line_of, markdown_table
from funcattn.files import write_text
from funcattn.provenance import machine_of
from funcattn.training.checkpoint import CheckpointError
from funcattn.viz.saving import write_figure

_WAITS = "not run"
"""Why a trial has no number that can be run."""
_DOUBT = {"holds": 0, "does not hold": 0, "undecided": 1, "not yet": 2}
"""How far verdicts are from certain."""
_INTRODUCTION = """\
# The paper's experiments, run here

`funcattn reproduce --tables` builds this page from the results of runs. Nothing on it is typed by
hand. The results are JSON lines in [{folder}]({link}), each with its settings, seed,
commit, machine, times and curves. `funcattn reproduce --list` shows what has been run, and
`funcattn reproduce NAME --tier smoke|cpu|paper` runs more.
"""
_READING = """\
## How to read the tables below

They compare at equal epochs.

**Tiers.** Tier `paper` is the paper's own configuration. Tier `cpu` is for two cores: smaller
networks, fewer and smaller samples, fewer epochs, the same for all methods. It trains with Muon
where the paper uses AdamW, because AdamW left the three networks that were tried half trained;
`results/tier_cpu.json` records that choice. Networks with weights
that are no plain matrices, such as FNO, keep AdamW. The
errors of tier `cpu` cannot be compared with those of the paper. What can be compared is who is
ahead.

**Entries.** An entry is the mean over the seeds ± their standard deviation, with the number of
seeds in brackets. The best entry from here is bold. `*` marks results of older code that gave other
numbers than today's; `funcattn reproduce --check` tests that with short runs. "Not run" means that
the run can be started, "at equal time" that the method ran in the races instead, "does not fit"
that the network does not take such points or that the run is too long for the tier, "not yet" that
the package lacks the method. What is not run waits for time: a run of tier `cpu` takes up to twenty
minutes on one core, and races came first. Rows and columns without a run are left out here, and the
rows are named below their table; all are in [tables]({link}/tables).

**Claims.** Where runs of equal epochs do not decide a claim, the races do, and the line says so.
"5 of 15 other methods have a run" counts the methods that were run here. A method that the paper
does not have counts like any other. "Functional attention" in these lines is that of the paper. A
claim is undecided where a t-test on the logarithms gives p > 0.05. The spread is that of the two
entries' seeds; where they have fewer than four in all, it is pooled over the entries of a column:
an entry of one seed is taken to vary as its rivals do.
"""


def write_results(
    outcomes: Sequence[Outcome],
    page: Path,
    folder: Path,
    on_experiment: Callable[[str], None] = lambda name: None,  # noqa: ARG005
) -> None:
    """Write tables and figures into a folder, and the page that shows them.

    Races are those in `races` beside the folder.
    """
    by_name: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_name.setdefault(outcome.experiment.name, []).append(outcome)
    shown = {name: _shown(tiers) for name, tiers in by_name.items()}
    link = Path(os.path.relpath(folder, page.parent)).as_posix()
    name_of_folder = "/".join(part for part in Path(link).parts if part not in ("..", ".")) or "."
    races = folder.parent / "races"
    raced = standings(races)
    sections = [
        _INTRODUCTION.format(folder=name_of_folder, link=link),
        races_section(raced, races, page, folder / "pictures"),
        _READING.format(link=link),
        _summary([outcome for tiers in shown.values() for outcome in tiers], raced),
    ]
    for name, tiers in shown.items():
        on_experiment(name)
        sections.append(_section(tiers, raced, page, folder))
    page.parent.mkdir(parents=True, exist_ok=True)
    write_text(page, "\n".join(section for section in sections if section))


def _shown(tiers: Sequence[Outcome]) -> list[Outcome]:
    """The tiers of one experiment that have results of their own.

    If none has, the last at which something can be run.
    """
    results = {outcome.tier: {r.name for r in outcome.all_found()} for outcome in tiers}
    shown: list[Outcome] = []
    by_size = sorted(tiers, key=lambda o: (len(results[o.tier]), tiers.index(o)))
    for outcome in reversed(by_size):
        if not any(results[outcome.tier] <= results[other.tier] for other in shown):
            shown.append(outcome)
    if results[shown[0].tier]:
        return sorted(shown, key=tiers.index)
    return [next((outcome for outcome in reversed(tiers) if outcome.done()[1]), tiers[-1])]


def _verdict(claim: Claim, outcome: Outcome, raced: Sequence[Standing]) -> Verdict:
    """By runs of equal epochs, and where these do not decide, at equal time."""
    verdicts = [claim.verdict(o) for o in (outcome, at_equal_time(outcome, raced))]
    return min(verdicts, key=lambda verdict: _DOUBT[verdict.holds])


def _summary(shown: Sequence[Outcome], raced: Sequence[Standing]) -> str:
    """How many of the paper's claims hold, and what the numbers say."""
    verdicts = [(o.experiment, _verdict(c, o, raced)) for o in shown for c in o.experiment.claims]
    counts = [
        sum(verdict.holds == holds for _, verdict in verdicts)
        for holds in ("holds", "does not hold", "undecided", "not yet")
    ]
    lines = [
        "## The paper's claims\n",
        "Of {} claims, {} hold here, {} do not, {} are undecided because seeds differ as much, "
        "and {} wait for runs.\n".format(len(verdicts), *counts),
        "| claim | here | what the numbers say | section |",
        "| --- | --- | --- | --- |",
        *(
            line_of([v.claim, v.holds, v.details, f"[{e.name}](#{_anchor(e)})"])
            for e, v in verdicts
            if v.holds != "not yet"
        ),
    ]
    return "\n".join(lines) + "\n"


def _heading(experiment: Experiment) -> str:
    return f"{experiment.title} (`{experiment.name}`: {', '.join(experiment.aliases)})"


def _anchor(experiment: Experiment) -> str:
    """The anchor that GitHub makes of its heading."""
    kept = (
        letter for letter in _heading(experiment).lower() if letter.isalnum() or letter in " _-"
    )
    return "".join(kept).replace(" ", "-")


def _section(tiers: Sequence[Outcome], raced: Sequence[Standing], page: Path, folder: Path) -> str:
    """The section of one experiment, at the tiers that have results."""
    experiment = tiers[0].experiment
    parts = [f"## {_heading(experiment)}\n"]
    for outcome in tiers:
        done, able = outcome.done()
        if able:
            parts.append(
                f"Tier `{outcome.tier}`: {done} of {able} trials have a result."
                f"{_sentence(experiment.unit)}"
                f"{_how_made(outcome)}\n"
            )
        if experiment.columns:
            filled = [c for c in experiment.columns if outcome.column_numbers(c)]
            timed = _timed(outcome, raced)
            if filled:
                parts += [
                    markdown_table(outcome, filled, raced, whole=False),
                    _costs(outcome, filled),
                ]
            parts += [timed, _missing(outcome, raced)]
            for suffix, table in (("md", markdown_table), ("tex", latex_table)):
                path = folder / "tables" / f"{experiment.name}-{outcome.tier}.{suffix}"
                path.parent.mkdir(parents=True, exist_ok=True)
                write_text(path, table(outcome))
        parts.append(_verdicts(outcome, raced))
        parts += _pictures(outcome, page, folder / "pictures")
    parts.append("".join(f"- Note: {note}\n" for note in experiment.notes))
    return "\n".join(part for part in parts if part)


def _timed(outcome: Outcome, raced: Sequence[Standing]) -> str:
    """The same table at equal time, of the columns in which two rows raced; races are of tier cpu.

    Empty where there is none.
    """
    races = at_equal_time(outcome, raced)
    columns = [c for c in outcome.experiment.columns if len(races.column_numbers(c)) > 1]
    if outcome.tier != "cpu" or not columns:
        return ""
    head = f"{_capital(races.whence)} of CPU, as in the races above:\n\n"
    return head + markdown_table(races, columns, whole=False)


def _missing(outcome: Outcome, raced: Sequence[Standing]) -> str:
    """Which rows have no number, in a line for each reason; with what they would take."""
    experiment, races = outcome.experiment, at_equal_time(outcome, raced)
    by_reason: dict[str, list[str]] = {}
    for row in experiment.rows:
        columns = [column for column in experiment.columns if (row, column) in experiment.trials]
        if not any(o.numbers(row, column) for o in (outcome, races) for column in columns):
            reasons = [outcome.why_not(row, column) for column in columns]
            by_reason.setdefault(_WAITS if _WAITS in reasons else reasons[0], []).append(row)
    lines = []
    for why, rows in by_reason.items():
        time = _time_of(outcome, rows) if why == _WAITS else ""
        lines.append(f"- {_capital(why)}: {', '.join(experiment.rows[r] for r in rows)}{time}\n")
    return "".join(lines)


def _time_of(outcome: Outcome, rows: Collection[str]) -> str:
    """How long the runs of some rows take, if they take as long as the others."""
    spent = [result.line["cpu_seconds"] for result in outcome.all_found()]
    if not spent:
        return ""
    hours = len(outcome.experiment.wanted(rows)) * statistics.fmean(spent) / 3600
    return f" (about {hours:.2g} hours on one core)"


def _costs(outcome: Outcome, columns: Sequence[str]) -> str:
    """A table of what the compared methods cost, empty where nothing was run."""
    trials = outcome.experiment.trials
    different: dict[str, list[Trial | NotYet | None]] = {}
    for column in columns:  # several may show the same trials
        its = [trials.get((row, column)) for row in outcome.experiment.rows]
        if its not in different.values():
            different[column] = its
    lines = []
    for row, name in outcome.experiment.rows.items():
        costs = [_cost(outcome, trials.get((row, column))) for column in different]
        if any(costs):
            lines.append(line_of([name, *costs]))
    if not lines:
        return ""
    titles = [outcome.experiment.columns[column].title for column in different]
    head = line_of(["", *(titles if len(titles) > 1 else ["per run"])])
    rule = "|" + " --- |" * (1 + len(different))
    return "\n".join(["Parameters, and minutes on one core:\n", head, rule, *lines]) + "\n"


def _cost(outcome: Outcome, trial: Trial | NotYet | None) -> str:
    results = outcome.found(trial) if isinstance(trial, Trial) else []
    if not results:
        return ""
    minutes = statistics.fmean(result.line["cpu_seconds"] for result in results) / 60
    return f"{results[0].line['parameters']:,}, {minutes:.1f} min"


def _verdicts(outcome: Outcome, raced: Sequence[Standing]) -> str:
    """One line for each claim that has numbers, and one for all that wait for them."""
    verdicts = [_verdict(claim, outcome, raced) for claim in outcome.experiment.claims]
    lines = [f"- {verdict}\n" for verdict in verdicts if verdict.holds != "not yet"]
    waiting = [
        verdict.claim + (f" ({verdict.details})" if verdict.details else "")
        for verdict in verdicts
        if verdict.holds == "not yet"
    ]
    if waiting:
        lines.append(f"- waiting for runs: {'; '.join(waiting)}\n")
    return "".join(lines)


def _pictures(outcome: Outcome, page: Path, folder: Path) -> list[str]:
    """Draw what can be drawn, and show all pictures: weights stay where they were trained."""
    name, parts = outcome.experiment.name, []
    try:
        for title, figure in outcome.experiment.figures(outcome).items():
            write_figure(figure, folder / f"{title}-{outcome.tier}")
    except CheckpointError as error:
        parts.append(f"The pictures were made by an older version of the code: {error}.\n")
    for path in sorted(folder.glob(f"{name}*-{outcome.tier}.png")):
        where = Path(os.path.relpath(path, page.parent)).as_posix()
        parts.append(f"![{path.stem.replace('_', ' ')}]({where})\n")
    return parts


def _how_made(outcome: Outcome) -> str:
    lines = [result.line for result in outcome.all_found()]
    if not lines:
        return ""
    commits, machines = {line["commit"] for line in lines}, {machine_of(line) for line in lines}
    hours = sum(line["cpu_seconds"] for line in lines) / 3600
    return (
        f" {len(lines)} result{'s' if len(lines) > 1 else ''} over all seeds, {hours:.2g} hours on "
        f"one core; commit {', '.join(sorted(commits))}; {'; '.join(sorted(machines))}."
    )


def _sentence(words: str) -> str:
    return f" {_capital(words)}." if words else ""


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
