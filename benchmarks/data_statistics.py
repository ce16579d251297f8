"""How our data sets compare with what is known of the originals, in numbers.

    python benchmarks/data_statistics.py [NAME ...] [--profile cpu] [--cache FOLDER]

makes the sets that are missing, prints a table, and writes results/data_statistics.json with
commit and machine beside the numbers. What is known of the originals was read off published plots
and inspections of their files, by eye in places.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from funcattn.cli.terminal import CACHE
from funcattn.data import Store
from funcattn.provenance import facts
from funcattn.tasks import TASKS, Generated

RESULTS = Path(__file__).parent.parent / "results" / "data_statistics.json"

Read = Callable[[str], np.ndarray]
Rows = dict[str, tuple[str, str]]
"""By what is measured: the original's, and ours."""


def elasticity(read: Read) -> Rows:
    """Von Mises stress."""
    stress = read("stress")
    middle, top = stress.mean(1), stress.max(1)
    bins = np.histogram(stress, bins=18 * np.arange(8))[0] / stress.size * 1944
    return {
        "mean stress of a sample, least / median / greatest": (
            "150 / 185 / 260",
            f"{middle.min():.0f} / {np.median(middle):.0f} / {middle.max():.0f}",
        ),
        "greatest stress of a sample, least / median / greatest": (
            "470 / 880 / 1440",
            f"{top.min():.0f} / {np.median(top):.0f} / {top.max():.0f}",
        ),
        "points in bins of 18, in thousands of 1944": (
            "35, 111, 107, 89, 90, 134, 126",
            ", ".join(f"{count:.0f}" for count in bins),
        ),
    }


def plasticity(read: Read) -> Rows:
    """Die and motion."""
    die, motion = read("die"), read("motion")
    span = np.ptp(die, axis=1)
    left, right = motion[:, 0, -1, -1, 2], motion[:, -1, -1, -1, 2]
    return {
        "least height of a die, mm": ("about 15", f"{die.min():.2f}"),
        "span of a die, mm, median / greatest": (
            "one sample: 8.3",
            f"{np.median(span):.1f} / {span.max():.1f}",
        ),
        "deepest point of the top at the last frame, mm below its start, median": (
            "5.7",
            f"{np.median(15 - motion[:, :, 0, -1, 1].min(1)):.2f}",
        ),
        "slide of the ends of the bottom outwards, mm, median of their mean": (
            "1 to 2",
            f"{np.median((right - left) / 2):.1f}",
        ),
        "slide of the middle between them, mm, median of its size": (
            "not known",
            f"{np.median(np.abs(right + left) / 2):.1f}",
        ),
    }


def airfoil(read: Read) -> Rows:
    """The Euler flow."""
    density, u, v, pressure, mach = np.moveaxis(read("flow").astype(np.float64), 1, 0)
    entropy = (pressure / density**1.4).std((1, 2))
    energy = 2.5 * pressure / density + (u**2 + v**2) / 2
    return {
        "supersonic points": ("about 5 %", f"{100 * (mach > 1).mean():.1f} %"),
        "p / rho^1.4, deviation in a sample, median": ("about 0.01", f"{np.median(entropy):.4f}"),
        "energy / mass, mean and deviation in a sample": (
            "2.948, about 0.04",
            f"{energy.mean():.3f}, {np.median(energy.std((1, 2))):.3f}",
        ),
    }


def pipe(read: Read) -> Rows:
    """Channel and flow."""
    y, flow = read("y"), read("flow")
    return {
        "range of y": ("in plots about -1.7 to 1.7", f"{y.min():.2f} to {y.max():.2f}"),
        "range of the velocity along x": (
            "in plots -0.001 to 0.31; 1.8 in some outlet corners",
            f"{flow[:, 0].min():.3f} to {flow[:, 0].max():.3f}",
        ),
        "peak at the inlet": ("0.25", f"{flow[:, 0, 0].max():.4f}"),
    }


STATISTICS: Mapping[str, Callable[[Read], Rows]] = {
    "elasticity": elasticity,
    "plasticity": plasticity,
    "airfoil": airfoil,
    "pipe": pipe,
}


def main() -> None:
    """Measure the sets that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(STATISTICS)}; default: all")
    parser.add_argument("--profile", default="cpu", choices=["paper", "cpu", "smoke"])
    parser.add_argument("--cache", type=Path, default=CACHE)
    asked = parser.parse_args()
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in asked.names or STATISTICS:
        task = TASKS[name](TASKS[name].defaults(asked.profile, "modern"))
        assert isinstance(task, Generated)
        made = Store(asked.cache, workers=2).made(task.recipe(), 0, task.count)
        rows = STATISTICS[name](lambda field, made=made: made.read(field, range(len(made))))
        said = made.provenance
        print(f"\n{name}, {said['samples']} samples, {said['rejected']} draws rejected")
        for what, (original, ours) in rows.items():
            print(f"  {what:68}{original:28}{ours}")
        found[name] = {
            "rows": {what: {"original": a, "ours": b} for what, (a, b) in rows.items()},
            **{key: said[key] for key in ("samples", "rejected", "parameters", "seed")},
            "seconds_per_sample": said["seconds_per_sample"],
            "command": " ".join(["python", *sys.argv]),
            **facts(),
        }
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
