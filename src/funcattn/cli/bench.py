"""`funcattn bench`."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from funcattn.cli import commands
from funcattn.cli.benchmarking import Benchmarking
from funcattn.cli.terminal import refuse


@dataclass(frozen=True)
class Bench(commands.Bench):
    """`funcattn bench`."""

    def run(self, rest: Sequence[str], console: Console) -> None:
        """Measure with progress, print tables, draw."""
        refuse(rest)
        Benchmarking(self, console).run()
