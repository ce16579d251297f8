"""The table of Darcy flow in a triangle with a notch."""

from funcattn.experiments.engine.claims import Below, First
from funcattn.experiments.engine.experiment import Column, Experiment
from funcattn.experiments.engine.trial import NotYet, Trial
from funcattn.experiments.tables.paper import PAPER

_ROWS = {
    "deeponet": "DeepONet",
    "pod_deeponet": "POD-DeepONet",
    "mwt": "MWT",
    "dgfno": "dgFNO+",
    "wno": "WNO",
    "funcattn": "Functional attention",
    "transolver": "Transolver (not in the paper)",
    "fno": "FNO (not in the paper)",
}
_HERE = ("funcattn", "deeponet", "transolver", "fno", "mwt", "wno", "pod_deeponet")

DARCY_NOTCH = Experiment(
    name="darcy_notch",
    aliases=("table4",),
    title="Darcy flow with a notch",
    unit="relative L2 error, times 100",
    rows=_ROWS,
    columns={"error": Column("Error")},
    trials={
        (row, "error"): Trial("darcy_notch", row) if row in _HERE else NotYet("it is FNO here")
        for row in (*_HERE, *(row for row in _ROWS if row not in _HERE))
    },
    paper=PAPER["darcy_notch"],
    claims=(
        First("functional attention first on Darcy with a notch", "funcattn", "error"),
        Below(
            "functional attention 30 % below WNO on Darcy with a notch",
            "funcattn",
            "wno",
            ("error",),
            factor=1 / 0.7,
        ),
    ),
    notes=(
        "dgFNO+ moves data of other domains to a common grid, and is FNO there. Our data is on "
        "such a grid, so that it would be the row of FNO.",
        "The epochs of tier cpu were raised from ten, which took five minutes, for all networks "
        "alike. Functional attention and DeepONet had been run before that, and their test errors "
        "had been seen.",
    ),
)
