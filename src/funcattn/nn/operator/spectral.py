"""Sines, cosines and Fourier waves on grids, and maps with a matrix for each function.

Everything is in the coordinates of the indices: along an axis, points i / (N - 1) of [0, 1] with
both ends, or i / N of a circle. So a grid may be curved in space, and has its own quadrature.

Axes: b batch, n point, c, e channels, k basis function.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import ClassVar, Literal

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from funcattn.nn.points import Points
from funcattn.ops.linalg import at_least_float32, full_precision

Family = Literal["sine", "cosine", "fourier"]
Waves = tuple[int, ...]
_INDEX = torch.empty(0, dtype=torch.long)


def carried(family: Family, points: int) -> int:
    """How many functions of a family a line of points can tell apart, orthonormal on it."""
    if family == "fourier":
        return 2 * ((points - 1) // 2) + 1
    return max(points - 2, 0) if family == "sine" else max(points - 1, 1)


def frequencies(family: Family, count: int) -> Tensor:
    """The wave number of each function: phase pi k x (sine, cosine) or 2 pi k x (fourier)."""
    k = torch.arange(count, dtype=torch.float64)
    return (k + 1) if family == "sine" else k if family == "cosine" else torch.ceil(k / 2)


def table(make: Callable[..., Tensor], *given: Hashable, like: Tensor) -> Tensor:
    """make(*given) in the dtype and on the device of a tensor, remembered for the next call."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return make(*given).to(like)  # numbers that are traced are not kept
    return _table(make, given, like.dtype, like.device)


