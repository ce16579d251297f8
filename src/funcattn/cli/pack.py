"""`funcattn pack`."""

from dataclasses import dataclass

from rich.console import Console

from funcattn.cli import commands
from funcattn.cli.terminal import refuse
from funcattn.fitting.packing import pack


@dataclass(frozen=True)
class Pack(commands.Pack):
    """`funcattn pack`."""

    def run(self, rest: list[str], console: Console) -> None:
        """Write the file, and say how large it is."""
        refuse(rest)
        pack(self.run_folder, self.output)
        size = self.output.stat().st_size
        console.print(f"{self.output}: {size:,} bytes", markup=False, soft_wrap=True)
