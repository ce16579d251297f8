"""FactFormer: attention along one axis of a grid at a time, with kernels from averages.

Axes: b batch, h head, l, m points of one axis, d channel of a head, c width, k feature, o output
channel.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.grids import CONVOLUTIONS, OnGrid, at_points
from funcattn.models.oformer import Gated, rotated
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.settings import NetworkSettings


class AxisKernel(nn.Module):
    """K = R(q) R(k)^T between the points of one axis, from averages of a field over the others.

    The averages pass a normalised, gated network; R turns channels by the place on the axis, so
    that the kernel knows distances (`rotated`).
    """

    def __init__(self, width: int, heads: int, channels: int) -> None:
        super().__init__()
        self.heads = heads
        self.reduce, self.norm = nn.Linear(width, width, bias=False), nn.LayerNorm(width)
        self.network = Gated(width)
        self.to_query, self.to_key = (
            nn.Linear(width, heads * channels, bias=False) for _ in range(2)
        )
        for part in (self.to_query, self.to_key):
            nn.init.xavier_uniform_(part.weight, gain=0.02)  # as published

    def forward(self, x: Float[Tensor, "b *grid c"], axis: int) -> Float[Tensor, "b h l m"]:
        """Of an axis of the grid, counted from 0."""
        others = [a for a in range(1, x.ndim - 1) if a != axis + 1]
        y = self.reduce(x)
        y = self.network(self.norm(y.mean(others) if others else y))  # (b, l, c)
        place = torch.linspace(0, 1, y.shape[1], device=y.device, dtype=y.dtype)[None, :, None]
        query, key = (
            rotated(of(y).unflatten(-1, (self.heads, -1)).transpose(1, 2), place, 1.0)
            for of in (self.to_query, self.to_key)
        )
        return query @ key.mT


class FactorisedBlock(nn.Module):
    """x + W_2 gelu(W_1 norm((K_1 x K_2 x ... x K_s) W_v norm x)), K_a the kernel of axis a.

    The norm after the kernels is over the grid, for each channel. Time and memory grow with the
    square of the points of an axis, not of the grid.
    """

    for_adamw = ("place",)

    def __init__(self, space: int, width: int, heads: int, channels: int, multiple: int) -> None:
        super().__init__()
        self.heads = heads
        self.place = nn.Linear(width, width)
        self.norm, self.to_value = (
            nn.LayerNorm(width),
            nn.Linear(width, heads * channels, bias=False),
        )
        self.to_kernels = nn.Linear(width, width, bias=False)
        self.kernels = nn.ModuleList(
            AxisKernel(width, heads, multiple * channels) for _ in range(space)
        )
        self.expand = nn.Linear(heads * channels, width, bias=False)
        self.contract = nn.Linear(width, width, bias=False)

    def forward(
        self, x: Float[Tensor, "b *grid c"], waves: Float[Tensor, "b *grid c"]
    ) -> Float[Tensor, "b *grid c"]:
        """waves: sines and cosines of the positions, which every block adds by a map of its own."""
        x = x + self.place(waves)
        normed = self.norm(x)
        value = self.to_value(normed).unflatten(-1, (self.heads, -1)).movedim(-2, 1)
        field = self.to_kernels(normed)
        for axis, kernel_of in enumerate(self.kernels):
            moved = value.movedim(axis + 2, 2)  # (b, h, m, ..., d)
            moved = (kernel_of(field, axis) @ moved.flatten(3)).unflatten(3, moved.shape[3:])
            value = moved.movedim(2, axis + 2)
        y = value.movedim(1, -2).flatten(-2)  # (b, *grid, h d)
        y = F.instance_norm(y.movedim(-1, 1)).movedim(1, -1)
        return x + self.contract(F.gelu(self.expand(y)))


class FactFormer(OnGrid):
    """Factorised transformer (Li, Shu and Farimani, NeurIPS 2023).

        x = lift(position, time, values),   x = block(x)   `layers` times
        y = convolutions on every second point of x, repeated to all of them
        out = head([y, x])

    Each block adds a linear map of sines and cosines of the positions, with frequencies that are
    drawn once. width, layers, heads: of the blocks. channels: of a head's values; its kernels have
    `multiple` times as many.

    Relative to the paper: for any grid (the code has one of a fixed size) and 1 to 3 axes; the
    instance norm of the code takes the rows of a grid for channels, here it is over the grid; all
    blocks share the frequencies, where the code draws some for each; the sizes of the code's
    configuration for Darcy are not known to us, these are our choice.

    >>> import torch
    >>> network = FactFormer(space=2, inputs=1, outputs=1, width=16, layers=2, heads=2, channels=8)
    >>> network(torch.rand(3, 99, 2), torch.randn(3, 99, 1), grid=(9, 11)).shape
    torch.Size([3, 99, 1])
    """

    waves: Tensor
    for_adamw = ("lift", "contract")

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        width: int = 128,
        layers: int = 4,
        heads: int = 8,
        channels: int = 64,
        multiple: int = 3,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        if width % 2:
            raise ValueError(f"width: expected an even number, got {width}")
        kind, half = CONVOLUTIONS[space], width // 2
        self.lift = nn.Conv1d(self.features, width, 1)
        self.register_buffer("waves", torch.randn(space, half))
        self.blocks = nn.ModuleList(
            FactorisedBlock(space, width, heads, channels, multiple) for _ in range(layers)
        )
        self.coarse = nn.Sequential(
            kind(width, half, 3, stride=2, padding=1),
            nn.GELU(),
            kind(half, half, 3, padding=1),
        )
        self.fine = nn.Sequential(
            kind(half, half, 3, padding=1), nn.GELU(), kind(half, width, 3, padding=1)
        )
        self.norm = nn.GroupNorm(math.gcd(8, width), 2 * width)
        self.expand = nn.Conv1d(2 * width, width, 1, bias=False)
        self.contract = nn.Conv1d(width, outputs, 1)

    def on_grid(self, x: Float[Tensor, "b k *grid"]) -> Float[Tensor, "b o *grid"]:
        """Lift, blocks, convolutions, head."""
        positions = x[:, : self.space].movedim(1, -1)
        phase = 2 * math.pi * positions @ self.waves.to(x.dtype)
        waves = torch.cat([phase.sin(), phase.cos()], dim=-1)
        y = at_points(self.lift, x).movedim(1, -1)  # (b, *grid, c)
        for block in self.blocks:
            y = block(y, waves)
        y = y.movedim(-1, 1)
        z = F.interpolate(self.coarse(F.instance_norm(y)), y.shape[2:], mode="nearest")
        both = self.norm(torch.cat([self.fine(z), y], dim=1))
        return at_points(self.contract, F.gelu(at_points(self.expand, both)))


@dataclass(frozen=True)
class FactFormerSettings(NetworkSettings):
    """Attention by axes."""

    width: int = 128
    """Channels inside, an even number."""
    layers: int = 4
    heads: int = 8
    channels: int = 64
    """Channels of a head."""


MODELS.register(
    "factformer",
    ModelEntry(
        "Factorised transformer: attention along one axis of a grid at a time",
        "Li et al., Scalable Transformer for PDE Surrogate Modeling, NeurIPS 2023",
        when="Large grids of several axes, where softmax attention is too slow.",
        fields=Form(FactFormerSettings, from_settings(FactFormer)),
        needs_grid=True,
        published={"width": 128, "layers": 4, "heads": 8, "channels": 64},
        small={"width": 32, "layers": 3, "heads": 4, "channels": 16},
        tiny={"width": 8, "layers": 2, "heads": 2, "channels": 4},
    ),
)
