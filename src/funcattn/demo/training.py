"""The demo's training: one network in one worker process, on one thread."""

import time
from collections.abc import Callable
from copy import deepcopy
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from funcattn.demo.data import Array
from funcattn.demo.model import Config, Darcy, build


class Trained(NamedTuple):
    """A network at its best epoch, and how it got there."""

    state: dict[str, Array]
    train_errors: list[float]
    validation_errors: list[float]
    best_epoch: int
    parameters: int
    seconds: float


def relative_errors(prediction: Tensor, truth: Tensor) -> Tensor:
    """||prediction - truth|| / ||truth|| of each sample."""
    return (prediction - truth).flatten(1).norm(dim=1) / truth.flatten(1).norm(dim=1)


def optimisers(model: Darcy, config: Config) -> list[torch.optim.Optimizer]:
    """Muon for the hidden matrices, AdamW for the rest."""
    hidden = [p for p in model.network.blocks.parameters() if p.ndim == 2]
    taken = {id(p) for p in hidden}
    rest = [p for p in model.parameters() if id(p) not in taken]
    return [
        torch.optim.Muon(hidden, lr=config.muon_rate, weight_decay=0.0),
        torch.optim.AdamW(rest, lr=config.adamw_rate, weight_decay=1e-5),
    ]


def train(
    name: str,
    config: Config,
    permeability: Array,
    pressure: Array,
    epoch_done: Callable[[], None],
) -> Trained:
    """Train on the first samples, choose the epoch on the next ones; the rest is never seen."""
    start = time.perf_counter()
    a, u = torch.from_numpy(permeability), torch.from_numpy(pressure)
    choose = slice(config.train, config.train + config.validation)
    model = build(config, name)
    model.fit_normalisers(a[: config.train], u[: config.train])
    order = torch.Generator().manual_seed(config.seed)
    batches = -(-config.train // config.batch)
    optims = optimisers(model, config)
    schedules = [
        torch.optim.lr_scheduler.OneCycleLR(
            optim,
            max_lr=[group["lr"] for group in optim.param_groups],
            total_steps=config.epochs * batches,
            cycle_momentum=False,
        )
        for optim in optims
    ]
    train_errors: list[float] = []
    validation_errors: list[float] = []
    best: dict[str, Tensor] = {}
    for _ in range(config.epochs):
        model.train()
        total = 0.0
        for batch in torch.randperm(config.train, generator=order).split(config.batch):
            errors = relative_errors(model(a[batch]), u[batch])
            for optim in optims:
                optim.zero_grad()
            errors.mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), config.clip)
            for optim, schedule in zip(optims, schedules, strict=True):
                optim.step()
                schedule.step()
            total += errors.sum().item()
        train_errors.append(total / config.train)
        validation_errors.append(float(predict(model, a[choose], u[choose])[1].mean()))
        if validation_errors[-1] == min(validation_errors):
            best = deepcopy(model.state_dict())
        epoch_done()
    return Trained(
        {key: tensor.numpy() for key, tensor in best.items()},
        train_errors,
        validation_errors,
        1 + int(np.argmin(validation_errors)),
        sum(p.numel() for p in model.network.parameters()),
        time.perf_counter() - start,
    )


@torch.no_grad()
def predict(model: Darcy, a: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Predictions and their relative errors."""
    model.eval()
    prediction = torch.cat([model(part) for part in a.split(20)])
    return prediction, relative_errors(prediction, u)
