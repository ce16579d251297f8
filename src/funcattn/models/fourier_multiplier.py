"""The layer of Fourier neural operators on grids: a matrix for each low Fourier coefficient.

It also serves the networks of the package `neuralop` in place of its spectral convolution. Version
2.0 of that (a) restores the spectrum by a second fftshift, which on axes of odd length moves every
frequency by one; (b) changes resolution by cutting or extending the spectrum at its end, where the
negative frequencies are; and (c) computes in float32 whatever the input.

Axes: b batch, c channel, i, o channels in and out.
"""

import importlib
import math
import string
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.matrices import Axes
from funcattn.models.starts import uniform_modes
from funcattn.ops.linalg import at_least_float32

_INTERPOLATIONS = {1: "linear", 2: "bicubic", 3: "trilinear"}


class FourierMultiplier(nn.Module):
    """Multiplies each low Fourier coefficient of a field by a matrix of its own; adds a bias.

        out^(k) = W_k^T x^(k)   for -m <= k < m on each axis but the last, 0 <= k < m on that

    with x^ the coefficients of the Fourier series, so that nothing depends on the resolution; the
    negative k of the last axis follow, as the field is real. Given another shape of the output, the
    same series is evaluated there. On a grid of N points per axis, 2 m <= N is required.

    modes: m for each axis. resolution_scaling_factor: the output has this many times the points of
    the input, one number per axis. factorization: "Tucker" makes W = core x factors, one factor per
    axis of W (inputs, outputs, and modes of each axis), with about rank times the parameters of W;
    rank 1 is full rank, which represents every W. small: start as the first public code of FNO does
    (`uniform_modes`), with the bias of a linear map, where that of `neuralop` is normal.
    What is complex is kept as pairs of reals, so that it is counted, cast and saved as the rest.

    Has the call of the spectral convolution of `neuralop`, which passes more options than these;
    none of the others is used here.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        modes: Sequence[int],
        *,
        resolution_scaling_factor: Sequence[float] | None = None,
        factorization: str | None = None,
        rank: float = 1.0,
        small: bool = False,
        **_others: object,
    ) -> None:
        super().__init__()
        self.modes, self.scaling = tuple(modes), resolution_scaling_factor
        shape = (in_channels, out_channels, *(2 * m for m in modes[:-1]), modes[-1])
        std = bias_std = math.sqrt(2 / (in_channels + out_channels))
        shapes: list[Sequence[int]] = [shape]
        if factorization is not None:
            ranks = _tucker_ranks(shape, rank)
            shapes = [ranks, *zip(shape, ranks, strict=True)]
            # So that the entries of W, sums of products, have the deviation of a dense W.
            std = (std / math.sqrt(math.prod(ranks))) ** (1 / len(shapes))
        self.parts = nn.ParameterList(
            torch.view_as_real(std * torch.randn(*size, dtype=torch.complex64)) for size in shapes
        )
        self.bias = nn.Parameter(bias_std * torch.randn(out_channels, *(1,) * len(self.modes)))
        if small:
            self.parts = nn.ParameterList([uniform_modes(*shape)])
            nn.init.uniform_(self.bias, -(in_channels**-0.5), in_channels**-0.5)

    @property
    def stacks(self) -> dict[str, Axes]:
        """A matrix for each mode, for Muon; factors of one are no matrices of their own."""
        return {"parts.0": (1, 0, True)} if len(self.parts) == 1 else {}

    @property
    def for_adamw(self) -> tuple[str, ...]:
        """Factors: a step of one is one of the product by all the others, of whatever size."""
        return ("parts",) if len(self.parts) > 1 else ()

    def weight(self) -> Tensor:
        """W, complex (i o *modes); on axes but the last the negative modes are at the end."""
        core, *factors = (torch.view_as_complex(part) for part in self.parts)
        if not factors:
            return core
        ranks, axes = string.ascii_lowercase[: core.ndim], string.ascii_uppercase[: core.ndim]
        pairs = [axis + rank for axis, rank in zip(axes, ranks, strict=True)]
        return torch.einsum(f"{ranks},{','.join(pairs)}->{axes}", core, *factors)

    def forward(
        self, x: Float[Tensor, "b i *grid"], output_shape: Sequence[int] | None = None
    ) -> Float[Tensor, "b o *out"]:
        """The field with its coefficients multiplied."""
        grid, size = x.shape[2:], self._size(x, output_shape)
        for m, *lengths in zip(self.modes, grid, size, strict=True):
            if min(lengths) < 2 * m:
                raise ValueError(
                    f"grid: expected at least {2 * m} points on an axis with {m} modes, got "
                    f"{min(lengths)} (a layer may see a coarser grid than the network, and padding "
                    "counts); use a finer grid or fewer modes"
                )
        axes = tuple(range(2, x.ndim))
        field = x.to(at_least_float32(x.dtype))
        spectrum = torch.fft.rfftn(field, dim=axes, norm="forward")
        spectrum = spectrum.narrow(-1, 0, self.modes[-1])
        for axis, m in zip(axes, self.modes[:-1], strict=False):
            ends = spectrum.narrow(axis, 0, m), spectrum.narrow(axis, grid[axis - 2] - m, m)
            spectrum = torch.cat(ends, dim=axis)
        spectrum = torch.einsum("bi...,io...->bo...", spectrum, self.weight().to(spectrum.dtype))
        for axis, m in zip(axes, self.modes[:-1], strict=False):
            low, negative = spectrum.split(m, dim=axis)
            gap = list(low.shape)
            gap[axis] = size[axis - 2] - 2 * m
            spectrum = torch.cat([low, low.new_zeros(gap), negative], dim=axis)
        # The last axis is extended by irfftn itself.
        out = torch.fft.irfftn(spectrum, s=size, dim=axes, norm="forward") + self.bias
        return out.to(x.dtype)

    def transform(
        self, x: Float[Tensor, "b c *grid"], output_shape: Sequence[int] | None = None
    ) -> Float[Tensor, "b c *out"]:
        """A field that passes by this layer, interpolated to the resolution of its output."""
        size = self._size(x, output_shape)
        if size == tuple(x.shape[2:]):
            return x
        return F.interpolate(x, size, mode=_INTERPOLATIONS[len(size)], align_corners=True)

    def _size(self, x: Tensor, output_shape: Sequence[int] | None) -> tuple[int, ...]:
        if output_shape is not None:
            return tuple(output_shape)
        scaling = self.scaling or (1.0,) * len(self.modes)
        return tuple(round(n * r) for n, r in zip(x.shape[2:], scaling, strict=True))


def _tucker_ranks(shape: Sequence[int], fraction: float) -> tuple[int, ...]:
    """Ranks in proportion to the shape, with about this fraction of the dense parameters."""
    if fraction == 1:
        return tuple(shape)
    tensorly = importlib.import_module("tensorly.tucker_tensor")
    return tuple(tensorly.validate_tucker_rank(tuple(shape), rank=fraction))
