"""Layers: bases, feature maps, ridges, functional attention, embeddings."""

from funcattn.nn.attention import Attention
from funcattn.nn.bases import FourierBasis, GridFourierBasis, LearnedBasis, OrthonormalBasis
from funcattn.nn.embeddings import LatticeDistances, RawPositions, TimeEmbedding
from funcattn.nn.feature_maps import FeatureMap, GridConvolution, Pointwise, Stencil
from funcattn.nn.functional_attention import FunctionalAttention
from funcattn.nn.inspection import Inspection, inspect
from funcattn.nn.normaliser import Normaliser
from funcattn.nn.points import Points
from funcattn.nn.ridges import AdditiveRidge, ConvexRidge

__all__ = [
    "AdditiveRidge",
    "Attention",
    "ConvexRidge",
    "FeatureMap",
    "FourierBasis",
    "FunctionalAttention",
    "GridConvolution",
    "GridFourierBasis",
    "Inspection",
    "LatticeDistances",
    "LearnedBasis",
    "Normaliser",
    "OrthonormalBasis",
    "Points",
    "Pointwise",
    "RawPositions",
    "Stencil",
    "TimeEmbedding",
    "inspect",
]
