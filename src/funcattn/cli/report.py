"""`funcattn report`."""

from dataclasses import dataclass

from rich.console import Console

from funcattn.cli import commands
from funcattn.cli.terminal import refuse
from funcattn.data import Store
from funcattn.surrogate import Surrogate
from funcattn.tasks.own import OwnData
from funcattn.training.report import describe_run
from funcattn.training.run import Run
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
            write_run_report(path, describe_run(run, Store(self.cache)))
        console.print(f"report: {path}", markup=False, soft_wrap=True)
