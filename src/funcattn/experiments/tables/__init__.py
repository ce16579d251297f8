"""The tables and figures of the paper, one short declaration per file."""

from funcattn.experiments.tables.airfrans import AIRFRANS
from funcattn.experiments.tables.bases import BASES
from funcattn.experiments.tables.basis_choice import BASIS_CHOICE
from funcattn.experiments.tables.burgers import BURGERS
from funcattn.experiments.tables.darcy_notch import DARCY_NOTCH
from funcattn.experiments.tables.few_shot import FEW_SHOT
from funcattn.experiments.tables.paper_size import PAPER_SIZE
from funcattn.experiments.tables.pde import PDE
from funcattn.experiments.tables.pictures import PICTURES
from funcattn.experiments.tables.projection import PROJECTION
from funcattn.experiments.tables.ridge import RIDGE
from funcattn.experiments.tables.rna import RNA
from funcattn.experiments.tables.scaling import SCALING

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        FEW_SHOT,
        PDE,
        PAPER_SIZE,
        RNA,
        AIRFRANS,
        DARCY_NOTCH,
        BURGERS,
        BASES,
        BASIS_CHOICE,
        PROJECTION,
        RIDGE,
        SCALING,
        PICTURES,
    )
}

__all__ = ["EXPERIMENTS"]
