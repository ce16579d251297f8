"""The table and figure of where the ridge starts, with condition numbers over training."""

import math

from matplotlib.figure import Figure

from funcattn.experiments.engine.claims import Falls, Near
from funcattn.experiments.engine.drawing import condition_curves
from funcattn.experiments.engine.experiment import Column, Experiment, Outcome
from funcattn.experiments.engine.trial import Trial
from funcattn.experiments.tables.paper import PAPER

_STARTS = (0, 3, 6)
_COLUMNS = {
    "condition": Column(
        "Condition number", "measured.condition", 1.0, ranked=False, quantity="condition number"
    ),
    "error": Column("Error"),
}


def _trial(start: int) -> Trial:
    weight = 1 / (1 + math.exp(-start))
    return Trial("elasticity", changes={"network": {"ridge": weight}})


def _figures(outcome: Outcome) -> dict[str, Figure]:
    lines = {f"alpha starts at {start}": _trial(start) for start in _STARTS}
    return condition_curves(outcome, "ridge_condition", lines)


RIDGE = Experiment(
    name="ridge",
    aliases=("table13", "figure7"),
    title="Start of the ridge on Elasticity",
    unit="condition number after training, mean over layers; relative L2 error, times 100",
    rows={str(start): f"alpha = {start}" for start in _STARTS},
    columns=_COLUMNS,
    trials={(str(start), column): _trial(start) for column in _COLUMNS for start in _STARTS},
    paper=PAPER["ridge"],
    claims=(
        Falls("the condition number falls with a stronger ridge", "condition", ("0", "3", "6")),
        Near("the error varies by 4.2 % or less with the start of the ridge", "error", 0.042),
    ),
    figures=_figures,
)
