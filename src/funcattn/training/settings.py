"""The settings of a run from where they come: a task and a network, a saved run, changes.

Here the settings of tasks meet those of networks, each of which knows its own.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from funcattn.models import MODELS
from funcattn.settings import (
    Preset,
    Profile,
    RunSettings,
    changed,
    shown,
    without_idle,
)
from funcattn.tasks import TASKS


def default_settings(
    task: str, profile: Profile, preset: Preset, model: str = "funcattn"
) -> RunSettings:
    """The settings of a network on a task.

    Raises:
        ValueError: there is no such task or network.
    """
    return with_model(TASKS.named(task).defaults(profile, preset), model, profile)


def with_model(settings: RunSettings, model: str, profile: Profile) -> RunSettings:
    """A task's settings with another network, which may come with some of its own."""
    entry = MODELS.named(model)
    problem = TASKS.named(settings.task).problem
    if (entry.observations if problem.context else entry.fields) is None:
        # It cannot take the task, which is for whoever builds it to say.
        return replace(settings, model=model)
    network = entry.settings(problem, settings.network, task=settings.task, profile=profile)
    optimisation = settings.optimisation
    if optimisation.optimiser == "muon" and not entry.muon:
        optimisation = replace(optimisation, optimiser="adamw")
    elif optimisation.optimiser == "muon":
        optimisation = replace(optimisation, **entry.recipe)
    return replace(settings, model=model, network=network, optimisation=optimisation)


def saved_settings(saved: Mapping[str, Any]) -> RunSettings:
    """The settings of a run, from what it kept as plain values.

    What is missing has the defaults of profile and preset `paper`. Runs of earlier versions kept
    the settings of all networks, whatever their own was: those that their network has no use for
    are dropped. Settings of the data that were renamed are read by their old names too, and those
    that came later have the value of that time.

    Raises:
        ValueError: a task, network or setting that does not exist.
    """
    if not isinstance(saved, Mapping) or "task" not in saved:
        raise ValueError(f"settings: expected those of a run, with its task, got {shown(saved)}")
    task, model = saved["task"], saved.get("model", "funcattn")
    for name, value in (("task", task), ("model", model)):
        if not isinstance(value, str):
            raise ValueError(f"settings.{name}: expected a name, got {shown(value)}")
    start = default_settings(task, "paper", "paper", model)
    settings: RunSettings = changed(start, _of_today(start, saved))
    return settings


def from_file(settings: RunSettings, changes: Mapping[str, Any], where: str) -> RunSettings:
    """The settings, changed by what a file holds: some of them, or all that a run kept.

    A file that names its task is a run's own: as in `saved_settings`, what an earlier version kept
    there of other networks is dropped, and what came later has the value of that time.
    """
    if isinstance(changes, Mapping) and "task" in changes:
        changes = _of_today(settings, changes)
    new: RunSettings = changed(settings, changes, where)
    return new


def _of_today(settings: RunSettings, saved: Mapping[str, Any]) -> Mapping[str, Any]:
    """What an earlier version kept of a run with these settings, as today's would."""
    network, data = saved.get("network", {}), saved.get("data", {})
    if isinstance(network, Mapping):
        network = without_idle(type(settings.network), {**settings.network.before, **network})
    if isinstance(data, Mapping):
        data = {**settings.data.before, **data}
    return {**saved, "network": network, "data": data}
