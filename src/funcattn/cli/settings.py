"""What the commands about tasks share: the settings of a run, and the store of data."""

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import tyro

from funcattn.cli.terminal import UsageError, command_line
from funcattn.data import Store
from funcattn.data.foreign import read_text
from funcattn.registry import did_you_mean
from funcattn.settings import Preset, Profile, RunSettings, changed
from funcattn.training.settings import default_settings, from_file


def resolved(
    task: str, profile: Profile, preset: Preset, config: Path | None, flags: Sequence[str]
) -> RunSettings:
    """The task's defaults, with the network's own, changed by a file, changed by flags.

    The network is chosen first, as it decides which settings there are.
    """
    model = asked("model", read_changes(config), flags) or "funcattn"
    return over(default_settings(task, profile, preset, model), config, flags)


def over(settings: RunSettings, config: Path | None, flags: Sequence[str]) -> RunSettings:
    """The settings, changed by a file, changed by flags."""
    task = settings.task
    settings = from_file(settings, read_changes(config), str(config))
    settings, flags = _by_old_names(settings, flags)
    settings, unknown = tyro.cli(
        type(settings),
        default=settings,
        args=list(flags),
        prog=f"funcattn train {task}",
        add_help=False,
        return_unknown_args=True,
    )
    if unknown:
        raise UsageError(_no_such_flag(unknown[0], settings))
    if settings.task != task:
        raise ValueError(f"task: expected settings of {task}, got those of {settings.task!r}")
    return settings


def read_changes(config: Path | None) -> Any:
    """What a file of settings says, as names and values."""
    if config is None:
        return {}
    text = read_text(config)
    try:
        return json.loads(text) if config.suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        kind = "JSON" if config.suffix == ".json" else "TOML"
        raise ValueError(f"{config}: expected settings as {kind}, got {error}") from error


def asked(name: str, changes: Any, flags: Sequence[str]) -> Any:
    """A setting as flags or a file ask for it, before all settings are known; None if they do not.

    >>> asked("model", {"model": "fno"}, ["--seed", "3", "--model", "lno"])
    'lno'
    """
    for place, flag in reversed(list(enumerate(flags))):
        if flag.startswith(f"--{name}="):
            return flag.partition("=")[2]
        if flag == f"--{name}" and place + 1 < len(flags):
            return flags[place + 1]
    return changes.get(name) if isinstance(changes, Mapping) else None


def _no_such_flag(flag: str, settings: RunSettings) -> str:
    flag = flag.partition("=")[0]
    known = [*_flags(settings)]
    group = flag.rpartition(".")[0]
    shown = [name for name in known if group and name.startswith(f"{group}.")] or known
    return (
        f"{flag}: expected a setting that {settings.model} has on {settings.task}, one of "
        f"{', '.join(shown)}, got {flag}{did_you_mean(flag, known)}"
    )


def _flags(settings: Any, before: str = "--") -> Iterator[str]:
    """All flags of settings, whatever their types."""
    for field in fields(settings):
        value, name = getattr(settings, field.name), f"{before}{field.name}"
        if is_dataclass(value):
            yield from _flags(value, f"{name}.")
        else:
            yield name


def _pairs(flags: Sequence[str]) -> list[tuple[str, str]]:
    """The names of settings among the flags, each with what follows it.

    >>> _pairs(["--seed", "3", "--network.mlp-ratio=2", "--network.no-checkpoint"])
    [('seed', '3'), ('network.mlp_ratio', '2'), ('network.checkpoint', '')]
    """
    pairs = []
    for flag, following in zip(flags, [*flags, ""][1:], strict=True):
        if flag.startswith("--"):
            name, equals, value = flag[2:].partition("=")
            name = name.replace("-", "_").replace(".no_", ".")
            pairs.append((name, value if equals else following))
    return pairs


def _by_old_names(settings: RunSettings, flags: Sequence[str]) -> tuple[RunSettings, Sequence[str]]:
    """The settings, changed by the flags that have old names, and the other flags."""
    old = {f"data.{name}" for name in settings.data.old_names}
    given = {name: value for name, value in _pairs(flags) if name in old}
    if not given:
        return settings, flags
    changes = {name.removeprefix("data."): json.loads(value) for name, value in given.items()}
    rest, skip = [], False
    for flag in flags:
        is_old = flag.startswith("--") and _pairs([flag])[0][0] in given
        if not (is_old or skip):
            rest.append(flag)
        skip = is_old and "=" not in flag
    return changed(settings, {"data": changes}), rest


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
