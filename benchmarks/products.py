"""Products at the points, and steps of Muon: in C, and by PyTorch.

    python benchmarks/products.py
    python benchmarks/products.py --to results/products_intel.json   # on another kind of processor

Writes results/products.json: GFLOP/s of x W^T for some sizes, by C and by PyTorch in float32 and in
bfloat16, in turns, the best of many calls; and the CPU time of Newton-Schulz steps on a stack of
complex matrices as four mode-wise maps of a torus have it. One thread.
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from funcattn.files import write_text
from funcattn.ops.native import orthogonal, why_not
from funcattn.ops.native.products import multiplied
from funcattn.provenance import facts
from funcattn.training.muon import orthogonalised

SIZES = ((972, 128, 128), (3888, 128, 128), (972, 64, 128), (4096, 32, 32))
"""Points, inputs, outputs."""
ROUNDS = 200
RESULT = Path("results/products.json")


def best(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """CPU seconds of each, in turns, the least."""
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.process_time()
            call()
            found[name] = min(found[name], time.process_time() - start)
    return found


@torch.no_grad()
def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--to", type=Path, default=RESULT)
    to = parser.parse_args().to
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if (why := why_not()) is not None:
        sys.exit(f"expected a C compiler: {why}")
    rates = {}
    for points, inputs, outputs in SIZES:
        x, weight = torch.randn(points, inputs), torch.randn(outputs, inputs)
        half = x.bfloat16(), weight.bfloat16()
        calls = {
            "C": lambda x=x, w=weight: multiplied(x, w.T),
            "PyTorch, float32": lambda x=x, w=weight: torch.nn.functional.linear(x, w),
            "PyTorch, bfloat16": lambda both=half: torch.nn.functional.linear(*both),
        }
        count = 2e-9 * points * inputs * outputs
        took = best(calls, ROUNDS)
        rates[f"{points} x {inputs} x {outputs}"] = {n: round(count / t) for n, t in took.items()}
    stack = torch.randn(800, 32, 32, dtype=torch.complex64)
    muon = best(
        {
            "C": lambda: orthogonal.orthogonalise(stack.clone(), 5, (3.4445, -4.775, 2.0315), 1e-7),
            "PyTorch": lambda: orthogonalised(stack),
        },
        10,
    )
    numbers = {
        "GFLOP/s": rates,
        "Newton-Schulz, 800 complex 32 x 32, ms": {n: round(1e3 * t, 1) for n, t in muon.items()},
    }
    record = {**numbers, "command": shlex.join(["python", *sys.argv]), "seed": 0, **facts()}
    write_text(to, json.dumps(record, indent=1) + "\n")
    print(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
