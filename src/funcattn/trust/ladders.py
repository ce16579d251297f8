"""The solvers on coarser and coarser meshes: what the accuracy of a surrogate costs without it.

A rung changes parameters of a solver; the random draws stay, so that it solves the same sample.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from funcattn.arrays import Array
from funcattn.data import Sample, collate
from funcattn.pde.errors import NotConvergedError
from funcattn.tasks.solved import Solved
from funcattn.trust.subject import Subject

LADDERS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "burgers": [{"points": n} for n in (16, 24, 32, 48, 64, 128, 256, 512)],
    "darcy": [{"nodes": n, "keep": 1} for n in (8, 12, 15, 22, 29, 43, 64, 106, 211)],
    "darcy_notch": [{"spacing": h} for h in (0.1, 0.05, 0.03, 0.02, 0.01)],
    "navier_stokes": [{"points": n, "keep": n} for n in (16, 24, 32, 48, 64, 128)],
    "elasticity": [
        {"around": a, "radial": r} for a, r in ((12, 1), (18, 1), (18, 2), (24, 2), (36, 3))
    ],
    "plasticity": [{"columns": c, "rows": r} for c, r in ((11, 4), (21, 7), (51, 16), (101, 31))],
    "airfoil": [
        {"wake_cells": 5 * n, "surface_cells": 12 * n, "normal_cells": 5 * n, "stride": 1}
        for n in (2, 4, 6, 10)
    ],
    "pipe": [{"nodes": n, "stride": 1} for n in (5, 9, 13, 17, 33, 65, 129)],
}
"""By task, from coarse to fine: changes of the parameters of its recipe."""
CHARGED = {"navier_stokes": 0.5}
"""The share of a solve that counts: of twenty units of time, a surrogate predicts the last ten."""


@dataclass(frozen=True)
class Rung:
    """A solver on one mesh."""

    changes: Mapping[str, Any]
    error: float
    """Of the task, on average over the samples; interpolated to their points, linearly or by
    cubics, whichever is better on average."""
    seconds: float
    """CPU time of one sample."""

    def in_words(self) -> str:
        """Its parameters."""
        return ", ".join(f"{name} {value}" for name, value in self.changes.items())


def climb(subject: Subject, samples: Sequence[Sample], rows: Sequence[int]) -> Iterator[Rung]:
    """All rungs, from coarse to fine, on some samples and their places in the set of the run."""
    task = subject.task
    if task.name not in LADDERS or not isinstance(task, Solved):
        raise ValueError(
            f"breakeven: expected a task with a solver that can be made coarser, one of "
            f"{', '.join(LADDERS)}, got {task.name}"
        )
    recipe = task.recipe()
    for changes in LADDERS[task.name]:
        errors: dict[str, list[float]] = {}
        spent: list[float] = []
        for sample, row in zip(samples, rows, strict=True):
            parameters = {**recipe.parameters, **changes}
            try:
                if not spent:  # what is compiled or factorised once is not charged
                    recipe.make(**parameters, rng=_rng(task.data.seed, row))
                start = time.process_time()
                fields = recipe.make(**parameters, rng=_rng(task.data.seed, row))
                spent.append(time.process_time() - start)
            except (NotConvergedError, ValueError):
                continue  # too coarse to be solved
            stacked = {n: np.asarray(fields[n], np.float64)[None] for n in task.arrays}
            coarse = task.samples(stacked)[0]
            for name, guess in _moved(coarse, sample, periodic=task.problem.periodic).items():
                batch = collate([sample])
                found = task.metrics(guess[None].float(), batch)[task.headline]
                errors.setdefault(name, []).append(float(found))
        if spent:
            error = min(float(np.mean(values)) for values in errors.values())
            charged = CHARGED.get(task.name, 1.0)
            yield Rung(changes, error, charged * float(np.mean(spent)))


def _rng(seed: int, row: int) -> np.random.Generator:
    """The draws of a sample of the store."""
    return np.random.default_rng([seed, row, 0])


def _moved(coarse: Sample, wanted: Sample, *, periodic: bool) -> dict[str, Tensor]:
    """The target of a coarse sample at the points of another one, by kind of interpolation."""
    values = coarse.target.double().numpy()
    if coarse.grid is None or wanted.grid is None:
        return {"linear": torch.from_numpy(_scattered(coarse, wanted, values))}
    grid = values.reshape(*coarse.grid, *values.shape[1:])
    shape = tuple(wanted.target.shape)
    if periodic:
        return {"fourier": torch.from_numpy(_resampled(grid, wanted.grid)).reshape(shape)}
    found: dict[str, Tensor] = {}
    kinds: tuple[tuple[Literal["linear", "cubic"], int], ...] = (("linear", 2), ("cubic", 4))
    for kind, least in kinds:
        if min(coarse.grid) >= least:
            found[kind] = torch.from_numpy(_interpolated(grid, wanted.grid, kind)).reshape(shape)
    return found


def _resampled(values: Array, grid: tuple[int, ...]) -> Array:
    from scipy import signal

    for axis, count in enumerate(grid):
        # On a grid in which both are nested, so that nothing of a finer field is lost.
        common = math.lcm(count, values.shape[axis])
        if common != values.shape[axis]:
            values = signal.resample(values, common, axis=axis)
        values = values.take(np.arange(0, common, common // count), axis=axis)
    return values


def _interpolated(values: Array, grid: tuple[int, ...], kind: Literal["linear", "cubic"]) -> Array:
    from scipy.interpolate import RegularGridInterpolator

    axes = [np.linspace(0, 1, n) for n in values.shape[: len(grid)]]
    places = np.meshgrid(*(np.linspace(0, 1, n) for n in grid), indexing="ij")
    found: Array = RegularGridInterpolator(axes, values, method=kind)(np.stack(places, axis=-1))
    return found


def _scattered(coarse: Sample, wanted: Sample, values: Array) -> Array:
    """Linear in triangles, and the nearest value outside of them."""
    from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator

    points, at = coarse.positions.double().numpy(), wanted.positions.double().numpy()
    found: Array = LinearNDInterpolator(points, values)(at)
    nearest: Array = NearestNDInterpolator(points, values)(at)
    return np.where(np.isnan(found), nearest, found)
