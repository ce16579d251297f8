"""Of what a training step of the bundled tasks consists, by PyTorch's profiler.

    python benchmarks/step_operations.py

The steps of `training_steps.py`; the share of each kind of operation in all that the profiler sees,
in percent, one thread. Writes results/step_operations.json.
"""

import json
import shlex
import sys
from collections import Counter
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile
from training_steps import NAMES, NETWORKS, stepper

from funcattn.files import write_text
from funcattn.provenance import facts

WARM, STEPS = 3, 6
KINDS = {
    "convolutions": ("aten::mkldnn_convolution", "aten::convolution_backward", "aten::_convolution",
                     "aten::_slow_conv2d_forward", "aten::thnn_conv2d"),
    "attention in C": ("_Attention", "_AttentionBackward"),
    "stencils in C": ("_Stencil", "_StencilBackward"),
    "linear maps in C": ("_Linear", "_LinearBackward"),
    "other products": ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::tensordot"),
    "copies": ("aten::copy_", "aten::cat", "aten::clone", "aten::contiguous", "aten::fill_"),
    "GELU and norms": ("aten::gelu", "aten::gelu_backward", "aten::native_layer_norm",
                       "aten::native_layer_norm_backward"),
    "Fourier transforms": ("aten::_fft_r2c", "aten::_fft_c2r", "aten::_fft_c2c"),
}  # fmt: skip


def kind_of(name: str) -> str:
    """Of an operation, by its name in the profile."""
    if name.startswith("Optimizer."):
        return "optimisers"
    return next((kind for kind, names in KINDS.items() if name in names), "small operations")


def shares(name: str, model: str) -> dict[str, float]:
    """Percent of a step, the largest first, and how many operations it has."""
    step, _ = stepper(name, model)
    for _ in range(WARM):
        step()
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(STEPS):
            step()
    took: Counter[str] = Counter()
    count = 0
    for event in found.key_averages():
        took[kind_of(event.key)] += event.self_cpu_time_total
        count += event.count
    whole = sum(took.values())
    percent = {kind: round(100 * part / whole, 1) for kind, part in took.most_common()}
    return {**percent, "operations": round(count / STEPS)}


def main() -> None:
    """Profile all, print and write."""
    torch.set_num_threads(1)
    found = {}
    for model in NETWORKS:
        for name in NAMES:
            found[f"{model}, {name}"] = shares(name, model)
            print(model, name, json.dumps(found[f"{model}, {name}"]), flush=True)
    record = {"percent": found, "command": shlex.join(["python", *sys.argv]), "seed": 0, **facts()}
    write_text(Path("results/step_operations.json"), json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
