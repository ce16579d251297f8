"""Point sets, samples and batches; data sets on disk."""

from funcattn.data.grids import StackedSamples, grid_positions, public_positions, trapezoid_weights
from funcattn.data.samples import Batch, Sample, collate
from funcattn.data.store import Recipe, Store, StoredSet, StoreError
from funcattn.data.workers import worker_pool

__all__ = [
    "Batch",
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
