"""A first surrogate from a folder of 100 VTU files of about 2,000 nodes, by one command.

    python benchmarks/own_data.py FOLDER

Makes plates with a random hole by examples/own_meshes.py, in a folder that is not there yet. Then
come the commands that a user types: `inspect`, `fit` with a budget of four minutes, `predict` for
three new plates, `report`, `pack`. Writes results/own_data.json: the CPU time of each command with
its children, the errors beside those of the yardsticks, and the error on the new plates.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyvista

from funcattn.files import write_text
from funcattn.provenance import cpu_seconds, facts

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from own_meshes import write_plates

RESULT = Path("results/own_data.json").resolve()
PLATES, NODES, NEW = 100, 48, 3
FIELDS = ("displacement", "stress")


def main(folder: Path, budget: str) -> None:
    """Make, ask, keep."""
    table = write_plates(folder / "plates", PLATES, NODES)
    write_plates(folder / "new" / "plates", NEW, NODES, seed=1)
    points = [pyvista.read(each).n_points for each in sorted((folder / "plates").glob("*.vtu"))]
    commands = {
        "inspect": f"funcattn inspect plates --parameters {table.name}",
        "fit": f"funcattn fit plates.toml --budget {budget} --out runs/plates",
        "predict": "funcattn predict runs/plates new/plates -o predicted "
        f"--parameters new/{table.name}",
        "report": "funcattn report runs/plates",
        "pack": "funcattn pack runs/plates -o plates.zip",
    }
    seconds = {}
    for name, line in commands.items():
        cpu, clock = cpu_seconds(), time.monotonic()
        words = shlex.split(line)[1:]
        subprocess.run([sys.executable, "-m", "funcattn", *words], cwd=folder, check=True)
        seconds[name] = {
            "cpu": round(cpu_seconds() - cpu, 1),
            "clock": round(time.monotonic() - clock, 1),
        }
    run = folder / "runs" / "plates"
    record = json.loads((run / "record.json").read_text())
    yardsticks = json.loads((run / "yardsticks.json").read_text())
    error = record["test"]["error"]
    result = {
        "what": (__doc__ or "").partition("\n")[0],
        "command": f"python benchmarks/own_data.py FOLDER --budget {budget}",
        "commands": commands,
        "threads": os.environ.get("OMP_NUM_THREADS", "those of the free cores"),
        "seconds": seconds,
        "note": "seconds by the clock are those of a machine that others use too",
        "seed": record["settings"]["seed"],
        "points": {"fewest": min(points), "most": max(points)},
        "error": "root mean square error over the deviation of each field in training, mean over "
        "the fields; fields in their units",
        "surrogate": record["test"],
        "yardsticks": yardsticks,
        "below every yardstick": all(error < each["error"] for each in yardsticks.values()),
        "new plates": errors_of_new(folder / "predicted"),
        "cases": sizes(run),
        "epochs": record["settings"]["optimisation"]["epochs"],
        "best_epoch": record["best_epoch"],
        "network": {"model": record["settings"]["model"], **record["settings"]["network"]},
        **{name: each for name, each in facts().items() if name != "threads"},
    }
    write_text(RESULT, json.dumps(result, indent=1) + "\n")


def errors_of_new(folder: Path) -> dict[str, float]:
    """The root mean square error over the plates, of each field, from the files as written."""
    squares: dict[str, list[float]] = {name: [] for name in FIELDS}
    for path in sorted(folder.glob("*.vtu")):
        mesh = pyvista.read(path)
        for name in FIELDS:
            error = np.asarray(mesh.point_data[f"{name}_error"]).reshape(mesh.n_points, -1)
            squares[name].append(float(np.square(error).sum(1).mean()))
    return {name: float(np.sqrt(np.mean(each))) for name, each in squares.items()}


def sizes(run: Path) -> dict[str, int]:
    """How many cases each part has."""
    cases = json.loads((run / "surrogate.json").read_text())["cases"]
    return {part: len(names) for part, names in cases.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--budget", default="4min")
    asked = parser.parse_args()
    main(asked.folder, asked.budget)
