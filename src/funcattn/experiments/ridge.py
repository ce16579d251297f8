"""The table and figure of where the ridge starts, with condition numbers over training."""

import math

from matplotlib.figure import Figure

from funcattn.experiments.base import Column, Run
from funcattn.experiments.claims import Falls, Near
from funcattn.experiments.drawing import condition_curves
from funcattn.experiments.experiment import Experiment, Outcome

_STARTS = (0, 3, 6)
_COLUMNS = {
    "condition": Column("Condition number", "measured.condition", scale=1.0, ranked=False),
    "error": Column("Error"),
}


def _run(start: int) -> Run:
    weight = 1 / (1 + math.exp(-start))
    return Run("elasticity", changes={"network": {"ridge": weight}})


def _figures(outcome: Outcome) -> dict[str, Figure]:
    lines = {f"alpha starts at {start}": _run(start) for start in _STARTS}
    return condition_curves(outcome, "ridge_condition", lines)


RIDGE = Experiment(
    name="ridge",
    aliases=("table13", "figure7"),
    title="Start of the ridge on Elasticity",
    unit="condition number after training, a mean over layers; relative L2 error, times 100",
    rows={str(start): f"alpha = {start}" for start in _STARTS},
    columns=_COLUMNS,
    runs={(str(start), column): _run(start) for column in _COLUMNS for start in _STARTS},
    claims=(
        Falls("the condition number falls with a stronger ridge", "condition", ("0", "3", "6")),
        Near("the error varies by 4.2 % or less with the start of the ridge", "error", 0.042),
    ),
    figures=_figures,
)
