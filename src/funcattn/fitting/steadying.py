"""A training that diverges begins again with half its rates."""

import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from funcattn.settings import RunSettings
from funcattn.training.loop import NonFiniteLossError
from funcattn.training.run import Run

TRIES = 3
"""Trainings at most: the last has a quarter of the rates."""
_ITS_FILES = ("settings.json", "checkpoints", "metrics.jsonl", "metrics.csv")
"""What a training writes before it ends."""


class DivergedWarning(UserWarning):
    """A training diverged, and began again with lower rates."""


def trained_steadily(
    attempt: Callable[[RunSettings, bool], Run], settings: RunSettings, folder: Path, resume: bool
) -> Run:
    """The run of an attempt that does not diverge.

    attempt: trains with settings in the folder, from where it was stopped or not. resume: whether
    the first attempt goes on with what is in the folder.

    Raises:
        NonFiniteLossError: that of the last attempt.
    """
    for _ in range(TRIES - 1):
        try:
            return attempt(settings, resume)
        except NonFiniteLossError as error:
            how = settings.optimisation
            settings = replace(
                settings,
                optimisation=replace(how, rate=how.rate / 2, muon_rate=how.muon_rate / 2),
            )
            warnings.warn(
                f"the training diverged ({error}); it begins again with half its rates",
                DivergedWarning,
                stacklevel=4,
            )
        _clear(folder)
        resume = False
    return attempt(settings, resume)


def _clear(folder: Path) -> None:
    """Remove what the training wrote; the settings first, without which nothing is resumed."""
    for name in _ITS_FILES:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