@lru_cache(maxsize=256)
def _table(
    make: Callable[..., Tensor],
    given: tuple[Hashable, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    with torch.inference_mode(False), torch.no_grad():
        return make(*given).to(device, dtype)


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
        return _squares(self.family, self.counts)

    def coefficients(self, field: Float[Tensor, "b *grid c"]) -> Float[Tensor, "*k b c"]:
        """Phi^T W field, the functions' axes first."""
        for points, count in zip(reversed(self.grid), reversed(self.counts), strict=True):
            weighted = table(_weighted_functions, self.family, points, count, like=field)
            # The last axis that is left: (..., b, *rest, n, c) -> (k, ..., b, *rest, c).
            field = torch.tensordot(weighted, field, dims=([0], [field.ndim - 2]))
        return field

    def fields(self, coefficients: Float[Tensor, "*k b c"]) -> Float[Tensor, "b *grid c"]:
        """Phi coefficients."""
        for points, count in zip(self.grid, self.counts, strict=True):
            values = table(axis_functions, self.family, points, count, like=coefficients)
            coefficients = torch.tensordot(coefficients, values, dims=([0], [1]))
        return coefficients.movedim(1, -1)  # (b, c, *grid) -> (b, *grid, c)


def _weighted_functions(family: Family, points: int, count: int) -> Tensor:
    return axis_functions(family, points, count) * axis_weights(family, points)[:, None]


def _squares(family: Family, counts: tuple[int, ...]) -> Tensor:
    squares = torch.zeros((), dtype=torch.float64)
    for count in counts:
        squares = squares.unsqueeze(-1) + frequencies(family, count).square()
    return squares.flatten()


def _decayed(family: Family, counts: tuple[int, ...], decay: float) -> Tensor:
    return (1 + _squares(family, counts)).pow(-decay / 2)


def inverse_lengths(family: Family, counts: tuple[int, ...]) -> Float[Tensor, " k"]:
    """One over the length of each function's wave vector, and 1 for the constant one; float64."""
    return _squares(family, counts).clamp(min=1.0).rsqrt()


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
        scale = table(_decayed, self.family, functions.counts, self.decay, like=field)
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

    @torch.no_grad()
    def gains(self) -> Float[Tensor, "*k"]:
        """How much the coefficient of each function can grow: the norm of its matrix."""
        matrices: Tensor = self.weight
        if self.shares is not None:
            matrices = torch.einsum("...r,rce->...ce", self.shares.view(*self.modes, -1), matrices)
        scale = table(_decayed, self.family, self.modes, self.decay, like=matrices)
        return torch.linalg.matrix_norm(matrices, 2) * scale.view(self.modes)


class FourierMap(nn.Module):
    """A complex matrix of its own for each Fourier coefficient of a periodic grid.

        out = Re sum_k e^(2 pi i k x) z_k,   z_k = f^(k) W_k

    over -m <= k < m on each axis but the last and 0 <= k < m on that, where k > 0 counts twice for
    its conjugate. This is the multiplier of a Fourier neural operator, by sums over the few waves
    that are used instead of the fast transform. On a grid of N points, waves with 2 |k| < N are
    used.

    modes: m of each axis; None for an axis that is left as it is: the same map on all of its lines.
    With one axis of several this is the multiplier of a factorised Fourier neural operator.

    >>> layer = FourierMap(8, 8, (3,))
    >>> layer(torch.randn(2, 32, 8), Points(grid=(32,))).shape
    torch.Size([2, 32, 8])
    >>> FourierMap(8, 8, (None, 3))(torch.randn(2, 6 * 7, 8), Points(grid=(6, 7))).shape
    torch.Size([2, 42, 8])
    """

    stacks: ClassVar = {"weight": (-1, -2, True)}
    """Axes of outputs and inputs, and that the last axis holds real and imaginary parts."""

    def __init__(self, inputs: int, outputs: int, modes: Sequence[int | None]) -> None:
        super().__init__()
        self.dims = len(modes)
        self.axes = tuple(axis for axis, m in enumerate(modes) if m is not None)
        self.modes = tuple(m for m in modes if m is not None)
        counts = (*(2 * m for m in self.modes[:-1]), self.modes[-1])
        self.weight = nn.Parameter(torch.randn(*counts, inputs, outputs, 2) / math.sqrt(2 * inputs))

    def forward(self, x: Float[Tensor, "b n c"], points: Points) -> Float[Tensor, "b n e"]:
        """To coefficients, through the matrices, and back."""
        field = on_grid(x, points, dims=self.dims)
        waves = self._waves([field.shape[1 + axis] for axis in self.axes])
        with full_precision(x.device):
            c = self._coefficients(field, waves)  # (*k, b, *rest, c)
            weight = torch.view_as_complex(self.weight.to(field.dtype))
            for axis, k in enumerate(waves):
                if len(k) < (count := weight.shape[axis]):
                    places = table(_places, k, count, like=_INDEX.to(x.device))
                    weight = weight.index_select(axis, places)
            of_each = c.flatten(len(waves), -2).flatten(0, -3)  # (k, b rest, c)
            z = torch.bmm(of_each, weight.flatten(0, -3)).view(*c.shape[:-1], -1)
            out = self._fields(z, waves, field.shape[1:-1])
        return out.flatten(1, -2).to(x.dtype)

    @torch.no_grad()
    def gains(self) -> Float[Tensor, "*k"]:
        """How much the coefficient of each wave can grow: the norm of its matrix.

        On all axes but the last, waves are in the order -m, ..., m - 1.
        """
        norms = torch.linalg.matrix_norm(torch.view_as_complex(self.weight), 2)
        leading = list(range(norms.ndim - 1))
        return torch.fft.fftshift(norms, dim=leading) if leading else norms

    def _waves(self, lengths: Sequence[int]) -> list[Waves]:
        """The wave numbers on each axis that the grid carries, negative ones last, as weights."""
        every = [(*range(m), *range(-m, 0)) for m in self.modes[:-1]]
        return [
            tuple(k for k in on_axis if (2 * abs(k) < n if n > 1 else k == 0))
            for on_axis, n in zip([*every, range(self.modes[-1])], lengths, strict=True)
        ]

    def _coefficients(self, field: Tensor, waves: list[Waves]) -> Complex[Tensor, "..."]:
        """(*k, b, *rest, c), rest: the axes that are left."""
        *first, last = zip(waves, self.axes, strict=True)
        of_last = table(_real_and_imaginary, last[0], field.shape[1 + last[1]], like=field)
        parts = torch.tensordot(of_last, field, dims=([0], [1 + last[1]]))
        c = torch.complex(*parts.chunk(2, 0))
        for done, (k, axis) in enumerate(reversed(first), 1):
            # Those that are done stand first, and come after this one in the field.
            on_axis = table(_conjugates, k, field.shape[1 + axis], like=c)
            c = torch.tensordot(on_axis, c, dims=([0], [done + 1 + axis]))
        return c

    def _fields(
        self, z: Complex[Tensor, "..."], waves: list[Waves], grid: Sequence[int]
    ) -> Float[Tensor, "b *grid e"]:
        """From z (*k, b, *rest, e)."""
        *first, last = zip(waves, (grid[axis] for axis in self.axes), strict=True)
        for done, on_axis in enumerate(first):
            # (*done, k, *k, ...) -> (n, *done, *k, ...)
            z = torch.tensordot(table(_waves_at, *on_axis, like=z), z, dims=([1], [done]))
        done = len(first)
        parts = torch.cat([z.real, z.imag], done)
        twice = table(_twice, *last, like=parts)  # (n, 2 k)
        out = torch.tensordot(twice, parts, dims=([1], [done]))  # (*n reversed, b, *rest, e)
        rest = iter(range(done + 2, out.ndim))
        places = {axis: done - i for i, axis in enumerate(self.axes)}
        of_grid = [places[axis] if axis in places else next(rest) for axis in range(self.dims)]
        return out.permute(done + 1, *of_grid, -1)


def _waves_at(waves: Waves, points: int) -> Complex[Tensor, "n k"]:
    x = torch.arange(points, dtype=torch.float64) / points
    k = torch.tensor(waves)
    return torch.polar(
        torch.ones(points, len(k), dtype=torch.float64), 2 * math.pi * x[:, None] * k
    )


def _real_and_imaginary(waves: Waves, points: int) -> Float[Tensor, "n two_k"]:
    values = _waves_at(waves, points)
    return torch.cat([values.real, -values.imag], 1) / points


def _conjugates(waves: Waves, points: int) -> Complex[Tensor, "n k"]:
    return _waves_at(waves, points).conj().resolve_conj() / points


def _twice(waves: Waves, points: int) -> Float[Tensor, "n two_k"]:
    values = _waves_at(waves, points) * torch.where(torch.tensor(waves) > 0, 2.0, 1.0)
    return torch.cat([values.real, -values.imag], 1)


def _places(waves: Waves, count: int) -> Tensor:
    return torch.tensor(waves) % count


def on_grid(x: Float[Tensor, "b n c"], points: Points, *, dims: int) -> Float[Tensor, "b *grid c"]:
    """The field on its grid, 0 at masked points, in float32 at least."""
    return points.on_grid(x.to(at_least_float32(x.dtype)), dims=dims)
