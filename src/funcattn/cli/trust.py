"""`funcattn calibrate`, `audit`, `breakeven` and `verify`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from funcattn.cli import commands
from funcattn.cli.report import write_report_again
from funcattn.cli.settings import over
from funcattn.cli.terminal import check_output, command_line, print_table, progress, refuse
from funcattn.data import Store
from funcattn.errors import FuncattnError
from funcattn.serve.bands import Bands
from funcattn.surrogate import Surrogate
from funcattn.tasks.own import OwnData
from funcattn.training.run import Run
from funcattn.trust.audit import audit, write_audit
from funcattn.trust.bands import calibrate
from funcattn.trust.breakeven import breakeven
from funcattn.trust.breakeven_page import write_breakeven
from funcattn.trust.pages import bands_section
from funcattn.trust.subject import Subject, open_subject
from funcattn.trust.verify import verify


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
        if self.cases is not None or self.parameters is not None:
            raise ValueError("--cases, --parameters: expected a run on own data, got a benchmark's")
        with making_data(console, self.cache, self.workers) as store:
            subject = open_subject(self.run_folder, store, accept_edited=self.accept_edited)
            calibrated(subject, self, rest)
        if (run.folder / "metrics.jsonl").exists():  # a run that comes with the package has none
            write_report_again(run, Store(self.cache))
        say_bands(run, console)

    def _own(self, console: Console) -> None:
        surrogate = Surrogate.load(self.run_folder, accept_edited=self.accept_edited)
        given = None if self.cases is None else str(self.cases)
        if given is None and self.parameters is not None:
            raise ValueError("--parameters: expected --cases with it, got it alone")
        with console.status("scoring"):
            surrogate.calibrate(
                self.coverage,
                given,
                spread=self.spread,
                command=command_line(),
                parameters=self.parameters,
            )
        if surrogate.data.path is not None:
            surrogate.report()
        say_bands(surrogate.run, console)


@dataclass(frozen=True)
class Audit(commands.Audit):
    """`funcattn audit`."""

    def run(self, rest: list[str], console: Console) -> None:
        """Check after check, then the page."""
        refuse(rest)
        path = self.output or self.run_folder / "audit.html"
        check_output(path)
        with progress(console) as bars:
            bar = bars.add_task("checks", total=None)
            store = Store(self.cache, workers=self.workers, note={"command": command_line()})
            subject = open_subject(self.run_folder, store, accept_edited=self.accept_edited)
            found = audit(
                subject,
                count=self.samples,
                advance=lambda done, total: bars.update(bar, completed=done, total=total),
            )
        write_audit(path, subject, found, command_line())
        for check in found.checks:
            words = f"{check.outcome:15} {check.title}: {check.found.said}"
            console.print(words, markup=False, highlight=False, soft_wrap=True)
        console.print(f"{found.in_words()} {path}", markup=False, soft_wrap=True)


@dataclass(frozen=True)
class Breakeven(commands.Breakeven):
    """`funcattn breakeven`."""

    def run(self, rest: list[str], console: Console) -> None:
        """Mesh after mesh, then the verdict."""
        refuse(rest)
        path = self.output or self.run_folder / "breakeven.html"
        check_output(path)
        with progress(console) as bars:
            bar = bars.add_task("solving, from coarse to fine", total=None)
            store = Store(self.cache, workers=self.workers, note={"command": command_line()})
            subject = open_subject(self.run_folder, store, accept_edited=self.accept_edited)
            found = breakeven(
                subject,
                count=self.samples,
                training_seconds=self.training_seconds,
                advance=lambda done, total: bars.update(bar, completed=done, total=total),
            )
        page = write_breakeven(path, found, command_line())
        rows = [
            [f"solver, {rung.in_words()}", f"{rung.error:.4g}", f"{1e3 * rung.seconds:.4g}"]
            for rung in found.rungs
        ]
        rows.append(["this run", f"{found.error:.4g}", f"{1e3 * found.inference_seconds:.4g}"])
        print_table(console, ["what", "error", "CPU milliseconds of one"], rows)
        console.print(f"{found.in_words()} {page}", markup=False, soft_wrap=True)


@dataclass(frozen=True)
class Verify(commands.Verify):
    """`funcattn verify`."""

    def run(self, rest: list[str], console: Console) -> None:
        """Score, and print a table."""
        refuse(rest)

        def say(words: str) -> None:
            console.print(words, markup=False, highlight=False, soft_wrap=True)

        with making_data(console, self.cache, self.workers) as cached:
            found = list(
                verify(
                    self.path,
                    store=cached if self.cached else None,
                    workers=self.workers,
                    line=self.line,
                    most_seconds=self.most_seconds,
                    say=say,
                )
            )
        rows = [
            [
                each.what,
                each.metric,
                f"{each.recorded:.6g}",
                "-" if each.found is None else f"{each.found:.6g}",
                f"{each.tolerance:g}",
                each.in_words,
                each.note,
            ]
            for each in found
        ]
        headers = ["what", "metric", "recorded", "found", "tolerance", "verdict", "how"]
        print_table(console, headers, rows)
        failed = [each for each in found if each.holds is False]
        if failed:
            raise FuncattnError(
                f"{len(failed)} of {len(found)} recorded numbers do not hold, see above"
            )


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
