"""Point sets, samples and batches."""

from funcattn.data.grids import grid_positions, trapezoid_weights
from funcattn.data.samples import Batch, Sample, collate

__all__ = ["Batch", "Sample", "collate", "grid_positions", "trapezoid_weights"]
