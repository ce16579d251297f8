"""The table of Burgers' equation, tested on a grid four times as fine as that of training."""

from funcattn.experiments.base import Column, Run
from funcattn.experiments.claims import First
from funcattn.experiments.experiment import Experiment

_ROWS = {
    "fno": "FNO",
    "galerkin": "Galerkin",
    "transolver": "Transolver",
    "funcattn": "Functional attention",
}

BURGERS = Experiment(
    name="burgers",
    aliases=("table5",),
    title="Burgers' equation on a finer grid",
    unit="relative L2 error, times 1000",
    rows=_ROWS,
    columns={"error": Column("Error", scale=1000.0)},
    runs={(row, "error"): Run("burgers", row) for row in reversed(_ROWS)},
    claims=(First("functional attention first on Burgers", "funcattn", "error"),),
    notes=(
        "Tier cpu trains at 256 points and tests at 1,024, the paper at 2,048 and 8,192.",
        "The networks are those of the other tasks: the paper's code ends this one in two "
        "spectral convolutions. Their parameters are not made equal.",
    ),
)
