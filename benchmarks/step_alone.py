"""A training step of the network of 8 layers, each form alone in its process, as in training.

    python benchmarks/step_alone.py

`funcattn bench` lets forms take turns in one process, where the memory that one holds changes what
the allocator does for the next. Here processes take turns instead: ours, reference, ours, ...
Writes results/step_alone.json: the median of the steps of each process, and the ratio of the
medians over processes.
"""

import json
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

from funcattn.bench.candidates import CANDIDATES, OURS, REFERENCE, Shape, give_weights
from funcattn.bench.measure import KINDS, calls, inputs
from funcattn.provenance import facts
from funcattn.training.checkpoint import write_whole

SHAPE, SIZES = Shape(128, 64, 8), (972, 7225)
PROCESSES, STEPS, WARM = 5, 12, 3
RESULT = Path("results/step_alone.json")


def milliseconds(candidate: str, points: int) -> float:
    """Median of the steps of this process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    module = CANDIDATES["model"][candidate].build(SHAPE, points)
    give_weights(module)
    step = calls("model", module, inputs("model", SHAPE, points))[KINDS["model"][1]]
    took = []
    for _ in range(WARM + STEPS):
        start = time.perf_counter()
        step()
        took.append(1e3 * (time.perf_counter() - start))
    return statistics.median(took[WARM:])


def in_a_process(candidate: str, points: int) -> float:
    """The same in a fresh process."""
    asked = [sys.executable, __file__, candidate, str(points)]
    return float(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Measure, print and write; with a form and a number of points, only measure that here."""
    if len(sys.argv) == 3:
        print(milliseconds(sys.argv[1], int(sys.argv[2])))
        return
    found = {}
    for points in SIZES:
        took: dict[str, list[float]] = {OURS: [], REFERENCE: []}
        for _ in range(PROCESSES):
            for candidate, each in took.items():
                each.append(round(in_a_process(candidate, points), 2))
                print(points, candidate, each[-1], flush=True)
        medians = {candidate: statistics.median(each) for candidate, each in took.items()}
        faster = round(medians[REFERENCE] / medians[OURS], 3)
        found[points] = {"milliseconds": took, "faster": faster}
    record = {"points": found, "command": shlex.join(["python", *sys.argv]), "seed": 0, **facts()}
    write_whole(RESULT, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
