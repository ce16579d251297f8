"""The runs that tables and figures are made of, and what the paper printed."""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

from funcattn.experiments.tiers import Tier, tier_settings
from funcattn.models import MODELS
from funcattn.settings import RunSettings, changed
from funcattn.tasks import TASKS
from funcattn.training.setup import shape_of

NOT_AN_IDENTITY = ("checkpoint", "checkpoint_seconds", "path")
"""Settings that do not change a number."""


@dataclass(frozen=True)
class Run:
    """A network on a task; tier and seed are chosen when it is run."""

    task: str
    model: str = "funcattn"
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from those of the tier, nested as in TOML."""
    beyond: Mapping[Tier, str] = field(default_factory=dict)
    """Tiers at which it is not run, and why."""
    one_seed: bool = False
    """For a picture, one is enough."""

    def settings(self, tier: Tier, seed: int = 0) -> RunSettings:
        """Everything that decides the numbers.

        Raises:
            ValueError: a setting or network that does not exist.
        """
        settings: RunSettings = changed(tier_settings(self.task, self.model, tier), self.changes)
        return replace(settings, seed=seed)

    def refusal(self, tier: Tier) -> str | None:
        """Why it cannot be run, None if it can."""
        if tier in self.beyond:
            return self.beyond[tier]
        try:
            settings = self.settings(tier)
        except ValueError as error:
            return f"no setting {str(error).rpartition('got ')[2]} yet"
        return MODELS[self.model].refusal(shape_of(TASKS[self.task](settings)))


@dataclass(frozen=True)
class NotYet:
    """In place of a run: the method is not here."""

    why: str = "the method is not here"


@dataclass(frozen=True)
class Column:
    """What a table shows of the runs of a column."""

    title: str
    metric: str = "test.relative_l2"
    """A path into the result of a run."""
    scale: float = 100.0
    larger_is_better: bool = False
    ranked: bool = True
    """Whether one row is the best."""


@cache
def paper() -> dict[str, Any]:
    """All numbers that the paper printed, by experiment, row and column, with all their digits."""
    found: dict[str, Any] = {"few_shot": {}, "scaling": {}, "pictures": {}}
    text = files("funcattn.experiments").joinpath("paper.toml").read_text()
    return found | tomllib.loads(text, parse_float=Decimal)


def identity(settings: RunSettings) -> str:
    """A short name for what decides the numbers of a run.

    >>> a = Run("darcy").settings("smoke", seed=0)
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
