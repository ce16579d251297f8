"""Functional attention for operator learning.

Attention as a linear map between two function spaces: project queries, keys and values onto small
learned bases, solve one ridge least-squares problem for the map, lift back.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from funcattn._version import __version__
from funcattn.models import OperatorTransformer, load_reference
from funcattn.nn import FunctionalAttention
from funcattn.nn.sharding import spread_points, sum_gradients
from funcattn.ops import debug, functional_attention

if TYPE_CHECKING:
    from funcattn.serve import Predictor


def load(run: "str | Path") -> "Predictor":
    """A trained run, from its folder, as an object with a `predict` method."""
    # Here, so that the library can be imported without what training needs.
    from funcattn.serve import load as load_run

    return load_run(run)


__all__ = [
    "FunctionalAttention",
    "OperatorTransformer",
    "__version__",
    "debug",
    "functional_attention",
    "load",
    "load_reference",
    "spread_points",
    "sum_gradients",
]
