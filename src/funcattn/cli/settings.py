"""What the commands about tasks share: the settings of a run, and the store of data."""

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import tyro

from funcattn.data import Store
from funcattn.settings import Preset, Profile, RunSettings, changed
from funcattn.tasks import TASKS
from funcattn.terminal import command_line
from funcattn.training.setup import with_model

Name = Annotated[str, tyro.conf.Positional]
File = Annotated[Path, tyro.conf.Positional]
WORKERS = os.cpu_count() or 1


def resolved(
    task: str, profile: Profile, preset: Preset, config: Path | None, flags: list[str]
) -> RunSettings:
    """The task's defaults, with the network's own, changed by a file, changed by flags."""
    if task not in TASKS:
        raise ValueError(f"task: expected one of {', '.join(TASKS)}, got {task!r}")
    defaults = TASKS[task].defaults(profile, preset)
    model = over(defaults, config, flags).model
    return over(with_model(defaults, model, profile), config, flags)


def over(settings: RunSettings, config: Path | None, flags: list[str]) -> RunSettings:
    """The settings, changed by a file, changed by flags."""
    task = settings.task
    if config is not None:
        text = config.read_text()
        changes = json.loads(text) if config.suffix == ".json" else tomllib.loads(text)
        settings = changed(settings, changes, where=str(config))
    settings = tyro.cli(
        type(settings), default=settings, args=flags, prog=f"funcattn train {task}", add_help=False
    )
    if settings.task != task:
        raise ValueError(f"task: expected settings of {task}, got those of {settings.task!r}")
    return settings


def open_store(
    cache: Path,
    advance: Callable[[int, int], None],
    profile: str,
    *,
    workers: int,
    scheduler: str | None = None,
) -> Store:
    """The data in a folder, with progress; what is made there notes the command."""
    note = {"command": command_line(), "profile": profile}
    return Store(cache, workers=workers, scheduler=scheduler, advance=advance, note=note)


def size_in_words(count: int) -> str:
    """Bytes as people read them.

    >>> size_in_words(3_400_000)
    '3.4 MB'
    """
    size = float(count)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"
