"""The demo's yardsticks and its report."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from funcattn.data import Store, StoredSet, grid_positions, trapezoid_weights
from funcattn.files import write_text
from funcattn.serve import load
from funcattn.settings import RunSettings
from funcattn.tasks.darcy import Darcy
from funcattn.tasks.losses import relative_l2
from funcattn.training.report import describe_run
from funcattn.training.run import Run
from funcattn.viz import Panel, Picture, Section, Table, field_rows, write_run_report


def percent(error: float) -> str:
    """A relative error as people read it."""
    return f"{100 * error:.2f} %"


def nearest_neighbour(a: Tensor, u: Tensor, queries: Tensor) -> Tensor:
    """The pressure of the training sample whose permeability is closest."""
    return u[torch.cdist(queries.flatten(1), a.flatten(1)).argmin(dim=1)]


def report(
    store: Store,
    settings: RunSettings,
    runs: Mapping[str, Run],
    made: StoredSet,
) -> dict[str, Any]:
    """Compare with honest yardsticks, write the report, and return what it says as a record."""
    a_fine, u_fine = (
        torch.from_numpy(made.read(name, range(len(made)))) for name in ("permeability", "pressure")
    )
    data = Darcy(settings).data
    every = data.use_every // data.store_every
    a, u = a_fine[:, ::every, ::every], u_fine[:, ::every, ::every]
    fit, test = slice(0, settings.data.train), slice(-settings.data.test, None)
    guesses = {
        "the mean of the training pressures": u[fit].mean(0).expand_as(u[test]),
        "the nearest training sample": nearest_neighbour(a[fit], u[fit], a[test]),
    }
    yardsticks = {
        name: float(relative_l2(guess, u[test]).mean()) for name, guess in guesses.items()
    }
    without = runs["without attention"].record["test"]["relative_l2"]
    yardsticks["a network that sees each point by itself"] = without

    ours = runs["functional attention"].record
    error, errors = ours["test"]["relative_l2"], ours["test_values"]["relative_l2"]
    predicted = ask(runs["functional attention"], a_fine[test])
    errors_fine = relative_l2(predicted, u_fine[test])
    error_fine = float(errors_fine.mean())
    n, n_fine = a.shape[1], a_fine.shape[1]
    record = {
        "test_error": error,
        "test_error_finer": error_fine,
        "grids": [n, n_fine],
        "yardsticks": yardsticks,
    } | {name: value for name, value in ours.items() if name not in ("test", "test_values")}

    middle = int(np.argsort(errors)[len(errors) // 2])
    case = [
        Panel("permeability", a_fine[test][middle].numpy(), colours="cividis"),
        Panel("pressure, solver", u_fine[test][middle].numpy(), scale="pressure"),
        Panel("pressure, network", predicted[middle].numpy(), scale="pressure"),
        Panel(
            "absolute error",
            (predicted[middle] - u_fine[test][middle]).abs().numpy(),
            colours="magma",
        ),
    ]
    comparison = Section(
        "Against honest yardsticks",
        "Mean over the test samples of ||prediction - truth|| / ||truth||. The network that sees "
        "each point by itself moves nothing between points; it was trained on the same data, for "
        "as many steps.",
        tables=[
            Table(
                ("prediction", "relative error"),
                [
                    ("functional attention", percent(error)),
                    (f"the same, asked at {n_fine} x {n_fine} points", percent(error_fine)),
                    *((name, percent(value)) for name, value in yardsticks.items()),
                ],
                strong=0,
            )
        ],
        pictures=[
            Picture(
                field_rows({f"median, {percent(float(errors_fine[middle]))}": case}),
                f"The median case at {n_fine} x {n_fine} points, by the network trained at "
                f"{n} x {n}.",
            )
        ],
    )
    page = replace(
        describe_run(runs["functional attention"], store),
        title="Functional attention learns Darcy flow",
        summary=(
            f"Relative error {percent(error)} on {settings.data.test} test samples that were read "
            "once; the nearest training sample gives "
            f"{percent(yardsticks['the nearest training sample'])}. Trained at {n} x {n} points, "
            f"asked at {n_fine} x {n_fine}: {percent(error_fine)}."
        ),
        first=[comparison],
    )
    write_run_report(store.folder / "report.html", page)
    write_text(store.folder / "record.json", json.dumps(record, indent=1) + "\n")
    return record


def ask(run: Run, permeability: Tensor) -> Tensor:
    """A trained run's pressures for permeabilities (b x y) on any grid."""
    b, *grid = permeability.shape
    predictor = load(run)
    pressures = [
        predictor.predict(
            grid_positions(grid).expand(len(part), -1, -1),
            part.reshape(len(part), -1, 1),
            grid=grid,
            weights=trapezoid_weights(grid).expand(len(part), -1),
        )
        for part in permeability.split(20)
    ]
    return torch.cat(pressures).reshape(b, *grid)
