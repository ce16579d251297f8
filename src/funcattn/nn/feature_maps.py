"""Maps from features to features: at each point alone, or with its neighbours on a grid.

All are called as `feature_map(x, points)` with x (b n c), and built as `feature_map(c_in, c_out)`.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from funcattn.nn.linear import Linear
from funcattn.nn.points import Points, per_dimension
from funcattn.ops.native import products
from funcattn.ops.native.stencils import CONVOLUTIONS, stencil_on_points

FeatureMap = Callable[[int, int], nn.Module]

_MOST_TAPS = 8
"""How many times the taps of a stencil a convolution may have that takes its place between grid
points, where each channel has a stencil of its own. Where a tap mixes all channels, it is dearer.
"""


def linear(inputs: int, outputs: int, *, bias: bool = True) -> Linear:
    """A linear map that starts as the paper's do: truncated normal of deviation 0.02, bias 0."""
    layer = Linear(inputs, outputs, bias=bias)
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
    """A 3-point-per-axis stencil of fixed physical width, whatever the spacing of the grid.

    out(x) = bias + sum over offsets o in {-1, 0, 1}^s of W_o u(clamp(x + reach * o)), on the unit
    box with grid points at both ends of each axis. Between grid points u is interpolated linearly,
    beyond the boundary it keeps its boundary value. So on nested grids that carry the same field
    the results agree at the common points, boundary included, where `reach` is a multiple of the
    spacing of both; elsewhere they differ by the interpolation error, O(spacing^2).

    reach: distance of the neighbours, as a fraction of the axis (or one number per axis). With
    reach = 1/(N - 1) a grid of N points per axis sees the ordinary 3x3 convolution, with replicated
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
        self.reach = checked_reach(reach, dims)
        self.weight = nn.Parameter(torch.empty(outputs, inputs, *(3,) * dims))
        self.bias = nn.Parameter(torch.zeros(outputs))
        nn.init.trunc_normal_(self.weight, std=0.02)

    def forward(self, x: Float[Tensor, "b n c"], points: Points) -> Float[Tensor, "b n k"]:
        """Apply the stencil on the grid of `points`; masked points count as 0."""
        u = points.on_grid(x, dims=len(self.reach))
        out = stencil(u, self.weight, self.bias, reach=self.reach, periodic=self.periodic)
        return out.flatten(1, -2)  # (b, *grid, k) -> (b, n, k)


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
        u = points.on_grid(x, dims=2)
        return self.convolution(u.movedim(-1, 1)).movedim(1, -1).flatten(1, -2)


def checked_reach(reach: float | Sequence[float], dims: int) -> tuple[float, ...]:
    """The reach of a stencil on each axis."""
    if dims not in CONVOLUTIONS:
        raise ValueError(f"dims: expected 1, 2 or 3, got {dims}")
    each = per_dimension(reach, dims)
    if not all(0 < r <= 1 for r in each):
        raise ValueError(f"reach: expected fractions of the axis in (0, 1], got {each}")
    return each


def stencil(
    u: Float[Tensor, "b *grid c"],
    weight: Float[Tensor, "k i *taps"],
    bias: Float[Tensor, " k"] | None = None,
    *,
    reach: Sequence[float],
    periodic: bool,
) -> Float[Tensor, "b *grid k"]:
    """The sum of `Stencil`: i = c for stencils that mix all channels, i = 1 for one per channel."""
    steps = [
        r * (length if periodic else length - 1)
        for r, length in zip(reach, u.shape[1:-1], strict=True)
    ]
    if all(abs(step - round(step)) < 1e-6 <= round(step) for step in steps):
        whole = [round(step) for step in steps]
        return stencil_on_points(u, weight, bias, steps=whole, periodic=periodic)
    reached = [math.ceil(step) for step in steps]
    taps = math.prod(2 * points + 1 for points in reached)
    fits = all(points < n for points, n in zip(reached, u.shape[1:-1], strict=True))
    if weight.shape[1] == 1 and fits and taps <= _MOST_TAPS * 3 ** len(steps):
        taken = interpolating(weight, steps)
        ones = [1] * len(steps)
        return stencil_on_points(u, taken, bias, steps=ones, periodic=periodic, reached=reached)
    return stencil_between_points(u, weight, bias, steps=steps, periodic=periodic)


def stencil_between_points(
    u: Tensor, weight: Tensor, bias: Tensor | None, *, steps: Sequence[float], periodic: bool
) -> Tensor:
    """Neighbours anywhere: shift by interpolation, offset by offset."""
    out = u.new_zeros(()) if bias is None else bias
    offsets = itertools.product((-1, 0, 1), repeat=len(steps))
    for offset, tap in zip(offsets, weight.flatten(2).unbind(-1), strict=True):
        shifted = u
        for axis, (o, step) in enumerate(zip(offset, steps, strict=True), start=1):
            shifted = _shifted_by(shifted, o * step, axis, periodic=periodic)
        mixes = tap.shape[1] == u.shape[-1]
        out = out + (products.linear(shifted, tap) if mixes else shifted * tap[:, 0])
    return out


def interpolating(
    weight: Float[Tensor, "k i *taps"], steps: Sequence[float]
) -> Float[Tensor, "k i *more"]:
    """The taps on grid points that do what these do between them.

    A neighbour between two points is a mean of both. Beyond the ends that holds too, as the field
    goes on with its last value, or comes round.
    """
    for axis, step in enumerate(steps, start=2):
        reached = math.ceil(step)
        place = torch.tensor([-step, 0.0, step], dtype=torch.float64)
        points = torch.arange(-reached, reached + 1, dtype=torch.float64)
        means = (1 - (points - place[:, None]).abs()).clamp(min=0)  # (3, 2 reached + 1)
        weight = torch.tensordot(weight, means.to(weight), dims=([axis], [0])).movedim(-1, axis)
    return weight


def _shifted_by(u: Tensor, by: float, axis: int, *, periodic: bool) -> Tensor:
    """u at index + by along an axis: linear between grid points, beyond the ends as they say."""
    if by == 0:
        return u
    length = u.shape[axis]
    place = torch.arange(length, dtype=torch.float64, device=u.device) + by
    if not periodic:
        place = place.clamp(0, length - 1)
    return at_places(u, place, axis)


def at_places(u: Tensor, place: Float[Tensor, " n"], axis: int) -> Tensor:
    """u between the grid points of an axis, linearly; beyond its ends it comes round."""
    length = u.shape[axis]
    below = place.floor()
    fraction = (place - below).to(u.dtype).view(-1, *(1,) * (u.ndim - axis - 1))
    index = below.long()
    # Without a period the point above the last one has no weight.
    low = u.index_select(axis, index % length)
    high = u.index_select(axis, (index + 1) % length)
    return torch.lerp(low, high, fraction)
