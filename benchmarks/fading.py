"""Airfoil with waves of the positions that fade, and with waves that do not: short trainings.

    python benchmarks/fading.py --steps 2000 --seeds 0 1

Adds to results/fading.jsonl the errors on validation data, on the grid of training and on one of
twice the resolution.
"""

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from finer_grids import error, every_second, solved
from torch import Tensor

from funcattn.cli.terminal import CACHE
from funcattn.data import Sample, Store, collate
from funcattn.files import write_text
from funcattn.provenance import facts
from funcattn.tasks import TASKS, Task
from funcattn.training.lap import Lap
from funcattn.training.recipe import network_of
from funcattn.training.settings import default_settings

FILE = Path("results/fading.jsonl")
SAMPLES = 5
"""Of validation, on the finer grid."""


def main() -> None:
    """Train with each, for each seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    finer = solved(_task(fade=False, seed=0), "validation", SAMPLES)
    for seed in given.seeds:
        for fade in (False, True):
            line: dict[str, Any] = {"task": "airfoil", "fade": fade, "seed": seed}
            line |= {"steps": given.steps, **trained(fade, given.steps, seed, finer)}
            line |= {"command": shlex.join(["python", *sys.argv]), **facts()}
            old = FILE.read_text() if FILE.exists() else ""
            write_text(FILE, f"{old}{json.dumps(line)}\n")
            print(json.dumps(line), flush=True)


def _task(*, fade: bool, seed: int) -> Task:
    settings = default_settings("airfoil", "cpu", "modern", "functional_operator")
    network: Any = settings.network
    return TASKS["airfoil"](replace(settings, seed=seed, network=replace(network, fade=fade)))


def trained(fade: bool, steps: int, seed: int, finer: Sequence[Sample]) -> dict[str, float]:
    """The errors of one training."""
    task = _task(fade=fade, seed=seed)
    splits = task.splits(Store(CACHE))
    lap = Lap(task, splits, network_of(task, "task"), steps=steps, seed=seed).run(watch=False)
    validation, averaged = lap.chosen()
    model = lap.averaged if averaged else lap.model
    found = {"validation": validation, "cpu_seconds": round(lap.seconds, 1)}

    @torch.no_grad()
    def ask(sample: Sample) -> Tensor:
        return task.predict(model, collate([sample]))[0]

    names = ("on its grid", "finer, points of training", "finer, all points")
    lines = []
    for old, new in zip(splits.validation, finer, strict=False):
        assert new.grid is not None
        there, here = ask(old), ask(new)
        at_old = error(every_second(here, new.grid), old.target)
        lines.append((error(there, old.target), at_old, error(here, new.target)))
    return found | {
        name: statistics.fmean(each)
        for name, each in zip(names, zip(*lines, strict=True), strict=True)
    }


if __name__ == "__main__":
    main()
