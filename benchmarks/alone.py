"""Ours against the reference form and the fastest rival, each alone in its process, as in training.

    python benchmarks/alone.py

`funcattn bench` lets fifteen candidates take turns in one process, where the memory that one holds
changes what the allocator does for the next. Here processes take turns instead: ours, reference,
LinearNO, ours, ... Writes results/alone.json: the median of the calls of each process, and the
ratios of the medians over processes. Width 128, 64 bases, float32, one thread; layers with the
default allocator and with one that keeps its pages.
"""

import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from funcattn.bench.candidates import CANDIDATES, OURS, REFERENCE, Part, Shape, give_weights
from funcattn.bench.measure import calls, inputs
from funcattn.bench.runner import ALLOCATORS, Allocator
from funcattn.provenance import facts
from funcattn.training.checkpoint import write_whole


@dataclass(frozen=True)
class Case:
    """Candidates at one size."""

    part: Part
    heads: int
    points: int
    allocator: Allocator = "default"

    @property
    def candidates(self) -> tuple[str, ...]:
        """Ours first."""
        return (OURS, REFERENCE, "linear_no") if self.part == "layer" else (OURS, REFERENCE)


CASES = {
    "layer, 8 heads, 16,384 points": Case("layer", 8, 2**14),
    "layer, 8 heads, 16,384 points, pages kept": Case("layer", 8, 2**14, "kept pages"),
    "layer, 1 head, 16,384 points": Case("layer", 1, 2**14),
    "layer, 1 head, 16,384 points, pages kept": Case("layer", 1, 2**14, "kept pages"),
    "network of 8 layers, 972 points": Case("model", 8, 972),
    "network of 8 layers, 7,225 points": Case("model", 8, 7225),
}
PROCESSES, CALLS, WARM = 5, 12, 3
RESULT = Path("results/alone.json")


def milliseconds(case: Case, candidate: str) -> dict[str, float]:
    """Medians of the calls of this process, by kind."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shape = Shape(128, 64, case.heads)
    module = CANDIDATES[case.part][candidate].build(shape, case.points)
    give_weights(module)
    found = {}
    for kind, call in calls(case.part, module, inputs(case.part, shape, case.points)).items():
        took = []
        for _ in range(WARM + CALLS):
            start = time.perf_counter()
            call()
            took.append(1e3 * (time.perf_counter() - start))
        found[kind] = statistics.median(took[WARM:])
    return found


def in_a_process(name: str, candidate: str) -> dict[str, float]:
    """The same in a fresh process."""
    asked = [sys.executable, __file__, name, candidate]
    environment = os.environ | ALLOCATORS[CASES[name].allocator]
    said = subprocess.run(asked, check=True, capture_output=True, text=True, env=environment).stdout
    found: dict[str, float] = json.loads(said)
    return found


def compared(name: str) -> dict[str, dict[str, object]]:
    """The candidates of a case in turns, by kind."""
    took: dict[str, dict[str, list[float]]] = {}
    for _ in range(PROCESSES):
        for candidate in CASES[name].candidates:
            for kind, each in in_a_process(name, candidate).items():
                took.setdefault(kind, {}).setdefault(candidate, []).append(round(each, 2))
    return {
        kind: {"milliseconds": of, "ours is faster by": ratios(of)} for kind, of in took.items()
    }


def ratios(took: dict[str, list[float]]) -> dict[str, float]:
    """Of each candidate but ours, the median over processes against ours."""
    medians = {candidate: statistics.median(each) for candidate, each in took.items()}
    ours = medians.pop(OURS)
    return {candidate: round(median / ours, 3) for candidate, median in medians.items()}


def main() -> None:
    """Measure, print and write; with a case and a candidate, only measure that here."""
    if len(sys.argv) == 3:
        name, candidate = sys.argv[1:]
        print(json.dumps(milliseconds(CASES[name], candidate)))
        return
    load, found = os.getloadavg()[0], {}
    for name in CASES:
        found[name] = compared(name)
        print(name, json.dumps(found[name]), flush=True)
    command = shlex.join(["python", *sys.argv])
    record = {"cases": found, "command": command, "seed": 0, "load before": load, **facts()}
    write_whole(RESULT, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
