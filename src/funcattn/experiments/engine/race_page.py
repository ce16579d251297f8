"""Races on the page of results: who is ahead at equal time, in a table for each and a figure."""

import math
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from funcattn.experiments.engine.certainty import doubt, probability
from funcattn.experiments.engine.races import Standing, minutes
from funcattn.tasks import TASKS
from funcattn.viz.saving import write_figure

OURS = "functional_operator"
PAPERS = "funcattn"
_DRAWN = 6
"""Networks of a panel of the figure, the best first; ours and the paper's are there too."""


def section(found: Sequence[Standing], folder: Path, page: Path, pictures: Path) -> str:
    """The tables and the figure of all races, and who is ahead; empty where there was none.

    folder: of the races. page: where the text goes. pictures: where the figure is written.
    """
    races = by_race(found)
    if not races:
        return ""
    write_figure(figure(races), pictures / "races")
    link, picture = (
        Path(os.path.relpath(path, page.parent)).as_posix()
        for path in (folder, pictures / "races.png")
    )
    heads = (
        "set, CPU time",
        "our network, %",
        "the best other, %",
        "our network is",
        "functional attention as in the paper, %",
    )
    lines = [
        "## At equal time\n",
        in_short([*races.values()]),
        "| " + " | ".join(heads) + " |",
        "|" + " --- |" * len(heads),
        *(
            "| " + " | ".join([f"{name}, {minutes(budget)}", *overview(each)]) + " |"
            for (name, budget), each in races.items()
        ),
        "",
        _EXPLANATION.format(link=link),
        f"![validation error over CPU time]({picture})\n",
    ]
    for (name, budget), each in races.items():
        lines += [f"### {name}, {minutes(budget)}\n", table(each)]
    return "\n".join(lines)


_EXPLANATION = """\
Every network gets the same CPU time on one core and one recipe: start by fan-in, Fourier features
of the positions, batches of four, Muon for all matrices, moving average of the weights, and one
cycle whose last step ends the budget. Its rates are searched on validation data, five or more, a
tenth of the budget each. The test data are read once for each seed. Data are those of tier `cpu`.

Memory is the rise of the process's peak during a step. Lines before commit 12e8e6e compared it with
a peak that may have been their parent's: they are lower bounds, and those of 0 are left out.

`functional_operator` is our network, `funcattn` is functional attention as in the paper. `layers=3`
and the like are changes to a network's own settings: its depth is fitted to the budget. On clouds,
`surroundings=0.03125` says that a network gets the density of points around each, at this reach and
twice it, as a further input. Ours does by default, `surroundings=None` is ours without. Any network
can: races with it stand beside those without.
`funcattn race TASK --models NAME --budget 120s --out results/races` makes a row; [races]({link})
has all lines with seed, commit, machine, searched rates and curves. All lines of a set are from one
kind of processor; the command refuses to go on with them on another.

Of a network that ran in several sizes, the table above has the one with the least validation
error; the tables below have all. An entry is the mean over the seeds ± their standard deviation,
with the number of seeds in brackets. "Ahead by 1.25" says that the other has 1.25 times the
error; "behind" is against the least. On RNA the error is the share of wrong labels, on AirfRANS
the mean square over the variance of the training data. A verdict is undecided where a t-test on
the logarithms of the errors gives p > 0.05. The spread is that of the two networks' seeds, or
where they have fewer than four in all, that of all networks of the race.
"""


def title(standing: Standing) -> str:
    """The set in words, with what all networks of the race get beside the shared recipe."""
    task = standing.task
    words = {
        "darcy_notch": "Darcy with a notch",
        "navier_stokes": "Navier-Stokes",
        "airfrans": "AirfRANS",
        "rna": "RNA",
    }.get(task, task.replace("_", " ").capitalize())
    said = [words, *(f"{name} {value}" for name, value in standing.data.items())]
    if standing.surroundings is not None:
        said.append(f"surroundings {standing.surroundings:g}")
    return ", ".join(said)


def overview(each: Sequence[Standing]) -> list[str]:
    """Our network, the best other, whether ours is ahead, and the paper's.

    each: the standings of one race, the best first.
    """
    best = fitted(each)
    ours, papers = _only(OURS, best), _only(PAPERS, best)
    other = next((s for s in best if s.model != OURS), None)
    return [
        "not run" if ours is None else _numbers(ours.errors),
        "none ran" if other is None else f"{other.name}: {_numbers(other.errors)}",
        "" if ours is None or other is None else _compared(ours, other, each),
        "not run"
        if papers is None
        else f"{_numbers(papers.errors)}{_over_least(papers, best[0], each)}",
    ]


def fitted(each: Sequence[Standing]) -> list[Standing]:
    """Of each network the size with the least validation error, in the order of test errors."""
    best: dict[str, Standing] = {}
    for standing in each:
        known = best.setdefault(standing.model, standing)
        if standing.validation < known.validation:
            best[standing.model] = standing
    return [standing for standing in each if best[standing.model] is standing]


