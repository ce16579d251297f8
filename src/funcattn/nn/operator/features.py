"""Positions as features: Fourier features of positions scaled to the unit box.

Axes: b batch, n point, s space dimension.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from funcattn.nn.points import per_dimension


class FourierFeatures(nn.Module):
    """Scaled coordinates with sines and cosines of random waves, fixed at the start.

        p = (position - lower) / (upper - lower),   features = [2 p - 1, sin 2 pi p B, cos 2 pi p B]

    B (s x waves) has entries from N(0, 1). On a torus (periodic) there are only sin 2 pi p and
    cos 2 pi p, one wave per axis, so that features are periodic too.

    B is drawn from a generator of its own, so that it is the same in every network of a space.

    >>> FourierFeatures(2, waves=32)(torch.rand(3, 100, 2)).shape
    torch.Size([3, 100, 66])
    """

    waves: Tensor

    def __init__(
        self,
        dims: int,
        *,
        waves: int = 32,
        lower: float | Sequence[float] = 0.0,
        upper: float | Sequence[float] = 1.0,
        periodic: bool = False,
    ) -> None:
        super().__init__()
        self.dims, self.periodic = dims, periodic
        self.lower, self.upper = per_dimension(lower, dims), per_dimension(upper, dims)
        drawn = torch.randn(dims, waves, generator=torch.Generator().manual_seed(0))
        self.register_buffer("waves", torch.eye(dims) if periodic else drawn)
        self.channels = 2 * self.waves.shape[1] + (0 if periodic else dims)

    def forward(self, positions: Float[Tensor, "b n s"]) -> Float[Tensor, "b n k"]:
        """The features."""
        lower, upper = (positions.new_tensor(corner) for corner in (self.lower, self.upper))
        scaled = (positions - lower) / (upper - lower)
        phase = 2 * math.pi * scaled @ self.waves.to(positions.dtype)
        waves = torch.cat([phase.sin(), phase.cos()], dim=-1)
        return waves if self.periodic else torch.cat([2 * scaled - 1, waves], dim=-1)
