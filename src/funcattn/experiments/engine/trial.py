"""A trial: one network on one task, as a table or figure declares it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from funcattn.experiments.tiers import Tier, tier_settings
from funcattn.models import MODELS
from funcattn.settings import RunSettings, changed
from funcattn.tasks import TASKS

NOT_AN_IDENTITY = ("checkpoint", "checkpoint_seconds", "path")
"""Settings that do not change any number."""


@dataclass(frozen=True)
class Trial:
    """A network on a task. The tier and the seed are chosen when it is run."""

    task: str
    model: str = "funcattn"
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from those of the tier, nested as in TOML."""
    beyond: Mapping[Tier, str] = field(default_factory=dict)
    """Tiers at which it is not run, each with the reason."""
    one_seed: bool = False
    """Whether one seed is enough, as for a picture."""

    def settings(self, tier: Tier, seed: int = 0) -> RunSettings:
        """Everything that decides the numbers.

        Raises:
            ValueError: a setting or network that does not exist.
        """
        settings: RunSettings = changed(tier_settings(self.task, self.model, tier), self.changes)
        return replace(settings, seed=seed)

    def refusal(self, tier: Tier) -> str | None:
        """Why it cannot be run, or None if it can."""
        if tier in self.beyond:
            return self.beyond[tier]
        try:
            settings = self.settings(tier)
        except ValueError as error:
            return f"no setting {str(error).rpartition('got ')[2]} yet"
        return MODELS[self.model].refusal(TASKS[self.task](settings).problem)


@dataclass(frozen=True)
class NotYet:
    """Takes the place of a trial where the package does not have the method."""

    why: str = "the method is not here"


def identity(settings: RunSettings) -> str:
    """A short name for everything that decides the numbers of a run.

    >>> a = Trial("darcy").settings("smoke", seed=0)
    >>> identity(a) == identity(replace(a, checkpoint_seconds=1.0))
    True
    >>> identity(a) == identity(replace(a, seed=1))
    False
    """
    text = json.dumps(_deciding(asdict(settings)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _deciding(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _deciding(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if name not in NOT_AN_IDENTITY
    }
