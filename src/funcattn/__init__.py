"""Functional attention for operator learning.

Attention as a linear map between two function spaces: project queries, keys and values onto small
learned bases, solve one ridge least-squares problem for the map, lift back.
"""

from funcattn._version import __version__
from funcattn.models import OperatorTransformer, load_reference
from funcattn.nn import FunctionalAttention
from funcattn.ops import debug, functional_attention

__all__ = [
    "FunctionalAttention",
    "OperatorTransformer",
    "__version__",
    "debug",
    "functional_attention",
    "load_reference",
]
