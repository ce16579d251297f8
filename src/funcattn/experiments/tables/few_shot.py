"""The figure of few-shot sinusoids: predictions before and after training, error over context."""

from dataclasses import replace

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from funcattn.experiments.engine.claims import Below, First
from funcattn.experiments.engine.drawing import curves
from funcattn.experiments.engine.experiment import Column, Experiment, Outcome
from funcattn.experiments.engine.trained_networks import (
    first_test_sample,
    predicted,
    restored,
    untrained,
)
from funcattn.experiments.engine.trial import Trial
from funcattn.viz.style import OBSERVED, PREDICTION, TRUTH

_ONE_HEAD = "intention_one_head"
_ROWS = {
    "funcattn": "Functional attention",
    "intention": "Intention",
    _ONE_HEAD: "Intention, one head (not in the paper)",
    "transolver": "Transolver",
    "softmax": "Softmax attention",
}
SIZES = ("5", "10", "20", "40")


def _trial(row: str) -> Trial:
    if row == _ONE_HEAD:
        return Trial("few_shot", "intention", {"network": {"heads": 1}})
    return Trial("few_shot", row)


def _for_picture(trial: Trial) -> Trial:
    return replace(trial, changes={**trial.changes, "data": {"observations": 4}}, one_seed=True)


_PICTURE = {row: _for_picture(_trial(row)) for row in _ROWS if row != _ONE_HEAD}


def _figures(outcome: Outcome) -> dict[str, Figure]:
    lines = {}
    for row, name in _ROWS.items():
        found = [(float(size), outcome.numbers(row, size)) for size in SIZES]
        known = [(size, numbers.mean) for size, numbers in found if numbers is not None]
        if known:
            lines[name] = ([size for size, _ in known], [value for _, value in known])
    figures = {}
    if lines:
        figures["few_shot_error"] = curves(
            lines, x_label="observations", y_label="mean squared error"
        )
    if any(outcome.run_folder(trial) for trial in _PICTURE.values()):
        figures["few_shot_predictions"] = _predictions(outcome)
    return figures


def _predictions(outcome: Outcome) -> Figure:
    """The first test function from four observations, by each method, before and after training."""
    folders = {row: outcome.run_folder(trial) for row, trial in _PICTURE.items()}
    found = {row: folder for row, folder in folders.items() if folder is not None}
    figure = Figure(figsize=(2.7 * len(found), 4.4), layout="constrained")
    axes = figure.subplots(2, len(found), squeeze=False, sharex=True, sharey=True)
    for column, (row, folder) in zip(axes.T, found.items(), strict=True):
        task, trained = restored(folder)
        sample = first_test_sample(task, outcome.cache)
        for axis, when, network in zip(
            column, ("at the start", "trained"), (untrained(task), trained), strict=True
        ):
            assert sample.context is not None
            _draw(axis, sample.positions, sample.target, predicted(task, network, sample))
            axis.plot(*sample.context.T.numpy(), "o", color=OBSERVED, markersize=5)
            axis.set_title(f"{_ROWS[row]},\n{when}", fontsize=9)
    return figure


def _draw(axis: Axes, positions: Tensor, truth: Tensor, prediction: Tensor) -> None:
    order = torch.argsort(positions[:, 0])
    x = positions[order, 0].numpy()
    axis.plot(x, truth[order, 0].numpy(), color=TRUTH, linestyle=":", linewidth=1.5)
    axis.plot(x, prediction[order, 0].numpy(), color=PREDICTION, linewidth=1.6)
    top = 1.4 * float(np.abs(truth.numpy()).max())
    axis.set_ylim(-top, top)
    axis.grid(visible=True, alpha=0.3)


FEW_SHOT = Experiment(
    name="few_shot",
    aliases=("figure2",),
    title="Few-shot regression of sinusoids",
    unit="mean squared error, trained with 32 observations",
    rows=_ROWS,
    columns={
        size: Column(f"{size} observations", f"measured.mse.{size}", scale=1.0) for size in SIZES
    },
    trials={(row, size): _trial(row) for size in SIZES for row in _ROWS},
    more=tuple(_PICTURE.values()),
    claims=(
        *(
            First(
                f"functional attention has the lowest error from {size} observations",
                "funcattn",
                size,
            )
            for size in SIZES
        ),
        Below(
            "functional attention with 5 observations is below softmax attention with 40",
            "funcattn",
            "softmax",
            ("5",),
            than_columns=("40",),
        ),
        Below(
            "functional attention up to three orders below softmax attention",
            "funcattn",
            "softmax",
            SIZES,
            factor=1e3,
        ),
        Below(
            "functional attention up to three orders below Transolver",
            "funcattn",
            "transolver",
            SIZES,
            factor=1e3,
        ),
        Below(
            "functional attention up to one order below Intention",
            "funcattn",
            "intention",
            SIZES,
            factor=10.0,
        ),
    ),
    figures=_figures,
    notes=(
        "The paper shows a figure and prints no number.",
        "Tier cpu is the paper's configuration except for Intention's encoder, which has 256 "
        "channels instead of 1000.",
        "Intention sums its heads. With four heads it fits four times the observed values; with "
        "one head it fits the values themselves.",
    ),
)
