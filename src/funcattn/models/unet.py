"""U-Net: convolutions at several resolutions, with bridges between equal ones.

Axes: b batch, c channel, k feature, o output channel.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.grids import CONVOLUTIONS, InstanceNorm, OnGrid, at_points, cut, extended
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.settings import NetworkSettings

_FINER = {1: "linear", 2: "bilinear", 3: "trilinear"}
_COARSER = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


class Twice(nn.Module):
    """A convolution of 3 points per axis, normalisation, ReLU; the same again."""

    def __init__(self, space: int, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        kind = CONVOLUTIONS[space]
        modules: list[nn.Module] = []
        for here, there in itertools.pairwise((inputs, hidden, outputs)):
            # The normalisation takes a bias away.
            modules += [kind(here, there, 3, padding=1, bias=False), InstanceNorm(there), nn.ReLU()]
        self.layers = nn.Sequential(*modules)

    def forward(self, x: Float[Tensor, "b c *grid"]) -> Float[Tensor, "b e *grid"]:
        """On the grid."""
        return self.layers(x)


class UShape(nn.Module):
    """From fields on a grid to fields of the same number of channels.

    down: x_0 = twice(x),  x_l = twice(coarser x_{l-1}), channels doubled but for the last time
    up:   y_L = bridge(x_L),  y_{l-1} = twice([bridge(x_{l-1}), finer y_l])

    with max pooling over 2 points per axis, and interpolation back. bridges: what x passes on its
    way across, one module per resolution; the identity by default. The grid has to be a multiple of
    2^levels on each axis.
    """

    def __init__(
        self, space: int, width: int, levels: int, bridges: list[nn.Module] | None = None
    ) -> None:
        super().__init__()
        self.space, self.levels = space, levels
        widths = self.widths(width, levels)
        self.first = Twice(space, width, width, width)
        self.down = nn.ModuleList(
            Twice(space, here, there, there) for here, there in itertools.pairwise(widths)
        )
        # Half of the channels come from below; what goes up has those of the next bridge.
        self.up = nn.ModuleList(
            Twice(space, 2 * here, here, widths[max(level - 1, 0)])
            for level, here in reversed(list(enumerate(widths[:-1])))
        )
        self.bridges = nn.ModuleList(bridges or (nn.Identity() for _ in widths))

    @staticmethod
    def widths(width: int, levels: int) -> list[int]:
        """Channels at each resolution, the finest first."""
        return [width * 2 ** min(level, levels - 1) for level in range(levels + 1)]

    def forward(self, x: Float[Tensor, "b c *grid"]) -> Float[Tensor, "b c *grid"]:
        """Down, across and up."""
        seen = [self.first(x)]
        for twice in self.down:
            seen.append(twice(_COARSER[self.space](seen[-1], 2)))
        x = self.bridges[-1](seen[-1])
        for twice, bridge, across in zip(
            self.up, reversed(self.bridges[:-1]), reversed(seen[:-1]), strict=True
        ):
            x = F.interpolate(x, across.shape[2:], mode=_FINER[self.space], align_corners=True)
            x = twice(torch.cat([bridge(across), x], dim=1))
        return x


class UNet(OnGrid):
    """U-Net (Ronneberger, Fischer and Brox, MICCAI 2015), between a lift and a head at each point.

    width: channels at the finest grid; `levels` times they are doubled (but for the last time) and
    the grid halved. A grid that cannot be halved so often is extended by zeros.

    Relative to the paper: the form that libraries of neural operators compare with: normalisation,
    convolutions that keep the size of the grid, interpolation in place of transposed convolutions,
    a lift of positions and values, a head with a hidden layer. Normalisation is over each sample
    alone, where those libraries normalise over the batch unless time is involved.

    Parameters: 17 306 689 in 2D with width 64, 4 levels and one input and output, of which
    17 302 208 are those that the public library has between lift and head.

    >>> import torch
    >>> network = UNet(space=2, inputs=1, outputs=1, width=8, levels=2)
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
        width: int = 64,
        levels: int = 4,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        if levels < 1:
            raise ValueError(f"levels: expected at least 1, got {levels}")
        self.levels = levels
        self.lift = nn.Conv1d(self.features, width, 1)
        self.shape = UShape(space, width, levels)
        self.out = nn.Conv1d(width, width, 1)
        self.expand, self.contract = nn.Conv1d(width, width, 1), nn.Conv1d(width, outputs, 1)

    def on_grid(self, x: Float[Tensor, "b k *grid"]) -> Float[Tensor, "b o *grid"]:
        """Lift, extend, the U, cut, head."""
        grid = x.shape[2:]
        x = extended(at_points(self.lift, x), multiples(grid, 2**self.levels))
        x = cut(at_points(self.out, self.shape(x)), grid)
        return at_points(self.contract, F.gelu(at_points(self.expand, x)))


def multiples(grid: Sequence[int], of: int) -> list[int]:
    """The next larger axis lengths that are multiples of a number.

    >>> multiples((16, 17), 16)
    [16, 32]
    """
    return [-(-length // of) * of for length in grid]


@dataclass(frozen=True)
class UNetSettings(NetworkSettings):
    """Convolutions at several resolutions."""

    width: int = 64
    """Channels at the finest grid."""
    levels: int = 4
    """How often the grid is halved."""


MODELS.register(
    "unet",
    ModelEntry(
        "U-Net: convolutions at several resolutions",
        "Ronneberger et al., U-Net, MICCAI 2015",
        when="Images and grids of one resolution with sharp local features.",
        fields=Form(UNetSettings, from_settings(UNet)),
        needs_grid=True,
        published={"width": 64, "levels": 4},
        small={"width": 16, "levels": 3},
        tiny={"width": 8, "levels": 2},
    ),
)
