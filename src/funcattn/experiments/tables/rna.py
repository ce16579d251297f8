"""The table of RNA segmentation."""

from funcattn.experiments.engine.claims import First
from funcattn.experiments.engine.experiment import Column, Experiment
from funcattn.experiments.engine.trial import NotYet, Trial
from funcattn.experiments.tables.paper import PAPER

_ROWS = {
    "pointnet2": "PointNet++",
    "pcnn": "PCNN",
    "sphnet": "SPHNet",
    "diffusionnet_hks": "DiffusionNet, heat kernels",
    "diffusionnet_xyz": "DiffusionNet",
    "transolver": "Transolver",
    "funcattn": "Functional attention",
}

RNA = Experiment(
    name="rna",
    aliases=("table2",),
    title="RNA segmentation",
    unit="accuracy in percent",
    rows=_ROWS,
    columns={
        "accuracy": Column("Accuracy", "test.accuracy", larger_is_better=True, quantity="accuracy")
    },
    trials={
        (row, "accuracy"): Trial("rna", row) if row in ("transolver", "funcattn") else NotYet()
        for row in reversed(_ROWS)
    },
    paper=PAPER["rna"],
    claims=(First("functional attention first on RNA", "funcattn", "accuracy"),),
    notes=(
        "It needs the RNA Surface Segmentation Dataset: --rna PATH.",
        "Tier cpu uses 1,024 points of each surface, the paper 4,096.",
        "Transolver is far from trained at tier cpu, and further with the paper's optimiser "
        "(results/tier_cpu.json).",
    ),
)
