"""Products at the points, convolutions, and steps of Muon: in C, and by PyTorch.

    python benchmarks/products.py
    python benchmarks/products.py --to results/products_intel.json   # on another kind of processor

Writes results/products.json: GFLOP/s of x W^T for some sizes, by C and by PyTorch in float32 and in
bfloat16, in turns, the best of many calls; those of PyTorch's convolutions as the paper's network
has them on grids, forward and with both gradients; and the CPU time of Newton-Schulz steps on a
stack of complex matrices as four mode-wise maps of a torus have it. One thread.
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from funcattn.files import write_text
from funcattn.ops.native import orthogonal, why_not
from funcattn.ops.native.products import multiplied
from funcattn.provenance import facts
from funcattn.training.muon import orthogonalised

SIZES = ((972, 128, 128), (3888, 128, 128), (972, 64, 128), (4096, 32, 32))
"""Points, inputs, outputs."""
GRIDS, CHANNELS = ((4, 22, 22), (4, 33, 33), (4, 111, 26)), 64
"""Samples and axis lengths: Darcy, Pipe, Airfoil."""
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


def convolutions() -> dict[str, dict[str, int]]:
    """GFLOP/s of PyTorch's convolutions with stencils of 3 x 3."""
    rates = {}
    for samples, *axes in GRIDS:
        # As fields come: channels last.
        field, cotangent = torch.randn(2, samples, *axes, CHANNELS).movedim(-1, 2).unbind()
        field.requires_grad_()
        weight = torch.randn(CHANNELS, CHANNELS, 3, 3, requires_grad=True)

        def forward(x: Tensor = field, w: Tensor = weight) -> Tensor:
            return torch.conv2d(x, w, padding=1)

        def both(call: Callable[[], Tensor] = forward, back: Tensor = cotangent) -> None:
            call().backward(back)

        count = 2e-9 * samples * axes[0] * axes[1] * 9 * CHANNELS**2
        took = best({"forward": forward, "forward + backward": both}, ROUNDS // 4)
        rates[f"{samples} times {axes[0]} x {axes[1]}, {CHANNELS} channels"] = {
            "forward": round(count / took["forward"]),
            "forward + backward": round(3 * count / took["forward + backward"]),
        }
    return rates


@torch.no_grad()
def products() -> dict[str, dict[str, int]]:
    """GFLOP/s of products at the points."""
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
    return rates


@torch.no_grad()
def steps_of_muon() -> dict[str, float]:
    """Milliseconds of Newton-Schulz steps."""
    stack = torch.randn(800, 32, 32, dtype=torch.complex64)
    took = best(
        {
            "C": lambda: orthogonal.orthogonalise(stack.clone(), 5, (3.4445, -4.775, 2.0315), 1e-7),
            "PyTorch": lambda: orthogonalised(stack),
        },
        10,
    )
    return {name: round(1e3 * seconds, 1) for name, seconds in took.items()}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--to", type=Path, default=RESULT)
    to = parser.parse_args().to
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if (why := why_not()) is not None:
        sys.exit(f"expected a C compiler: {why}")
    numbers = {
        "GFLOP/s": products(),
        "convolutions, GFLOP/s": convolutions(),
        "Newton-Schulz, 800 complex 32 x 32, ms": steps_of_muon(),
    }
    record = {**numbers, "command": shlex.join(["python", *sys.argv]), "seed": 0, **facts()}
    write_text(to, json.dumps(record, indent=1) + "\n")
    print(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
