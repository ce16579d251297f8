"""Point sets, samples and batches; data sets on disk; people's own files.

Names are loaded when they are first used, so that `funcattn.data.cases` needs numpy only.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from funcattn.data.grids import (
        StackedSamples,
        grid_positions,
        public_positions,
        trapezoid_weights,
    )
    from funcattn.data.samples import Batch, LazySamples, Sample, collate
    from funcattn.data.store import Recipe, Store, StoredSet, StoreError
    from funcattn.data.workers import worker_pool

_HOMES = {
    "grids": ("StackedSamples", "grid_positions", "public_positions", "trapezoid_weights"),
    "samples": ("Batch", "LazySamples", "Sample", "collate"),
    "store": ("Recipe", "Store", "StoreError", "StoredSet"),
    "workers": ("worker_pool",),
}

__all__ = [
    "Batch",
    "LazySamples",
    "Recipe",
    "Sample",
    "StackedSamples",
    "Store",
    "StoreError",
    "StoredSet",
    "collate",
    "grid_positions",
    "public_positions",
    "trapezoid_weights",
    "worker_pool",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"funcattn.data.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
