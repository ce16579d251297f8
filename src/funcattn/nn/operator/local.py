"""A local branch with a fixed physical reach: one small stencil for each channel of a grid.

Axes: b batch, n point, c width.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from funcattn.nn.feature_maps import checked_reach, stencil
from funcattn.nn.operator.spectral import on_grid
from funcattn.nn.points import Points


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
        self.periodic = periodic
        self.reach = checked_reach(reach, dims)
        self.weight = nn.Parameter(torch.randn(width, 1, *(3,) * dims) / math.sqrt(3**dims))

    def forward(self, x: Float[Tensor, "b n c"], points: Points) -> Float[Tensor, "b n c"]:
        """Apply the stencils; masked points count as 0."""
        u = on_grid(x, points, dims=len(self.reach))
        weight = self.weight.to(u.dtype)
        out = stencil(u, weight, reach=self.reach, periodic=self.periodic)
        return out.flatten(1, -2).to(x.dtype)  # (b, *grid, c) -> (b, n, c)
