"""Pure functions on tensors: functional attention, its sums over points, its solve.

The operator in four steps, each in a place of its own:

    moments         sums over points (`moments.py`): whole tensors, chunks, parts of a mesh, ranks
    coefficients    a projection of the moments (`projections.py`)
    transport       the ridge solution, small matrices without points (`attention/transport.py`)
    lift            coefficients back to fields at the points (`projections.py`)

`attention/` has the operator itself in forms that agree: the obvious one first (`reference.py`),
then on whole tensors (`plain.py`), then in chunks of points (`chunked.py`).
"""

from funcattn.ops.attention import (
    Additive,
    Carrier,
    CarrierOptions,
    Convex,
    Form,
    Maps,
    Ridge,
    Show,
    Sided,
    Solution,
    both_sides,
    functional_attention,
    map_of,
    moments_of,
    ridge_system,
    transport,
)
from funcattn.ops.checks import debug
from funcattn.ops.fourier import GridFourier, fourier_values
from funcattn.ops.masking import without_padding
from funcattn.ops.moments import Moments, Sums, projector
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
)

__all__ = [
    "Additive",
    "Average",
    "Basis",
    "BasisFunctions",
    "Carrier",
    "CarrierOptions",
    "Convex",
    "Form",
    "GridFourier",
    "InnerProduct",
    "Maps",
    "Moments",
    "Projection",
    "ProjectionName",
    "PseudoInverse",
    "Ridge",
    "Show",
    "Sided",
    "Solution",
    "Sums",
    "Transpose",
    "analyse",
    "both_sides",
    "debug",
    "dense",
    "fourier_values",
    "functional_attention",
    "lift",
    "map_of",
    "moments_of",
    "projector",
    "ridge_system",
    "transport",
    "without_padding",
]
