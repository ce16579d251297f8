"""`funcattn calibrate`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from funcattn.cli import commands
from funcattn.cli.report import write_report_again
from funcattn.cli.settings import over
from funcattn.cli.terminal import command_line, print_table, progress, refuse
from funcattn.data import Store
from funcattn.serve.bands import Bands
from funcattn.surrogate import Surrogate
from funcattn.tasks.own import OwnData
from funcattn.training.run import Run
from funcattn.trust.bands import calibrate
from funcattn.trust.pages import bands_section
from funcattn.trust.subject import Subject, open_subject


@dataclass(frozen=True)
class Calibrate(commands.Calibrate):
    """`funcattn calibrate`."""

    def run(self, rest: list[str], console: Console) -> None:
        """Score samples with progress, keep the bands, say what they promise."""
        run = Run(self.run_folder, accept_edited=self.accept_edited)
        if isinstance(run.settings.data, OwnData):
            refuse(rest)
            self._own(console)
            return
        if self.cases is not None:
            raise ValueError("--cases: expected a run on own data, got a benchmark's")
        with making_data(console, self.cache, self.workers) as store:
            subject = open_subject(self.run_folder, store, accept_edited=self.accept_edited)
            calibrated(subject, self, rest)
        write_report_again(run, Store(self.cache))
        say_bands(run, console)

    def _own(self, console: Console) -> None:
        surrogate = Surrogate.load(self.run_folder, accept_edited=self.accept_edited)
        given = None if self.cases is None else str(self.cases)
        with console.status("scoring"):
            surrogate.calibrate(self.coverage, given, spread=self.spread, command=command_line())
        if surrogate.data.path is not None:
            surrogate.report()
        say_bands(surrogate.run, console)


def calibrated(subject: Subject, asked: Any, rest: list[str]) -> Bands:
    """The bands of a benchmark's run, perhaps at another resolution."""
    given: dict[str, Any] = {}
    if rest:
        changed = over(subject.run.settings, None, rest)
        if replace(changed, data=subject.run.settings.data) != subject.run.settings:
            raise ValueError("settings: expected those of the data, such as --data.use-every 5")
        data = changed.data
        samples = subject.fresh(asked.samples, **vars(data))
        given = {"samples": samples, "source": f"{len(samples)} fresh ones with {' '.join(rest)}"}
    return calibrate(
        subject,
        coverage=asked.coverage,
        count=asked.samples,
        spread=asked.spread,
        command=command_line(),
        **given,
    )


def say_bands(run: Run, console: Console) -> None:
    """The table of the report, and the one sentence."""
    for section in bands_section(run):
        for table in section.tables:
            print_table(console, table.headings, table.rows)
        console.print(section.text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def making_data(console: Console, cache: Path, workers: int) -> Iterator[Store]:
    """A store that shows how far the making of its samples is."""
    with progress(console) as bars:
        bar = bars.add_task("samples", total=None)
        yield Store(
            cache,
            workers=workers,
            advance=lambda done, total: bars.update(bar, completed=done, total=total),
            note={"command": command_line()},
        )
