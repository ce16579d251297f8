"""Pure functions on tensors: functional attention, its solve, its projections."""

from funcattn.ops.attention import (
    Additive,
    Convex,
    Form,
    Ridge,
    Sided,
    both_sides,
    functional_attention,
    ridge_system,
    transport,
)
from funcattn.ops.checks import debug, observe_systems
from funcattn.ops.fourier import GridFourier, fourier_values
from funcattn.ops.projections import (
    Average,
    Basis,
    BasisFunctions,
    InnerProduct,
    Projection,
    ProjectionName,
    PseudoInverse,
    Transpose,
    analyse,
    dense,
    lift,
    projector,
)

__all__ = [
    "Additive",
    "Average",
    "Basis",
    "BasisFunctions",
    "Convex",
    "Form",
    "GridFourier",
    "InnerProduct",
    "Projection",
    "ProjectionName",
    "PseudoInverse",
    "Ridge",
    "Sided",
    "Transpose",
    "analyse",
    "both_sides",
    "debug",
    "dense",
    "fourier_values",
    "functional_attention",
    "lift",
    "observe_systems",
    "projector",
    "ridge_system",
    "transport",
]
