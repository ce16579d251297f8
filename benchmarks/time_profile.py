"""Where the time goes: PyTorch's own profile, by kind of work.

    python benchmarks/time_profile.py

Writes results/time_profile.json: a layer of width 128 with 64 bases at 16,384 points, forward, and
forward and backward with 8 heads, forward with one, and a training step of the network of 8 layers
at 972 points; functional attention as it comes beside the reference form, float32, one thread. And
what the work of the layer's forward pass takes on memory that is in the cache: what is left of the
time of a call is for memory and for Python.
"""

import json
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from funcattn.bench.candidates import CANDIDATES, OURS, REFERENCE, Scope, Shape, give_weights
from funcattn.bench.measure import KINDS, calls, inputs
from funcattn.files import write_text
from funcattn.provenance import facts

ROUNDS = 10
RESULT = Path("results/time_profile.json")
OPERATIONS = {
    "matrix products": ("mm", "addmm", "addmm_", "bmm", "baddbmm", "baddbmm_"),
    "softmax and its gradient": ("_softmax", "_softmax_backward_data"),
    "norms and GELU": (
        "native_layer_norm",
        "native_layer_norm_backward",
        "gelu",
        "gelu_backward",
    ),
    "copies": ("copy_", "cat", "clone", "contiguous"),
    "other passes over tensors": ("sum", "div", "mul", "mul_", "add", "add_", "neg", "fill_"),
    "solves": (
        "linalg_cholesky_ex",
        "_cholesky_solve_helper",
        "linalg_solve_triangular",
        "cholesky_solve",
    ),
}


@dataclass(frozen=True)
class ProfiledCall:
    """One call that is looked into."""

    part: Scope
    heads: int
    points: int
    kind: str

    def milliseconds(self, candidate: str) -> dict[str, float]:
        """Of one call, by kind of work."""
        shape = Shape(128, 64, self.heads)
        module = CANDIDATES[self.part][candidate].build(shape, self.points)
        give_weights(module)
        call = calls(self.part, module, inputs(self.part, shape, self.points))[self.kind]
        for _ in range(3):
            call()
        with profile(activities=[ProfilerActivity.CPU]) as found:
            for _ in range(ROUNDS):
                call()
        by_kind: Counter[str] = Counter()
        for event in found.key_averages():
            by_kind[kind_of(event.key)] += event.self_cpu_time_total / ROUNDS / 1e3
        return {kind: round(time, 2) for kind, time in by_kind.most_common()}


CASES = {
    "layer, 8 heads, forward": ProfiledCall("layer", 8, 2**14, KINDS["layer"][0]),
    "layer, 8 heads, forward + backward": ProfiledCall("layer", 8, 2**14, KINDS["layer"][1]),
    "layer, 1 head, forward": ProfiledCall("layer", 1, 2**14, KINDS["layer"][0]),
    "network, 972 points, training step": ProfiledCall("model", 8, 972, KINDS["model"][1]),
}


def in_the_cache(heads: int, points: int = 2**14, chunk: int = 2**10) -> dict[str, float]:
    """Milliseconds of the work of a forward pass, each kind over and over on one chunk."""
    c, g = 128, 64
    d, functions = c // heads, heads * g
    x, values = torch.randn(2, chunk, c).unbind()
    phi = torch.randn(heads, chunk, g).softmax(-1)
    out, by_heads = torch.empty(chunk, c), torch.empty(heads, chunk, d)
    if heads == 1:
        weight = torch.randn(c, functions)
        moments = torch.zeros(c, functions)
        work: dict[str, Callable[[], object]] = {
            "scores": lambda: torch.mm(x, weight, out=phi[0]),
            "moments": lambda: moments.addmm_(x.T, phi[0]),
            "lift and output map": lambda: torch.mm(phi[0], weight.T, out=out),
        }
    else:
        first, last = torch.randn(2 * c, c), torch.randn(c, c)
        features = torch.randn(chunk, 2 * c)
        of_basis, of_field = features.unflatten(1, (2, heads, d)).permute(1, 2, 0, 3)
        scores, coefficients = torch.randn(heads, d, g), torch.randn(heads, g, d)
        moments = torch.zeros(heads, d, g)
        work = {
            "features": lambda: torch.mm(x, first.T, out=features),
            "scores": lambda: torch.bmm(of_basis, scores, out=phi),
            "moments": lambda: moments.baddbmm_(of_field.mT, phi),
            "lift": lambda: torch.bmm(phi, coefficients, out=by_heads),
            "output map": lambda: torch.mm(values, last.T, out=out),
        }
    work["softmax"] = lambda: torch.softmax(phi, -1, out=phi)
    found = {}
    for name, call in work.items():
        best = min(_seconds(call) for _ in range(20))
        found[name] = round(1e3 * best * points / chunk, 2)
    return found


def _seconds(call: Callable[[], object], times: int = 10) -> float:
    """Of one of several calls."""
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times


def kind_of(name: str) -> str:
    """Of an operation, by its name in the profile."""
    bare = name.removeprefix("aten::")
    for kind, names in OPERATIONS.items():
        if bare in names:
            return kind
    return "the rest, with Python between operations"


def main() -> None:
    """Profile all, print and write."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = {
        title: {candidate: case.milliseconds(candidate) for candidate in (OURS, REFERENCE)}
        for title, case in CASES.items()
    }
    cached = {f"{heads} heads": in_the_cache(heads) for heads in (8, 1)}
    command = shlex.join(["python", *sys.argv])
    numbers = {"milliseconds": found, "forward, in the cache": cached}
    record = {**numbers, "command": command, "seed": 0, **facts()}
    write_text(RESULT, json.dumps(record, indent=1) + "\n")
    print(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
