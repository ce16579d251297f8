"""A training step of the bundled tasks: this code beside an older one, in turns.

    python benchmarks/training_steps.py 4290ec5
    python benchmarks/training_steps.py 9254708 funcattn      (it had no other of these networks)

Each task with its settings of the profile `cpu`, our network and the paper's, on random fields of
the task's sizes: forward, loss, backward, clipping and optimisers, in CPU time with one thread, the
lower quartile of the steps of a process; processes of both codes take turns. Networks have the
settings of their own code: their parameters are recorded too. Writes results/training_steps.json,
one record for each older commit.
"""

import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from funcattn.tasks import TASKS
from funcattn.training.optimisation import build_optimisers

NAMES = ("burgers", "darcy", "navier_stokes", "elasticity", "plasticity", "airfoil", "pipe")
NETWORKS = ("functional_operator", "funcattn")
PROCESSES, STEPS, WARM = 5, 8, 3
RESULT = Path("results/training_steps.json")
COMMITS = ("4290ec5", "9254708")
"""The last without C, and the one before."""


def made(name: str, model: str) -> tuple[Any, Any]:
    """A task and its network, whatever an older code calls them."""
    try:
        from funcattn.training.settings import default_settings
        from funcattn.training.setup import build_network
    except ImportError:
        from funcattn.training.setup import build_surrogate as build_network

        task = TASKS[name](TASKS[name].defaults("cpu", "modern"))
    else:
        task = TASKS[name](default_settings(name, "cpu", "modern", model))
    return task, build_network(task)


def stepper(name: str, model: str) -> tuple[Callable[[], None], int]:
    """A training step of a task's network, to be called again and again, and its parameters."""
    torch.manual_seed(0)
    task, network = made(name, model)
    settings = task.settings.optimisation
    fields = getattr(task, "problem", task)
    inputs = getattr(fields, "input_channels", fields.inputs)
    outputs = getattr(fields, "output_channels", fields.outputs)
    points = task.points or math.prod(task.grid or (200,))
    batch = min(settings.batch, 4)
    positions = torch.rand(batch, points, fields.space)
    values = torch.rand(batch, points, inputs) if inputs else None
    target = torch.rand(batch, points, outputs)
    is_timed = fields.time if hasattr(fields, "time") else fields.timed
    more = {"time": torch.zeros(batch)} if is_timed else {}
    optimisers = build_optimisers(network, settings)

    def step() -> None:
        out = network(positions, values, grid=task.grid, **more)
        (out - target).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad()

    return step, sum(p.numel() for p in network.parameters())


def milliseconds(name: str, model: str) -> tuple[float, int]:
    """Of a step, in this process, and the parameters."""
    torch.set_num_threads(1)
    (step, parameters), took = stepper(name, model), []
    for _ in range(WARM + STEPS):
        start = time.process_time()
        step()
        took.append(1e3 * (time.process_time() - start))
    return round(statistics.quantiles(took[WARM:], n=4)[0], 2), parameters


def in_a_process(source: Path, name: str, model: str) -> tuple[float, int]:
    """The same in a fresh process, with the code of a folder."""
    done = subprocess.run(
        [sys.executable, __file__, "--one", name, model],
        env={**os.environ, "PYTHONPATH": str(source)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    took, parameters = json.loads(done.stdout.splitlines()[-1])
    return took, parameters


def main() -> None:
    """Compare and write; with --one, a task and a network, only measure that here."""
    if sys.argv[1] == "--one":
        print(json.dumps(milliseconds(*sys.argv[2:])))
        return
    from funcattn.files import write_text
    from funcattn.provenance import facts

    older, project = sys.argv[1], Path(__file__).parents[1]
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", older, "src"], cwd=project, check=True, capture_output=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        sources = {"older": Path(folder) / "src", "now": project / "src"}
        for model in sys.argv[2:] or NETWORKS:
            for name in NAMES:
                took: dict[str, list[float]] = {"older": [], "now": []}
                parameters = {}
                for _ in range(PROCESSES):
                    for which, source in sources.items():
                        spent, parameters[which] = in_a_process(source, name, model)
                        took[which].append(spent)
                ratio = round(min(took["older"]) / min(took["now"]), 3)
                case = {"milliseconds": took, "parameters": parameters, "faster by": ratio}
                found[f"{model}, {name}"] = case
                print(model, name, case, flush=True)
    kept = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    kept = {commit: record for commit, record in kept.items() if commit in COMMITS}
    command = shlex.join(["python", *sys.argv])
    kept[older] = {"steps": found, "command": command, "seed": 0, **facts()}
    write_text(RESULT, json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
