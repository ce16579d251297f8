"""Convolutions on points at several resolutions, in a U-shaped network: what PCNN and SPHNet share.

Weights of the points change nothing.

Axes: v point, w coarser point, c, e channels, k feature, o output channel.
"""

import itertools
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.clouds import Cloud, CloudNetwork, nearest_in, thinned
from funcattn.models.graphs import SampleNorm
from funcattn.settings import NetworkSettings

_FEWER = (4, 4, 8)
"""Points of a level for each of the next: of 2048 points 512, 128 and 16, as published."""


class Convolution(nn.Module):
    """A convolution from a cloud to itself: `geometry` once per cloud, then `forward`."""

    @abstractmethod
    def geometry(self, cloud: Cloud) -> Any:
        """What the convolutions of one level on one cloud share."""

    @abstractmethod
    def forward(self, z: Float[Tensor, "v c"], geometry: Any) -> Float[Tensor, "v e"]:
        """From fields to fields."""


class ConvolvingU(CloudNetwork):
    """Convolutions, pooling to fewer points, and back: what PCNN and SPHNet share.

        z_l = relu(norm(conv(z_{l-1} pooled)))                         three levels
        y_l = [z_l, relu(norm(conv(y_{l+1} spread to the points of l)))]
        out = conv(y_0) + b

    Pooling takes the largest value among the points whose nearest centre is the same.
    """

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        seen: int,
        width: int,
        dropout: float,
        time: bool,
        convolution: Callable[[int, int, int], Convolution],
    ) -> None:
        """seen: channels of the first field. convolution: of inputs, outputs and level.

        The norms take biases away, so that only the head has one.
        """
        super().__init__(space, inputs, outputs, time=time)
        widths = [width * 2**level for level in range(len(_FEWER))]
        self.down = nn.ModuleList(
            convolution(here, there, level)
            for level, (here, there) in enumerate(itertools.pairwise([seen, *widths]))
        )
        above = [*(2 * w for w in widths[1:]), widths[-1]]
        self.up = nn.ModuleList(
            convolution(here, there, level)
            for level, (here, there) in enumerate(zip(above, widths, strict=True))
        )
        self.norms = nn.ModuleList(SampleNorm(w) for w in (*widths, *widths))
        self.head, self.bias = (
            convolution(2 * widths[0], outputs, 0),
            nn.Parameter(torch.zeros(outputs)),
        )
        self.dropout = nn.Dropout(dropout)

    def on_cloud(self, x: Float[Tensor, "v k"], cloud: Cloud) -> Float[Tensor, "v o"]:
        """Down to few points, and up to all."""
        clouds, seen, geometries = [cloud], [], []
        z, levels = self.first(x), len(_FEWER)
        for level, (down, fewer) in enumerate(zip(self.down, _FEWER, strict=True)):
            assert isinstance(down, Convolution)
            geometries.append(down.geometry(clouds[level]))
            norm = self.norms[level]
            z = F.relu(norm(down(z, geometries[level]), clouds[level].sample))
            seen.append(z)
            clouds.append(thinned(clouds[level], fewer))
            z = pooled(z, clouds[level], clouds[level + 1])
        for level in reversed(range(levels)):
            fine = clouds[level]
            z = self.up[level](self.spread(z, clouds[level + 1], fine), geometries[level])
            z = F.relu(self.norms[levels + level](z, fine.sample))
            z = torch.cat([seen[level], z], dim=-1)
            z = self.dropout(z) if level < levels - 1 else z
        return self.head(z, geometries[0]) + self.bias

    @abstractmethod
    def first(self, x: Float[Tensor, "v k"]) -> Float[Tensor, "v c"]:
        """The first field, from the features."""

    @abstractmethod
    def spread(self, z: Float[Tensor, "w c"], coarse: Cloud, fine: Cloud) -> Float[Tensor, "v c"]:
        """A field on a coarse cloud at the points of a finer one."""


def pooled(z: Float[Tensor, "v c"], cloud: Cloud, centres: Cloud) -> Float[Tensor, "w c"]:
    """The largest value among the points whose nearest centre is the same."""
    of = nearest_in(centres, cloud, 1)[1]  # (v, 1)
    least = z.new_full((len(centres.sample), z.shape[-1]), -torch.inf)
    return least.scatter_reduce(0, of.expand_as(z), z, "amax")


@dataclass(frozen=True)
class ConvolvingSettings(NetworkSettings):
    """Convolutions on points at three levels."""

    width: int = 64
    """Channels of the first level."""
    dropout: float = 0.0

    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {"dropout": (0, 1)}


SIZES: Mapping[str, Any] = {
    "cost": "n²",
    "published": {"width": 64},
    "of_task": {"rna": {"dropout": 0.5}},
    "small": {"width": 16},
    "tiny": {"width": 8},
}
"""Of both, for their registration."""
