"""The table and figure of transpose against pseudo-inverse, with condition numbers."""

from matplotlib.figure import Figure

from funcattn.experiments.engine.claims import Below
from funcattn.experiments.engine.drawing import condition_curves
from funcattn.experiments.engine.experiment import Column, Experiment, Outcome
from funcattn.experiments.engine.trial import Trial
from funcattn.experiments.tables.paper import PAPER

_ROWS = {
    "pinv": "Stabilised pseudo-inverse",
    "transpose": "Transpose",
    "average": "Average (not in the paper)",
}
_COLUMNS = {
    "elasticity": Column("Elasticity"),
    "darcy": Column("Darcy"),
    "condition": Column(
        "Condition number on Elasticity",
        "measured.condition",
        1.0,
        ranked=False,
        quantity="condition number",
    ),
}


def _trial(projection: str, column: str) -> Trial:
    task = "darcy" if column == "darcy" else "elasticity"
    if projection == "average":  # as the network is
        return Trial(task)
    return Trial(task, changes={"network": {"projection": projection}})


def _figures(outcome: Outcome) -> dict[str, Figure]:
    return condition_curves(
        outcome,
        "projection_condition",
        {name: _trial(row, "elasticity") for row, name in _ROWS.items()},
    )


PROJECTION = Experiment(
    name="projection",
    aliases=("table12", "figure6"),
    title="Transpose against pseudo-inverse",
    unit="relative L2 error, times 100; condition number after training, mean over layers",
    rows=_ROWS,
    columns=_COLUMNS,
    trials={(row, column): _trial(row, column) for column in _COLUMNS for row in _ROWS},
    paper=PAPER["projection"],
    claims=(
        Below("transpose below pseudo-inverse on Elasticity", "transpose", "pinv", ("elasticity",)),
        Below("transpose below pseudo-inverse on Darcy", "transpose", "pinv", ("darcy",)),
        Below(
            "the pseudo-inverse has over ten times the condition number of the transpose",
            "transpose",
            "pinv",
            ("condition",),
            factor=10.0,
        ),
    ),
    figures=_figures,
    notes=(
        "Functional attention here averages, as the paper's public code does: the transpose is "
        "divided by the mass of each basis function.",
    ),
)
