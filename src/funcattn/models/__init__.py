"""Whole networks, and readers of public checkpoints."""

from funcattn.models.encoded import Encoded
from funcattn.models.operator_transformer import OperatorTransformer
from funcattn.models.reference import load_reference
from funcattn.models.registry import MODELS, Shape, build_model, model_entry
from funcattn.models.streaming import predict_streamed
from funcattn.models.surrogate import Surrogate

__all__ = [
    "MODELS",
    "Encoded",
    "OperatorTransformer",
    "Shape",
    "Surrogate",
    "build_model",
    "load_reference",
    "model_entry",
    "predict_streamed",
]