def in_short(races: Sequence[Sequence[Standing]]) -> str:
    """How often our network and the paper's have the least error, in a paragraph."""
    contested = [(fitted(each), each) for each in races if len({s.model for s in each}) > 1]
    ours = [(best, each) for best, each in contested if _only(OURS, best)]
    won = [(best, each) for best, each in ours if best[0].model == OURS]
    sure = [best for best, each in won if not _doubt(best[0], best[1], each)]
    papers = [(best, own) for best, _ in contested if (own := _only(PAPERS, best))]
    lost = [own.mean / best[0].mean for best, own in papers if own is not best[0]]
    words = [
        f"Our network has the least error in {len(won)} of {len(ours)} races, and surely so in "
        f"{len(sure)}."
    ]
    if papers:
        words.append(
            "Functional attention as in the paper has the least in "
            f"{len(papers) - len(lost)} of {len(papers)}."
        )
    if lost:
        words.append(f"Elsewhere it has {min(lost):.3g} to {max(lost):.3g} times the least.")
    return " ".join(words) + "\n"


def _only(model: str, best: Sequence[Standing]) -> Standing | None:
    return next((s for s in best if s.model == model), None)


def _compared(a: Standing, b: Standing, each: Sequence[Standing]) -> str:
    """Whether one is ahead of or behind another, by what factor, and if seeds do not tell, so."""
    ratio = b.mean / a.mean
    words = f"ahead by {ratio:.3g}" if ratio >= 1 else f"behind by {1 / ratio:.3g}"
    why = _doubt(a, b, each)
    return f"{words}, undecided: {why}" if why else words


def _over_least(own: Standing, least: Standing, each: Sequence[Standing]) -> str:
    return "" if own is least else f", {_compared(own, least, each)}"


def _doubt(a: Standing, b: Standing, each: Sequence[Standing]) -> str:
    """Why the seeds do not tell which of two is ahead, or nothing."""
    others = [s.errors for s in each if s is not a and s is not b]
    return doubt(probability(a.errors, b.errors, others))


def table(each: Sequence[Standing]) -> str:
    """The standings of one race, the best first."""
    elsewhere = all("test_elsewhere" in run for s in each for run in s.runs)
    heads = [
        "network",
        _QUANTITIES[TASKS[each[0].task].headline],
        "over the least",
        "parameters",
        "memory, MB",
        "steps",
        "rate",
    ]
    if elsewhere:
        heads.insert(2, f"on {_elsewhere(each)}, %")
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for s in each:
        cells = [
            s.name,
            _numbers(s.errors),
            f"{s.mean / each[0].mean:.3g}",
            f"{s.runs[0]['parameters']:,}",
            f"{s.step['megabytes']:,.0f}" if s.step["megabytes"] else "",
            f"{s.runs[0]['steps']:,}",
            f"x {s.runs[0]['key']['factor']:g}",
        ]
        if elsewhere:
            cells.insert(2, _numbers([run["test_elsewhere"]["test"] for run in s.runs]))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


_QUANTITIES = {
    "relative_l2": "test error, %",
    "accuracy": "wrong labels, %",
    "mean_squared_error": "squared error, % of the variance",
    "mse": "mean squared error, times 100",
}
"""The errors of a table by the metric of its task."""


def _elsewhere(each: Sequence[Standing]) -> str:
    """Which other grid the test samples were read on too."""
    return {"darcy": "the grid of 43 x 43", "burgers": "256 points"}[each[0].task]


def _numbers(errors: Sequence[float]) -> str:
    """Percent: mean, standard deviation and number of seeds.

    >>> _numbers([0.0222]), _numbers([0.01, 0.012])
    ('2.22 (1)', '1.1 ± 0.14 (2)')
    """
    spread = f" ± {100 * statistics.stdev(errors):.2g}" if len(errors) > 1 else ""
    return f"{100 * statistics.fmean(errors):.3g}{spread} ({len(errors)})"


def figure(races: Mapping[tuple[str, float], Sequence[Standing]]) -> Figure:
    """Validation error of the averaged weights over CPU time, where most networks of a task ran."""
    fullest: dict[str, Sequence[Standing]] = {}
    for (name, _), each in races.items():
        fullest[name] = max(fullest.get(name, ()), each, key=len)
    columns = 2
    rows = math.ceil(len(fullest) / columns)
    drawn = Figure(figsize=(10.8, 3.1 * rows), layout="constrained")
    axes = drawn.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes[len(fullest) :]:
        axis.set_axis_off()
    for axis, (name, each) in zip(axes, fullest.items(), strict=False):
        for rank, s in enumerate(each):
            if rank >= _DRAWN and s.model not in (OURS, PAPERS):
                continue
            spent, errors = zip(*s.runs[0]["curve"], strict=True)
            # Steps are what is counted: on a busy machine all of them take longer.
            times = [s.budget * seconds / spent[-1] for seconds in spent]
            own = {OURS: ("#d1660a", 2.4), PAPERS: ("#2463b0", 2.0)}.get(s.model)
            colour, width = own or (f"{0.25 + 0.09 * rank:.2f}", 1.2)
            axis.plot(
                times,
                [100 * s.as_error(e) for e in errors],
                color=colour,
                linewidth=width,
                marker="os^DvPX"[rank % 7],
                markersize=4,
                label=s.name.replace("`", ""),
            )
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.set(title=name, xlabel="CPU seconds", ylabel="validation error, %")
        axis.grid(visible=True, alpha=0.3)
        axis.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return drawn


def by_race(found: Sequence[Standing]) -> dict[tuple[str, float], list[Standing]]:
    """By set and budget, without networks that were changed in more than their sizes.

    With surroundings as a further input a race is another one: there all networks have them.
    """
    races: dict[tuple[str, float], list[Standing]] = {}
    for standing in found:
        if not standing.ablated.keys() - {"surroundings"}:
            races.setdefault((title(standing), standing.budget), []).append(standing)
    return races
