"""The attentions that functional attention is compared with, all with its call, a file each."""

from funcattn.nn.rivals.base import Attention
from funcattn.nn.rivals.flare import FlareAttention
from funcattn.nn.rivals.galerkin import FourierAttention, GalerkinAttention
from funcattn.nn.rivals.intention import Intention
from funcattn.nn.rivals.linear import LinearAttention
from funcattn.nn.rivals.linear_no import LinearNOAttention
from funcattn.nn.rivals.linformer import LinformerAttention
from funcattn.nn.rivals.nystromformer import NystromAttention
from funcattn.nn.rivals.perceiver import PerceiverAttention
from funcattn.nn.rivals.performer import PerformerAttention
from funcattn.nn.rivals.softmax import SoftmaxAttention
from funcattn.nn.rivals.transolver import TransolverAttention

__all__ = [
    "Attention",
    "FlareAttention",
    "FourierAttention",
    "GalerkinAttention",
    "Intention",
    "LinearAttention",
    "LinearNOAttention",
    "LinformerAttention",
    "NystromAttention",
    "PerceiverAttention",
    "PerformerAttention",
    "SoftmaxAttention",
    "TransolverAttention",
]
