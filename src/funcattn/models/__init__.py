"""Whole networks, and readers of public checkpoints."""

from funcattn.models.encoded import Encoded
from funcattn.models.matrices import matrices_for_muon
from funcattn.models.normalised import NormalisedNetwork
from funcattn.models.operator_transformer import OperatorTransformer
from funcattn.models.reference import load_reference
from funcattn.models.registry import MODELS, Form, ModelEntry, build_model
from funcattn.models.streaming import predict_streamed

__all__ = [
    "MODELS",
    "Encoded",
    "Form",
    "ModelEntry",
    "NormalisedNetwork",
    "OperatorTransformer",
    "build_model",
    "load_reference",
    "matrices_for_muon",
    "predict_streamed",
]
