"""Functional attention for operator learning: data, training, prediction, comparison."""

import os
import sys
from importlib import import_module
from typing import Any, get_args

import tyro

from funcattn._version import __version__
from funcattn.cli.commands import DONE_IN, ON_FREE_CORES, SAY_THREADS, Command
from funcattn.cli.guard import one_line_errors
from funcattn.cli.terminal import console, counted
from funcattn.processes import free_cores, rank


@one_line_errors
def main() -> None:
    """Parse the command line and run the command."""
    if sys.argv[1:] == ["--version"]:
        console().print(__version__)
        return
    asked, rest = _asked(sys.argv[1:])
    done_in = import_module(f"funcattn.cli.{DONE_IN[type(asked)]}")
    command: Any = getattr(done_in, type(asked).__name__)
    import torch

    threads, why = _threads(type(asked))
    torch.set_num_threads(threads)
    if isinstance(asked, SAY_THREADS) and rank() == 0:
        words = f"computing with {counted(threads, 'thread')}: {why}"
        console().print(f"[dim]{words}[/]", soft_wrap=True)
    command(**vars(asked)).run(rest, console())


def _threads(command: type) -> tuple[int, str]:
    """How many, and why: those of OMP_NUM_THREADS, else as many as there are free cores.

    Threads of one process that fight for busy cores are slower than one thread. Commands whose
    numbers must not depend on the load have one; `train` chooses when it knows its steps.
    """
    if "OMP_NUM_THREADS" in os.environ:
        return int(os.environ["OMP_NUM_THREADS"]), "OMP_NUM_THREADS says so"
    if command not in ON_FREE_CORES:
        return 1, "its numbers must not depend on the load; OMP_NUM_THREADS sets another number"
    free, there = free_cores(), os.cpu_count() or 1
    return free, f"{free} of {there} cores are free; OMP_NUM_THREADS sets another number"


def _asked(words: list[str]) -> tuple[Any, list[str]]:
    """What is asked for, and the words that are none of the command's own options."""
    known = {command.__name__.lower(): command for command in get_args(Command)}
    if words and words[0] in known:  # the help of one command takes less time than that of all
        command = known[words[0]]
        return tyro.cli(
            command, prog=f"funcattn {words[0]}", args=words[1:], return_unknown_args=True
        )
    return tyro.cli(
        Command,
        prog="funcattn",
        description=__doc__,
        args=words,
        return_unknown_args=True,
        config=(tyro.conf.OmitSubcommandPrefixes,),
    )
