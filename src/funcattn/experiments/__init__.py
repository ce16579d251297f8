"""The paper's experiments: one file a table or figure, and the queue that runs them."""

from funcattn.experiments.airfrans import AIRFRANS
from funcattn.experiments.bases import BASES
from funcattn.experiments.basis_choice import BASIS_CHOICE
from funcattn.experiments.burgers import BURGERS
from funcattn.experiments.darcy_notch import DARCY_NOTCH
from funcattn.experiments.experiment import Experiment
from funcattn.experiments.few_shot import FEW_SHOT
from funcattn.experiments.pde import PDE
from funcattn.experiments.pictures import PICTURES
from funcattn.experiments.projection import PROJECTION
from funcattn.experiments.ridge import RIDGE
from funcattn.experiments.rna import RNA
from funcattn.experiments.scaling import SCALING

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        FEW_SHOT,
        PDE,
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


def experiment_named(name: str) -> Experiment:
    """By its name, or by the number of its table or figure in the paper.

    >>> experiment_named("table1").name
    'pde'
    """
    by_alias = {alias: e for e in EXPERIMENTS.values() for alias in (e.name, *e.aliases)}
    if name not in by_alias:
        raise ValueError(f"experiment: expected one of {', '.join(by_alias)}, got {name!r}")
    return by_alias[name]


__all__ = ["EXPERIMENTS", "Experiment", "experiment_named"]
