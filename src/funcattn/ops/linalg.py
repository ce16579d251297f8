"""The little linear algebra that the operators share."""

import torch
from torch import Tensor

from funcattn.ops.checks import values_are_visible


def solve_positive(matrix: Tensor, right: Tensor) -> Tensor:
    """Solve with a Hermitian positive definite matrix, by Cholesky."""
    factor, info = torch.linalg.cholesky_ex(matrix)
    if values_are_visible(info) and bool(info.any()):
        raise torch.linalg.LinAlgError(  # type: ignore[attr-defined]
            f"expected positive definite systems, got {int(info.count_nonzero())} (of "
            f"{info.numel()}) that are not, in {matrix.dtype}; use a larger ridge, or look for "
            "input that is not finite with `funcattn.debug()`"
        )
    return torch.cholesky_solve(right, factor)


def identity_like(matrix: Tensor) -> Tensor:
    """The identity of a square matrix's size, dtype and device."""
    return torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def at_least_float32(*dtypes: torch.dtype) -> torch.dtype:
    """The common dtype of all, and float32 where that is shorter."""
    common = torch.float32
    for dtype in dtypes:
        common = torch.promote_types(common, dtype)
    return common


def full_precision(device: torch.device) -> torch.autocast:
    """Autocast switched off: what is inside keeps the dtype it has."""
    return torch.autocast(device.type, enabled=False)
