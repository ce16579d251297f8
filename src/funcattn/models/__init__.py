"""Whole networks, and readers of public checkpoints."""

from funcattn.models.operator_transformer import OperatorTransformer
from funcattn.models.reference import load_reference

__all__ = ["OperatorTransformer", "load_reference"]
