"""The table of RNA segmentation."""

from typing import Any

from funcattn.experiments.engine.claims import First
from funcattn.experiments.engine.experiment import Column, Experiment
from funcattn.experiments.engine.trial import Trial
from funcattn.experiments.tables.paper import PAPER

_ROWS = {
    "pointnet2": "PointNet++",
    "pcnn": "PCNN",
    "sphnet": "SPHNet",
    "diffusionnet_hks": "DiffusionNet, heat kernel signatures",
    "diffusionnet_xyz": "DiffusionNet",
    "transolver": "Transolver",
    "funcattn": "Functional attention",
}
_NETWORKS: dict[str, tuple[Any, ...]] = {
    "diffusionnet_hks": ("diffusion_net", {"network": {"features": "heat"}}),
    "diffusionnet_xyz": ("diffusion_net",),
}
"""Rows whose network has another name, or other settings than its own."""

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
        (row, "accuracy"): Trial("rna", *_NETWORKS.get(row, (row,))) for row in reversed(_ROWS)
    },
    paper=PAPER["rna"],
    claims=(First("functional attention first on RNA", "funcattn", "accuracy"),),
    notes=(
        "It needs the RNA Surface Segmentation Dataset: --rna PATH.",
        "Tier cpu uses 1,024 points of each surface, the paper 4,096.",
        "DiffusionNet's own surfaces are meshes, of which our network gets the points alone.",
        "Transolver is far from trained at tier cpu, and further with the paper's optimiser "
        "(results/tier_cpu.json).",
    ),
)
