"""The figures of predictions and errors on the six benchmarks, and of learned bases."""

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from funcattn.data import Sample
from funcattn.experiments.engine.experiment import Experiment, Outcome
from funcattn.experiments.engine.trained_networks import (
    first_test_sample,
    last_basis,
    predicted,
    restored,
)
from funcattn.experiments.engine.trial import Trial
from funcattn.experiments.tables.pde import TITLES
from funcattn.tasks import Task
from funcattn.viz import Canvas, Panel, Row, canvas, point_gallery, point_rows
from funcattn.viz.style import Reals

_SHOWN = 8
"""Basis functions per network."""
_MODELS = {"transolver": "Transolver", "funcattn": "functional attention"}
_BASES = {
    "funcattn": Trial("elasticity"),
    "transolver": Trial("elasticity", "transolver"),
    "orthonormal": Trial("elasticity", changes={"network": {"basis": "orthonormal"}}),
}


def _figures(outcome: Outcome) -> dict[str, Figure]:
    figures = {}
    for name in TITLES:
        folders = {model: outcome.run_folder(Trial(name, model)) for model in _MODELS}
        if all(folders.values()):
            figures[f"pictures_{name}"] = _predictions(outcome, name)
    for name, trial in _BASES.items():
        folder = outcome.run_folder(trial)
        if folder is not None:
            task, surrogate = restored(folder)
            sample = first_test_sample(task, outcome.cache)
            functions = last_basis(task, surrogate, sample)
            most = np.argsort(-functions.std(axis=1), kind="stable")[:_SHOWN]
            figures[f"pictures_basis_{name}"] = point_gallery(
                _place(task, sample), list(functions[most]), [f"{number}" for number in most]
            )
    return figures


def _predictions(outcome: Outcome, name: str) -> Figure:
    """Truth, predictions and absolute errors of the first test sample."""
    values: list[Panel] = []
    errors: list[Panel] = []
    for model, title in _MODELS.items():
        folder = outcome.run_folder(Trial(name, model))
        assert folder is not None
        task, surrogate = restored(folder)
        sample = first_test_sample(task, outcome.cache)
        truth = _field(sample.target)
        prediction = _field(predicted(task, surrogate, sample))
        error = 100 * np.linalg.norm(prediction - truth) / np.linalg.norm(truth)
        values = values or [Panel("truth", truth, scale="values")]
        values.append(Panel(title, prediction, scale="values"))
        errors.append(
            Panel(
                f"error of {title}: {error:.3g} %",
                np.abs(prediction - truth),
                "magma",
                scale="errors",
                from_zero=True,
            )
        )
    place = _place(task, sample)
    return point_rows([Row(TITLES[name], place, values), Row("", place, errors)])


def _field(target: Tensor) -> Reals:
    """What is drawn: the last frame, and of positions with displacements the displacement."""
    if target.ndim == 3:
        return np.asarray(target[:, -1, 2:].norm(dim=-1).double().numpy())
    return np.asarray(target[:, -1].double().numpy())


def _place(task: Task, sample: Sample) -> Canvas:
    return canvas(task.drawn_at(sample).double().numpy(), sample.grid)


PICTURES = Experiment(
    name="pictures",
    aliases=("figure3", "figure8", "figure9", "figure10", "figure11", "figure12"),
    title="Predictions, errors and learned bases",
    unit="",
    rows={},
    columns={},
    trials={},
    more=(
        *(Trial(task, model) for task in TITLES for model in reversed(_MODELS)),
        _BASES["orthonormal"],
    ),
    figures=_figures,
    notes=(
        "Each picture shows the first test sample, and of time-dependent tasks its last frame.",
        "The epochs of tier cpu leave both networks far from trained on Airfoil, Navier-Stokes and "
        "Plasticity; the races show what two minutes with a better recipe bring.",
        "The basis functions are those of the first head of the last layer on Elasticity: the "
        "eight that vary most.",
    ),
)
