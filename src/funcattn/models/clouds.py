"""Clouds of points at several resolutions: which points stay, and which are near.

Real points of all samples of a batch lie in a row.

Axes: v point, w chosen point, k neighbour, c channel, s space dimension.
"""

import itertools
from abc import abstractmethod
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.base import FieldNetwork
from funcattn.models.graphs import SampleNorm
from funcattn.nn.points import Points


class Cloud(NamedTuple):
    """Points in a row, and the sample of each; those of one sample lie together."""

    positions: Float[Tensor, "v s"]
    sample: Int[Tensor, " v"]

    def counts(self) -> list[int]:
        """Points of each sample."""
        return torch.bincount(self.sample).tolist()

    def parts(self) -> tuple[Tensor, ...]:
        """The positions of each sample."""
        return self.positions.split(self.counts())


@torch.no_grad()
def furthest(positions: Float[Tensor, "n s"], count: int) -> Int[Tensor, " w"]:
    """So many points, each as far as can be from those before; first the furthest from the mean."""
    # In doubles, and by differences, so that points in another order are chosen alike.
    x = positions.double()
    chosen = [(x - x.mean(0)).square().sum(-1).argmax()]
    distance = x.new_full((len(x),), torch.inf)
    for _ in range(count - 1):
        distance = torch.minimum(distance, (x - x[chosen[-1]]).square().sum(-1))
        chosen.append(distance.argmax())
    return torch.stack(chosen)


@torch.no_grad()
def thinned(cloud: Cloud, fewer: int) -> Cloud:
    """One point in so many of each sample, far from each other."""
    kept, first = [], 0
    for part in cloud.parts():
        kept.append(furthest(part, -(-len(part) // fewer)) + first)
        first += len(part)
    where = torch.cat(kept)
    return Cloud(cloud.positions[where], cloud.sample[where])


@torch.no_grad()
def nearest_in(
    cloud: Cloud, centres: Cloud, count: int
) -> tuple[Float[Tensor, "w k"], Int[Tensor, "w k"]]:
    """Distances and places of the nearest points of each centre, in its sample, in their order.

    Where a sample has fewer points, the first stands in for them, at an infinite distance.
    """
    distances, places, first = [], [], 0
    for part, middle in zip(cloud.parts(), centres.parts(), strict=True):
        found = torch.cdist(middle, part, compute_mode="donot_use_mm_for_euclid_dist").topk(
            min(count, len(part)), largest=False
        )
        missing = (0, count - found.indices.shape[1])
        distances.append(F.pad(found.values, missing, value=torch.inf))
        places.append(F.pad(found.indices, missing) + first)
        first += len(part)
    return torch.cat(distances), torch.cat(places)


class CloudNetwork(FieldNetwork):
    """A network on the real points of a batch in a row: `on_cloud` is to be filled in."""

    def fields(
        self, values: Tensor | None, time: Tensor | None, points: Points
    ) -> Float[Tensor, "b n o"]:
        """To a row, the network, and back to the points."""
        features = self.features_of(values, time, points)
        assert points.positions is not None
        real = torch.ones_like(features[..., 0], dtype=torch.bool)
        if points.mask is not None:
            real = real & points.mask
        cloud = Cloud(points.positions[real], real.nonzero()[:, 0])
        out = features.new_zeros(*real.shape, self.outputs)
        out[real] = self.on_cloud(features[real], cloud).to(out.dtype)
        return out

    @abstractmethod
    def on_cloud(self, x: Float[Tensor, "v k"], cloud: Cloud) -> Float[Tensor, "v o"]:
        """From the features at the points to the outputs."""


class NormedPerceptron(nn.Module):
    """Linear maps, each with a norm over the rows of its sample and ReLU after it."""

    def __init__(self, *widths: int) -> None:
        super().__init__()
        pairs = list(itertools.pairwise(widths))
        # The norms take biases away.
        self.maps = nn.ModuleList(nn.Linear(here, there, bias=False) for here, there in pairs)
        self.norms = nn.ModuleList(SampleNorm(there) for _, there in pairs)

    def forward(self, x: Float[Tensor, "v c"], sample: Int[Tensor, " v"]) -> Float[Tensor, "v e"]:
        """Each row by itself, but for the norms."""
        for map_, norm in zip(self.maps, self.norms, strict=True):
            x = F.relu(norm(map_(x), sample))
        return x
