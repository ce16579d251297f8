"""Layers at few points: chunks in C beside the plain form, by the size of the layer.

    python benchmarks/few_points.py

Writes results/few_points.json: CPU milliseconds of a call, the least of some rounds, one thread, in
turns in one process. Which of both a layer takes by itself is decided by these (`execution.py`).
"""

import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from funcattn.files import write_text
from funcattn.nn import FunctionalAttention
from funcattn.provenance import facts

SHAPES = ((128, 64, 8), (64, 32, 4), (32, 16, 4), (128, 64, 1), (256, 32, 8))
"""Width, bases, heads. In the last two maps are folded."""
MESHES = ((64, 1), (121, 4), (256, 1), (484, 4))
"""Points and samples."""
CALLS, ROUNDS = 5, 5


def seconds(call: Callable[[], object]) -> float:
    """Of one of several calls."""
    start = time.process_time()
    for _ in range(CALLS):
        call()
    return (time.process_time() - start) / CALLS


def compared(width: int, bases: int, heads: int, points: int, samples: int) -> dict[str, object]:
    """Both forms, forward, and forward and backward."""
    x = torch.randn(samples, points, width, requires_grad=True)
    layers = {
        form: FunctionalAttention(width, heads, bases, execution=form)
        for form in ("plain", "stored")
    }
    kinds: dict[str, Callable[[FunctionalAttention], object]] = {
        "forward": torch.no_grad()(lambda layer: layer(x)),
        "forward + backward": lambda layer: layer(x).sum().backward(),
    }
    found: dict[str, object] = {}
    for kind, call in kinds.items():
        best: dict[str, float] = {}
        for _ in range(ROUNDS):
            for form, layer in layers.items():
                took = seconds(lambda call=call, layer=layer: call(layer))  # type: ignore[misc]
                best[form] = min(best.get(form, took), took)
        ratio = round(best["plain"] / best["stored"], 2)
        found[kind] = {
            "milliseconds": {form: round(1e3 * took, 3) for form, took in best.items()},
            "chunks are faster by": ratio,
        }
    return found


def main() -> None:
    """Compare all, print and write."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = {}
    for shape in SHAPES:
        for mesh in MESHES:
            name = "width {}, {} bases, {} heads, {} points, {} samples".format(*shape, *mesh)
            found[name] = compared(*shape, *mesh)
            print(name, json.dumps(found[name]), flush=True)
    record = {"layers": found, "command": shlex.join(["python", *sys.argv]), "seed": 0, **facts()}
    write_text(Path("results/few_points.json"), json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
