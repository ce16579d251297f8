"""What a sample of each data set costs: CPU seconds of one thread.

    python benchmarks/solvers.py [NAME ...] [--samples 5]

prints a table, and writes results/solvers.json with commit and machine beside the numbers. The
yardstick is what a first prototype of each solver took, on a machine of the same kind.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from funcattn.pde import (
    airfoil,
    burgers,
    darcy,
    darcy_notch,
    elasticity,
    navier_stokes,
    openfoam,
    panel,
    pipe,
    plasticity,
)
from funcattn.pde.errors import NotConvergedError
from funcattn.provenance import cpu_seconds, facts

RESULTS = Path(__file__).parent.parent / "results" / "solvers.json"


@dataclass(frozen=True)
class SolverCase:
    """A solver at one size."""

    make: Callable[..., Mapping[str, Any]]
    parameters: Mapping[str, Any]
    yardstick: float
    """CPU seconds per sample."""


CASES = {
    "burgers 8192": SolverCase(burgers.sample, {"points": 8192}, 0.0045),
    "darcy 421": SolverCase(darcy.sample, {"nodes": 421}, 0.50),
    "darcy 211": SolverCase(darcy.sample, {"nodes": 211}, 0.16),
    "darcy 85": SolverCase(darcy.sample, {"nodes": 85}, 0.04),
    "darcy_notch 101": SolverCase(darcy_notch.sample, {"nodes": 101}, 0.0039),
    "navier_stokes 64": SolverCase(navier_stokes.sample, {"points": 64, "keep": 64}, 0.43),
    "navier_stokes 128": SolverCase(navier_stokes.sample, {"points": 128, "keep": 64}, 2.2),
    "elasticity 972": SolverCase(elasticity.sample, {}, 0.034),
    "airfoil 221 x 51": SolverCase(airfoil.sample, {}, 5.5),
    "pipe 129": SolverCase(pipe.sample, {}, 2.45),
    "plasticity 101 x 31": SolverCase(plasticity.sample, {}, 12.0),
    "plasticity 51 x 16": SolverCase(plasticity.sample, {"columns": 51, "rows": 16}, 1.7),
    "panel 32000": SolverCase(panel.sample, {}, 2.04),
    "openfoam coarse": SolverCase(openfoam.sample, {"mesh": "coarse"}, 5.0),
    "openfoam fine": SolverCase(openfoam.sample, {"mesh": "fine"}, 34.0),
    "navier_stokes 256": SolverCase(navier_stokes.sample, {"points": 256, "keep": 64}, 17.5),
}


def seconds(case: SolverCase, samples: int) -> list[float]:
    """CPU seconds of each sample, rejected draws included, after one that warms and compiles."""
    took = []
    for index in range(-1, samples):
        start = cpu_seconds()
        for attempt in range(10):
            rng = np.random.default_rng([0, index + 1, attempt])
            with suppress(NotConvergedError):
                case.make(**case.parameters, rng=rng)
                break
        took.append(cpu_seconds() - start)
    return took[1:]


def main() -> None:
    """Time the solvers that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of names; default: all")
    parser.add_argument("--samples", type=int, default=5)
    asked = parser.parse_args()
    chosen = [name for name in CASES if not asked.names or name.startswith(tuple(asked.names))]
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    print(f"{'solver':24}{'seconds per sample':>18}{'yardstick':>12}{'ratio':>8}")
    for name in chosen:
        case = CASES[name]
        took = seconds(case, asked.samples)
        middle = statistics.median(took)
        print(f"{name:24}{middle:18.4g}{case.yardstick:12.4g}{case.yardstick / middle:8.2f}")
        found[name] = {
            "seconds": took,
            "median": middle,
            "yardstick": case.yardstick,
            "parameters": dict(case.parameters),
            "command": " ".join(["python", *sys.argv]),
            **facts(),
        }
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
