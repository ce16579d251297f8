"""What all commands share: where data is kept, progress, tables, and refusals."""

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs
from rich.console import Console
from rich.table import Table

from funcattn.processes import rank

if TYPE_CHECKING:
    from rich.progress import Progress

CACHE = Path(os.environ.get("FUNCATTN_CACHE", platformdirs.user_cache_path("funcattn")))
"""Where made data is kept, unless a command is told another place."""


class UsageError(ValueError):
    """A command line that cannot be understood."""


def console() -> Console:
    """Of processes that train together, the first one speaks."""
    return Console(quiet=rank() != 0)


def command_line() -> str:
    """What this process was called with, for the records."""
    return shlex.join(["funcattn", *sys.argv[1:]])


@contextmanager
def progress(console: Console) -> "Iterator[Progress]":
    """Bars with what is done of all, and the time it took and will take."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    ) as bars:
        yield bars


def counted(number: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "thread"), counted(2, "process")
    ('1 thread', '2 processes')
    """
    return f"{number} {what}" + ("" if number == 1 else "es" if what.endswith("s") else "s")


def refuse(rest: Sequence[str]) -> None:
    """Raise where a command that takes no settings was given some."""
    if rest:
        raise ValueError(f"arguments: expected those of --help, got {shlex.join(rest)}")


def check_output(path: Path) -> None:
    """Raise before the work where its result could not be written."""
    if not path.parent.is_dir():
        raise ValueError(f"{path}: expected a folder that exists, got none at {path.parent}")


def print_table(console: Console, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table whole: columns that do not fit side by side come below, by the first one."""
    widths = [max(len(cell) for cell in column) for column in zip(headers, *rows, strict=True)]
    parts: list[list[int]] = [[]]
    for place, width in enumerate(widths[1:], start=1):
        used = widths[0] + sum(2 + widths[other] for other in parts[-1])
        if parts[-1] and used + 2 + width > console.width:
            parts.append([])
        parts[-1].append(place)
    for part in parts:
        table = Table(box=None, padding=(0, 2, 0, 0))
        for place in (0, *part):
            table.add_column(headers[place], no_wrap=True)
        for row in rows:
            table.add_row(*(row[place] for place in (0, *part)))
        console.print(table)
