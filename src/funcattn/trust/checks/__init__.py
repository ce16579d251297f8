"""The checks of an audit: each tries to break a run in one way, and says whether it did."""

from funcattn.trust.checks.check import THRESHOLDS, Check, CheckFunction, Examined
from funcattn.trust.checks.computing import cost, determinism, export
from funcattn.trust.checks.errors import noise, symmetries, tail, waves
from funcattn.trust.checks.points import patches, resolution, subsets
from funcattn.trust.checks.residuals import residual

CHECKS: tuple[CheckFunction, ...] = (
    tail,
    resolution,
    subsets,
    patches,
    symmetries,
    waves,
    noise,
    residual,
    cost,
    determinism,
    export,
)

__all__ = [
    "CHECKS",
    "THRESHOLDS",
    "Check",
    "Examined",
    "cost",
    "determinism",
    "export",
    "noise",
    "patches",
    "residual",
    "resolution",
    "subsets",
    "symmetries",
    "tail",
    "waves",
]
