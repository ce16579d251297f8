"""What `funcattn reproduce` does: choose runs, run them with progress, check, build the page."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from funcattn.cli.commands import Reproduce
from funcattn.data import Store
from funcattn.experiments import EXPERIMENTS, Experiment, experiment_named
from funcattn.experiments.engine.cell import Cell
from funcattn.experiments.engine.experiment import Outcome
from funcattn.experiments.engine.fingerprints import (
    TOLERANCE,
    by_key,
    computed,
    difference,
    fingerprint_key,
    fingerprint_of,
)
from funcattn.experiments.engine.pages import write_results
from funcattn.experiments.engine.queue import Ended, Queue
from funcattn.experiments.engine.results import Results
from funcattn.experiments.engine.trial import Trial, identity
from funcattn.experiments.tiers import TIERS, Tier
from funcattn.settings import RunSettings, changed


class Reproduction:
    """One call of the command."""

    def __init__(self, options: Reproduce, console: Console) -> None:
        self.options, self.console = options, console

    def run(self) -> None:
        """Do what the options ask for."""
        options = self.options
        chosen = self._chosen()
        if options.check:
            self._check_numbers(chosen or [*EXPERIMENTS.values()])
            return
        if options.show or not (chosen or options.tables):
            self._show()
            return
        failed = [] if options.tables else self._run(chosen)
        self._say(str(self._build()))
        if failed:
            raise ValueError(f"{len(failed)} runs failed: see above, and their log.txt")

    def _say(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)

    def _chosen(self) -> list[Experiment]:
        if self.options.experiments == ["all"]:
            return [*EXPERIMENTS.values()]
        return [experiment_named(name) for name in self.options.experiments]

    # Running

    def _run(self, chosen: Sequence[Experiment]) -> list[Ended]:
        self._check_names(chosen)
        cells = [*self._cells(chosen)]
        queue = Queue(self.options.queue, self.options.workers)
        if self.options.rerun:
            for cell in cells:
                queue.forget(cell)
        self._say(f"{len(cells)} runs to make, in {self.options.queue}")
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=self.console,
        ) as progress:
            bars = {}
            total = progress.add_task("all runs", total=len(cells))

            def on_progress(cell: Cell, fraction: float) -> None:
                if cell.name not in bars:
                    bars[cell.name] = progress.add_task(_title(cell.settings), total=1.0)
                progress.update(bars[cell.name], completed=fraction)

            def on_end(ended: Ended) -> None:
                progress.remove_task(bars[ended.cell.name])
                progress.advance(total)
                message = f": {ended.message}" if ended.message else ""
                self._say(f"{_title(ended.cell.settings)}: {ended.end}{message}")

            queue.on_progress, queue.on_end = on_progress, on_end
            ended = queue.run(cells)
        return [each for each in ended if each.end == "failed"]

    def _cells(self, chosen: Sequence[Experiment]) -> Iterator[Cell]:
        """Runs without a result of today's numbers; the first seed of all before any second."""
        options = self.options
        results, seen = Results(options.results_folder), set()
        for seed in range(options.seeds):
            for trial in (t for experiment in chosen for t in experiment.wanted(options.rows)):
                if not self._asked(trial) or (trial.one_seed and seed):
                    continue
                if (why := self._refusal(trial, chosen)) is not None:
                    if not seed:
                        self._say(f"{trial.task}, {trial.model}: not yet, {why}")
                    continue
                settings = self._with_path(trial.settings(options.tier, seed))
                key, result = identity(settings), results.find(trial, options.tier, seed)
                if key in seen or (result is not None and result.current and not options.rerun):
                    continue
                seen.add(key)
                yield Cell(
                    settings,
                    fingerprint_key(trial),
                    fingerprint_of(trial).name,
                    options.results_folder,
                    options.cache,
                    self._command(),
                )

    def _check_names(self, chosen: Sequence[Experiment]) -> None:
        """Refuse unknown names, which would otherwise leave nothing to run without a word."""
        trials = [trial for experiment in chosen for trial in experiment.wanted()]
        for option, known in {
            "only": [trial.task for trial in trials],
            "models": [trial.model for trial in trials],
            "rows": [row for experiment in chosen for row in experiment.rows],
        }.items():
            for name in getattr(self.options, option):
                if name not in known:
                    expected = ", ".join(dict.fromkeys(known))
                    raise ValueError(f"--{option}: expected some of {expected}, got {name!r}")

    def _command(self) -> str:
        """The command as it is recorded with a result: everything that decides it, no folders."""
        options = self.options
        words = ["funcattn", "reproduce", *options.experiments, "--tier", options.tier]
        for name in ("only", "models", "rows"):
            words += [f"--{name}", *getattr(options, name)] if getattr(options, name) else []
        return shlex.join([*words, "--seeds", str(options.seeds)])

    def _asked(self, trial: Trial) -> bool:
        only, models = self.options.only, self.options.models
        return (not only or trial.task in only) and (not models or trial.model in models)

    def _refusal(self, trial: Trial, chosen: Sequence[Experiment]) -> str | None:
        """Why a trial is left out. RNA data cannot be made; asked for alone, it is required."""
        if trial.task != "rna" or self.options.rna is not None:
            return trial.refusal(self.options.tier)
        if len(chosen) > 1:
            return "give the RNA Surface Segmentation Dataset by --rna"
        raise ValueError(
            "--rna: expected the RNA Surface Segmentation Dataset, got no path; give one"
        )

    def _with_path(self, settings: RunSettings) -> RunSettings:
        """RNA surfaces are read; all other data is made."""
        if self.options.rna is None or settings.task != "rna":
            return settings
        data = changed(settings.data, {"path": str(self.options.rna.resolve())})
        return replace(settings, data=data)

    # Checking

    def _check_numbers(self, chosen: Sequence[Experiment]) -> None:
        """Repeat the short runs behind the results, and name the results that are stale."""
        self._check_names(chosen)
        trials = by_key(
            trial
            for experiment in chosen
            for trial in experiment.wanted(self.options.rows)
            if self._asked(trial)
        )
        counts = self._current_results(chosen)
        stale = 0
        # Data is made anew: what makes it is a part of what is checked.
        with TemporaryDirectory() as folder:
            for key, trial in trials.items():
                apart = difference(
                    fingerprint_of(trial).numbers, computed(trial, Store(Path(folder)))
                )
                if apart <= TOLERANCE:
                    self._say(f"{key}: the same numbers, within {apart:.2g}")
                else:
                    stale += 1
                    self._say(
                        f"{key}: OTHER NUMBERS, by {apart:.2g}; {counts.get(key, 0)} stale results"
                    )
        if stale:
            raise ValueError(
                f"{stale} of {len(trials)} short runs gave other numbers than the results' code. "
                "Find the change that did it; if it is wanted, store the new numbers with "
                "benchmarks/record_fingerprints.py"
            )
        self._say(f"All {len(trials)} short runs gave the numbers of the results' code.")

    def _current_results(self, chosen: Sequence[Experiment]) -> dict[str, int]:
        """How many results count as current, by fingerprint."""
        results, names = Results(self.options.results_folder), dict[str, set[str]]()
        for experiment in chosen:
            for tier in TIERS:
                outcome = self._outcome(experiment, tier, results)
                for trial in experiment.wanted():
                    current = {result.name for result in outcome.found(trial) if result.current}
                    names.setdefault(fingerprint_key(trial), set()).update(current)
        return {key: len(each) for key, each in names.items()}

    # Showing

    def _show(self) -> None:
        results = Results(self.options.results_folder)
        table = Table("experiment", "in the paper", "content", *TIERS, box=None)
        for experiment in EXPERIMENTS.values():
            states = []
            for tier in TIERS:
                done, able = self._outcome(experiment, tier, results).done()
                states.append(f"{done} of {able}" if able else "-")
            numbers = ", ".join(experiment.aliases)
            table.add_row(experiment.name, numbers, experiment.title, *states)
        where = self.options.results_folder
        self.console.print(table, f"trials that have a result in {where}", soft_wrap=True)

    def _build(self) -> Path:
        """Build the page of the tiers that it is about."""
        options = self.options
        folder = options.results_folder
        results = Results(folder)
        tiers: tuple[Tier, ...] = ("smoke",) if options.tier == "smoke" else ("paper", "cpu")
        outcomes = [
            self._outcome(experiment, tier, results)
            for experiment in EXPERIMENTS.values()
            for tier in tiers
        ]
        page = options.page or folder / "results.md"
        with self.console.status("tables and figures") as status:
            write_results(outcomes, page, folder, lambda name: status.update(name))
        return page

    def _outcome(self, experiment: Experiment, tier: Tier, results: Results) -> Outcome:
        options = self.options
        return Outcome(experiment, tier, results, options.queue, options.cache, options.bench)


def _title(settings: RunSettings) -> str:
    return f"{settings.task}, {settings.model}, seed {settings.seed}"
