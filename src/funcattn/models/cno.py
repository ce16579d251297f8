"""CNO: a U of convolutions whose activations act on a finer grid, so that they make no aliases.

Axes: b batch, c channel, k feature, o output channel.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.grids import CONVOLUTIONS, OnGrid
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.settings import NetworkSettings

_LIFTED = 64
"""Hidden channels of lift and projection, as in the public code."""


def resampled(x: Float[Tensor, "b c *grid"], grid: Sequence[int]) -> Float[Tensor, "b c *fine"]:
    """A field on another grid of the same box, axis by axis: cubic, low-pass where it is coarser.

    The weights are those of PyTorch's antialiased bicubic interpolation.
    """
    for axis, length in enumerate(grid, start=2):
        if x.shape[axis] == length:
            continue
        lines = x.movedim(axis, -1)
        flat = lines.reshape(1, -1, 1, lines.shape[-1])  # (1, lines, 1, points)
        flat = F.interpolate(flat, (1, length), mode="bicubic", antialias=True)
        x = flat.view(*lines.shape[:-1], length).movedim(-1, axis)
    return x


class Activation(nn.Module):
    """Leaky ReLU on a grid of twice the points per axis, then down to the grid that is wanted."""

    def forward(
        self, x: Float[Tensor, "b c *grid"], grid: Sequence[int] | None = None
    ) -> Float[Tensor, "b c *out"]:
        """On the grid of x by default."""
        here = x.shape[2:]
        finer = resampled(x, [2 * length for length in here])
        return resampled(F.leaky_relu(finer), here if grid is None else grid)


class Block(nn.Module):
    """A convolution of 3 points per axis, and `Activation`, which may change the grid."""

    def __init__(self, space: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.kernel = CONVOLUTIONS[space](inputs, outputs, 3, padding=1)
        self.activation = Activation()

    def forward(
        self, x: Float[Tensor, "b c *grid"], grid: Sequence[int] | None = None
    ) -> Float[Tensor, "b e *out"]:
        """To the grid that is given, or that of x."""
        return self.activation(self.kernel(x), grid)


class ResidualBlock(nn.Module):
    """x + convolution(activation(convolution(x)))."""

    def __init__(self, space: int, width: int) -> None:
        super().__init__()
        self.first = Block(space, width, width)
        self.second = CONVOLUTIONS[space](width, width, 3, padding=1)

    def forward(self, x: Float[Tensor, "b c *grid"]) -> Float[Tensor, "b c *grid"]:
        """On the grid of x."""
        return x + self.second(self.first(x))


class Projection(nn.Module):
    """A block to hidden channels and a convolution, at both ends of the network."""

    def __init__(self, space: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.block = Block(space, inputs, _LIFTED)
        self.kernel = CONVOLUTIONS[space](_LIFTED, outputs, 3, padding=1)

    def forward(self, x: Float[Tensor, "b k *grid"]) -> Float[Tensor, "b c *grid"]:
        """On the grid of x."""
        return self.kernel(self.block(x))


class CNO(OnGrid):
    """Convolutional neural operator (Raonic et al., NeurIPS 2023).

        x_0 = lift(position, time, values)                   width / 2 channels
        x_l = block(x_{l-1}) on half of the points per axis  width 2^(l-1) channels
        y_L = block(residual blocks(x_L))
        y_{l-1} = block([y_l, block(residual blocks(x_l))]) on twice the points per axis
        out = project([y_0, block(residual blocks(x_0))])

    Every activation acts on twice the points per axis, between an interpolation and a low-pass, so
    that what it adds above the frequencies of the grid is gone (`Activation`).

    width: channels after the first halving, doubled at each further one. levels: halvings. blocks:
    residual blocks at each level.

    Relative to the paper: the filters are those of the authors' version in plain PyTorch
    (antialiased cubic interpolation), where the paper designs windowed sincs; no normalisation over
    the batch, as in the script of that version. Any grid is taken, of any number of points per
    axis; a third axis is ours, and so are positions as inputs.

    Parameters: 2 005 481 in 2D with the width 16, 4 levels and 4 blocks of the public script, for
    its one input and output and no positions; ours sees two positions, which are 1 152 more.

    >>> import torch
    >>> network = CNO(space=2, inputs=1, outputs=1, width=8, levels=2, blocks=1)
    >>> network(torch.rand(3, 99, 2), torch.randn(3, 99, 1), grid=(9, 11)).shape
    torch.Size([3, 99, 1])
    """

    for_adamw: Sequence[str] = ("lift.block.kernel", "project.kernel")

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        width: int = 16,
        levels: int = 4,
        blocks: int = 4,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        if width < 2 or width % 2:
            raise ValueError(f"width: expected an even number, got {width}")
        widths = [width // 2, *(width * 2**level for level in range(levels))]
        self.lift = Projection(space, self.features, widths[0])
        self.down = nn.ModuleList(
            Block(space, here, there) for here, there in itertools.pairwise(widths)
        )
        self.residual = nn.ModuleList(
            nn.Sequential(*(ResidualBlock(space, here) for _ in range(blocks))) for here in widths
        )
        self.across = nn.ModuleList(Block(space, here, here) for here in widths)
        self.up = nn.ModuleList(
            Block(space, here if level == levels else 2 * here, widths[level - 1])
            for level, here in reversed(list(enumerate(widths)))
            if level
        )
        self.project = Projection(space, 2 * widths[0], outputs)

    def on_grid(self, x: Float[Tensor, "b k *grid"]) -> Float[Tensor, "b o *grid"]:
        """Down, across and up."""
        seen = [self.lift(x)]
        for block in self.down:
            coarser = [max(length // 2, 1) for length in seen[-1].shape[2:]]
            seen.append(block(seen[-1], coarser))
        bridges = [
            across(residual(field))
            for field, residual, across in zip(seen, self.residual, self.across, strict=True)
        ]
        y = bridges.pop()
        for block in self.up:
            across = bridges.pop()
            y = torch.cat([block(y, across.shape[2:]), across], dim=1)
        return self.project(y)


@dataclass(frozen=True)
class CNOSettings(NetworkSettings):
    """Convolutions at several resolutions, without aliases."""

    width: int = 16
    """Channels after the first halving of the grid."""
    levels: int = 4
    """How often the grid is halved."""
    blocks: int = 4
    """Residual blocks at each level."""


MODELS.register(
    "cno",
    ModelEntry(
        "Convolutional neural operator: a U-Net whose activations make no aliases",
        "Raonic et al., Convolutional Neural Operators, NeurIPS 2023",
        when="As U-Net, where the result should not depend on the grid it was trained on.",
        fields=Form(CNOSettings, from_settings(CNO)),
        needs_grid=True,
        published={"width": 16, "levels": 4, "blocks": 4},
        small={"width": 16, "levels": 3, "blocks": 1},
        tiny={"width": 8, "levels": 2, "blocks": 1},
    ),
)
