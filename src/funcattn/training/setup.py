"""A run's settings and its network, from its folder."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch

from funcattn.models import Shape, Surrogate, build_model, model_entry
from funcattn.settings import Profile, RunSettings, changed
from funcattn.tasks import TASKS, Task

Settings = TypeVar("Settings", bound=RunSettings)


def with_model(settings: Settings, model: str, profile: Profile) -> Settings:
    """A task's settings with another network, which may come with some of its own."""
    entry = model_entry(model)
    network = entry.settings(settings.task, profile, settings.network)
    how = settings.optimisation
    if how.optimiser == "muon" and not entry.has_blocks:
        how = replace(how, optimiser="adamw")
    return replace(settings, model=model, network=network, optimisation=how)


class RunError(Exception):
    """A run folder that cannot be used as asked."""


def shape_of(task: Task) -> Shape:
    """What a network has to know of a task."""
    return Shape(
        task.space,
        task.inputs,
        task.outputs,
        time=task.timed,
        context=task.observed,
        periodic=task.periodic,
        lower=task.lower,
        upper=task.upper,
        grid=task.grid is not None,
        points=task.points,
    )


def build_surrogate(task: Task) -> Surrogate:
    """The task's network with its normalisers, its weights drawn from the seed of the run."""
    settings = task.settings
    with torch.random.fork_rng(devices=[]):
        # Weights are drawn on the CPU; the random state of other devices is left alone.
        torch.default_generator.manual_seed(settings.seed)
        network = build_model(settings.model, settings.network, shape_of(task))
    surrogate = Surrogate(
        network,
        space=task.space,
        inputs=task.inputs,
        outputs=task.outputs,
        normalise_inputs="input" in task.normalised,
        normalise_outputs="output" in task.normalised,
    )
    return surrogate.double() if settings.precision == "64-true" else surrogate


def read_settings(folder: Path) -> RunSettings:
    """The settings of a run."""
    path = folder / "settings.json"
    if not path.exists():
        raise RunError(f"{folder}: expected the folder of a run, got one without settings.json")
    try:
        saved = json.loads(path.read_text())
        name = saved["task"]
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} is not the settings of a run: {error}") from error
    if name not in TASKS:
        raise RunError(f"{path}: expected a task among {', '.join(TASKS)}, got {name!r}")
    settings: RunSettings = changed(TASKS[name].defaults("paper", "paper"), saved)
    return settings
