"""HT-Net: attention in windows at several resolutions, and Fourier layers after it.

Axes: b batch, c channel, d channel of a head, h head, k feature, o output channel, w point of a
window.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.fourier_multiplier import FourierMultiplier
from funcattn.models.grids import CONVOLUTIONS, GridNetwork, at_points, cut, extended, padding_of
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.models.unet import multiples
from funcattn.nn.bases import split_heads
from funcattn.settings import NetworkSettings


def in_blocks(x: Float[Tensor, "b *grid c"], size: int) -> Float[Tensor, "b *blocks w c"]:
    """Blocks of size^s points: their number on each axis, and the points of each in a row."""
    s = x.ndim - 2
    for axis in range(s):
        x = x.unflatten(1 + 2 * axis, (-1, size))
    x = x.permute(0, *range(1, 2 * s, 2), *range(2, 2 * s + 1, 2), 2 * s + 1)
    return x.flatten(1 + s, 2 * s)


def out_of_blocks(x: Float[Tensor, "b *blocks w c"], size: int) -> Float[Tensor, "b *grid c"]:
    """The inverse of `in_blocks`."""
    s = x.ndim - 3
    x = x.unflatten(1 + s, (size,) * s)
    x = x.permute(0, *(axis for i in range(s) for axis in (1 + i, 1 + s + i)), 2 * s + 1)
    for axis in range(s):
        x = x.flatten(1 + axis, 2 + axis)
    return x


class WindowAttention(nn.Module):
    """(q k^T / w + bias of the offset) v between the w points of each window, without softmax."""

    between: Int[Tensor, "w w"]
    for_adamw = ("bias",)

    def __init__(self, space: int, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_query, self.to_key, self.to_value, self.to_output = (
            nn.Linear(width, width) for _ in range(4)
        )
        self.bias = nn.Parameter(torch.empty((2 * window - 1) ** space, heads))
        nn.init.trunc_normal_(self.bias, std=0.02)
        places = torch.tensor(list(itertools.product(range(window), repeat=space)))
        offsets = places.unsqueeze(1) - places.unsqueeze(0) + window - 1
        strides = torch.tensor([(2 * window - 1) ** axis for axis in reversed(range(space))])
        self.register_buffer("between", (offsets * strides).sum(-1), persistent=False)

    def forward(self, x: Float[Tensor, "b w c"]) -> Float[Tensor, "b w c"]:
        """In each window."""
        query, key, value = (
            split_heads(map_(x), self.heads) for map_ in (self.to_query, self.to_key, self.to_value)
        )
        scores = query @ key.mT / x.shape[1] + self.bias[self.between].movedim(-1, 0)
        return self.to_output((scores @ value).transpose(1, 2).flatten(2))


class WindowBlock(nn.Module):
    """Pre-norm transformer block whose attention stays in windows."""

    def __init__(self, space: int, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.window = window
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = WindowAttention(space, width, heads, window)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Float[Tensor, "b *grid c"]) -> Float[Tensor, "b *grid c"]:
        """In windows, then at each point."""
        windows = in_blocks(self.attention_norm(x), self.window)
        attended = self.attention(windows.flatten(0, -3)).view(windows.shape)
        x = x + out_of_blocks(attended, self.window)
        return x + self.mlp(self.mlp_norm(x))


class HTNet(GridNetwork):
    """Hierarchical transformer (Liu, Xu, Cao and Zhang, 2022; later called HANO, JCP 2024).

        x_1 = norm(convolution(position, time, values))
        x_l = block(x_l),  x_{l+1} = W norm(2^s neighbours of x_l)     on half of the points per
                                                                       axis, channels doubled
        y_l = x_l + 2^s neighbours from V y_{l+1}                      back to all points
        z = multiplier(z) + convolution(z), with GELU between          `spectral` times, from y_1
        out = linear(gelu(linear(z)))

    Attention is in windows of `window` points per axis, at each of `levels` resolutions: near
    points meet finely, far ones coarsely.

    width: channels at the finest grid. modes: of the Fourier layers. padding: as in `FNO`.

    Relative to the paper: as in the first public version of its code, attention has no softmax and
    the decoder is one of Fourier layers; the first convolution has 3 points and keeps the grid,
    where the code halves it, as our tasks want the answer at all points; no loss in H1, no dropped
    paths, no boundary values put to zero; one or three axes are ours. A grid is extended by zeros
    to what windows divide.

    Parameters, a complex one counted as one: 7 461 396 in 2D with the published width 64, 3 levels,
    windows of 4, one head, 12 modes and 5 Fourier layers, one input and output.

    >>> import torch
    >>> network = HTNet(space=2, inputs=1, outputs=1, width=8, levels=2, modes=3, spectral=2)
    >>> network(torch.rand(3, 99, 2), torch.randn(3, 99, 1), grid=(9, 11)).shape
    torch.Size([3, 99, 1])
    """

    for_adamw: Sequence[str] = ("lift", "expand", "contract")

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        width: int = 64,
        levels: int = 3,
        heads: int = 1,
        window: int = 4,
        modes: int | Sequence[int] = 12,
        spectral: int = 5,
        head: int = 128,
        padding: float | Sequence[float] = 0.0,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, modes=modes, padding=padding, time=time)
        if width % heads:
            raise ValueError(f"width: expected a multiple of heads={heads}, got {width}")
        if levels < 1 or spectral < 1:
            raise ValueError(f"levels, spectral: expected at least 1, got {levels}, {spectral}")
        self.multiple = window * 2 ** (levels - 1)
        widths = [width * 2**level for level in range(levels)]
        kind, part = CONVOLUTIONS[space], 2**space
        self.lift, self.lift_norm = kind(self.features, width, 3, padding=1), nn.LayerNorm(width)
        self.blocks = nn.ModuleList(WindowBlock(space, w, heads, window) for w in widths)
        self.reduce = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(part * w), nn.Linear(part * w, 2 * w, bias=False))
            for w in widths[:-1]
        )
        self.decompose = nn.ModuleList(nn.Linear(2 * w, part * w) for w in widths[:-1])
        self.multipliers = nn.ModuleList(
            FourierMultiplier(width, width, self.modes) for _ in range(spectral)
        )
        # The multipliers have the bias of the sum.
        self.convolutions = nn.ModuleList(
            kind(width, width, 3, padding=1, bias=False) for _ in range(spectral)
        )
        self.expand, self.contract = nn.Conv1d(width, head, 1), nn.Conv1d(head, outputs, 1)
        self._start(width)

    def _start(self, width: int) -> None:
        """As the public code does: maps small, Fourier layers near their convolutions alone."""
        layers: list[nn.Linear | nn.Conv1d] = [
            module for module in self.modules() if isinstance(module, nn.Linear)
        ]
        for layer in (*layers, self.expand, self.contract):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        matrices = math.sqrt(3 / (16 * math.prod(self.modes))) / width**2
        bias = (3**self.space * width) ** -0.5  # that of a convolution of 3 points
        for multiplier in self.multipliers:
            assert isinstance(multiplier, FourierMultiplier)
            nn.init.uniform_(multiplier.parts[0], -matrices, matrices)
            nn.init.uniform_(multiplier.bias, -bias, bias)

    def on_grid(self, x: Float[Tensor, "b k *grid"]) -> Float[Tensor, "b o *grid"]:
        """Windows at all resolutions, then Fourier layers."""
        grid = x.shape[2:]
        x = extended(self.lift(x), multiples(grid, self.multiple))
        y = self.hierarchy(self.lift_norm(x.movedim(1, -1))).movedim(-1, 1)
        z = extended(cut(y, grid), self.padded(grid))
        layers = zip(self.multipliers, self.convolutions, strict=True)
        for i, (multiplier, convolution) in enumerate(layers):
            z = F.gelu(z) if i else z
            z = multiplier(z) + convolution(z)
        return at_points(self.contract, F.gelu(at_points(self.expand, cut(z, grid))))

    def hierarchy(self, x: Float[Tensor, "b *grid c"]) -> Float[Tensor, "b *grid c"]:
        """Down and up; the grid is a multiple of windows at the coarsest level."""
        seen = []
        for i, block in enumerate(self.blocks):
            x = block(x)
            seen.append(x)
            if i < len(self.reduce):
                x = self.reduce[i](in_blocks(x, 2).flatten(-2))
        y = seen.pop()
        for decompose in reversed(self.decompose):
            fine = decompose(y).unflatten(-1, (2 ** (x.ndim - 2), -1))
            y = seen.pop() + out_of_blocks(fine, 2)
        return y


@dataclass(frozen=True)
class HTNetSettings(NetworkSettings):
    """Windows at several resolutions, and Fourier layers."""

    width: int = 64
    """Channels at the finest grid."""
    levels: int = 3
    """Resolutions."""
    heads: int = 1
    window: int = 4
    """Points of a window per axis."""
    modes: int = 12
    """Fourier modes per axis."""
    spectral: int = 5
    """Fourier layers."""


MODELS.register(
    "ht_net",
    ModelEntry(
        "Hierarchical transformer: attention in windows at several resolutions, Fourier layers",
        "Liu et al., HT-Net: Hierarchical Transformer for Multiscale PDEs, 2022",
        when="Grids with coefficients that vary on many scales, finer than Fourier modes can see.",
        fields=Form(HTNetSettings, from_settings(HTNet, padding=padding_of)),
        needs_grid=True,
        cost="n log n",
        published={
            "width": 64,
            "levels": 3,
            "heads": 1,
            "window": 4,
            "modes": 12,
            "spectral": 5,
        },
        small={"width": 24, "levels": 3, "modes": 8, "spectral": 3},
        tiny={"width": 8, "levels": 2, "window": 2, "modes": 2, "spectral": 2},
    ),
)
