"""Why the time per point is not the same at all sizes: work, and pages that the system maps.

    python benchmarks/time_per_point.py

Writes results/time_per_point.json: of a layer of width 128 with 8 heads and 64 bases, stored and
streamed, the nanoseconds per point that the process itself takes, those that the system takes for
it, and the page faults per thousand points. Each form and size in a process of its own,
float32, one thread, default allocator.
"""

import json
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import torch

from funcattn.bench.candidates import CANDIDATES, OURS, STREAMED, Shape, give_weights
from funcattn.bench.measure import calls, inputs
from funcattn.files import write_text
from funcattn.provenance import facts

FORMS = (OURS, "linear_no", "functional, stored", STREAMED)
SIZES = (2**14, 2**16, 2**18, 2**20)
POINTS = 2**21
"""Over all calls of a form and size, about."""
RESULT = Path("results/time_per_point.json")


def measured(form: str, points: int) -> dict[str, dict[str, float]]:
    """Means over the calls of this process, by kind."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shape = Shape(128, 64, 8)
    module = CANDIDATES["layer"][form].build(shape, points)
    give_weights(module)
    found = {}
    for kind, call in calls("layer", module, inputs("layer", shape, points)).items():
        for _ in range(3):
            call()
        rounds = max(3, POINTS // points)
        before = resource.getrusage(resource.RUSAGE_SELF)
        for _ in range(rounds):
            call()
        after = resource.getrusage(resource.RUSAGE_SELF)
        done = rounds * points
        found[kind] = {
            "own_ns": round(1e9 * (after.ru_utime - before.ru_utime) / done, 1),
            "system_ns": round(1e9 * (after.ru_stime - before.ru_stime) / done, 1),
            "faults_a_thousand": round(1e3 * (after.ru_minflt - before.ru_minflt) / done, 1),
        }
    return found


def main() -> None:
    """Measure one form and size, or all in processes of their own."""
    if len(sys.argv) > 1:
        print(json.dumps(measured(sys.argv[1], int(sys.argv[2]))))
        return
    found: dict[str, dict[int, dict[str, dict[str, float]]]] = {}
    for form in FORMS:
        for points in SIZES:
            asked = [sys.executable, __file__, form, str(points)]
            said = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
            found.setdefault(form, {})[points] = json.loads(said)
            print(f"{form}, {points:,} points: {said.strip()}", flush=True)
    command = shlex.join(["python", *sys.argv])
    record = {"per_point": found, "command": command, "seed": 0, **facts()}
    write_text(RESULT, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
