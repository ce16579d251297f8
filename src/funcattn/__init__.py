"""Functional attention for operator learning.

Attention as a linear map between two function spaces: project queries, keys and values onto small
learned bases, solve one ridge least-squares problem for the map, lift back.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from funcattn._version import __version__
from funcattn.processor import avoid_undescribed_tiles

if TYPE_CHECKING:
    from funcattn import models, nn, ops
    from funcattn.models import OperatorTransformer, load_reference
    from funcattn.nn import FunctionalAttention, Inspection, inspect
    from funcattn.nn.sharding import spread_points, sum_gradients
    from funcattn.ops import debug, functional_attention
    from funcattn.surrogate import Surrogate, load

# PyTorch asks once, when it first needs to know.
avoid_undescribed_tiles()

# Names are loaded when they are first used, so that a part of the package does not load all of it:
# the solvers come without torch, the command prints its help at once.
_HOMES = {
    "FunctionalAttention": "funcattn.nn",
    "Inspection": "funcattn.nn",
    "OperatorTransformer": "funcattn.models",
    "debug": "funcattn.ops",
    "functional_attention": "funcattn.ops",
    "Surrogate": "funcattn.surrogate",
    "inspect": "funcattn.nn",
    "load": "funcattn.surrogate",
    "load_reference": "funcattn.models",
    "spread_points": "funcattn.nn.sharding",
    "sum_gradients": "funcattn.nn.sharding",
}
_PARTS = ("models", "nn", "ops")

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """A public name, from its home."""
        if name in _PARTS:
            return import_module(f"funcattn.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module 'funcattn' has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_PARTS})


__all__ = [
    "FunctionalAttention",
    "Inspection",
    "OperatorTransformer",
    "Surrogate",
    "__version__",
    "debug",
    "functional_attention",
    "inspect",
    "load",
    "load_reference",
    "models",
    "nn",
    "ops",
    "spread_points",
    "sum_gradients",
]
