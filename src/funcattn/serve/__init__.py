"""Trained runs, ready to use."""

from funcattn.serve.predictor import Predictor, load

__all__ = ["Predictor", "load"]
