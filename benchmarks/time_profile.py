"""Where the time goes: PyTorch's own profile, by kind of work.

    python benchmarks/time_profile.py

Writes results/time_profile.json: a layer of width 128 with 64 bases at 16,384 points, forward and
backward with 8 heads and forward with one, and a training step of the network of 8 layers at 972
points; functional attention as it comes beside the reference form, float32, one thread.
"""

import json
import shlex
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from funcattn.bench.candidates import CANDIDATES, OURS, REFERENCE, Part, Shape, give_weights
from funcattn.bench.measure import KINDS, calls, inputs
from funcattn.provenance import facts
from funcattn.training.checkpoint import write_whole

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
class Case:
    """One call that is looked into."""

    part: Part
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
    "layer, 8 heads, forward + backward": Case("layer", 8, 2**14, KINDS["layer"][1]),
    "layer, 1 head, forward": Case("layer", 1, 2**14, KINDS["layer"][0]),
    "network, 972 points, training step": Case("model", 8, 972, KINDS["model"][1]),
}


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
    command = shlex.join(["python", *sys.argv])
    record = {"milliseconds": found, "command": command, "seed": 0, **facts()}
    write_whole(RESULT, json.dumps(record, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
