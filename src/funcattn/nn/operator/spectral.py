"""Sines, cosines and Fourier waves on grids, and maps with a matrix for each function.

Everything is in the coordinates of the indices: along an axis, points i / (N - 1) of [0, 1] with
both ends, or i / N of a circle. So a grid may be curved in space, and has its own quadrature.

Axes: b batch, n point, c, e channels, k basis function.
"""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from funcattn.nn.points import Points
from funcattn.ops.linalg import at_least_float32, full_precision

Family = Literal["sine", "cosine", "fourier"]


def carried(family: Family, points: int) -> int:
    """How many functions of a family a line of points can tell apart, orthonormal on it."""
    if family == "fourier":
        return 2 * ((points - 1) // 2) + 1
    return max(points - 2, 0) if family == "sine" else max(points - 1, 1)


def frequencies(family: Family, count: int) -> Tensor:
    """The wave number of each function: phase pi k x (sine, cosine) or 2 pi k x (fourier)."""
    k = torch.arange(count, dtype=torch.float64)
    return (k + 1) if family == "sine" else k if family == "cosine" else torch.ceil(k / 2)


def axis_functions(
    family: Family, points: int, count: int, *, slope: bool = False
) -> Float[Tensor, "n k"]:
    """The first functions of a family at the points of a line, or their derivatives; float64.

        sine:    sqrt(2) sin(pi k x),  k = 1 .. count
        cosine:  1, sqrt(2) cos(pi k x),  k = 1 .. count - 1
        fourier: 1, sqrt(2) cos(2 pi k x), sqrt(2) sin(2 pi k x), ...  in turn

    Orthonormal over the line, and over its points with `axis_weights` up to `carried` functions.
    """
    k = frequencies(family, count)
    x = _line(family, points)
    phase = (2 if family == "fourier" else 1) * math.pi * k
    angle = x[:, None] * phase
    odd = torch.arange(count) % 2 == 1
    if family == "sine":
        values = phase * angle.cos() if slope else angle.sin()
    elif family == "cosine":
        values = -phase * angle.sin() if slope else angle.cos()
    else:
        cosines = -phase * angle.sin() if slope else angle.cos()
        sines = phase * angle.cos() if slope else angle.sin()
        values = torch.where(odd, cosines, sines)
        values[:, 0] = 0.0 if slope else 1.0
    return values * (1 + (k > 0).double()).sqrt()


def axis_weights(family: Family, points: int) -> Float[Tensor, " n"]:
    """Quadrature weights of the points of a line, which sum to one; float64."""
    if family == "fourier":
        return torch.full((points,), 1 / points, dtype=torch.float64)
    weights = torch.full((points,), 1 / max(points - 1, 1), dtype=torch.float64)
    if points > 1:
        weights[[0, -1]] /= 2
    return weights


def _line(family: Family, points: int) -> Tensor:
    index = torch.arange(points, dtype=torch.float64)
    return index / (points if family == "fourier" else max(points - 1, 1))


class GridFunctions:
    """Products of one family of functions along each axis of a grid, applied axis by axis.

    counts: functions per axis; of those, as many are used as the grid carries. Nothing of the size
    points times functions is formed.
    """

    def __init__(self, family: Family, grid: Sequence[int], counts: Sequence[int]) -> None:
        self.family, self.grid = family, tuple(grid)
        self.counts = tuple(
            min(count, carried(family, points)) for count, points in zip(counts, grid, strict=True)
        )

    def squares(self) -> Float[Tensor, " k"]:
        """The squared length of each function's wave vector; float64."""
        squares = torch.zeros((), dtype=torch.float64)
        for count in self.counts:
            squares = squares.unsqueeze(-1) + frequencies(self.family, count).square()
        return squares.flatten()

    def coefficients(self, field: Float[Tensor, "b *grid c"]) -> Float[Tensor, "*k b c"]:
        """Phi^T W field, the functions' axes first."""
        for points, count in zip(reversed(self.grid), reversed(self.counts), strict=True):
            table = axis_functions(self.family, points, count)
            table = (table * axis_weights(self.family, points)[:, None]).to(field)
            # The last axis that is left: (..., b, *rest, n, c) -> (k, ..., b, *rest, c).
            field = torch.tensordot(table, field, dims=([0], [field.ndim - 2]))
        return field

    def fields(self, coefficients: Float[Tensor, "*k b c"]) -> Float[Tensor, "b *grid c"]:
        """Phi coefficients."""
        for points, count in zip(self.grid, self.counts, strict=True):
            table = axis_functions(self.family, points, count).to(coefficients)
            coefficients = torch.tensordot(coefficients, table, dims=([0], [1]))
        return coefficients.movedim(1, -1)  # (b, c, *grid) -> (b, *grid, c)


class ModewiseMap(nn.Module):
    """A matrix of its own for each basis function of a grid.

        out = Phi z,   z_k = (1 + |k|^2)^(-decay / 2) c_k W_k,   c = Phi^T W f

    with orthonormal Phi, sines or cosines with wave vectors k. The decay leaves the set of maps as
    it is; it makes short waves start, and learn, more slowly than long ones.

    modes: functions per axis; a coarser grid uses those that it carries. rank: the matrices are
    sums W_k = sum_r s_kr V_r of so many, which are learned with the numbers s; None: each matrix is
    learned by itself.

    >>> layer = ModewiseMap(8, 8, (3, 4), "sine")
    >>> layer(torch.randn(2, 7 * 9, 8), Points(grid=(7, 9))).shape
    torch.Size([2, 63, 8])
    """

    stacks: ClassVar = {"weight": (-1, -2, False)}
    """Axes of outputs and inputs, for Muon."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        modes: Sequence[int],
        family: Family,
        *,
        decay: float = 0.0,
        rank: int | None = None,
    ) -> None:
        super().__init__()
        self.modes, self.family, self.decay, self.rank = tuple(modes), family, decay, rank
        count = (*modes,) if rank is None else (rank,)
        self.weight = nn.Parameter(torch.randn(*count, inputs, outputs) / math.sqrt(inputs))
        # One axis, as it is no matrix for optimisers.
        self.shares = (
            None
            if rank is None
            else nn.Parameter(torch.randn(math.prod(modes) * rank) / math.sqrt(rank))
        )

    def forward(self, x: Float[Tensor, "b n c"], points: Points) -> Float[Tensor, "b n e"]:
        """To coefficients, through the matrices, and back."""
        field = on_grid(x, points, dims=len(self.modes))
        functions = GridFunctions(self.family, field.shape[1:-1], self.modes)
        scale = (1 + functions.squares()).pow(-self.decay / 2).to(field)
        c = functions.coefficients(field).flatten(0, -3) * scale[:, None, None]  # (k, b, c)
        kept = tuple(slice(count) for count in functions.counts)
        if self.shares is None:
            z = torch.bmm(c, self.weight[kept].flatten(0, -3).to(c.dtype))  # (k, b, e)
        else:
            # (k, b, c) and (k, r) -> (k, b, r c), for one product with all matrices.
            shares = self.shares.view(*self.modes, -1)[kept].flatten(0, -2).to(c.dtype)
            parts = (c.unsqueeze(2) * shares[:, None, :, None]).flatten(2)
            z = parts @ self.weight.flatten(0, 1).to(c.dtype)
        out = functions.fields(z.unflatten(0, functions.counts))
        return out.flatten(1, -2).to(x.dtype)


class FourierMap(nn.Module):
    """A complex matrix of its own for each Fourier coefficient of a periodic grid.

        out = Re sum_k e^(2 pi i k x) z_k,   z_k = f^(k) W_k

    over -m <= k < m on each axis but the last and 0 <= k < m on that, where k > 0 counts twice for
    its conjugate. This is the multiplier of a Fourier neural operator, by sums over the few waves
    that are used instead of the fast transform. On a grid of N points, waves with 2 |k| < N are
    used.

    >>> layer = FourierMap(8, 8, (3,))
    >>> layer(torch.randn(2, 32, 8), Points(grid=(32,))).shape
    torch.Size([2, 32, 8])
    """

    stacks: ClassVar = {"weight": (-1, -2, True)}
    """Axes of outputs and inputs, and that the last axis holds real and imaginary parts."""

    def __init__(self, inputs: int, outputs: int, modes: Sequence[int]) -> None:
        super().__init__()
        self.modes = tuple(modes)
        counts = (*(2 * m for m in modes[:-1]), modes[-1])
        self.weight = nn.Parameter(torch.randn(*counts, inputs, outputs, 2) / math.sqrt(2 * inputs))

    def forward(self, x: Float[Tensor, "b n c"], points: Points) -> Float[Tensor, "b n e"]:
        """To coefficients, through the matrices, and back."""
        field = on_grid(x, points, dims=len(self.modes))
        grid = field.shape[1:-1]
        waves = self._waves(grid)
        with full_precision(x.device):
            c = self._coefficients(field, waves)
            weight = torch.view_as_complex(self.weight.to(field.dtype))
            # Negative waves stand at the end of their axes.
            for axis, k in enumerate(waves):
                weight = weight.index_select(axis, (k % weight.shape[axis]).to(x.device))
            z = torch.bmm(c.flatten(0, -3), weight.flatten(0, -3))  # (k, b, e)
            out = self._fields(z.unflatten(0, c.shape[: len(grid)]), waves, grid)
        return out.flatten(1, -2).to(x.dtype)

    def _waves(self, grid: Sequence[int]) -> list[Tensor]:
        """The wave numbers on each axis that the grid carries."""
        every = [torch.arange(-m, m) for m in self.modes[:-1]] + [torch.arange(self.modes[-1])]
        return [
            k[2 * k.abs() < n] if n > 1 else k[k == 0] for k, n in zip(every, grid, strict=True)
        ]

    def _coefficients(self, field: Tensor, waves: list[Tensor]) -> Complex[Tensor, "*k b c"]:
        *first, last = (_waves_at(k, n) for k, n in zip(waves, field.shape[1:-1], strict=True))
        n = len(last)
        table = torch.cat([last.real, -last.imag], 1).to(field) / n
        parts = torch.tensordot(table, field, dims=([0], [field.ndim - 2]))
        c = torch.complex(*parts.chunk(2, 0))  # (k, b, *rest, c)
        for wave in reversed(first):
            table = (wave.conj() / len(wave)).to(c)
            c = torch.tensordot(table, c, dims=([0], [c.ndim - 2]))
        return c

    def _fields(self, z: Tensor, waves: list[Tensor], grid: Sequence[int]) -> Tensor:
        *first, last = (_waves_at(k, n) for k, n in zip(waves, grid, strict=True))
        for wave in first:
            z = torch.tensordot(z, wave.to(z), dims=([0], [1]))  # (k_last, b, e, *done)
        twice = last * torch.where(waves[-1] > 0, 2.0, 1.0)
        table = torch.cat([twice.real, -twice.imag], 1)  # (n, 2 k)
        parts = torch.cat([z.real, z.imag], 0)
        out = torch.tensordot(parts, table.to(parts), dims=([0], [1]))
        return out.movedim(1, -1)  # (b, e, *grid) -> (b, *grid, e)


def _waves_at(k: Tensor, points: int) -> Complex[Tensor, "n k"]:
    x = torch.arange(points, dtype=torch.float64) / points
    return torch.polar(
        torch.ones(points, len(k), dtype=torch.float64), 2 * math.pi * x[:, None] * k
    )


def on_grid(x: Float[Tensor, "b n c"], points: Points, *, dims: int) -> Float[Tensor, "b *grid c"]:
    """The field on its grid, 0 at masked points, in float32 at least."""
    return points.on_grid(x.to(at_least_float32(x.dtype)), dims=dims)
