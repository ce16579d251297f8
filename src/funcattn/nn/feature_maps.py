"""Maps from features to features: at each point alone, or with its neighbours on a grid.

All are called as `feature_map(x, points)` with x (b n c), and built as `feature_map(c_in, c_out)`.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn.points import Points, check_grid, per_dimension
from funcattn.ops.checks import check_point_weights

FeatureMap = Callable[[int, int], nn.Module]

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def linear(inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
    """A linear map that starts as the paper's do: truncated normal of deviation 0.02, bias 0."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.trunc_normal_(layer.weight, std=0.02)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


class Pointwise(nn.Module):
    """The same linear map at every point: no mesh, no neighbours."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.map = linear(inputs, outputs)

    def forward(self, x: Float[Tensor, "b n c"], points: Points) -> Float[Tensor, "b n k"]:  # noqa: ARG002
        """Map the features of each point."""
        return self.map(x)


class Stencil(nn.Module):
    """A 3-point-an-axis stencil of fixed physical width, whatever the spacing of the grid.

    out(x) = bias + sum over offsets o in {-1, 0, 1}^s of W_o u(clamp(x + reach * o)), on the unit
    box with grid points at both ends of each axis. Between grid points u is interpolated linearly,
    beyond the boundary it keeps its boundary value. So on nested grids that carry the same field
    the results agree at the common points, boundary included, where `reach` is a multiple of the
    spacing of both; elsewhere they differ by the interpolation error, O(spacing^2).

    reach: distance of the neighbours, as a fraction of the axis (or one number an axis). With
    reach = 1/(N - 1) a grid of N points an axis sees the ordinary 3x3 convolution, with replicated
    instead of zero padding.
    periodic: the box is a torus, with grid points at 0, 1/N, ..., 1 - 1/N of each axis; neighbours
    beyond an end are those at the other.
    """

    stacks: ClassVar = {"weight": (0, None, False)}
    """For Muon all taps are one matrix, as in any convolution: the other axes are its inputs."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        reach: float | Sequence[float] = 1 / 32,
        dims: int = 2,
        periodic: bool = False,
    ) -> None:
        super().__init__()
        self.periodic = periodic
        if dims not in CONVOLUTIONS:
            raise ValueError(f"dims: expected 1, 2 or 3, got {dims}")
        self.reach = per_dimension(reach, dims)
        if not all(0 < r <= 1 for r in self.reach):
            raise ValueError(f"reach: expected fractions of the axis in (0, 1], got {self.reach}")
        self.weight = nn.Parameter(torch.empty(outputs, inputs, *(3,) * dims))
        self.bias = nn.Parameter(torch.zeros(outputs))
        nn.init.trunc_normal_(self.weight, std=0.02)

    def forward(self, x: Float[Tensor, "b n c"], points: Points) -> Float[Tensor, "b n k"]:
        """Apply the stencil on the grid of `points`; masked points count as 0."""
        u = _on_grid(x, points, dims=len(self.reach))
        assert points.grid is not None
        steps = [
            r * (length if self.periodic else length - 1)
            for r, length in zip(self.reach, points.grid, strict=True)
        ]
        if all(abs(step - round(step)) < 1e-6 <= round(step) for step in steps):
            out = self._dilated(u, [round(step) for step in steps])
        else:
            out = self._interpolated(u, steps)
        return out.flatten(1, -2)  # (b, *grid, k) -> (b, n, k)

    def _dilated(self, u: Float[Tensor, "b *grid c"], steps: list[int]) -> Tensor:
        """Neighbours that fall on grid points: a dilated convolution, the fast case."""
        padding = [step for step in reversed(steps) for _ in range(2)]
        mode = "circular" if self.periodic else "replicate"
        padded = F.pad(u.movedim(-1, 1), padding, mode=mode)
        convolution = CONVOLUTIONS[len(steps)]
        return convolution(padded, self.weight, self.bias, dilation=steps).movedim(1, -1)

    def _interpolated(self, u: Float[Tensor, "b *grid c"], steps: list[float]) -> Tensor:
        """Neighbours anywhere: shift by interpolation, offset by offset."""
        out: Tensor = self.bias
        offsets = itertools.product((-1, 0, 1), repeat=len(steps))
        for offset, tap in zip(offsets, self.weight.flatten(2).unbind(-1), strict=True):
            shifted = u
            for axis, (o, step) in enumerate(zip(offset, steps, strict=True), start=1):
                shifted = shifted_by(shifted, o * step, axis, periodic=self.periodic)
            out = out + shifted @ tap.T
        return out


class GridConvolution(nn.Module):
    """The plain 3x3 convolution with zero padding of the public grid networks.

    Its physical width is the spacing of whatever grid it is given, so that what it computes changes
    with the resolution: for loaded reference checkpoints only. New models use `Stencil`.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, 3, padding=1)

    def forward(self, x: Float[Tensor, "b n c"], points: Points) -> Float[Tensor, "b n k"]:
        """Convolve on the grid of `points`; masked points count as 0."""
        u = _on_grid(x, points, dims=2)
        return self.convolution(u.movedim(-1, 1)).movedim(1, -1).flatten(1, -2)


def _on_grid(x: Tensor, points: Points, *, dims: int) -> Tensor:
    """(b, n, c) -> (b, *grid, c), with 0 at masked points, so that no neighbour sees them."""
    grid = check_grid(points.grid, x.shape[1], dims=dims)
    check_point_weights(None, points.mask, x.shape[1])
    return points.cleared(x).unflatten(1, grid)


def shifted_by(u: Tensor, by: float, axis: int, *, periodic: bool) -> Tensor:
    """u at index + by along an axis: linear between grid points, beyond the ends as they say."""
    if by == 0:
        return u
    length = u.shape[axis]
    place = torch.arange(length, dtype=torch.float64, device=u.device) + by
    if not periodic:
        place = place.clamp(0, length - 1)
    below = place.floor()
    fraction = (place - below).to(u.dtype).view(-1, *(1,) * (u.ndim - axis - 1))
    index = below.long()
    # Without a period the point above the last one has no weight.
    low = u.index_select(axis, index % length)
    high = u.index_select(axis, (index + 1) % length)
    return torch.lerp(low, high, fraction)
