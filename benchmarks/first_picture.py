"""The README's first picture: the stress around a void, by the run that comes with the package.

    python benchmarks/first_picture.py [--cache FOLDER]

Writes docs/pictures/first.png and beside it what made it: of the 200 test samples the one with the
median error and the one with the worst, by the run's own record.
"""

import argparse
import json
from pathlib import Path

import numpy as np

import funcattn
from funcattn.data import Store
from funcattn.files import write_text
from funcattn.provenance import facts
from funcattn.training.bundled import run_folder
from funcattn.training.run import Run
from funcattn.viz import Panel, Row, canvas, point_rows

PICTURE = Path("docs/pictures/first.png")


def main() -> None:
    """Predict both samples, draw them, and keep how."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=Path("data"))
    given = parser.parse_args()
    run = Run(run_folder("elasticity"))
    errors = np.array(run.record["test_values"]["relative_l2"])
    order = errors.argsort(kind="stable")
    chosen = {"median": int(order[len(order) // 2]), "worst": int(order[-1])}
    test, predictor = run.task.splits(Store(given.cache)).test, funcattn.load("elasticity")
    rows, found = [], {}
    for name, number in chosen.items():
        sample = test[number]
        truth = sample.target[:, 0].double().numpy()
        predicted = np.asarray(predictor.predict(sample.positions), dtype=float)[:, 0]
        found[name] = float(np.linalg.norm(predicted - truth) / np.linalg.norm(truth))
        panels = [
            Panel("solver", truth, scale=name),
            Panel("network", predicted, scale=name),
            Panel("difference", np.abs(predicted - truth), "magma", from_zero=True),
        ]
        title = f"the {name} of {len(test)}\ntest cases: {found[name]:.1%}"
        rows.append(Row(title, canvas(sample.positions.double().numpy()), panels))
    point_rows(rows).savefig(PICTURE, dpi=110, bbox_inches="tight")
    said = {"run": "models/elasticity", "samples": chosen, "relative_l2": found}
    said |= {"recorded": {name: float(errors[number]) for name, number in chosen.items()}}
    said |= {"command": "python benchmarks/first_picture.py", **facts()}
    write_text(Path("results/first_picture.json"), json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
