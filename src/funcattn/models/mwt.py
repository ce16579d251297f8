"""MWT: maps between the levels of a multiwavelet transform of the field.

Axes: b batch, c channel, p multiwavelet coefficient, i, o channels in and out, k feature.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.grids import CONVOLUTIONS, OnGrid, at_points, cut, extended
from funcattn.models.matrices import Axes
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.models.starts import uniform_modes
from funcattn.ops.linalg import at_least_float32
from funcattn.settings import NetworkSettings


def multiwavelet_filters(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of H and G (k x 2 k): Legendre functions and multiwavelets by those of the two halves.

    A function on [0, 1] is phi_i = sum over j of H_ij sqrt 2 phi_j(2 x) + H_i,k+j sqrt 2 phi_j(2 x
    - 1); the rows of G are those of Alpert's multiwavelets, which complete them to an orthogonal
    matrix: the functions of the left half, orthonormalised after all phi.
    """
    nodes, weights = np.polynomial.legendre.leggauss(2 * order)
    nodes, weights = (nodes + 1) / 2, weights / 2

    def phi(x: np.ndarray) -> np.ndarray:
        values = np.polynomial.legendre.legvander(2 * x - 1, order - 1)
        return values * np.sqrt(2 * np.arange(order) + 1)

    halves = [
        (phi((nodes + half) / 2) * weights[:, None]).T @ phi(nodes) / math.sqrt(2)
        for half in (0, 1)
    ]
    low = np.concatenate(halves, axis=1)
    high: list[np.ndarray] = []
    for i in range(order):
        row = np.eye(2 * order)[i]
        for other in (*low, *high):
            row = row - (other @ row) * other
        high.append(row / np.linalg.norm(row))
    return low, np.stack(high)


