"""Functional attention for operator learning: data, training, prediction, comparison."""

import os
import sys

import torch
import tyro
from rich.console import Console
from rich.markup import escape

from funcattn._version import __version__
from funcattn.bench.command import Bench
from funcattn.cli.data import Generate
from funcattn.cli.export import Export
from funcattn.cli.show import Info, List
from funcattn.cli.train import Compare, Evaluate, Train
from funcattn.data import StoreError
from funcattn.experiments.command import Reproduce
from funcattn.serve.command import Predict
from funcattn.training.checkpoint import CheckpointError
from funcattn.training.loop import Interrupted, NonFiniteLossError
from funcattn.training.setup import RunError

Command = Train | Compare | Generate | Evaluate | Predict | List | Info | Reproduce | Bench | Export


def main() -> None:
    """Parse the command line, run the command, and turn expected errors into one clear line."""
    # Of processes that train together, the first one speaks.
    console = Console(quiet=os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) != "0")
    if sys.argv[1:] == ["--version"]:
        console.print(__version__)
        return
    command, rest = tyro.cli(
        Command,
        prog="funcattn",
        description=__doc__,
        return_unknown_args=True,
        config=(tyro.conf.OmitSubcommandPrefixes,),
    )
    # Threads of one process that fight for busy cores are slower than one thread.
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    errors = (RunError, StoreError, CheckpointError, NonFiniteLossError, ValueError, OSError)
    try:
        command.run(rest, console)
    except Interrupted as stop:
        console.print(f"Stopped by {stop}; everything is saved. Go on with --resume.")
        sys.exit(130 if str(stop) == "SIGINT" else 143)
    except KeyboardInterrupt:
        console.print("Stopped.")
        sys.exit(130)
    except errors as error:
        # One line as it is: not wrapped, and with brackets that are no markup.
        Console(stderr=True).print(
            f"[bold red]funcattn:[/] {escape(str(error))}", highlight=False, soft_wrap=True
        )
        sys.exit(1)
