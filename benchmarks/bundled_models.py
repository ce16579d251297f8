"""Train the small runs that come with the package, and keep them in models/.

    python benchmarks/bundled_models.py                 # all; the same command goes on after a stop
    python benchmarks/bundled_models.py darcy pipe      # some
    python benchmarks/bundled_models.py --scale 0.5     # half as many epochs
    python benchmarks/bundled_models.py --bands         # no training: calibrate those that are kept

A run is trained in runs/models/NAME. Its weights, settings and record go to models/NAME; what only
training needs stays behind. The record says by which command, seed, commit and machine the run was
made, from which data, and what its error on test data is. Then it is calibrated in its place, by
`funcattn calibrate models/NAME`, with samples that the solver makes from a seed of their own.
"""

import argparse
import json
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from funcattn.cli.terminal import CACHE
from funcattn.data import Store
from funcattn.fitting.packing import copy_run
from funcattn.tasks.solved import Generated
from funcattn.training.run import Run
from funcattn.training.signed import write_signed

PROJECT = Path(__file__).parents[1]
EPOCHS = {
    "darcy": 40,
    "elasticity": 20,
    "airfoil": 100,
    "pipe": 100,
    "burgers": 80,
    "few_shot": 10,
}
"""Two to four minutes of one core for each."""
MODELS = {"few_shot": "funcattn"}
"""Regression from observations has a form of the paper's network only."""
MOST_BYTES = 3_000_000
ONLY_FOR_TRAINING = ("report.html", "metrics.jsonl", "metrics.csv", "checksums.json")


def train(name: str, folder: Path, epochs: int, profile: str) -> Run:
    """The finished run in a folder."""
    command = [
        *(sys.executable, "-m", "funcattn", "train", name, "--profile", profile),
        *("--model", MODELS.get(name, "functional_operator")),
        *("--optimisation.epochs", str(epochs), "--out", str(folder)),
    ]
    if (folder / "settings.json").exists():
        command.append("--resume")
    subprocess.run(command, check=True)
    return Run(folder)


def facts_of_data(run: Run, store: Store) -> dict[str, Any]:
    """How the data was made, and the range of each output in training."""
    task, splits = run.task, run.task.splits(store)
    found: dict[str, Any] = {"settings": asdict(run.settings.data)}
    if isinstance(task, Generated):
        recipe = task.recipe()
        found |= {"recipe": recipe.name, "parameters": dict(recipe.parameters)}
    targets = [splits.train[i].target for i in range(len(splits.train))]
    channels = task.problem.output_channels
    ranges = {}
    for field, part in task.problem.output_slices.items():
        of_field = [target.reshape(-1, channels)[:, part] for target in targets]
        lows, highs = [float(t.min()) for t in of_field], [float(t.max()) for t in of_field]
        ranges[field] = [min(lows), max(highs)]
    return {"data_recipe": found, "output_range": ranges}


def keep(run: Run, target: Path, facts: dict[str, Any]) -> None:
    """Copy what predicting needs, with a record."""
    aside = target.with_name(f".{target.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    copy_run(run.folder, aside)
    for name in ONLY_FOR_TRAINING:
        (aside / name).unlink(missing_ok=True)
    write_signed(aside / "record.json", json.dumps(run.record | facts, indent=1) + "\n")
    shutil.rmtree(target, ignore_errors=True)
    aside.rename(target)


def calibrate(target: Path) -> int:
    """Give a run that is kept its bands; the bytes that it then takes."""
    place = target.relative_to(PROJECT) if target.is_relative_to(PROJECT) else target
    command = [sys.executable, "-m", "funcattn", "calibrate", str(place)]
    subprocess.run(command, check=True, cwd=PROJECT)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    if size > MOST_BYTES:
        raise ValueError(f"{target}: expected at most {MOST_BYTES} bytes, got {size}")
    return size


def main() -> None:
    """Train, keep and calibrate what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"default: {' '.join(EPOCHS)}")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of epochs")
    parser.add_argument("--profile", default="cpu")
    parser.add_argument("--bands", action="store_true", help="only calibrate what is kept")
    parser.add_argument("--runs", type=Path, default=Path("runs/models"), help="of the training")
    parser.add_argument("--out", type=Path, default=PROJECT / "models")
    asked = parser.parse_args()
    for name in asked.names or EPOCHS:
        if name not in EPOCHS:
            parser.error(f"expected names among {', '.join(EPOCHS)}, got {name!r}")
        target = asked.out / name
        if not asked.bands:
            epochs = max(1, round(EPOCHS[name] * asked.scale))
            run = train(name, asked.runs / name, epochs, asked.profile)
            keep(run, target, facts_of_data(run, Store(CACHE)))
        size = calibrate(target)
        run = Run(target)
        error = run.record["test"][run.task.headline]
        print(f"{target}: {size:,} bytes, test {run.task.headline} {error:.4g}")


if __name__ == "__main__":
    main()
