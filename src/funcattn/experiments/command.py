"""The command `funcattn reproduce`."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from funcattn.experiments import EXPERIMENTS, Experiment, experiment_named
from funcattn.experiments.base import Run, identity
from funcattn.experiments.cell import Cell
from funcattn.experiments.experiment import Outcome
from funcattn.experiments.pages import write_results
from funcattn.experiments.queue import Ended, Queue
from funcattn.experiments.results import Results
from funcattn.experiments.tiers import TIERS, Tier
from funcattn.experiments.version import code_version
from funcattn.settings import RunSettings, changed
from funcattn.terminal import CACHE, refuse


@dataclass(frozen=True)
class Reproduce:
    """Run the paper's experiments, and put the numbers beside the paper's.

    A run whose result is there, by the same settings and code, is not made again. Stopped at any
    moment, the same command goes on. The tables, figures and verdicts are built again at the end.
    """

    experiments: Annotated[list[str], tyro.conf.Positional] = field(default_factory=list)
    """Which, by name or by number in the paper, or all; --list shows them."""
    tier: Tier = "cpu"
    """How large: as in the paper (wants a GPU), for two cores, or tiny."""
    only: list[str] = field(default_factory=list)
    """Of these tasks only."""
    models: list[str] = field(default_factory=list)
    """By these networks only."""
    rows: list[str] = field(default_factory=list)
    """Of these rows of their tables only, such as 16 and 64 of bases."""
    seeds: int = 1
    """Runs with seeds 0, 1, ..."""
    workers: int = 1
    """Runs side by side, each with one thread (or OMP_NUM_THREADS)."""
    rerun: bool = False
    """Also what has a result."""
    show: Annotated[bool, tyro.conf.arg(name="list")] = False
    """Show all experiments and what of them has been run."""
    tables: bool = False
    """Run nothing; build tables, figures and the page of results from what there is."""
    rna: Path | None = None
    """The RNA Surface Segmentation Dataset, its folder or a file made from it."""
    queue: Path = Path("runs/queue")
    """Where runs are kept while they are made, and weights for pictures."""
    results: Path | None = None
    """Where results are kept; default results/experiments, at tier smoke a folder of the queue."""
    page: Path | None = None
    """The page of results; default docs/results.md, at tier smoke in the folder of results."""
    bench: Path = Path("results/bench.json")
    """What `funcattn bench` measured."""
    cache: Path = CACHE
    """Where made data is kept; also the environment variable FUNCATTN_CACHE."""

    def run(self, rest: Sequence[str], console: Console) -> None:
        """Run what has no result yet, in order of value, then build the page."""
        refuse(rest)
        chosen = self._chosen()
        if self.show or not (chosen or self.tables):
            self._show(console)
            return
        failed = [] if self.tables else self._run(chosen, console)
        console.print(f"{self._build(console)}", markup=False, soft_wrap=True)
        if failed:
            raise ValueError(f"{len(failed)} runs failed: see above, and their log.txt")

    def _chosen(self) -> list[Experiment]:
        if self.experiments == ["all"]:
            return [*EXPERIMENTS.values()]
        return [experiment_named(name) for name in self.experiments]

    def _run(self, chosen: Sequence[Experiment], console: Console) -> Sequence[Ended]:
        self._check(chosen)
        cells = [*self._cells(chosen, console)]
        queue = Queue(self.queue, self.workers)
        if self.rerun:
            for cell in cells:
                queue.forget(cell)
        console.print(f"{len(cells)} runs to make, in {self.queue}", soft_wrap=True)
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=console,
        ) as progress:
            bars = {}
            total = progress.add_task("all runs", total=len(cells))

            def on_progress(cell: Cell, part: float) -> None:
                if cell.name not in bars:
                    bars[cell.name] = progress.add_task(_title(cell.settings), total=1.0)
                progress.update(bars[cell.name], completed=part)

            def on_end(ended: Ended) -> None:
                progress.remove_task(bars[ended.cell.name])
                progress.advance(total)
                said = f": {ended.said}" if ended.said else ""
                console.print(
                    f"{_title(ended.cell.settings)} {ended.how}{said}",
                    markup=False,
                    soft_wrap=True,
                )

            queue.on_progress, queue.on_end = on_progress, on_end
            ended = queue.run(cells)
        return [end for end in ended if end.how == "failed"]

    def _cells(self, chosen: Sequence[Experiment], console: Console) -> Iterator[Cell]:
        """What has no result by this code, the first seed of all before the second of any."""
        results, seen = Results(self._results), set()
        for seed in range(self.seeds):
            for run in (run for experiment in chosen for run in experiment.wanted(self.rows)):
                if not self._asked(run) or (run.one_seed and seed):
                    continue
                if (why := self._refusal(run, chosen)) is not None:
                    if not seed:
                        console.print(
                            f"{run.task}, {run.model}: not yet, {why}", markup=False, soft_wrap=True
                        )
                    continue
                settings = self._with_path(run.settings(self.tier, seed))
                key, found = identity(settings), results.find(settings)
                if key in seen or (found is not None and found.current and not self.rerun):
                    continue
                seen.add(key)
                code = code_version(run.task)
                yield Cell(settings, code, self._results, self.cache, self._command())

    def _check(self, chosen: Sequence[Experiment]) -> None:
        """A name that is nowhere would leave nothing to run, and no word of why."""
        runs = [run for experiment in chosen for run in experiment.wanted()]
        for option, known in {
            "only": [run.task for run in runs],
            "models": [run.model for run in runs],
            "rows": [row for experiment in chosen for row in experiment.rows],
        }.items():
            for name in getattr(self, option):
                if name not in known:
                    expected = ", ".join(dict.fromkeys(known))
                    raise ValueError(f"--{option}: expected some of {expected}, got {name!r}")

    def _command(self) -> str:
        """What is said of how a result was made: all that decides it, and no folder."""
        words = ["funcattn", "reproduce", *self.experiments, "--tier", self.tier]
        for name in ("only", "models", "rows"):
            words += [f"--{name}", *getattr(self, name)] if getattr(self, name) else []
        return shlex.join([*words, "--seeds", str(self.seeds)])

    def _asked(self, run: Run) -> bool:
        return (not self.only or run.task in self.only) and (
            not self.models or run.model in self.models
        )

    def _refusal(self, run: Run, chosen: Sequence[Experiment]) -> str | None:
        """RNA surfaces cannot be made: among others their runs are left out, alone they fail."""
        if run.task != "rna" or self.rna is not None:
            return run.refusal(self.tier)
        if len(chosen) > 1:
            return "give the RNA Surface Segmentation Dataset by --rna"
        raise ValueError(
            "--rna: expected the RNA Surface Segmentation Dataset, got no path; give one"
        )

    def _with_path(self, settings: RunSettings) -> RunSettings:
        """RNA surfaces are read, all else is made."""
        if self.rna is None or settings.task != "rna":
            return settings
        data = changed(settings.data, {"path": str(self.rna.resolve())})
        return replace(settings, data=data)

    def _show(self, console: Console) -> None:
        results = Results(self._results)
        table = Table("experiment", "in the paper", "what it is", *TIERS, box=None)
        for experiment in EXPERIMENTS.values():
            states = []
            for tier in TIERS:
                done, able = self._outcome(experiment, tier, results).done()
                states.append(f"{done} of {able}" if able else "-")
            numbers = ", ".join(experiment.aliases)
            table.add_row(experiment.name, numbers, experiment.title, *states)
        console.print(table, f"runs that have a result, in {self._results}", soft_wrap=True)

    def _build(self, console: Console) -> Path:
        """The page, of the tiers that it is about."""
        results = Results(self._results)
        tiers: tuple[Tier, ...] = ("smoke",) if self.tier == "smoke" else ("paper", "cpu")
        outcomes = [
            self._outcome(experiment, tier, results)
            for experiment in EXPERIMENTS.values()
            for tier in tiers
        ]
        page = self.page or (
            self._results / "results.md" if self.tier == "smoke" else Path("docs/results.md")
        )
        with console.status("tables and figures") as status:
            write_results(outcomes, page, self._results, lambda name: status.update(name))
        return page

    def _outcome(self, experiment: Experiment, tier: Tier, results: Results) -> Outcome:
        return Outcome(experiment, tier, results, self.queue, self.cache, self.bench)

    @property
    def _results(self) -> Path:
        default = self.queue / "smoke" if self.tier == "smoke" else Path("results/experiments")
        return self.results or default


def _title(settings: RunSettings) -> str:
    return f"{settings.task}, {settings.model}, seed {settings.seed}"
