"""The settings of a new surrogate: given ones, and what the budget and the data decide."""

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from funcattn.data import collate
from funcattn.fitting import budget as budgets
from funcattn.models.functional_operator import FunctionalOperatorSettings
from funcattn.settings import RunSettings, changed
from funcattn.tasks.base import Splits
from funcattn.tasks.own import Own, OwnData
from funcattn.training.optimisation import build_optimisers
from funcattn.training.settings import with_model
from funcattn.training.setup import build_network

if TYPE_CHECKING:
    from funcattn.surrogate import Surrogate

ATTENTION_SHARE = 0.85
"""Of the budget goes into the network, the rest into yardsticks."""


def sized(surrogate: "Surrogate", own: OwnData, splits: Splits, spent: float) -> RunSettings:
    """The settings of a run that keeps to the surrogate's budget, of which some is spent."""
    started = time.process_time()
    base = _base(surrogate, own)
    if surrogate.network is not None and surrogate.epochs is not None:
        return base
    seconds = budgets.seconds_of(surrogate.budget)
    seconds -= min(spent, seconds / 2)
    if surrogate.yardsticks:
        seconds *= ATTENTION_SHARE
    task = Own(base)
    steps = -(-len(splits.train) * task.visits // base.optimisation.batch)

    def per_epoch(size: dict[str, Any]) -> float:
        return seconds_per_epoch(_with_size(base, size), splits)

    chosen = budgets.plan(
        lambda: seconds - (time.process_time() - started),
        per_epoch,
        steps,
        _ladder(surrogate, own, base),
    )
    settings = _with_size(base, chosen.size)
    epochs = surrogate.epochs or chosen.epochs
    return replace(settings, optimisation=replace(settings.optimisation, epochs=epochs))


def _ladder(surrogate: "Surrogate", own: OwnData, base: RunSettings) -> budgets.Ladder:
    """The sizes to choose from."""
    if surrogate.network is not None:
        return budgets.Ladder(({},), steps=0)
    ours = isinstance(base.network, FunctionalOperatorSettings)
    return budgets.SIZES_ON_GRIDS if ours and own.axes else budgets.SIZES


def _base(surrogate: "Surrogate", own: OwnData) -> RunSettings:
    """What does not depend on the budget."""
    settings = replace(
        Own.defaults("cpu", "modern"), data=own, seed=surrogate.seed, model=surrogate.model
    )
    settings = with_model(settings, surrogate.model, "cpu")
    how = settings.optimisation
    changes: dict[str, Any] = {"patience": surrogate.patience, "batch": _batch(surrogate, own)}
    if surrogate.rate is not None:
        # That of Muon goes with it.
        muon_rate = how.muon_rate * surrogate.rate / how.rate
        changes |= {"rate": surrogate.rate, "muon_rate": muon_rate}
    if surrogate.epochs is not None:
        changes |= {"epochs": surrogate.epochs}
    settings = replace(settings, optimisation=replace(how, **changes))
    if own.axes and own.subset is None and hasattr(settings.network, "reach"):
        # On a grid, features of neighbouring points; in the width of its own spacing.
        reach = tuple(1 / max(length - 1, 1) for length in own.axes)
        settings = _with_size(settings, {"reach": reach})
    if own.subset and own.subset_by == "farthest" and own.weights == "none":
        # Points far from each other have another density than those of the mesh that is asked for.
        settings = _with_size(settings, {"surroundings": None})
    return _with_size(settings, dict(surrogate.network or {}))


def _with_size(settings: RunSettings, size: dict[str, Any]) -> RunSettings:
    """The settings with another size of the network, as far as it has such settings."""
    known = {name: value for name, value in size.items() if hasattr(settings.network, name)}
    result: RunSettings = changed(settings, {"network": known})
    return result


def _batch(surrogate: "Surrogate", own: OwnData) -> int:
    """Few cases want small batches: many steps of few cases learn more than few steps of many."""
    if surrogate.batch is not None:
        return surrogate.batch
    if own.train < 50 or (own.points or 0) > 20_000:
        return 2
    return 4 if own.train < 1000 else 8


def seconds_per_epoch(settings: RunSettings, splits: Splits) -> float:
    """CPU time per thread of one epoch with its validation, from a few measured steps."""
    task = Own(settings, splits)
    network = build_network(task)
    optimisers = build_optimisers(network, settings.optimisation)
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["lr"] = 0.0  # what is measured is not trained: full rates at once could diverge
    random = torch.Generator().manual_seed(0)
    count = min(settings.optimisation.batch, len(splits.train))
    batch = collate([task.augmented(splits.train[i], random) for i in range(count)])
    batch = batch.to("cpu", torch.float64 if settings.precision == "64-true" else torch.float32)

    def step() -> None:
        task.loss(task.predict(network, batch), batch).mean().backward()
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad()

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        network.train()
        each = budgets.cpu_seconds_of(step) / count
        few = collate([splits.validation[0]]).to("cpu", batch.positions.dtype)
        network.eval()
        with torch.no_grad():
            checked = budgets.cpu_seconds_of(lambda: task.predict(network, few), repeats=1)
    return each * len(splits.train) * task.visits + checked * len(splits.validation)


def extrapolated(curve: Mapping[str, float]) -> str:
    """What twice the cases would give, by a power law through the last two errors of the curve.

    >>> extrapolated({"20": 0.4, "40": 0.2}).split("; ")[1]
    'twice the cases would give about 10 %.'
    """
    points = sorted((int(count), error) for count, error in curve.items())
    shown = ", ".join(
        f"with {count} {100 * error:.3g} %"
        if place
        else f"With {count} cases the validation error was {100 * error:.3g} %"
        for place, (count, error) in enumerate(points)
    )
    if len(points) < 2 or not all(0 < error < math.inf for _, error in points):
        return f"{shown}."
    (n, before), (m, last) = points[-2:]
    slope = (math.log(last) - math.log(before)) / math.log(m / n)
    if slope >= 0:
        return f"{shown}; more cases did not help."
    return f"{shown}; twice the cases would give about {100 * last * 2**slope:.2g} %."
