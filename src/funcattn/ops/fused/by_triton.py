"""The kernels as Triton programs."""

from typing import Any

import torch
import triton
from torch import Tensor

from funcattn.ops.fused import kernels
from funcattn.ops.fused.blocks import PROGRAMS, Blocks, blocks_for, power_of_two
from funcattn.ops.fused.scored import Scored, Toward


def sums(basis: Scored, field: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """field^T w Phi and w^T Phi."""
    y, f, g = basis.features, field.shape[-1], basis.weight.shape[-1]
    launch = _Launch(basis, f)
    moments = basis.weight.new_empty(launch.parts, *y.shape[:2], f, g)
    mass = basis.weight.new_empty(launch.parts, *y.shape[:2], g)
    kernels.sums[(launch.parts, launch.heads, launch.tiles(f))](
        *launch.given, field, *_strides(field), *_of_points(weights), moments, mass,
        *launch.counts, F=f, WEIGHTED=weights is not None, **launch.options,
    )  # fmt: skip
    return moments.sum(0), mass.sum(0)


def lifted(basis: Scored, coefficients: Tensor) -> Tensor:
    """Phi M, in the dtype of the features."""
    y, e = basis.features, coefficients.shape[-1]
    launch = _Launch(basis, e)
    b, h, n, _ = y.shape
    out = y.new_empty(b, n, h, e)
    grid = (triton.cdiv(n, launch.blocks.points), launch.heads, launch.tiles(e))
    kernels.lifted[grid](*launch.given, coefficients.contiguous(), out, n, h, F=e, **launch.options)
    return out


def gradients(basis: Scored, toward: Toward) -> tuple[Tensor, Tensor, Tensor]:
    """Of features, weight and bias."""
    y, (_, k, g), f = basis.features, basis.weight.shape, toward.field.shape[-1]
    b, h, n, _ = y.shape
    is_lifted = toward.d_values is not None and toward.coefficients is not None
    # Where there is no lift, any pointer will do.
    d_values = toward.field if toward.d_values is None else toward.d_values
    coefficients = toward.d_moments if toward.coefficients is None else toward.coefficients.mT
    launch = _Launch(basis, max(f, d_values.shape[-1]))
    d_y = y.new_empty(b, n, h, k)
    d_weight = basis.weight.new_empty(launch.parts, b, h, k, g)
    d_bias = basis.weight.new_empty(launch.parts, b, h, g)
    kernels.gradients[(launch.parts, launch.heads, launch.tiles(k))](
        *launch.given, toward.field, *_strides(toward.field), *_of_points(toward.weights),
        toward.d_moments.contiguous(), toward.d_mass.contiguous(),
        d_values, *_strides(d_values), coefficients.contiguous(),
        d_y, d_weight, d_bias, *launch.counts,
        F=f, E=d_values.shape[-1], WEIGHTED=toward.weights is not None, LIFTED=is_lifted,
        **launch.options,
    )  # fmt: skip
    return d_y, d_weight.sum((0, 1)), d_bias.sum((0, 1))


class _Launch:
    """What all three are told: the basis, the sizes, and how the points are shared out."""

    def __init__(self, basis: Scored, channels: int) -> None:
        y, (h, k, g) = basis.features, basis.weight.shape
        n = y.shape[2]
        self.blocks = blocks_for(max(k, channels), g)
        self.heads = len(y) * h
        self.given = (y, *_strides(y), basis.weight.contiguous(), basis.bias.contiguous())
        every = triton.cdiv(n, self.blocks.points)
        each = triton.cdiv(every, max(1, PROGRAMS // self.heads))
        self.parts = triton.cdiv(every, each)
        self.counts = (n, h, each)
        self.options = _options(self.blocks, k, g, channels)

    def tiles(self, channels: int) -> int:
        """Blocks of so many channels."""
        return triton.cdiv(channels, self.blocks.channels)


def _options(blocks: Blocks, k: int, g: int, channels: int) -> dict[str, Any]:
    return {
        "K": k,
        "G": g,
        "P": blocks.points,
        "K_BLOCK": min(blocks.channels, power_of_two(k)),
        "G_BLOCK": power_of_two(g),
        "F_BLOCK": min(blocks.channels, power_of_two(channels)),
        # As PyTorch is told to do its own products.
        "PRECISION": "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32",
        "num_warps": blocks.warps,
        "num_stages": blocks.stages,
    }


def _strides(field: Tensor) -> tuple[int, int, int]:
    """Of samples, points and heads; channels stand side by side."""
    if field.stride(3) != 1:
        raise ValueError(f"expected channels side by side, got strides {field.stride()}")
    return field.stride(0), field.stride(2), field.stride(1)


def _of_points(weights: Tensor | None) -> tuple[Tensor | None, int]:
    return (None, 0) if weights is None else (weights.contiguous(), weights.shape[1])
