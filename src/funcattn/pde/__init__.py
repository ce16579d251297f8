"""Equations -> reference solutions: pure functions on numpy arrays, no torch."""
