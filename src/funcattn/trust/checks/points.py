"""Checks with other points: grids, subsets, orders, refined patches."""

import math
from dataclasses import replace
from typing import Any

import torch

from funcattn.tasks.own import rows_of_sample
from funcattn.trust.checks.check import (
    THRESHOLDS,
    Examined,
    Found,
    NotApplicableError,
    apart,
    check,
)
from funcattn.trust.subject import Subject

_GRIDS = {"half": 2.0, "2 x": 0.5, "4 x": 0.25}
"""Other resolutions, by what they do to the stride."""


@check(
    "Other resolutions",
    "Fresh samples of the solver on half, twice and four times as many points per axis. The error "
    "may grow by "
    + ", ".join(f"{THRESHOLDS[f'resolution, {name}']:g} ({name})" for name in _GRIDS)
    + ".",
)
def resolution(examined: Examined) -> Found:
    """The error on coarser and finer grids of the same equation."""
    subject = examined.subject
    choices = _resolutions(subject)
    if not choices:
        raise NotApplicableError("the data has one resolution only")
    rows, errors, counts, passes = [], {}, [], True
    for name, changes in choices.items():
        samples = subject.fresh(max(len(examined.samples) // 2, 2), **changes)
        errors[name] = float(subject.errors(samples).mean())
        base = errors["as trained"]
        growth = errors[name] / base if base else math.inf
        passes = passes and growth <= THRESHOLDS.get(f"resolution, {name}", math.inf)
        counts.append(float(len(samples[0].positions)))
        rows.append((name, f"{counts[-1]:,.0f}", f"{errors[name]:.4g}", f"{growth:.2f}"))
    order = sorted(zip(counts, errors.values(), strict=True))
    return Found(
        passes,
        f"between {min(errors.values()):.3g} and {max(errors.values()):.3g}",
        ("grid", "points", "error", "over that as trained"),
        rows,
        {"error": ([p for p, _ in order], [e for _, e in order])},
        ("points", "error"),
        numbers=errors,
    )


def _resolutions(subject: Subject) -> dict[str, dict[str, Any]]:
    """Settings of the data by name, the one of training first."""
    data: Any = subject.task.data
    if not subject.has_solver or not hasattr(data, "use_every") or not hasattr(data, "nodes"):
        return {}
    found: dict[str, dict[str, Any]] = {}
    for name, factor in {"as trained": 1.0, **_GRIDS}.items():
        every = data.use_every * factor
        if every != int(every) or data.cells % int(every):
            continue
        found[name] = {"use_every": int(every)}
        if hasattr(data, "store_every"):
            found[name]["store_every"] = int(every)
    return found if len(found) > 1 else {}


@check(
    "Order and subsets of the points",
    "The points in another order must give the same fields, up to "
    f"{THRESHOLDS['order']:g} of their size; a random half of them must give nearly what all give "
    f"there, up to {THRESHOLDS['subset']:g}.",
)
def subsets(examined: Examined) -> Found:
    """Other orders of the points, and some of them only."""
    random = torch.Generator().manual_seed(0)
    orders: list[float] = []
    halves: list[float] = []
    for sample in examined.clouds():
        whole = examined.subject.predicted(sample)
        order = torch.randperm(len(whole), generator=random)
        for found, rows in ((orders, order), (halves, order[: len(order) // 2])):
            some = examined.subject.predicted(rows_of_sample(sample, rows))
            found.append(apart(some, whole[rows]))
    order_, half = max(orders), max(halves)
    return Found(
        order_ <= THRESHOLDS["order"] and half <= THRESHOLDS["subset"],
        f"at most {order_:.2g} and {half:.2g} apart",
        ("points", "largest difference", "allowed"),
        [
            ("another order", f"{order_:.2g}", f"{THRESHOLDS['order']:g}"),
            ("a random half", f"{half:.2g}", f"{THRESHOLDS['subset']:g}"),
        ],
        numbers={"order": order_, "half": half},
    )


@check(
    "A refined patch",
    "The points of a quarter of the domain are there four times. With quadrature weights, which "
    f"say so, the fields may change by {THRESHOLDS['patch']:g}; without them this shows how far a "
    "network leans on where the mesh is fine.",
)
def patches(examined: Examined) -> Found:
    """A part of the mesh refined, with and without weights."""
    found: dict[str, list[float]] = {"with weights": [], "without": []}
    for sample in examined.clouds():
        count = len(sample.positions)
        middle = (sample.positions.amin(0) + sample.positions.amax(0)) / 2
        patch = (sample.positions <= middle).all(1).nonzero().flatten()
        rows = torch.cat([torch.arange(count), *[patch] * 3])
        weights = torch.ones(count) if sample.weights is None else sample.weights
        shared = weights.clone()
        shared[patch] /= 4
        for name, coarse, fine in (
            ("with weights", weights, shared[rows]),
            ("without", None, None),
        ):
            plain = replace(sample, weights=coarse)
            refined = replace(rows_of_sample(plain, rows), weights=fine)
            try:
                new = examined.subject.predicted(refined)[:count]
                found[name].append(apart(new, examined.subject.predicted(plain)))
            except (ValueError, TypeError):
                continue
    if not found["with weights"]:
        raise NotApplicableError("the network takes no weights")
    worst = {name: max(values) for name, values in found.items() if values}
    return Found(
        worst["with weights"] <= THRESHOLDS["patch"],
        ", ".join(f"{value:.2g} {name}" for name, value in worst.items()),
        ("weights", "largest difference"),
        [(name, f"{value:.2g}") for name, value in worst.items()],
        numbers=worst,
    )
