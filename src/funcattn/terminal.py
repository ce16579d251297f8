"""What all commands share: where data is kept, progress, and what was asked for."""

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import platformdirs
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

CACHE = Path(os.environ.get("FUNCATTN_CACHE", platformdirs.user_cache_path("funcattn")))
"""Where made data is kept, unless a command is told another place."""


def command_line() -> str:
    """What this process was called with, for the records."""
    return shlex.join(["funcattn", *sys.argv[1:]])


@contextmanager
def progress(console: Console) -> Iterator[Progress]:
    """Bars with what is done of all, and the time it took and will take."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    ) as bars:
        yield bars


def refuse(rest: Sequence[str]) -> None:
    """Raise where a command that takes no settings was given some."""
    if rest:
        raise ValueError(f"arguments: expected those of --help, got {shlex.join(rest)}")
