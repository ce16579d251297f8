"""The checkpoints that a run keeps, and whether its data and settings are still theirs."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from funcattn.settings import RunSettings
from funcattn.tasks.base import Splits
from funcattn.training.checkpoint import Checkpoint, CheckpointError, load_checkpoint

FREE = ("checkpoint_seconds", "path")
"""Settings that do not decide the numbers."""


def best_checkpoint(folder: Path) -> Checkpoint:
    """The weights that did best on validation data."""
    folders = checkpoint_folders(folder, "best")
    if not folders:
        raise CheckpointError(
            f"{folder} has no trained weights yet: no epoch was finished, or this is not a run"
        )
    return load_checkpoint(folders[-1])


def checkpoint_folders(folder: Path, kind: str) -> list[Path]:
    """Checkpoints of a kind, oldest first."""
    found = (folder / "checkpoints").glob(f"{kind}-*")
    return sorted(path for path in found if re.fullmatch(r"\d{1,18}", path.name.split("-", 1)[1]))


def checkpoint_number(folder: Path) -> int:
    """The step or the epoch of a checkpoint."""
    return int(folder.name.split("-")[1])


def check_fingerprint(saved: Checkpoint, splits: Splits) -> None:
    """Refuse data that are not those of a checkpoint."""
    was = saved.part("fingerprint", str)
    if was != splits.fingerprint:
        raise CheckpointError(
            f"the data changed since the run began: its fingerprint was {was} and is "
            f"{splits.fingerprint}; bring the old data back, or start a new run"
        )


def changed_settings(saved: Checkpoint, settings: RunSettings) -> list[str]:
    """The settings that decide the numbers and are not those of a checkpoint, in words."""
    # As they are after a way through JSON, where tuples are lists.
    return differing(saved.part("settings", dict), json.loads(json.dumps(asdict(settings))))


def differing(
    old: Mapping[str, Any], new: Mapping[str, Any], where: str = "", *, free: Sequence[str] = FREE
) -> list[str]:
    """The settings that decide the numbers and differ, in words."""
    found = []
    for name in old.keys() | new.keys():
        before, now = old.get(name), new.get(name)
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            found += differing(before, now, f"{where}{name}.", free=free)
        elif before != now and name not in free:
            found.append(f"{where}{name} was {before} and is {now}")
    return sorted(found)
