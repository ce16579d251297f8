"""What the commands share: progress, and a word about arguments that nobody knows."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


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
