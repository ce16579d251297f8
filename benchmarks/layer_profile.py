"""Where the time of a layer goes: PyTorch's own profile, by kind of work.

    python benchmarks/layer_profile.py

Writes results/layer_profile.json: forward and backward of functional attention in chunks and of the
reference form, width 128, 64 bases, 8 heads, 16,384 points, float32, one thread.
"""

import json
import shlex
import sys
from collections import Counter
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from funcattn.bench.candidates import LAYERS, OURS, REFERENCE, Shape, give_weights
from funcattn.bench.measure import calls, inputs
from funcattn.provenance import facts
from funcattn.training.checkpoint import write_whole

SHAPE, POINTS, ROUNDS = Shape(128, 64, 8), 2**14, 10
RESULT = Path("results/layer_profile.json")
KINDS = {
    "matrix products": ("mm", "addmm", "addmm_", "bmm", "baddbmm", "baddbmm_"),
    "softmax and its gradient": ("_softmax", "_softmax_backward_data"),
    "copies": ("copy_", "cat", "clone", "contiguous"),
    "solves": (
        "linalg_cholesky_ex",
        "_cholesky_solve_helper",
        "linalg_solve_triangular",
        "cholesky_solve",
    ),
    "sums, divisions and other passes": (
        "sum",
        "div",
        "mul",
        "mul_",
        "add",
        "add_",
        "neg",
        "fill_",
    ),
}


def kind_of(name: str) -> str:
    """Of an operation, by its name in the profile."""
    bare = name.removeprefix("aten::")
    for kind, names in KINDS.items():
        if bare in names:
            return kind
    return "the rest, with Python between operations"


def milliseconds(candidate: str) -> dict[str, float]:
    """Of one forward and backward, by kind of work."""
    module = LAYERS[candidate].build(SHAPE, POINTS)
    give_weights(module)
    call = calls("layer", module, inputs("layer", SHAPE, POINTS))["forward + backward"]
    for _ in range(3):
        call()
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(ROUNDS):
            call()
    by_kind: Counter[str] = Counter()
    for event in found.key_averages():
        by_kind[kind_of(event.key)] += event.self_cpu_time_total / ROUNDS / 1e3
    return {kind: round(time, 2) for kind, time in by_kind.most_common()}


def main() -> None:
    """Profile both, print and write."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = {candidate: milliseconds(candidate) for candidate in (OURS, REFERENCE)}
    command = shlex.join(["python", *sys.argv])
    record = {"milliseconds": found, "command": command, "seed": 0, **facts()}
    write_whole(RESULT, json.dumps(record, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
