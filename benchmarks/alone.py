"""Ours, the reference form and the fastest baseline, each alone in its process, as in training.

    python benchmarks/alone.py

`funcattn bench` lets all candidates take turns in one process, where the memory that one holds
changes what the allocator does for the next. Here processes take turns instead: ours, reference,
baseline, ours, ..., with the default allocator and with one that keeps its pages. Writes
results/alone.json: the median of the calls of each process, and the ratios of the medians over
processes. Width 128, 64 bases, float32, one thread. Stopped at any moment, the same command goes
on; half an hour.
"""

import json
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

from funcattn.bench.candidates import CANDIDATES, OURS, REFERENCE, Part, Shape, give_weights
from funcattn.bench.measure import calls, inputs
from funcattn.bench.runner import ALLOCATORS, Allocator, environment_of
from funcattn.files import write_text
from funcattn.provenance import facts

CASES: dict[str, tuple[Part, int, int]] = {
    "layer, 8 heads, 16,384 points": ("layer", 8, 2**14),
    "layer, 1 head, 16,384 points": ("layer", 1, 2**14),
    "network of 8 layers, 972 points": ("model", 8, 972),
    "network of 8 layers, 7,225 points": ("model", 8, 7225),
    "network of 8 layers, 16,384 points": ("model", 8, 2**14),
}
OTHERS = (REFERENCE, "linear_no")
PROCESSES, CALLS, WARM = 5, 12, 3
RESULT = Path("results/alone.json")


def milliseconds(case: str, candidate: str) -> dict[str, float]:
    """Medians of the calls of this process, by kind."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    part, heads, points = CASES[case]
    shape = Shape(128, 64, heads)
    module = CANDIDATES[part][candidate].build(shape, points)
    give_weights(module)
    found = {}
    for kind, call in calls(part, module, inputs(part, shape, points)).items():
        took = []
        for _ in range(WARM + CALLS):
            start = time.perf_counter()
            call()
            took.append(1e3 * (time.perf_counter() - start))
        found[kind] = statistics.median(took[WARM:])
    return found


def in_a_process(case: str, candidate: str, allocator: Allocator) -> dict[str, float]:
    """The same in a fresh process."""
    asked = [sys.executable, __file__, case, candidate]
    environment = environment_of(allocator)
    done = subprocess.run(asked, check=True, capture_output=True, text=True, env=environment)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def compared(case: str) -> dict[str, dict[str, dict[str, object]]]:
    """All of a case in turns, by kind and allocator."""
    took: dict[str, dict[str, dict[str, list[float]]]] = {}
    for _ in range(PROCESSES):
        for allocator in ALLOCATORS:
            for candidate in (OURS, *OTHERS):
                for kind, each in in_a_process(case, candidate, allocator).items():
                    of_kind = took.setdefault(kind, {}).setdefault(allocator, {})
                    of_kind.setdefault(candidate, []).append(round(each, 2))
    return {
        kind: {allocator: _with_ratios(each) for allocator, each in of_kind.items()}
        for kind, of_kind in took.items()
    }


def _with_ratios(took: dict[str, list[float]]) -> dict[str, object]:
    middle = {candidate: statistics.median(each) for candidate, each in took.items()}
    faster = {other: round(middle[other] / middle[OURS], 3) for other in OTHERS}
    return {"milliseconds": took, "ours is faster than": faster}


def main() -> None:
    """Measure, print and write; with a case and a form, only measure that here."""
    if len(sys.argv) == 3:
        print(json.dumps(milliseconds(*sys.argv[1:])))
        return
    record = {"command": shlex.join(["python", *sys.argv]), "seed": 0, **facts()}
    kept = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    cases = kept["cases"] if kept.get("commit") == record["commit"] else {}
    for case in CASES:
        if case not in cases:
            cases[case] = compared(case)
            write_text(RESULT, json.dumps({"cases": cases, **record}, indent=1) + "\n")
        print(case, json.dumps(cases[case]), flush=True)


if __name__ == "__main__":
    main()
