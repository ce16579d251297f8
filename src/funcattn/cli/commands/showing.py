"""Commands that show what there is."""

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from funcattn.cli.commands.options import AcceptEdited, Cache, Recipe, Size
from funcattn.cli.terminal import CACHE


@dataclass(frozen=True)
class List:
    """The tasks, the networks, and the data that was made; or the networks for one task."""

    what: Annotated[Literal["all", "models"], tyro.conf.Positional] = "all"
    """models: what each network costs in the configuration of a task, and which cannot take it."""
    task: str = "darcy"
    """Whose configuration."""
    profile: Size = "cpu"
    cache: Cache = CACHE


@dataclass(frozen=True)
class Info:
    """The settings of a task and its data set, or the settings and results of a run.

    Without a name: versions, devices, and which of its fast forms this installation has.
    """

    what: Annotated[str | None, tyro.conf.Positional] = None
    """A task's name or a run's folder."""
    profile: Size = "cpu"
    preset: Recipe = "modern"
    accept_edited: AcceptEdited = False
    cache: Cache = CACHE
