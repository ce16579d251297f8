"""The table of RNA segmentation."""

from funcattn.experiments.base import Column, NotYet, Run
from funcattn.experiments.claims import First
from funcattn.experiments.experiment import Experiment

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
    columns={"accuracy": Column("Accuracy", "test.accuracy", larger_is_better=True)},
    runs={
        (row, "accuracy"): Run("rna", row) if row in ("transolver", "funcattn") else NotYet()
        for row in reversed(_ROWS)
    },
    claims=(First("functional attention first on RNA", "funcattn", "accuracy"),),
    notes=(
        "It needs the RNA Surface Segmentation Dataset: --rna PATH.",
        "Tier cpu has 1,024 points of each surface, the paper 4,096.",
        "Transolver is far from trained at tier cpu, and further with the paper's optimiser "
        "(results/tier_cpu.json).",
    ),
)
