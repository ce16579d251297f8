"""Elasticity at the paper's size: a fifth of its epochs, and our network in the same CPU time."""

from funcattn.experiments.engine.experiment import NOT_IN_PAPER, Column, Experiment
from funcattn.experiments.engine.trial import Trial
from funcattn.experiments.tables.paper import PAPER
from funcattn.settings import MUON_RECIPE

_EPOCHS = 100
"""Of the paper's 500: what two hours on one core allow."""
_OUR_EPOCHS = 320
"""A step of the paper's network, one sample, took 59.5 ms when a step of ours, four samples, took
74.3 ms on the same core: 100 epochs of the one are 320 of the other. With surroundings, in turns
on a later machine, 62.3 and 75.5 ms."""

PAPER_SIZE = Experiment(
    name="paper_size",
    aliases=("table1-elasticity",),
    title="Elasticity at the paper's size",
    unit="relative L2 error, times 100",
    rows={
        "funcattn": f"Functional attention, {_EPOCHS} of 500 epochs",
        "functional_operator": f"Our network, the same CPU time{NOT_IN_PAPER}",
    },
    columns={"elasticity": Column("Error")},
    trials={
        ("funcattn", "elasticity"): Trial(
            "elasticity",
            changes={"optimisation": {"epochs": _EPOCHS}},
            beyond={"cpu": "over twenty minutes on one core"},
        ),
        ("functional_operator", "elasticity"): Trial(
            "elasticity",
            "functional_operator",
            changes={
                "network": {"width": 128, "bases": 64},
                "optimisation": {**MUON_RECIPE, "epochs": _OUR_EPOCHS},
            },
            beyond={"cpu": "over twenty minutes on one core"},
        ),
    },
    paper={"funcattn": {"elasticity": PAPER["pde"]["funcattn"]["elasticity"]}},
    notes=(
        "The paper's network and recipe: 8 layers, 128 channels, 64 functions, 1,000 samples of "
        "972 points, batches of one, AdamW, one cycle. The paper's number is of its own data and "
        "500 epochs.",
        "Our network has the same channels and functions, its default surroundings of points, and "
        "the recipe of the races. Its epochs are those that take the same CPU time by steps "
        "measured in turns; the minutes are those of cores with other work beside.",
    ),
)
