"""The attentions that functional attention is compared with, all with its call, a file each."""

from funcattn.nn.attention import Attention
from funcattn.nn.baselines.base import Baseline
from funcattn.nn.baselines.flare import FlareAttention
from funcattn.nn.baselines.galerkin import FourierAttention, GalerkinAttention
from funcattn.nn.baselines.intention import Intention
from funcattn.nn.baselines.lamo import LamoAttention
from funcattn.nn.baselines.linear import LinearAttention
from funcattn.nn.baselines.linear_no import LinearNOAttention
from funcattn.nn.baselines.linformer import LinformerAttention
from funcattn.nn.baselines.lrsa import LowRankSpatialAttention
from funcattn.nn.baselines.nystromformer import NystromAttention
from funcattn.nn.baselines.perceiver import PerceiverAttention
from funcattn.nn.baselines.performer import PerformerAttention
from funcattn.nn.baselines.softmax import SoftmaxAttention
from funcattn.nn.baselines.transolver import TransolverAttention
from funcattn.nn.baselines.transolver_plus import TransolverPlusAttention

__all__ = [
    "Attention",
    "Baseline",
    "FlareAttention",
    "FourierAttention",
    "GalerkinAttention",
    "Intention",
    "LamoAttention",
    "LinearAttention",
    "LinearNOAttention",
    "LinformerAttention",
    "LowRankSpatialAttention",
    "NystromAttention",
    "PerceiverAttention",
    "PerformerAttention",
    "SoftmaxAttention",
    "TransolverAttention",
    "TransolverPlusAttention",
]
