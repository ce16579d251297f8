"""A training step of bundled tasks with one thread and with two: wall time and CPU time.

    python benchmarks/threads.py

On an otherwise idle machine with two cores. The steps are those of `training_steps.py`, with our
network and the paper's; processes with one thread and with two take turns, and of each the lower
quartile of its steps counts. Writes results/threads.json, with the load before each process.
"""

import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from training_steps import NETWORKS, stepper

from funcattn.files import write_text
from funcattn.provenance import facts

NAMES = ("darcy", "elasticity", "pipe", "airfoil")
THREADS = (1, 2)
PROCESSES, STEPS, WARM = 2, 12, 4
RESULT = Path("results/threads.json")


def milliseconds(name: str, model: str, threads: int) -> dict[str, float]:
    """Of a step, in this process: on the clock, and of all cores together."""
    torch.set_num_threads(threads)
    step, _ = stepper(name, model)
    wall, cpu = [], []
    for _ in range(WARM + STEPS):
        start, used = time.perf_counter(), time.process_time()
        step()
        wall.append(1e3 * (time.perf_counter() - start))
        cpu.append(1e3 * (time.process_time() - used))
    return {
        kind: round(statistics.quantiles(took[WARM:], n=4)[0], 2)
        for kind, took in (("wall", wall), ("CPU", cpu))
    }


def in_a_process(name: str, model: str, threads: int) -> dict[str, float]:
    """The same in a fresh process, which may use as many threads as it is told."""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, __file__, name, model, str(threads)],
        env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Compare and write; with a task, a network and threads, only measure that here."""
    if len(sys.argv) == 4:
        name, model, threads = sys.argv[1:]
        print(json.dumps(milliseconds(name, model, int(threads))))
        return
    found: dict[str, dict[str, object]] = {}
    loads = []
    for model in NETWORKS:
        for name in NAMES:
            took: dict[int, list[dict[str, float]]] = {threads: [] for threads in THREADS}
            for _ in range(PROCESSES):
                for threads in THREADS:
                    loads.append(round(os.getloadavg()[0], 2))
                    took[threads].append(in_a_process(name, model, threads))
            best = {
                f"{threads} threads": {kind: min(run[kind] for run in runs) for kind in runs[0]}
                for threads, runs in took.items()
            }
            one, two = best.values()
            gain = {kind: round(one[kind] / two[kind], 3) for kind in one}
            found[f"{model}, {name}"] = {"milliseconds": best, "two over one": gain}
            print(model, name, found[f"{model}, {name}"], flush=True)
    record = {"steps": found, "loads": loads, "command": shlex.join(["python", *sys.argv])}
    write_text(RESULT, json.dumps({**record, "seed": 0, **facts()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
