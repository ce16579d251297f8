"""Point sets, samples and batches."""

from funcattn.data.grids import grid_positions, trapezoid_weights
from funcattn.data.samples import Batch, Sample, collate
from funcattn.data.workers import worker_pool

__all__ = ["Batch", "Sample", "collate", "grid_positions", "trapezoid_weights", "worker_pool"]
