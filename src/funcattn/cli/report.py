"""`funcattn report`."""

from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from funcattn.cli import commands
from funcattn.cli.terminal import refuse
from funcattn.data import Store
from funcattn.surrogate import Surrogate
from funcattn.tasks.own import OwnData
from funcattn.training.report import describe_run
from funcattn.training.run import Run
from funcattn.trust.pages import bands_section
from funcattn.viz import write_run_report


@dataclass(frozen=True)
class Report(commands.Report):
    """`funcattn report`."""

    def run(self, rest: list[str], console: Console) -> None:
        """Write it, and say where."""
        refuse(rest)
        run = Run(self.run_folder, accept_edited=self.accept_edited)
        path = self.output or run.report
        if isinstance(run.settings.data, OwnData):
            surrogate = Surrogate.load(self.run_folder, accept_edited=self.accept_edited)
            path = surrogate.report(path)
        else:
            write_report_again(run, Store(self.cache), path)
        console.print(f"report: {path}", markup=False, soft_wrap=True)


def write_report_again(run: Run, store: Store, path: Path | None = None) -> None:
    """The report of a benchmark's run, with its bands where it has some."""
    described = replace(describe_run(run, store), first=list(bands_section(run)))
    write_run_report(path or run.report, described)
