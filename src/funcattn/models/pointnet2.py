"""PointNet++: PointNet on neighbourhoods of ever fewer points, and back.

Real points of all samples of a batch lie in a row. Weights of the points change nothing.

Axes: v point, w chosen point, k neighbour, c, e channels, s space dimension, o output channel.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from funcattn.models.clouds import Cloud, CloudNetwork, NormedPerceptron, nearest_in, thinned
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.settings import NetworkSettings

_FEWER = 4
"""A level has a point for so many of the level before."""
_LEVELS = 4
_NEIGHBOURS = 32
_NEAREST = 3
"""Points that a finer one is interpolated from."""


class SetAbstraction(nn.Module):
    """The largest of network([x_j - x_i, z_j]) over the points j near each centre i."""

    def __init__(self, space: int, radius: float, *widths: int) -> None:
        super().__init__()
        self.radius = radius
        self.network = NormedPerceptron(space + widths[0], *widths[1:])

    def forward(
        self, z: Float[Tensor, "v c"], cloud: Cloud, centres: Cloud
    ) -> Float[Tensor, "w e"]:
        """From all points to the centres."""
        with torch.no_grad():
            distance, near = nearest_in(cloud, centres, _NEIGHBOURS)
            near = torch.where(distance <= self.radius, near, near[:, :1])
        offsets = cloud.positions[near] - centres.positions.unsqueeze(1)
        seen = torch.cat([offsets, z[near]], dim=-1)  # (w, k, s + c)
        sample = centres.sample.repeat_interleave(near.shape[1])
        return self.network(seen.flatten(0, 1), sample).unflatten(0, near.shape).amax(1)


class Propagation(nn.Module):
    """network([own features, mean of the three nearest coarse ones by 1 / distance^2])."""

    def __init__(self, *widths: int) -> None:
        super().__init__()
        self.network = NormedPerceptron(*widths)

    def forward(
        self, own: Tensor | None, z: Float[Tensor, "w c"], cloud: Cloud, coarse: Cloud
    ) -> Float[Tensor, "v e"]:
        """From the coarse points to all."""
        with torch.no_grad():
            distance, near = nearest_in(coarse, cloud, _NEAREST)
            shares = 1 / (distance.square() + 1e-8)
            shares = shares / shares.sum(-1, keepdim=True)
        mean = (shares.unsqueeze(-1).to(z.dtype) * z[near]).sum(1)
        seen = mean if own is None else torch.cat([own, mean], dim=-1)
        return self.network(seen, cloud.sample)


class PointNet2(CloudNetwork):
    """PointNet++ (Qi, Yi, Su and Guibas, NeurIPS 2017), for a label or a field at each point.

        z_l = max over near points of network([offset, z_{l-1}])     on a quarter of the points,
                                                                     chosen far from each other
        y_{l-1} = network([z_{l-1}, y_l interpolated])               back to all points
        out = linear(dropout(relu(norm(linear(y_0)))))

    on four levels; near: the nearest 32 points within a radius, which doubles at each level.

    width: w of the first level, of 2 w outputs; channels double at each level. radius: at the
    first level.

    Relative to the paper: the authors' network for scenes, of one radius per level; a quarter of
    the points at each level (which is the published 1024, 256, 64, 16 for 4096 points); the nearest
    points within the radius, not the first in the list; the choice of centres starts at the point
    furthest from the mean, not at a random one: no order of the points matters. Norms are over each
    sample alone.

    Parameters: 964 429 for the 9 features, three of them positions, and the 13 classes of the
    public network for scenes, which has 3 840 more, biases without effect.

    >>> import torch
    >>> network = PointNet2(space=2, inputs=1, outputs=1, width=8)
    >>> network(torch.rand(3, 100, 2), torch.randn(3, 100, 1)).shape
    torch.Size([3, 100, 1])
    """

    for_adamw: Sequence[str] = ("down.0.network.maps.0", "head")

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        width: int = 32,
        radius: float = 0.1,
        dropout: float = 0.0,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        w = width
        widths = [self.features, *(w * 2 ** (level + 1) for level in range(_LEVELS))]
        self.down = nn.ModuleList(
            SetAbstraction(space, radius * 2**level, here, there // 2, there // 2, there)
            for level, (here, there) in enumerate(itertools.pairwise(widths))
        )
        self.up = nn.ModuleList(
            [
                Propagation(widths[4] + widths[3], 8 * w, 8 * w),
                Propagation(8 * w + widths[2], 8 * w, 8 * w),
                Propagation(8 * w + widths[1], 8 * w, 4 * w),
                Propagation(4 * w, 4 * w, 4 * w, 4 * w),
            ]
        )
        self.last = NormedPerceptron(4 * w, 4 * w)
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(4 * w, outputs)

    def on_cloud(self, x: Float[Tensor, "v k"], cloud: Cloud) -> Float[Tensor, "v o"]:
        """Down to few points, and up to all."""
        clouds, seen = [cloud], [x]
        for down in self.down:
            clouds.append(thinned(clouds[-1], _FEWER))
            seen.append(down(seen[-1], clouds[-2], clouds[-1]))
        z = seen.pop()
        for up in self.up:
            coarse, own = clouds.pop(), seen.pop()
            # At the finest level positions and values are not seen again.
            z = up(own if seen else None, z, clouds[-1], coarse)
        return self.head(self.dropout(self.last(z, cloud.sample)))


@dataclass(frozen=True)
class PointNet2Settings(NetworkSettings):
    """Neighbourhoods at four levels."""

    width: int = 32
    """Base width."""
    radius: float = 0.1
    """Of the neighbourhoods at the finest level."""
    dropout: float = 0.0

    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {"dropout": (0, 1)}


MODELS.register(
    "pointnet2",
    ModelEntry(
        "PointNet++: the largest of each feature over neighbourhoods of ever fewer points",
        "Qi et al., PointNet++, NeurIPS 2017",
        when="Clouds whose labels follow from shapes at several scales; a yardstick on surfaces.",
        fields=Form(PointNet2Settings, from_settings(PointNet2)),
        muon=True,
        cost="n²",
        published={"width": 32, "radius": 0.1},
        of_task={"rna": {"dropout": 0.5}},
        small={"width": 16, "radius": 0.1},
        tiny={"width": 8, "radius": 0.3},
    ),
)
