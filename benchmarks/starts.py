"""How a network's start decides what it learns: errors of short trainings from several starts.

    python benchmarks/starts.py elasticity transolver --steps 600
    python benchmarks/starts.py darcy mwt --steps 300 --starts own normal

A start is `own`, that of the network here, or one of those below. Adds the errors on validation
data to results/starts.jsonl.
"""

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from funcattn.data import Store
from funcattn.files import write_text
from funcattn.nn import LearnedBasis
from funcattn.provenance import facts
from funcattn.tasks import TASKS
from funcattn.training.lap import Lap
from funcattn.training.recipe import network_of
from funcattn.training.settings import default_settings

FILE = Path("results/starts.jsonl")


def slices_anew(network: nn.Module) -> None:
    """Maps to slices as Transolver's public code leaves them: normal, of deviation 0.02."""
    for module in network.modules():
        if isinstance(module, LearnedBasis):
            nn.init.trunc_normal_(module.scores.weight, std=0.02)


def as_pytorch(network: nn.Module) -> None:
    """Linear maps and convolutions as PyTorch starts them."""
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.modules.conv._ConvNd):
            module.reset_parameters()


def normal(network: nn.Module) -> None:
    """Matrices of Fourier modes normal, of deviation c^-1/2, as in our `fno`; biases too."""
    for module in network.modules():
        for name in getattr(module, "stacks", {}):
            parts = module.get_parameter(name)
            deviation = math.sqrt(2 / (parts.shape[0] + parts.shape[1]))
            drawn = torch.randn(parts.shape[:-1], dtype=torch.complex64)
            parts.data.copy_(torch.view_as_real(deviation * drawn))


STARTS: dict[str, Callable[[nn.Module], None]] = {
    "own": lambda network: None,  # noqa: ARG005
    "slices_anew": slices_anew,
    "as_pytorch": as_pytorch,
    "normal": normal,
}


def main() -> None:
    """Train from each start, for each seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task")
    parser.add_argument("model")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--starts", nargs="+", choices=STARTS, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--cache", type=Path, default=Path("data"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    for seed in given.seeds:
        for start in given.starts:
            lap = trained(given, start, seed)
            line = {"task": given.task, "model": given.model, "start": start, "seed": seed}
            line |= {"steps": given.steps, "validation": lap.chosen()[0]}
            line |= {"cpu_seconds": round(lap.seconds, 1), "command": command(given), **facts()}
            old = FILE.read_text() if FILE.exists() else ""
            write_text(FILE, f"{old}{json.dumps(line)}\n")
            print(*(line[name] for name in list(line)[:7]), flush=True)


def trained(given: argparse.Namespace, start: str, seed: int) -> Lap:
    """One training, by the settings of the tier of two cores."""
    settings = replace(default_settings(given.task, "cpu", "modern", given.model), seed=seed)
    task = TASKS[given.task](settings)
    model = network_of(task, "task")
    torch.manual_seed(seed)
    STARTS[start](model)
    splits = task.splits(Store(given.cache))
    return Lap(task, splits, model, steps=given.steps, seed=seed).run(watch=False)


def command(given: argparse.Namespace) -> str:
    """What was called, without the folder of the data."""
    return (
        f"python benchmarks/starts.py {given.task} {given.model} --steps {given.steps} "
        f"--starts {' '.join(given.starts)} --seeds {' '.join(map(str, given.seeds))}"
    )


if __name__ == "__main__":
    main()
