"""What bundled networks say at the same points of a finer grid.

    python benchmarks/finer_grids.py

Positions and inputs of test samples are interpolated by cubic splines to a grid of twice the
resolution, of which every second point is a point of the old one. Writes results/finer_grids.json:
relative L2 errors at the old points, of the network on the old grid and on the finer one, and the
difference of the two. Inputs with jumps, as the coefficients of Darcy, cannot be interpolated, and
are left out. A minute.
"""

import json
import shlex
import statistics
import sys
from pathlib import Path

import numpy as np
import torch
from scipy.interpolate import CubicSpline
from torch import Tensor

from funcattn.cli.terminal import CACHE
from funcattn.data import Sample, Store
from funcattn.files import write_text
from funcattn.provenance import facts
from funcattn.training.bundled import run_folder
from funcattn.training.run import Run

NAMES = ("pipe", "airfoil")
SAMPLES = 20
RESULT = Path("results/finer_grids.json")


def finer(values: Tensor, grid: tuple[int, ...]) -> Tensor:
    """Values (n c) of a grid on one with twice as many gaps along each axis."""
    field = values.double().numpy().reshape(*grid, -1)
    for axis, length in enumerate(grid):
        at = np.linspace(0, length - 1, 2 * length - 1)
        field = CubicSpline(np.arange(length), field, axis=axis)(at)
    return torch.as_tensor(field.reshape(-1, field.shape[-1]), dtype=values.dtype)


def compared(run: Run, sample: Sample) -> tuple[float, float, float]:
    """Errors on both grids, and the difference, at the points of the sample."""
    grid = sample.grid
    assert grid is not None
    fine = tuple(2 * length - 1 for length in grid)

    def said(lift: bool) -> Tensor:
        given = [
            None if each is None else (finer(each, grid) if lift else each)[None]
            for each in (sample.positions, sample.values)
        ]
        with torch.no_grad():
            out: Tensor = run.network(*given, grid=fine if lift else grid)
        if lift:
            steps = (slice(None), *(slice(None, None, 2) for _ in grid))
            out = out.reshape(1, *fine, -1)[steps].reshape(1, len(sample.target), -1)
        return out[0]

    old, new, true = said(False), said(True), sample.target
    pairs = ((old, true), (new, true), (new, old))
    return tuple(float((a - b).norm() / b.norm()) for a, b in pairs)  # type: ignore[return-value]


def main() -> None:
    """Measure and write."""
    torch.set_num_threads(1)
    found = {}
    for name in NAMES:
        run = Run(run_folder(name))
        test = run.task.splits(Store(CACHE)).test
        lines = [compared(run, test[i]) for i in range(SAMPLES)]
        words = ("error on its grid", "error on the finer grid", "difference")
        found[name] = {
            word: round(statistics.fmean(each), 5)
            for word, each in zip(words, zip(*lines, strict=True), strict=True)
        }
        print(name, found[name], flush=True)
    record = {"networks": found, "samples": SAMPLES, "command": shlex.join(["python", *sys.argv])}
    write_text(RESULT, json.dumps({**record, "seed": 0, **facts()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
