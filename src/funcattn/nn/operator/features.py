"""Positions as features: Fourier features of positions scaled to the unit box.

Axes: b batch, n point, s space dimension.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from funcattn.nn.feature_maps import at_places
from funcattn.nn.points import Points, per_dimension


class FourierFeatures(nn.Module):
    """Scaled coordinates with sines and cosines of random waves, fixed at the start.

        p = (position - lower) / (upper - lower),   features = [2 p - 1, sin 2 pi p B, cos 2 pi p B]

    B (s x waves) has entries from N(0, 1). On a torus (periodic) there are only sin 2 pi p and
    cos 2 pi p, one wave per axis, so that features are periodic too.

    B is drawn from a generator of its own, so that it is the same in every network of a space.

    spread (b n s s): how far positions go around a point, as from `spread_on_grid`. Each wave then
    is its mean over normal positions of that covariance: it fades where it turns many times between
    points that are neighbours in training, which could not say what it does between them.

        features = [2 p - 1, e^(-v/2) sin 2 pi p B, e^(-v/2) cos 2 pi p B],   v = Var 2 pi p B

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

    def forward(
        self, positions: Float[Tensor, "b n s"], spread: Float[Tensor, "b n s s"] | None = None
    ) -> Float[Tensor, "b n k"]:
        """The features."""
        lower, upper = (positions.new_tensor(corner) for corner in (self.lower, self.upper))
        scaled = (positions - lower) / (upper - lower)
        phase = 2 * math.pi * scaled @ self.waves.to(positions.dtype)
        waves = torch.cat([phase.sin(), phase.cos()], dim=-1)
        if spread is not None:
            turns = 2 * math.pi * self.waves.to(positions.dtype) / (upper - lower)[:, None]
            pairs = (turns.unsqueeze(1) * turns).flatten(0, 1)  # (s s, k)
            fade = (-0.5 * (spread.flatten(2) @ pairs)).exp()
            waves = waves * torch.cat([fade, fade], dim=-1)
        return waves if self.periodic else torch.cat([2 * scaled - 1, waves], dim=-1)


def spread_on_grid(points: Points, reach: Sequence[float]) -> Float[Tensor, "b n s s"]:
    """How far positions go along the axes of a grid, over a reach that no resolution changes.

        sum over the axes of the mean of d d^T,   d = p(x + reach) - p(x) and p(x) - p(x - reach)

    with x in the coordinates of the indices and positions linear between points; a step that would
    leave the axis is moved inside. So on nested grids it agrees at the common points where `reach`
    is a multiple of both spacings. Steps to masked points do not count.

    >>> line = Points(torch.linspace(0, 2, 5).view(1, 5, 1), (5,))
    >>> spread_on_grid(line, (1 / 4,)).flatten()
    tensor([0.2500, 0.2500, 0.2500, 0.2500, 0.2500])
    """
    assert points.positions is not None
    field = points.on_grid(points.positions, dims=len(reach))
    real = points.on_grid(torch.ones_like(points.positions[..., :1]), dims=len(reach))
    spread = field.new_zeros(())
    for axis, part in enumerate(reach, start=1):
        last = field.shape[axis] - 1
        reached = part * last
        index = torch.arange(last + 1, dtype=torch.float64, device=field.device)
        for start in (index, index - reached):
            low = start.clamp(0, last - reached)
            high = low + reached
            step = at_places(field, high, axis) - at_places(field, low, axis)
            if points.mask is not None:
                step = step * at_places(real, high, axis) * at_places(real, low, axis)
            spread = spread + 0.5 * step.unsqueeze(-1) * step.unsqueeze(-2)
    return spread.flatten(1, -3)
