"""`funcattn reproduce`."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from funcattn.cli import commands
from funcattn.cli.reproduction import Reproduction
from funcattn.cli.terminal import refuse


@dataclass(frozen=True)
class Reproduce(commands.Reproduce):
    """`funcattn reproduce`."""

    def run(self, rest: Sequence[str], console: Console) -> None:
        """Run what has no result yet, in the order of the tables, then build the page."""
        refuse(rest)
        Reproduction(self, console).run()
