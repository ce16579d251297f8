"""Training: optimisers, loop, checkpoints, records."""
