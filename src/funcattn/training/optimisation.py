"""Optimisers and learning-rate schedules, from a typed configuration."""

from collections.abc import Collection

import torch
from torch import nn
from torch.optim import lr_scheduler

from funcattn.models import matrices_for_muon
from funcattn.settings import OptimisationSettings
from funcattn.training.muon import BatchedMuon, matrices_of
from funcattn.training.optimisers import SOAP, Lion

_OWN: dict[str, type[Lion | SOAP]] = {"lion": Lion, "soap": SOAP}


def build_optimisers(
    model: nn.Module, settings: OptimisationSettings
) -> list[torch.optim.Optimizer]:
    """The optimisers, each with its share of the parameters."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if settings.optimiser == "adam":
        return [_fused(torch.optim.Adam, parameters, settings)]
    if settings.optimiser == "adamw":
        return [_fused(torch.optim.AdamW, parameters, settings)]
    if settings.optimiser in _OWN:
        kind = _OWN[settings.optimiser]
        return [kind(parameters, settings.rate, weight_decay=settings.weight_decay)]
    if settings.optimiser == "muon_batched":
        matrices = matrices_of(model)
        _some(matrices, "muon_batched")
        rest = [p for p in parameters if p not in matrices]
        return [
            BatchedMuon(matrices, settings.muon_rate),
            _fused(torch.optim.AdamW, rest, settings),
        ]
    declared = {id(p) for p in matrices_for_muon(model) if p.requires_grad}
    _some(declared, "muon")
    return [
        torch.optim.Muon(
            [p for p in parameters if id(p) in declared], settings.muon_rate, weight_decay=0.0
        ),
        _fused(torch.optim.AdamW, [p for p in parameters if id(p) not in declared], settings),
    ]


def _some(matrices: Collection[object], optimiser: str) -> None:
    if not matrices:
        raise ValueError(
            f"optimiser: {optimiser!r} expects a network that declares matrices for it, got none; "
            "use 'adamw'"
        )


def _fused(
    kind: type[torch.optim.Adam], parameters: list[nn.Parameter], settings: OptimisationSettings
) -> torch.optim.Optimizer:
    """One pass over each parameter instead of a dozen."""
    return kind(parameters, settings.rate, weight_decay=settings.weight_decay, fused=True)


def build_schedule(
    optimiser: torch.optim.Optimizer, settings: OptimisationSettings, steps_per_epoch: int
) -> lr_scheduler.LRScheduler:
    """The schedule of one optimiser, stepped after every step."""
    total = settings.epochs * steps_per_epoch
    if settings.schedule == "one_cycle":
        # PyTorch divides by zero where the rise is one step long: then there is none.
        rise = settings.warm_up if settings.warm_up * total != 1 else 0.0
        return lr_scheduler.OneCycleLR(
            optimiser,
            max_lr=[group["lr"] for group in optimiser.param_groups],
            total_steps=total,
            pct_start=rise,
            div_factor=settings.start_divisor,
            final_div_factor=settings.end_divisor,
            # Adam's betas are cycled too, as PyTorch does by default; the others' are not.
            cycle_momentum=isinstance(optimiser, torch.optim.Adam),
        )
    if settings.schedule == "cosine":
        return lr_scheduler.CosineAnnealingLR(optimiser, T_max=total)
    if settings.schedule == "step":
        return lr_scheduler.StepLR(optimiser, settings.step_epochs * steps_per_epoch, gamma=0.5)
    return lr_scheduler.ConstantLR(optimiser, factor=1.0, total_iters=1)
