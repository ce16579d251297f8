"""Products at the points, stencils on grids, and steps of Muon: in C, and by PyTorch.

    python benchmarks/products.py
    python benchmarks/products.py --to results/products_intel.json   # on another kind of processor

Writes results/products.json: GFLOP/s of x W^T for some sizes, by C and by PyTorch in float32 and in
bfloat16, in turns, the best of many calls; those of stencils as the paper's network has them on
grids, in C and by PyTorch, forward and with both gradients, their rounding, and for comparison
PyTorch's convolution alone, which pads with zeros and so needs no copy; and the CPU time of
Newton-Schulz steps on a stack of complex matrices as four mode-wise maps of a torus have it. One
thread. The operations of a stencil are those of the plain sum, of which C does not do all.
"""

import argparse
import json
import math
import shlex
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from funcattn.files import write_text
from funcattn.ops.native import orthogonal, stencils, why_not
from funcattn.ops.native.products import multiplied
from funcattn.provenance import facts
from funcattn.training.muon import orthogonalised

SIZES = ((972, 128, 128), (3888, 128, 128), (972, 64, 128), (4096, 32, 32))
"""Points, inputs, outputs."""
GRIDS = {
    "Darcy": ((4, 22, 22), 64, 1, False),
    "Pipe": ((4, 33, 33), 64, 1, False),
    "Plasticity": ((4, 51, 16), 64, 1, False),
    "Airfoil": ((4, 111, 26), 64, 1, False),
    "Navier-Stokes": ((4, 32, 32), 48, 1, True),
    "Burgers": ((4, 256), 64, 4, True),
}
"""Samples and axis lengths, channels, points from a neighbour to the next, whether periodic."""
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


def stencil_forms(
    axes: int, step: int, *, periodic: bool
) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    """Of a field with channels last, weight and bias."""
    steps, plain = [step] * axes, stencils.CONVOLUTIONS[axes]
    return {
        "C": partial(stencils.stencil_on_points, steps=steps, periodic=periodic),
        "PyTorch": lambda u, weight, bias: stencils._padded(
            u, weight, bias, steps, steps, periodic=periodic
        ),
        "PyTorch's convolution alone": lambda u, weight, bias: plain(
            u.movedim(-1, 1), weight, bias, padding=step, dilation=step
        ).movedim(1, -1),
    }


def convolutions() -> tuple[dict[str, dict[str, int]], dict[str, dict[str, list[float]]]]:
    """GFLOP/s of stencils, and the relative errors of the result and of each gradient."""
    rates, errors = {}, {}
    for name, ((samples, *axes), channels, step, periodic) in GRIDS.items():
        forms = stencil_forms(len(axes), step, periodic=periodic)
        u, d_out = torch.randn(2, samples, *axes, channels).unbind()
        weight, bias = torch.randn(channels, channels, *(3,) * len(axes)), torch.randn(channels)
        given = [each.requires_grad_() for each in (u, weight, bias)]
        fixed = [each.detach() for each in given]
        doubles = [each.detach().double().requires_grad_() for each in given]

        def all_of(
            form: Callable[..., Tensor], given: list[Tensor] = given, back: Tensor = d_out
        ) -> list[Tensor]:
            out = form(*given)
            return [out, *torch.autograd.grad(out, given, back.to(out.dtype))]

        calls: dict[str, Callable[[], object]] = {}
        for which, form in forms.items():
            calls[f"{which}, forward"] = partial(form, *fixed)
            calls[f"{which}, forward + backward"] = partial(all_of, form)
        count = 2e-9 * samples * math.prod(axes) * 3 ** len(axes) * channels**2
        took = best(calls, ROUNDS // 4)
        case = f"{name}: {samples} times {' x '.join(map(str, axes))}, {channels} channels"
        rates[case] = {
            call: round((3 if "backward" in call else 1) * count / seconds)
            for call, seconds in took.items()
        }
        truth = all_of(forms["PyTorch"], doubles)
        errors[case] = {
            which: [
                float(f"{((one - other).norm() / other.norm()).item():.1e}")
                for one, other in zip(all_of(forms[which]), truth, strict=True)
            ]
            for which in ("C", "PyTorch")
        }
    return rates, errors


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
    rates, errors = convolutions()
    numbers = {
        "GFLOP/s": products(),
        "stencils, GFLOP/s": rates,
        "stencils, relative error of the result, and of the gradients of field, weight and bias": (
            errors
        ),
        "Newton-Schulz, 800 complex 32 x 32, ms": steps_of_muon(),
    }
    record = {**numbers, "command": shlex.join(["python", *sys.argv]), "seed": 0, **facts()}
    write_text(to, json.dumps(record, indent=1) + "\n")
    print(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