class LowModes(nn.Module):
    """A matrix for each low Fourier mode, of those modes that a grid carries.

    normal: the matrices start normal, by Glorot's rule for a kernel of as many points as `modes`
    says; else as in `uniform_modes`.
    """

    def __init__(self, width: int, modes: Sequence[int], *, normal: bool = False) -> None:
        super().__init__()
        self.modes = tuple(modes)
        shape = (*(2 * m for m in self.modes[:-1]), self.modes[-1])
        if normal:
            deviation = (width * math.prod(self.modes)) ** -0.5
            drawn = torch.randn(width, width, *shape, dtype=torch.complex64)
            self.parts = nn.Parameter(torch.view_as_real(deviation * drawn))
        else:
            self.parts = nn.Parameter(uniform_modes(width, width, *shape))

    @property
    def stacks(self) -> dict[str, Axes]:
        """A matrix for each mode, for Muon."""
        return {"parts": (1, 0, True)}

    def forward(self, x: Float[Tensor, "b i *grid"]) -> Float[Tensor, "b o *grid"]:
        """The field with its low coefficients multiplied, and the others left out."""
        axes, grid = tuple(range(2, x.ndim)), x.shape[2:]
        spectrum = torch.fft.rfftn(x.to(at_least_float32(x.dtype)), dim=axes)
        weight = torch.view_as_complex(self.parts).to(spectrum.dtype)
        kept = []
        for m, length in zip(self.modes[:-1], grid, strict=False):
            positive, negative = min(m, (length + 1) // 2), min(m, length // 2)
            here = [*range(positive), *range(length - negative, length)]
            there = [*range(positive), *range(2 * m - negative, 2 * m)]
            kept.append((here, there))
        last = min(self.modes[-1], grid[-1] // 2 + 1)
        kept.append((list(range(last)), list(range(last))))
        low = spectrum
        for axis, (here, there) in zip(axes, kept, strict=True):
            low = low.index_select(axis, torch.tensor(here, device=x.device))
            weight = weight.index_select(axis, torch.tensor(there, device=x.device))
        low = torch.einsum("bi...,io...->bo...", low, weight)
        for axis, (here, _) in zip(axes, kept, strict=True):
            shape = list(low.shape)
            shape[axis] = spectrum.shape[axis]
            where = torch.tensor(here, device=x.device)
            low = torch.zeros(shape, dtype=low.dtype, device=x.device).index_copy(axis, where, low)
        return torch.fft.irfftn(low, s=grid, dim=axes).to(x.dtype)


class Pointed(nn.Module):
    """W relu(another map), at each point."""

    def __init__(self, inner: nn.Module, width: int) -> None:
        super().__init__()
        self.inner, self.map = inner, nn.Conv1d(width, width, 1)

    def forward(self, x: Float[Tensor, "b c *grid"]) -> Float[Tensor, "b c *grid"]:
        """On the grid."""
        return at_points(self.map, F.relu(self.inner(x)))


class MultiwaveletLayer(nn.Module):
    """The non-standard form of an operator, level by level.

        s_l, d_l = wavelet transform of s_{l+1}     down to a grid of 2^coarsest points
        u_d = A d_l + B s_l,   u_s = C d_l          at each level
        u_{l+1} = inverse transform of (u_l + u_s, u_d),   from u = T s at the coarsest

    A, B, C are the same at all levels: in 1D low Fourier modes; on more axes A the same with a
    linear map after ReLU, and B and C convolutions of 3 points with such.
    """

    decompose: Tensor

    def __init__(self, space: int, order: int, channels: int, modes: int, coarsest: int) -> None:
        super().__init__()
        self.space, self.order, self.channels, self.coarsest = space, order, channels, coarsest
        functions = order**space
        width = channels * functions
        low, high = multiwavelet_filters(order)
        # Parts of the finer grid in row-major order: each is a product of halves, one per axis.
        blocks = []
        for rows in (low, high):
            halves = np.stack([rows[:, :order], rows[:, order:]])  # (2, k, k)
            product = halves
            for _ in range(space - 1):
                product = np.stack([np.kron(a, b) for a in product for b in halves])
            blocks.append(np.concatenate(list(product), axis=1))  # (k^s, 2^s k^s)
        matrix = torch.tensor(np.concatenate(blocks), dtype=torch.float32)
        self.register_buffer("decompose", matrix, persistent=False)
        self.a: nn.Module
        self.b: nn.Module
        self.c: nn.Module
        if space == 1:
            self.a, self.b, self.c = (LowModes(width, (modes,)) for _ in range(3))
        else:
            kind = CONVOLUTIONS[space]
            self.a = Pointed(LowModes(width, (modes,) * space, normal=True), width)
            self.b, self.c = (Pointed(kind(width, width, 3, padding=1), width) for _ in range(2))
        self.coarse = nn.Conv1d(width, width, 1)
        nn.init.xavier_normal_(self.coarse.weight)

    def forward(self, x: Float[Tensor, "b c *grid"]) -> Float[Tensor, "b c *grid"]:
        """Down to the coarsest grid, and up."""
        levels = int(math.log2(min(x.shape[2:]))) - self.coarsest
        parts = []
        for _ in range(levels):
            x, detail = self.split(x)
            parts.append((self.a(detail) + self.b(x), self.c(detail)))
        x = at_points(self.coarse, x)
        for detail, more in reversed(parts):
            x = self.joined(x + more, detail)
        return x

    def split(self, x: Float[Tensor, "b c *fine"]) -> tuple[Tensor, Tensor]:
        """Coefficients on a grid of half the points per axis: means and details."""
        functions = self.order**self.space
        for axis in range(self.space):
            x = x.unflatten(2 + 2 * axis, (-1, 2))  # (b, c, n, 2, n, 2, ...)
        halves, coarse = range(3, 3 + 2 * self.space, 2), range(2, 2 + 2 * self.space, 2)
        x = x.unflatten(1, (self.channels, functions)).permute(
            0, 1, *(a + 1 for a in coarse), *(a + 1 for a in halves), 2
        )  # (b, channels, *coarse, 2, ..., 2, functions)
        x = x.flatten(2 + self.space) @ self.decompose.to(x.dtype).T
        x = x.movedim(-1, 2)  # (b, channels, 2 functions, *coarse)
        low, high = x.chunk(2, dim=2)
        return low.flatten(1, 2), high.flatten(1, 2)

    def joined(self, low: Tensor, high: Tensor) -> Float[Tensor, "b c *fine"]:
        """The inverse of `split`, of the means and details that it knows."""
        functions, space = self.order**self.space, self.space
        parts = [field.unflatten(1, (self.channels, functions)) for field in (low, high)]
        x = torch.cat(parts, dim=2).movedim(2, -1) @ self.decompose.to(low.dtype)
        x = x.unflatten(-1, (*(2 for _ in range(space)), functions))
        # (b, channels, *coarse, 2, ..., 2, functions) -> (b, channels, functions, n, 2, n, 2, ...)
        order = [axis for s in range(space) for axis in (2 + s, 2 + space + s)]
        x = x.permute(0, 1, 2 + 2 * space, *order)
        for axis in range(space):
            x = x.flatten(3 + axis, 4 + axis)
        return x.flatten(1, 2)


class MWT(OnGrid):
    """Multiwavelet operator (Gupta, Xiao and Bogdan, NeurIPS 2021).

        x = lift(position, time, values)                as coefficients of multiwavelets
        x = layer(x), with ReLU between                 `layers` times (`MultiwaveletLayer`)
        out = linear(relu(linear(x)))                   with `head` hidden channels

    order: k Legendre functions per axis. channels: sets of k^s coefficients. modes: of A (and B, C
    in 1D). A grid is extended by zeros to powers of two.

    Relative to the paper: Legendre functions only, which it has beside Chebyshev's; as in its
    public code, on more than one axis details are those of products of wavelets alone, so that the
    transform there forgets mixed ones.

    Parameters, a complex one counted as one, in 2D with the published order 4, 4 channels, 4 layers
    and 12 modes, one input and output: 5 089 281.

    >>> import torch
    >>> network = MWT(space=2, inputs=1, outputs=1, order=2, channels=2, layers=2, modes=3)
    >>> network(torch.rand(3, 99, 2), torch.randn(3, 99, 1), grid=(9, 11)).shape
    torch.Size([3, 99, 1])
    """

    for_adamw = ("lift", "expand", "contract")

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        order: int = 4,
        channels: int = 4,
        layers: int = 4,
        modes: int = 12,
        coarsest: int = 0,
        head: int = 128,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        width = channels * order**space
        self.lift = nn.Conv1d(self.features, width, 1)
        self.layers = nn.ModuleList(
            MultiwaveletLayer(space, order, channels, modes, coarsest) for _ in range(layers)
        )
        self.expand, self.contract = nn.Conv1d(width, head, 1), nn.Conv1d(head, outputs, 1)
        for layer in (self.expand, self.contract):
            nn.init.xavier_normal_(layer.weight)

    def on_grid(self, x: Float[Tensor, "b k *grid"]) -> Float[Tensor, "b o *grid"]:
        """Lift, extend, layers, cut, head."""
        grid = x.shape[2:]
        x = extended(at_points(self.lift, x), [2 ** (n - 1).bit_length() for n in grid])
        for i, layer in enumerate(self.layers):
            x = layer(x if i == 0 else F.relu(x))
        return at_points(self.contract, F.relu(at_points(self.expand, cut(x, grid))))


@dataclass(frozen=True)
class MWTSettings(NetworkSettings):
    """Layers of multiwavelets."""

    order: int = 4
    """Legendre functions per axis."""
    channels: int = 4
    """Sets of coefficients."""
    layers: int = 4
    modes: int = 12
    """Fourier modes per axis."""


MODELS.register(
    "mwt",
    ModelEntry(
        "Multiwavelet operator: maps between the levels of a multiwavelet transform",
        "Gupta et al., Multiwavelet-Based Operator Learning, NeurIPS 2021",
        when="Grids with features at many scales, and shocks in one dimension.",
        fields=Form(MWTSettings, from_settings(MWT)),
        needs_grid=True,
        cost="n log n",
        published={"order": 4, "channels": 4, "layers": 4, "modes": 12},
        small={"order": 3, "channels": 2, "layers": 3, "modes": 6},
        tiny={"order": 2, "channels": 2, "layers": 2, "modes": 2},
    ),
)
