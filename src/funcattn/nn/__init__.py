"""Layers: bases, feature maps, ridges, functional attention, embeddings."""

from funcattn.nn.attention import FunctionalAttention
from funcattn.nn.bases import FourierBasis, GridFourierBasis, LearnedBasis, OrthonormalBasis
from funcattn.nn.embeddings import LatticeDistances, RawPositions, TimeEmbedding
from funcattn.nn.feature_maps import FeatureMap, GridConvolution, Pointwise, Stencil
from funcattn.nn.normaliser import Normaliser
from funcattn.nn.points import Points
from funcattn.nn.ridges import AdditiveRidge, ConvexRidge

__all__ = [
    "AdditiveRidge",
    "ConvexRidge",
    "FeatureMap",
    "FourierBasis",
    "FunctionalAttention",
    "GridConvolution",
    "GridFourierBasis",
    "LatticeDistances",
    "LearnedBasis",
    "Normaliser",
    "OrthonormalBasis",
    "Points",
    "Pointwise",
    "RawPositions",
    "Stencil",
    "TimeEmbedding",
]
