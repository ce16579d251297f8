"""Passes over points in C, compiled on the machine that they run on, where it has a compiler.

    products.h      products of small matrices with many rows
    softmax.h       softmax of short rows
    attention.c     the passes of functional attention, block by block
    systems.h       small positive definite systems
    middle.h        what functional attention does between its passes
    orthogonal.h    the steps of Muon
    convolution.h   stencils on grids that mix all channels
    library.py      compiles, keeps and loads them
    products.py     x W^T + b, with a gradient
    stencils.py     stencils on grids, with a gradient

Everything here is done elsewhere in PyTorch too, and the numbers differ by rounding only. Without a
compiler, or with FUNCATTN_NATIVE=0, PyTorch does it.
"""

from funcattn.ops.native.library import Library, library, state, why_not

__all__ = ["Library", "library", "state", "why_not"]
