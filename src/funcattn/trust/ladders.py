"""The solvers on coarser meshes and to looser tolerances: what accuracy costs without a surrogate.

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
from funcattn.pde import airfrans, panel
from funcattn.pde.errors import NotConvergedError
from funcattn.tasks.airfrans import VISCOSITY, Airfrans
from funcattn.tasks.solved import Generated
from funcattn.trust.subject import Subject

LADDERS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "burgers": [{"points": n} for n in (16, 24, 32, 48, 64, 128, 256, 512)],
    "darcy": [{"nodes": n, "keep": 1} for n in (8, 12, 15, 22, 29, 43, 64, 106, 211)],
    "darcy_notch": [{"spacing": h} for h in (0.05, 0.04, 0.03, 0.02, 0.01)],
    "navier_stokes": [
        *({"points": n, "keep": n, "step": 0.2} for n in (16, 24, 32, 48, 64, 128)),
        {"points": 128, "keep": 128},
    ],
    # Tolerance 0.01 is one step of Newton's method: linear elasticity.
    "elasticity": [
        *(
            {"around": a, "radial": r, "tolerance": 0.01}
            for a, r in ((12, 1), (16, 1), (24, 1), (24, 2), (36, 2), (36, 3))
        ),
        {"around": 36, "radial": 3},
    ],
    "plasticity": [{"columns": 10 * n + 1, "rows": 3 * n + 1} for n in (1, 2, 3, 4, 5, 10)],
    "airfoil": [
        *(
            {
                "wake_cells": 5 * n,
                "surface_cells": 12 * n,
                "normal_cells": 5 * n,
                "stride": 1,
                "tolerance": 1e-3,
            }
            for n in (2, 4, 6, 8, 10)
        ),
        {"wake_cells": 50, "surface_cells": 120, "normal_cells": 50, "stride": 1},
    ],
    "pipe": [
        *(
            {"nodes": n, "stride": 1, "tolerance": tolerance}
            for n in (5, 9, 13, 17, 25, 33, 49, 65, 129)
            for tolerance in (0.5, 0.1)
        ),
        {"nodes": 129, "stride": 1},
    ],
    "airfrans": [{"panels": n} for n in (20, 30, 40, 60, 80, 100, 120, 160, 200)],
}
"""By task, from coarse to fine: changes of the parameters of its recipe."""
EXACT = 3e-5
"""Nothing finer is asked for once the error is below this: it is the mesh of the data."""
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
        """Its parameters, without how many of its points are kept."""
        said = {n: v for n, v in self.changes.items() if n not in ("keep", "stride")}
        return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in said.items())


def climb(subject: Subject, samples: Sequence[Sample], rows: Sequence[int]) -> Iterator[Rung]:
    """All rungs, from coarse to fine, on some samples and their places in the set of the run."""
    task = subject.task
    if task.name not in LADDERS or not isinstance(task, Generated):
        raise ValueError(
            f"breakeven: expected a task with a solver that can be made coarser, one of "
            f"{', '.join(LADDERS)}, got {task.name}"
        )
    if isinstance(task, Airfrans) and task.data.source != "panel":
        raise ValueError("breakeven: expected AirfRANS cases by panels, got some by OpenFOAM")
    solved = _by_panels if isinstance(task, Airfrans) else _by_recipe
    made = subject.store.made(task.recipe(), task.data.seed, task.count)
    charged = CHARGED.get(task.name, 1.0)
    for changes in LADDERS[task.name]:
        errors: dict[str, list[float]] = {}
        spent: list[float] = []
        for sample, row in zip(samples, rows, strict=True):
            seeds = [task.data.seed, row, made.attempts(row) - 1]
            try:
                if not spent:  # what is compiled or factorised once is not charged
                    solved(task, changes, sample, np.random.default_rng(seeds))
                guesses, seconds = solved(task, changes, sample, np.random.default_rng(seeds))
            except (NotConvergedError, ValueError):
                continue  # too coarse to be solved
            spent.append(seconds)
            for name, guess in guesses.items():
                found = task.metrics(guess[None].float(), collate([sample]))[task.headline]
                errors.setdefault(name, []).append(float(found))
        if len(spent) == len(samples):
            error = min(float(np.mean(values)) for values in errors.values())
            yield Rung(changes, error, charged * float(np.mean(spent)))
            if error < EXACT:
                return


def _by_recipe(
    task: Any, changes: Mapping[str, Any], wanted: Sample, rng: np.random.Generator
) -> tuple[dict[str, Tensor], float]:
    """The target of a sample by a coarser solve, by kind of interpolation, and its CPU time."""
    recipe = task.recipe()
    start = time.process_time()
    fields = recipe.make(**{**recipe.parameters, **changes}, rng=rng)
    seconds = time.process_time() - start
    coarse = task.samples({n: np.asarray(fields[n], np.float64)[None] for n in task.arrays})[0]
    return _moved(coarse, wanted, periodic=task.problem.periodic), seconds


def _by_panels(
    task: Any,  # noqa: ARG001
    changes: Mapping[str, Any],
    wanted: Sample,
    rng: np.random.Generator,
) -> tuple[dict[str, Tensor], float]:
    """The flow past an airfoil of fewer panels at the points of a sample, and its CPU time.

    Panels have an exact field at any point in the fluid; on the surface, the speed is linear
    between their nodes.
    """
    assert wanted.surface is not None
    assert wanted.values is not None
    on = (wanted.surface > 0).numpy()
    places, normal = wanted.positions.double().numpy(), wanted.values[on, 5:7].double().numpy()
    design = airfrans.draw_design(rng)
    start = time.process_time()
    nodes = airfrans.outline(design, **changes)
    flow = panel.solve(nodes, airfrans.stream(design, VISCOSITY))
    finer = np.linspace(0, 1, len(normal) + 1)
    speed = np.interp(finer, np.linspace(0, 1, len(nodes)), flow.speed)
    velocity = np.empty_like(places)
    velocity[on] = np.stack([-normal[:, 1], normal[:, 0]], axis=-1)
    velocity[on] *= 0.5 * (speed[1:] + speed[:-1])[:, None]
    velocity[~on] = panel.velocity(flow, places[~on])
    pressure = panel.pressure(flow, velocity)
    seconds = time.process_time() - start
    found = np.column_stack([velocity, pressure, np.zeros(len(places))])
    return {"linear": torch.from_numpy(found)}, seconds


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
