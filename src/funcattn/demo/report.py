"""The demo's test, done once, and its report."""

import json
import os
import platform
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from funcattn import __version__
from funcattn.demo.model import NETWORKS, Config, Darcy, build
from funcattn.demo.training import Trained, predict, relative_errors
from funcattn.viz import (
    Panel,
    Picture,
    Section,
    Table,
    basis_gallery,
    curves,
    field_rows,
    write_report,
)


def nearest_neighbour(a: Tensor, u: Tensor, queries: Tensor) -> Tensor:
    """The pressure of the training sample whose permeability is closest."""
    return u[torch.cdist(queries.flatten(1), a.flatten(1)).argmin(dim=1)]


def learned_bases(model: Darcy, a: Tensor) -> dict[str, Tensor]:
    """The values (g, x, y) of each layer's first head on one permeability (x, y)."""
    seen: dict[str, Tensor] = {}
    hooks = [
        module.register_forward_hook(
            lambda _module, _inputs, values, key=name: seen.update({key: values[0, 0].T})
        )
        for name, module in model.named_modules()
        if name.endswith("attention.basis")
    ]
    with torch.no_grad():
        model.eval()(a[None])
    for hook in hooks:
        hook.remove()
    return {key: values.reshape(-1, *a.shape) for key, values in seen.items()}


def case_panels(a: Tensor, truth: Tensor, prediction: Tensor) -> list[Panel]:
    """Input, truth, prediction and error of one sample."""
    return [
        Panel("permeability", a.numpy(), colours="cividis"),
        Panel("pressure, solver", truth.numpy(), scale="pressure"),
        Panel("pressure, network", prediction.numpy(), scale="pressure"),
        Panel("absolute error", (prediction - truth).abs().numpy(), colours="magma"),
    ]


def percent(error: float) -> str:
    """A relative error as people read it."""
    return f"{100 * error:.2f} %"


def report(
    folder: Path, config: Config, trained: dict[str, Trained], fine: tuple[Tensor, Tensor]
) -> dict[str, Any]:
    """Test once, write the report, and return what it says as a record."""
    every = config.coarse_stride
    a_fine, u_fine = fine
    a, u = a_fine[:, ::every, ::every], u_fine[:, ::every, ::every]
    fit, test = slice(0, config.train), slice(config.train + config.validation, None)

    models = {name: build(config, name) for name in NETWORKS}
    for name, model in models.items():
        state = {key: torch.from_numpy(array) for key, array in trained[name].state.items()}
        model.load_state_dict(state)
    ours = models["functional attention"]
    prediction, errors = predict(ours, a[test], u[test])
    prediction_fine, errors_fine = predict(ours, a_fine[test], u_fine[test])
    guesses = {
        "the mean of the training pressures": u[fit].mean(0).expand_as(u[test]),
        "the nearest training sample": nearest_neighbour(a[fit], u[fit], a[test]),
        "the same network without attention": predict(
            models["without attention"], a[test], u[test]
        )[0],
    }
    yardsticks = {
        name: float(relative_errors(guess, u[test]).mean()) for name, guess in guesses.items()
    }
    error, error_fine = float(errors.mean()), float(errors_fine.mean())
    n, n_fine = a.shape[1], a_fine.shape[1]
    main = trained["functional attention"]
    record = {
        "test_error": error,
        f"test_error_at_{n_fine}x{n_fine}": error_fine,
        "yardsticks": yardsticks,
        "parameters": main.parameters,
        "best_epoch": main.best_epoch,
        "validation_error": min(main.validation_errors),
        "training_seconds": round(main.seconds, 1),
        "config": asdict(config),
        "command": "python -m funcattn.demo",
        "commit": _commit(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "versions": {
            "funcattn": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
    }

    ranking = errors.argsort()
    cases = {
        f"{word}, {percent(float(errors[i]))}": case_panels(a[test][i], u[test][i], prediction[i])
        for word, i in zip(
            ("best", "median", "worst"), ranking[[0, len(ranking) // 2, -1]], strict=True
        )
    }
    middle = int(ranking[len(ranking) // 2])
    fine_case = {
        f"median, {percent(float(errors_fine[middle]))}": case_panels(
            a_fine[test][middle], u_fine[test][middle], prediction_fine[middle]
        )
    }
    bases = learned_bases(ours, a_fine[test][middle])
    galleries = []
    for name in (min(bases), max(bases)):
        values = bases[name]
        by_mass = values.flatten(1).sum(1).argsort(descending=True)[:16]
        layer = int(name.split(".")[2]) + 1
        galleries.append(
            Picture(
                basis_gallery(
                    [values[j].numpy() for j in by_mass], [f"function {int(j)}" for j in by_mass]
                ),
                f"Layer {layer}, head 1: the {len(by_mass)} basis functions of largest mass, on "
                "the permeability of the median case. Each has its own colour range.",
            )
        )
    write_report(
        folder / "report.html",
        title="Functional attention learns Darcy flow",
        summary=(
            f"Relative error {percent(error)} on {config.test} test samples that were looked at "
            f"once. Predicting the mean gives "
            f"{percent(yardsticks['the mean of the training pressures'])}. Trained at {n} x {n} "
            f"points; asked at {n_fine} x {n_fine} points, which it never saw: "
            f"{percent(error_fine)}."
        ),
        sections=[
            Section(
                "Against honest yardsticks",
                "Mean over the test samples of ||prediction - truth|| / ||truth||. The network "
                "without attention has the same blocks but moves nothing between points, and was "
                "trained on the same data in the same way.",
                [
                    Table(
                        ("prediction", "relative error"),
                        [
                            ("functional attention", percent(error)),
                            *((name, percent(value)) for name, value in yardsticks.items()),
                        ],
                        strong=0,
                    )
                ],
            ),
            Section(
                "Predictions",
                f"The best, the median and the worst of {config.test} test samples.",
                pictures=[
                    Picture(field_rows(cases), f"At {n} x {n} points, the training resolution."),
                    Picture(
                        field_rows(fine_case),
                        f"The median case at {n_fine} x {n_fine} points, by the same network.",
                    ),
                ],
            ),
            Section(
                "Training",
                f"The epoch was chosen on {config.validation} validation samples.",
                pictures=[
                    Picture(
                        curves(
                            {
                                "training": main.train_errors,
                                "validation": main.validation_errors,
                                "validation, without attention": trained[
                                    "without attention"
                                ].validation_errors,
                            },
                            x_label="epoch",
                            y_label="relative error",
                            marked=main.best_epoch,
                        ),
                        "Relative error over the epochs.",
                    )
                ],
            ),
            Section(
                "Learned bases",
                "Functional attention projects fields onto functions that it makes from the input. "
                "They are a partition of unity: at every point the functions of a head sum to one.",
                pictures=galleries,
            ),
            Section(
                "How this was made",
                "-div(a grad u) = 1 on the unit square, u = 0 on the boundary, with a of 3 or 12 "
                f"by the sign of a Gaussian random field, solved on {config.solver_nodes} x "
                f"{config.solver_nodes} points.",
                [
                    Table(
                        ("what", "value"),
                        [
                            (key.replace("_", " "), json.dumps(value).strip('"'))
                            for key, value in (record | asdict(config)).items()
                            if key not in ("yardsticks", "config")
                        ],
                    )
                ],
            ),
        ],
    )
    return record


def _commit() -> str:
    """The commit of the source this runs from, marked where the tree differs from it."""
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        run = subprocess.run(
            describe, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return run.stdout.strip()
