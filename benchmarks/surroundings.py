"""What the surroundings of points cost, and what another mesh does to a network that looks at them.

    python benchmarks/surroundings.py cost
    python benchmarks/surroundings.py step
    python benchmarks/surroundings.py meshes
    python benchmarks/surroundings.py random

cost: CPU seconds of our network at a million points, from memory and streamed without a scratch
folder, with surroundings over without, in turns, the least of two. step: the same of a step of
training on Elasticity. meshes: both are trained on Elasticity for so many steps and asked for
validation samples of which one half of the plate has lost two thirds of its points; relative L2
errors at the points that are left. random: a surrogate of Darcy flow, of which each case has
points of its own drawn at random, so that there is no geometry to look at; test errors with and
without, by seed. Writes results/surroundings.json. Two minutes of one core at most; random twelve.
"""

import json
import math
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from funcattn.cli.terminal import CACHE
from funcattn.data import Store
from funcattn.documents import read_json
from funcattn.files import write_text
from funcattn.models.functional_operator import FunctionalOperator
from funcattn.models.streaming import predict_streamed
from funcattn.provenance import facts
from funcattn.settings import changed
from funcattn.surrogate import Surrogate
from funcattn.tasks import TASKS
from funcattn.tasks.own import rows_of_sample
from funcattn.training.entrant import Entrant, Start
from funcattn.training.lap import Lap
from funcattn.training.settings import default_settings

POINTS, STEPS, RATE, SEED = 10**6, 1200, 0.5, 0
CASES, EPOCHS = 600, 20
REACHES = {2: 1 / 32, 3: 1 / 16}
RESULT = Path("results/surroundings.json")


def compared(with_it: Callable[[], float], without: Callable[[], float]) -> dict[str, float]:
    """CPU seconds that both say, the least of two."""
    least = [math.inf, math.inf]
    for _ in range(2):
        for place, seconds in enumerate((with_it, without)):
            least[place] = min(least[place], seconds())
    return {
        "with": round(least[0], 4),
        "without": round(least[1], 4),
        "ratio": round(least[0] / least[1], 3),
    }


def seconds(work: Callable[..., object], *arguments: object) -> float:
    """CPU time of a call."""
    began = time.process_time()
    work(*arguments)
    return time.process_time() - began


def median_step(surroundings: float | None) -> float:
    """CPU time of a step of training, the median of twenty."""
    return statistics.median(lap(surroundings, 25).run(watch=False).spent[5:])


def lap(surroundings: float | None, steps: int) -> Lap:
    """A training on Elasticity, not run yet."""
    entrant = Entrant("functional_operator", {"surroundings": surroundings})
    return Start("elasticity", entrant, "shared", "cpu", CACHE).lap(
        steps=steps, factor=RATE, seed=SEED
    )


def step() -> dict[str, Any]:
    """In training."""
    return compared(partial(median_step, REACHES[2]), partial(median_step, None))


def cost() -> dict[str, Any]:
    """At a million points."""
    found: dict[str, Any] = {"points": POINTS}
    rng, out = np.random.default_rng(SEED), np.empty((POINTS, 1), np.float32)
    for dims, reach in REACHES.items():
        positions = rng.random((POINTS, dims), dtype=np.float32)
        batch = torch.from_numpy(positions)[None]
        both = [FunctionalOperator(dims, 0, 1, surroundings=s).eval() for s in (reach, None)]

        def forward(network: nn.Module, batch: Tensor = batch) -> None:
            with torch.no_grad():
                network(batch)

        def streamed(network: FunctionalOperator, positions: Any = positions) -> None:
            predict_streamed(network, positions, out=out)

        for name, call in (("forward", forward), ("streamed", streamed)):
            found[f"{name}, {dims} dimensions"] = compared(
                *(partial(seconds, call, network) for network in both)
            )
            print(name, dims, found[f"{name}, {dims} dimensions"], flush=True)
    return found


def meshes() -> dict[str, Any]:
    """Errors on whole validation samples, and on thinned ones."""
    found: dict[str, Any] = {"steps": STEPS}
    for name, reach in (("with", REACHES[2]), ("without", None)):
        trained = lap(reach, STEPS).run(watch=False)
        averaged = trained.chosen()[1]
        model = (trained.averaged if averaged else trained.model).eval()
        rng = torch.Generator().manual_seed(SEED)
        errors = []
        for sample in trained.splits.validation:
            x = sample.positions
            left = (x[:, 0] < 0.5) | (torch.rand(len(x), generator=rng) < 1 / 3)
            with torch.no_grad():
                whole, thinned = model(x[None])[0][left], model(x[None, left])[0]
            true = sample.target[left]
            errors.append([float((each - true).norm() / true.norm()) for each in (whole, thinned)])
        means = [round(statistics.fmean(each), 5) for each in zip(*errors, strict=True)]
        found[name] = dict(zip(("whole", "thinned"), means, strict=True))
        print(name, found[name], flush=True)
    return found


def random() -> dict[str, Any]:
    """Test errors where the points of a case are drawn at random from a grid of 43 x 43."""
    grid = changed(default_settings("darcy", "cpu", "modern"), {"data": {"use_every": 5}})
    samples = TASKS["darcy"](grid).splits(Store(CACHE)).train
    found: dict[str, Any] = {"cases": CASES, "epochs": EPOCHS}
    for points in (300, 1000):
        rng = np.random.default_rng(SEED)
        chosen = [
            rows_of_sample(
                sample, torch.from_numpy(rng.permutation(len(sample.positions))[:points])
            )
            for sample in (samples[i] for i in range(CASES))
        ]
        for name, reach in (("with", REACHES[2]), ("without", None)):
            errors = []
            for seed in (0, 1):
                network = {"width": 64, "layers": 3, "surroundings": reach}
                surrogate = Surrogate(epochs=EPOCHS, seed=seed, network=network, yardsticks=False)
                surrogate.fit(
                    [sample.values.numpy() for sample in chosen if sample.values is not None],
                    [sample.target.numpy() for sample in chosen],
                    positions=[sample.positions.numpy() for sample in chosen],
                )
                errors.append(round(surrogate.run.record["test"]["error"], 5))
            found[f"{points} points, {name}"] = errors
            print(points, name, errors, flush=True)
    return found


def main() -> None:
    """Measure one of them, and write it beside what there is."""
    torch.set_num_threads(1)
    parts: Mapping[str, Callable[[], dict[str, Any]]] = {
        "cost": cost,
        "step": step,
        "meshes": meshes,
        "random": random,
    }
    (name,) = sys.argv[1:]
    found = {**parts[name](), "command": shlex.join(["python", *sys.argv]), "seed": SEED}
    before = read_json(RESULT) if RESULT.exists() else {}
    write_text(RESULT, json.dumps({**before, name: {**found, **facts()}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
