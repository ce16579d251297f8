"""A training step of the bundled tasks: this code beside an older one, in turns.

    git archive 4290ec5 src | tar -x -C /tmp/older
    python benchmarks/training_steps.py /tmp/older/src

Each task with its settings of the profile `cpu`, our network and the paper's, on random fields of
the task's sizes: forward, loss, backward, clipping and optimisers, in CPU time with one thread, the
lower quartile of the steps of a process; processes of both codes take turns. Writes
results/training_steps.json.
"""

import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from funcattn.files import write_text
from funcattn.provenance import facts
from funcattn.tasks import TASKS
from funcattn.training.optimisation import build_optimisers
from funcattn.training.settings import default_settings
from funcattn.training.setup import build_network

NAMES = ("burgers", "darcy", "navier_stokes", "elasticity", "plasticity", "airfoil", "pipe")
NETWORKS = ("functional_operator", "funcattn")
PROCESSES, STEPS, WARM = 2, 8, 3
RESULT = Path("results/training_steps.json")


def stepper(name: str, model: str) -> Callable[[], None]:
    """A training step of a task's network, to be called again and again."""
    torch.manual_seed(0)
    task = TASKS[name](default_settings(name, "cpu", "modern", model))
    network, settings, problem = build_network(task), task.settings.optimisation, task.problem
    points = task.points or math.prod(task.grid or (200,))
    batch = min(settings.batch, 4)
    positions = torch.rand(batch, points, problem.space)
    values = torch.rand(batch, points, problem.input_channels) if problem.inputs else None
    target = torch.rand(batch, points, problem.output_channels)
    more = {"time": torch.zeros(batch)} if problem.time else {}
    optimisers = build_optimisers(network, settings)

    def step() -> None:
        out = network(positions, values, grid=task.grid, **more)
        (out - target).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad()

    return step


def milliseconds(name: str, model: str) -> float:
    """Of a step, in this process."""
    torch.set_num_threads(1)
    step, took = stepper(name, model), []
    for _ in range(WARM + STEPS):
        start = time.process_time()
        step()
        took.append(1e3 * (time.process_time() - start))
    return statistics.quantiles(took[WARM:], n=4)[0]


def in_a_process(source: Path, name: str, model: str) -> float:
    """The same in a fresh process, with the code of a folder."""
    done = subprocess.run(
        [sys.executable, __file__, name, model],
        env={**os.environ, "PYTHONPATH": str(source)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return float(done.stdout.split()[-1])


def main() -> None:
    """Compare and write; with a task and a network, only measure that here."""
    if len(sys.argv) == 3:
        print(milliseconds(*sys.argv[1:]))
        return
    here, older = Path(__file__).parents[1] / "src", Path(sys.argv[1])
    found: dict[str, dict[str, object]] = {}
    for model in NETWORKS:
        for name in NAMES:
            took: dict[str, list[float]] = {"now": [], "older": []}
            for _ in range(PROCESSES):
                took["older"].append(round(in_a_process(older, name, model), 2))
                took["now"].append(round(in_a_process(here, name, model), 2))
            ratio = min(took["older"]) / min(took["now"])
            found[f"{model}, {name}"] = {"milliseconds": took, "faster by": round(ratio, 3)}
            print(model, name, found[f"{model}, {name}"], flush=True)
    record = {"steps": found, "command": shlex.join(["python", *sys.argv]), "seed": 0, **facts()}
    write_text(RESULT, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
