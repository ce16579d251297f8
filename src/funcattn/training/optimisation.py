"""Optimisers and learning-rate schedules, from a typed configuration."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.optim import lr_scheduler


@dataclass(frozen=True)
class Optimisation:
    """How the weights are moved.

    The defaults are those of the paper's PDE benchmarks. `muon` takes Muon for the hidden matrices
    (those of the blocks) and AdamW for everything else.
    """

    optimiser: Literal["adam", "adamw", "muon"] = "adamw"
    epochs: int = 500
    batch: int = 4
    accumulate: int = 1
    """Batches whose gradients are added before a step."""
    rate: float = 1e-3
    """Peak learning rate of Adam and AdamW."""
    muon_rate: float = 2e-2
    """Peak learning rate of Muon."""
    weight_decay: float = 1e-5
    schedule: Literal["one_cycle", "cosine", "step", "constant"] = "one_cycle"
    warm_up: float = 0.3
    """Fraction of the steps in which a one-cycle schedule rises."""
    start_divisor: float = 25.0
    """A one-cycle schedule starts at the peak rate over this."""
    end_divisor: float = 1e4
    """A one-cycle schedule ends at its start over this."""
    step_epochs: int = 100
    """A step schedule halves the rate every so many epochs."""
    clip: float | None = None
    """Largest norm of the gradient."""
    ema: float | None = None
    """Decay of an exponential moving average of the weights, which is then what is evaluated."""


def build_optimisers(model: nn.Module, settings: Optimisation) -> list[torch.optim.Optimizer]:
    """The optimisers, each with its share of the parameters."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if settings.optimiser == "adam":
        return [torch.optim.Adam(parameters, settings.rate, weight_decay=settings.weight_decay)]
    if settings.optimiser == "adamw":
        return [torch.optim.AdamW(parameters, settings.rate, weight_decay=settings.weight_decay)]
    hidden = {
        id(p)
        for name, p in model.named_parameters()
        if "blocks." in name and p.ndim == 2 and p.requires_grad
    }
    if not hidden:
        raise ValueError(
            "optimiser: 'muon' expects a model with matrices inside `blocks`, got none; use 'adamw'"
        )
    return [
        torch.optim.Muon(
            [p for p in parameters if id(p) in hidden], settings.muon_rate, weight_decay=0.0
        ),
        torch.optim.AdamW(
            [p for p in parameters if id(p) not in hidden],
            settings.rate,
            weight_decay=settings.weight_decay,
        ),
    ]


def build_schedule(
    optimiser: torch.optim.Optimizer, settings: Optimisation, steps_per_epoch: int
) -> lr_scheduler.LRScheduler:
    """The schedule of one optimiser, stepped after every step."""
    total = settings.epochs * steps_per_epoch
    if settings.schedule == "one_cycle":
        return lr_scheduler.OneCycleLR(
            optimiser,
            max_lr=[group["lr"] for group in optimiser.param_groups],
            total_steps=total,
            pct_start=settings.warm_up,
            div_factor=settings.start_divisor,
            final_div_factor=settings.end_divisor,
            cycle_momentum=False,
        )
    if settings.schedule == "cosine":
        return lr_scheduler.CosineAnnealingLR(optimiser, T_max=total)
    if settings.schedule == "step":
        return lr_scheduler.StepLR(optimiser, settings.step_epochs * steps_per_epoch, gamma=0.5)
    return lr_scheduler.ConstantLR(optimiser, factor=1.0, total_iters=1)
