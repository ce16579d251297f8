"""Point sets and samples."""

from funcattn.data.grids import grid_positions, trapezoid_weights

__all__ = ["grid_positions", "trapezoid_weights"]
