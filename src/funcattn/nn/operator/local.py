"""A local branch with a fixed physical reach: one small stencil for each channel of a grid.

Axes: b batch, n point, c width.
"""

import itertools
import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn.feature_maps import CONVOLUTIONS, shifted_by
from funcattn.nn.operator.spectral import on_grid
from funcattn.nn.points import Points, per_dimension


class LocalStencil(nn.Module):
    """A 3-point-per-axis stencil for each channel, whose neighbours are at a fixed distance.

        out_c(x) = sum over offsets o in {-1, 0, 1}^s of w_co u_c(clamp(x + reach * o))

    with the rules of `Stencil` between grid points and at the ends; a stencil for each channel has
    a width-th of its cost. reach: distance as a fraction of the axis, for all axes or per axis.

    >>> layer = LocalStencil(8, reach=1 / 8, dims=2)
    >>> layer(torch.randn(2, 9 * 17, 8), Points(grid=(9, 17))).shape
    torch.Size([2, 153, 8])
    """

    def __init__(
        self,
        width: int,
        *,
        reach: float | Sequence[float] = 1 / 32,
        dims: int = 2,
        periodic: bool = False,
    ) -> None:
        super().__init__()
        if dims not in CONVOLUTIONS:
            raise ValueError(f"dims: expected 1, 2 or 3, got {dims}")
        self.periodic = periodic
        self.reach = per_dimension(reach, dims)
        if not all(0 < r <= 1 for r in self.reach):
            raise ValueError(f"reach: expected fractions of the axis in (0, 1], got {self.reach}")
        self.weight = nn.Parameter(torch.randn(width, 1, *(3,) * dims) / math.sqrt(3**dims))

    def forward(self, x: Float[Tensor, "b n c"], points: Points) -> Float[Tensor, "b n c"]:
        """Apply the stencils; masked points count as 0."""
        u = on_grid(x, points, dims=len(self.reach))
        steps = [
            r * (length if self.periodic else length - 1)
            for r, length in zip(self.reach, u.shape[1:-1], strict=True)
        ]
        if all(abs(step - round(step)) < 1e-6 <= round(step) for step in steps):
            out = self._dilated(u, [round(step) for step in steps])
        else:
            out = self._interpolated(u, steps)
        return out.flatten(1, -2).to(x.dtype)  # (b, *grid, c) -> (b, n, c)

    def _dilated(self, u: Float[Tensor, "b *grid c"], steps: list[int]) -> Tensor:
        """Neighbours that fall on grid points: a dilated convolution."""
        padding = [step for step in reversed(steps) for _ in range(2)]
        mode = "circular" if self.periodic else "replicate"
        padded = F.pad(u.movedim(-1, 1), padding, mode=mode)
        convolution = CONVOLUTIONS[len(steps)]
        weight = self.weight.to(u.dtype)
        return convolution(padded, weight, dilation=steps, groups=len(weight)).movedim(1, -1)

    def _interpolated(self, u: Float[Tensor, "b *grid c"], steps: list[float]) -> Tensor:
        """Neighbours anywhere: shift by interpolation, offset by offset."""
        out = torch.zeros_like(u)
        offsets = itertools.product((-1, 0, 1), repeat=len(steps))
        taps = self.weight.to(u.dtype).flatten(1).unbind(-1)
        for offset, tap in zip(offsets, taps, strict=True):
            shifted = u
            for axis, (o, step) in enumerate(zip(offset, steps, strict=True), start=1):
                shifted = shifted_by(shifted, o * step, axis, periodic=self.periodic)
            out = out + shifted * tap
        return out
