"""Products in bfloat16 (autocast) beside float32: how fast, and how exact after training.

    python benchmarks/half_precision.py speed
    python benchmarks/half_precision.py training

Writes results/half_precision_speed.json: CPU time of layers and of a network, forward and with
backward, in turns in one process, the least of many, with one thread. And
results/half_precision_training.json: test errors of short trainings of the paper's network on two
tasks with three seeds, all else equal.
"""

import json
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from funcattn.cli.terminal import CACHE
from funcattn.data import Store
from funcattn.files import write_text
from funcattn.models import OperatorTransformer
from funcattn.nn import FunctionalAttention
from funcattn.nn.linear import with_fast_products
from funcattn.provenance import facts
from funcattn.settings import changed
from funcattn.training.run import train
from funcattn.training.settings import default_settings

ROUNDS = 6
LAYERS = ((8, 1, 512), (8, 8, 972), (8, 1, 16384), (1, 1, 16384))
"""Heads, samples, points; width 128, 64 bases."""
TASKS: dict[str, dict[str, Any]] = {
    "elasticity": {
        "data": {"train": 100, "validation": 20, "test": 50},
        "optimisation": {"epochs": 4},
    },
    "pipe": {
        "data": {"train": 60, "validation": 20, "test": 50},
        "optimisation": {"epochs": 4},
    },
}
SEEDS = (0, 1, 2)


def least(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """CPU milliseconds of each, in turns, the least."""
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.process_time()
            call()
            found[name] = min(found[name], 1e3 * (time.process_time() - start))
    return {name: float(f"{value:.4g}") for name, value in found.items()}


def forms(make: Callable[[str], nn.Module]) -> dict[str, tuple[nn.Module, bool]]:
    """The layer or network in float32, under autocast, and under autocast in its plain form."""
    chosen, plain = make("auto"), make("plain")
    return {
        "float32": (chosen, False),
        "bfloat16": (chosen, True),
        "bfloat16, plain form": (plain, True),
    }


def timed(make: Callable[[str], nn.Module], *given: torch.Tensor) -> dict[str, dict[str, float]]:
    """Forward, and forward and backward."""

    def forward(module: nn.Module, half: bool) -> None:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=half):
            module(*given)

    def both(module: nn.Module, half: bool) -> None:
        module.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            out = module(*given)
        out.float().square().mean().backward()

    return {
        name: least(
            {form: lambda how=how, call=call: call(*how) for form, how in forms(make).items()}
        )
        for name, call in (("forward", forward), ("forward + backward", both))
    }


def speed() -> dict[str, Any]:
    """Of layers and of a network."""
    found = {}
    for heads, samples, points in LAYERS:

        def layer(execution: str, heads: int = heads) -> nn.Module:
            torch.manual_seed(0)
            return FunctionalAttention(128, heads, 64, execution=execution)

        x = torch.randn(samples, points, 128, requires_grad=True)
        found[f"layer, {heads} heads, {samples} times {points:,} points"] = timed(layer, x)

    def network(execution: str) -> nn.Module:
        torch.manual_seed(0)

        def attention(width: int) -> nn.Module:
            return FunctionalAttention(width, 8, 64, execution=execution)

        built = OperatorTransformer(2, 1, 1, width=128, layers=8, attention=attention)
        return with_fast_products(built)

    given = (torch.rand(4, 972, 2), torch.rand(4, 972, 1))
    found["network of 8 layers, 4 times 972 points"] = timed(network, *given)
    return found


def training() -> dict[str, Any]:
    """Test errors by task, precision and seed."""
    found: dict[str, Any] = {}
    for name, changes in TASKS.items():
        for seed in SEEDS:
            for precision in ("32-true", "bf16-mixed"):
                settings = changed(
                    default_settings(name, "cpu", "modern", "funcattn"),
                    {**changes, "seed": seed, "precision": precision},
                )
                with tempfile.TemporaryDirectory() as folder:
                    start = time.process_time()
                    record = train(settings, Path(folder) / "run", store=Store(CACHE)).record
                    took = time.process_time() - start
                entry = {"test": record["test"], "CPU seconds": round(took, 1)}
                found.setdefault(name, {}).setdefault(precision, {})[str(seed)] = entry
                print(name, seed, precision, entry, flush=True)
    return found


def main() -> None:
    """Measure, print and write."""
    torch.set_num_threads(1)
    made_by = facts()  # now, as files may change while it runs
    what = {"speed": speed, "training": training}[sys.argv[1]]
    found = what()
    record = {
        **({"CPU milliseconds": found} if what is speed else {"settings": TASKS, "errors": found}),
        "command": shlex.join(["python", *sys.argv]),
        **made_by,
    }
    write_text(
        Path(f"results/half_precision_{sys.argv[1]}.json"), json.dumps(record, indent=1) + "\n"
    )
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
