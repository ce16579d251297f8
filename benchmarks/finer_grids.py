"""What bundled networks say on a grid of twice the resolution, beside what the solver says there.

    python benchmarks/finer_grids.py

The first test samples are solved again with all nodes of the finer grid stored, so that every
second point is one of the grid of training. Writes results/finer_grids.json: means of relative L2
errors of the network alone, of `predict`, which falls back on the grid of training where the
network fails, and of what that grid knows by linear interpolation.

Then what makes Airfoil fail: the network with some lines of the finer grid hidden from its
integrals, by means of the lines beside them. Two minutes.
"""

import json
import shlex
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from scipy.interpolate import CubicSpline
from torch import Tensor, nn

from funcattn.cli.terminal import CACHE
from funcattn.data import Sample, Store, collate
from funcattn.files import write_text
from funcattn.nn.operator import ModewiseMap
from funcattn.provenance import facts
from funcattn.serve.finer import raised_to
from funcattn.serve.predictor import Predictor, load

NAMES = ("darcy", "pipe", "airfoil")
SAMPLES = 10
RESULT = Path("results/finer_grids.json")


def solved(old: Any, part: Literal["validation", "test"], count: int) -> Sequence[Sample]:
    """The first samples of a part of a task, on the grid of twice the resolution."""
    data = old.data
    task = type(old)(replace(old.settings, data=replace(data, use_every=data.use_every // 2)))
    if task.recipe() == old.recipe():  # all of it is stored
        samples = getattr(task.splits(Store(CACHE)), part)
        return [samples[i] for i in range(count)]
    made = Store(CACHE).made(old.recipe(), data.seed, old.count)
    stacked: dict[str, list[Any]] = {name: [] for name in task.arrays}
    recipe = task.recipe()
    first = data.train + (data.validation if part == "test" else 0)
    for row in range(first, first + count):
        random = np.random.default_rng([data.seed, row, made.attempts(row) - 1])
        fields = recipe.make(**recipe.parameters, rng=random)
        for name, values in stacked.items():
            values.append(fields[name].astype(np.float32))
    samples = task.samples({name: np.stack(values) for name, values in stacked.items()})
    return [samples[i] for i in range(count)]


def every_second(field: Tensor, grid: tuple[int, ...]) -> Tensor:
    """What a field (n c) is at the points of training."""
    return field.unflatten(0, grid)[tuple(slice(None, None, 2) for _ in grid)].flatten(0, -2)


def splined(sample: Sample, old: Sample) -> Sample:
    """A sample with the positions of another one, by cubic splines between its points."""
    assert old.grid is not None
    field = old.positions.double().numpy().reshape(*old.grid, -1)
    for axis, length in enumerate(old.grid):
        at = np.linspace(0, length - 1, 2 * length - 1)
        field = CubicSpline(np.arange(length), field, axis=axis)(at)
    return replace(sample, positions=torch.as_tensor(field).float().flatten(0, -2))


@contextmanager
def hidden(network: nn.Module, lines: Sequence[tuple[int, int]]) -> Iterator[None]:
    """Hide lines (axis, place) from the integrals: there they see the mean of both neighbours."""

    def hook(module: nn.Module, given: Any) -> Any:  # noqa: ARG001
        x, points = given
        field = x.unflatten(1, points.grid).clone()
        for axis, place in lines:
            beside = (field.select(axis + 1, place - 1) + field.select(axis + 1, place + 1)) / 2
            field.select(axis + 1, place).copy_(beside)
        return field.flatten(1, -2), points

    parts = [module for module in network.modules() if isinstance(module, ModewiseMap)]
    handles = [part.register_forward_pre_hook(hook) for part in parts]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def compared(predictor: Predictor, old: Sample, new: Sample) -> dict[str, float]:
    """Errors on one sample, of the network and of what can be done with it."""
    task, network = predictor.task, predictor.surrogate
    coarse, fine = old.grid, new.grid
    assert coarse is not None
    assert fine is not None
    assert torch.allclose(every_second(new.target, fine), old.target, atol=1e-5)

    def ask(sample: Sample) -> Tensor:
        return task.predict(network, collate([sample]))[0]

    def raised(field: Tensor) -> Tensor:
        return raised_to(field[None], coarse, fine, periodic=task.problem.periodic)[0]

    there, here = ask(old), ask(new)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predicted = predictor.fields(collate([new]))[0]
    found = {
        "on its grid": error(there, old.target),
        "finer, network, points of training": error(every_second(here, fine), old.target),
        "finer, network, from itself on its grid": error(every_second(here, fine), there),
        "finer, network, all points": error(here, new.target),
        "finer, predict, all points": error(predicted, new.target),
        "training's prediction, linear, all points": error(raised(there), new.target),
        "training's truth, linear, all points": error(raised(old.target), new.target),
    }
    if task.name != "airfoil":
        return found
    outer = [(1, place) for place in range(41, 50, 2)]
    wake = [(0, place) for end in (1, 209) for place in range(end, end + 11, 2)]
    every = [(axis, place) for axis in (0, 1) for place in range(1, fine[axis], 2)]
    hides = {
        "the line next to the far field": [(1, 49)],
        "the five outermost new lines": outer,
        "these, and six at each end of the wake": outer + wake,
        "all new lines": every,
    }
    for words, lines in hides.items():
        with hidden(network, lines):
            said = every_second(ask(new), fine)
        found[f"integrals without {words}, points of training"] = error(said, old.target)
    by_splines = every_second(ask(splined(new, old)), fine)
    found["positions by splines, points of training"] = error(by_splines, old.target)
    off = (here - new.target).unflatten(0, fine)[..., 0].square().mean(0).sqrt()
    found["root mean square at the line next to the far field"] = float(off[49])
    found["largest root mean square of the other lines"] = float(
        torch.cat([off[:49], off[50:]]).max()
    )
    return found


def error(said: Tensor, true: Tensor) -> float:
    """Relative, in the L2 norm of the points."""
    return float((said - true).norm() / true.norm())


def mean(lines: Sequence[dict[str, float]], rounded: Callable[[float], float]) -> dict[str, float]:
    """Of each measure, over the samples."""
    return {name: rounded(statistics.fmean(line[name] for line in lines)) for name in lines[0]}


@torch.no_grad()
def main() -> None:
    """Measure and write."""
    torch.set_num_threads(1)
    found = {}
    for name in NAMES:
        predictor = load(name)
        test = predictor.task.splits(Store(CACHE)).test
        finer = solved(predictor.task, "test", SAMPLES)
        lines = [compared(predictor, test[i], finer[i]) for i in range(SAMPLES)]
        found[name] = mean(lines, lambda value: round(value, 5))
        assert predictor.run is not None
        usual = predictor.run.usual_error
        assert usual is not None
        apart = [line["finer, network, from itself on its grid"] / usual for line in lines]
        found[name]["the same over the usual error, least"] = round(min(apart), 2)
        found[name]["the same over the usual error, most"] = round(max(apart), 2)
        print(name, json.dumps(found[name], indent=1), flush=True)
    record = {"networks": found, "samples": SAMPLES, "command": shlex.join(["python", *sys.argv])}
    write_text(RESULT, json.dumps({**record, "seed": 0, **facts()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
