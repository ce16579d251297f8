"""Ours, the reference form and the fastest baseline, each alone in its process, as in training.

    python benchmarks/alone.py
    python benchmarks/alone.py "layer, 1 head"   # cases that begin so; others stay as they are
    python benchmarks/alone.py --to results/alone_intel.json   # on another kind of processor

`funcattn bench` lets all candidates take turns in one process, where the memory that one holds
changes what the allocator does for the next. Here processes take turns instead: ours, reference,
baseline, ours, ... Writes results/alone.json: the CPU time of a call, the lower quartile of the
calls of each process, and the ratios of the medians over processes. Width 128, 64 bases, float32,
one thread. Stopped at any moment, the same command goes on; ten minutes. Each case says by which
command and commit it was made.
"""

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

from funcattn.bench.candidates import CANDIDATES, OURS, REFERENCE, Scope, Shape, give_weights
from funcattn.bench.measure import calls, inputs
from funcattn.files import write_text
from funcattn.provenance import facts

CASES: dict[str, tuple[Scope, int, int, int]] = {
    "layer, 8 heads, 512 points": ("layer", 8, 512, 1),
    "layer, 8 heads, 2,048 points": ("layer", 8, 2048, 1),
    "layer, 8 heads, 8 times 972 points": ("layer", 8, 972, 8),
    "layer, 8 heads, 16,384 points": ("layer", 8, 2**14, 1),
    "layer, 1 head, 2,048 points": ("layer", 1, 2048, 1),
    "layer, 1 head, 16,384 points": ("layer", 1, 2**14, 1),
    "network of 8 layers, 4 times 972 points": ("model", 8, 972, 4),
    "network of 8 layers, 7,225 points": ("model", 8, 7225, 1),
}
"""Layer or network, heads, points, samples."""
OTHERS = (REFERENCE, "linear_no")
PROCESSES, CALLS, WARM = 3, 12, 3
RESULT = Path("results/alone.json")


def milliseconds(case: str, candidate: str) -> dict[str, float]:
    """The lower quartile of the calls of this process, by kind."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    part, heads, points, batch = CASES[case]
    shape = Shape(128, 64, heads)
    module = CANDIDATES[part][candidate].build(shape, points)
    give_weights(module)
    found = {}
    for kind, call in calls(part, module, inputs(part, shape, points, batch)).items():
        took = []
        for _ in range(WARM + CALLS):
            start = time.process_time()
            call()
            took.append(1e3 * (time.process_time() - start))
        found[kind] = statistics.quantiles(took[WARM:], n=4)[0]
    return found


def in_a_process(case: str, candidate: str) -> dict[str, float]:
    """The same in a fresh process."""
    asked = [sys.executable, __file__, case, candidate]
    done = subprocess.run(asked, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def compared(case: str) -> dict[str, dict[str, object]]:
    """All of a case in turns, by kind."""
    took: dict[str, dict[str, list[float]]] = {}
    for _ in range(PROCESSES):
        for candidate in (OURS, *OTHERS):
            for kind, each in in_a_process(case, candidate).items():
                took.setdefault(kind, {}).setdefault(candidate, []).append(round(each, 3))
    return {kind: _with_ratios(each) for kind, each in took.items()}


def _with_ratios(took: dict[str, list[float]]) -> dict[str, object]:
    middle = {candidate: statistics.median(each) for candidate, each in took.items()}
    faster = {other: round(middle[other] / middle[OURS], 3) for other in OTHERS}
    return {"milliseconds": took, "ours is faster than": faster}


def main() -> None:
    """Measure, print and write; with a case and a form, only measure that here."""
    parser = argparse.ArgumentParser()
    parser.add_argument("case", nargs="?", default="")
    parser.add_argument("candidate", nargs="?")
    parser.add_argument("--to", type=Path, default=RESULT)
    asked = parser.parse_args()
    if asked.candidate:
        print(json.dumps(milliseconds(asked.case, asked.candidate)))
        return
    made = {"command": shlex.join(["python", *sys.argv]), "seed": 0, **facts()}
    cases = json.loads(asked.to.read_text())["cases"] if asked.to.exists() else {}
    for case in CASES:
        if not case.startswith(asked.case):
            continue
        if case not in cases or cases[case]["made"]["commit"] != made["commit"]:
            cases[case] = {**compared(case), "made": made}
            write_text(asked.to, json.dumps({"cases": cases}, indent=1) + "\n")
        print(case, json.dumps(cases[case]), flush=True)


if __name__ == "__main__":
    main()
