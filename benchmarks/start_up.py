"""CPU seconds of `funcattn predict` on a bundled model, from process start to file written.

    python benchmarks/start_up.py

Writes results/start_up.json: user and system time of the process and of what it starts, the least
of some runs, beside that of a process that only imports torch, in turns. One thread.
"""

import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from funcattn.files import write_text
from funcattn.provenance import facts

RUNS = 3
RESULT = Path("results/start_up.json")


def seconds(words: list[str]) -> float:
    """CPU time of a program, run to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def main() -> None:
    """Measure, print and write."""
    with tempfile.TemporaryDirectory() as folder:
        given, out = f"{folder}/in.npz", f"{folder}/out.npz"
        axes = 2 * [np.linspace(0, 1, 22)]
        positions = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(1, -1, 2)
        values = np.full((1, 484, 1), 5.0)
        np.savez(given, positions=positions, values=values, grid=np.array([22, 22]))
        calls = {
            "import torch": ["-c", "import torch"],
            "predict": ["-m", "funcattn", "predict", "darcy", given, "-o", out],
        }
        least = dict.fromkeys(calls, float("inf"))
        for _ in range(RUNS):
            for name, words in calls.items():
                least[name] = round(min(least[name], seconds(words)), 2)
    found = {**least, "beyond torch": round(least["predict"] - least["import torch"], 2)}
    print(json.dumps(found))
    record = {"CPU seconds": found, "command": shlex.join(["python", *sys.argv]), **facts()}
    write_text(RESULT, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
