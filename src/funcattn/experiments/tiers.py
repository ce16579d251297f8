"""How large the runs of a tier are: `paper` as printed, `cpu` for two cores, `smoke` for tests.

Tiers `paper` and `smoke` train as the paper does (AdamW, one cycle). In the few epochs that two
cores allow that leaves every network half trained, so `cpu` trains them all by the preset `modern`
(Muon and AdamW; AdamW alone where a network has no blocks), chosen on validation data of
Elasticity by functional attention and by Transolver, and looked at again for Transolver on Burgers
and RNA (results/tier_cpu.json). `cpu` is otherwise the task's own profile of that name, with the
epochs that fit into twenty minutes on one core.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from funcattn.settings import Preset, Profile, RunSettings, changed
from funcattn.tasks import TASKS
from funcattn.tasks.few_shot import BASELINES
from funcattn.training.settings import with_model

Tier = Profile
TIERS: tuple[Tier, ...] = ("smoke", "cpu", "paper")

ON_TWO_CORES: Mapping[str, Mapping[str, Any]] = {
    "elasticity": {"optimisation": {"epochs": 15}},
    "darcy": {"optimisation": {"epochs": 15}},
    "burgers": {"optimisation": {"epochs": 80}},
    "darcy_notch": {"optimisation": {"epochs": 40}},
    "navier_stokes": {"optimisation": {"epochs": 6}},
    "airfoil": {"optimisation": {"epochs": 10}},
    "pipe": {"optimisation": {"epochs": 20}},
    "plasticity": {"optimisation": {"epochs": 8}},
    "airfrans": {"optimisation": {"epochs": 20}},
    "rna": {"optimisation": {"epochs": 18}},
}
"""What the tier `cpu` changes in a task's profile."""

INTENTION_WIDTH = 256
"""Of Intention's encoder at tier cpu, as wide as those of attention and Transolver; the paper's
1000 channels would take a working day."""


@cache
def tier_settings(task: str, model: str, tier: Tier) -> RunSettings:
    """The settings of a network on a task at a tier, with seed 0."""
    return _OWN_WAY.get(task, _of_profile)(task, model, tier)


def _of_profile(task: str, model: str, tier: Tier) -> RunSettings:
    preset: Preset = "modern" if tier == "cpu" else "paper"
    settings = with_model(TASKS[task].defaults(tier, preset), model, tier)
    more = ON_TWO_CORES[task] if tier == "cpu" else {}
    adjusted: RunSettings = changed(settings, more)
    return adjusted


def _few_shot(task: str, model: str, tier: Tier) -> RunSettings:
    """The paper's iterations on two cores too; each method has its published network and rate."""
    settings = TASKS[task].defaults("smoke" if tier == "smoke" else "paper", "paper")
    if model == "funcattn":
        return settings
    baseline: RunSettings = changed(with_model(settings, model, "paper"), BASELINES.get(model, {}))
    if tier == "smoke":
        baseline = changed(baseline, {"network": {"width": 16}})
    elif tier == "cpu" and model == "intention":
        baseline = changed(baseline, {"network": {"width": INTENTION_WIDTH}})
    return baseline


_OWN_WAY: dict[str, Callable[[str, str, Tier], RunSettings]] = {"few_shot": _few_shot}
