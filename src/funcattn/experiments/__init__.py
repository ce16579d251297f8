"""The paper's experiments: `tables` declares them, `engine` runs them and makes the pages."""

from funcattn.experiments.engine.experiment import Experiment
from funcattn.experiments.tables import EXPERIMENTS


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
