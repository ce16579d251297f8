"""What a cloud looks like around each of its points: its density, at fixed physical reaches.

Axes: b batch, n point, s space dimension, k feature, l reach, a node of a lattice.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn.points import Points, per_dimension
from funcattn.ops.checks import check_point_weights, check_total_weight
from funcattn.ops.linalg import at_least_float32
from funcattn.ops.native.products import plain_tensors_only
from funcattn.ops.sharding import Ranks, sum_over_ranks

Kind = tuple[tuple[float, float, float], ...]
"""A stencil of three nodes for each axis."""
Place = tuple[Tensor, Tensor]
"""Of points on a lattice: the nodes at the corners of their cells, and the values of their hats."""
_MEAN, _SLOPE, _CURVATURE = (0.25, 0.5, 0.25), (-0.5, 0.0, 0.5), (0.5, -1.0, 0.5)
"""The others are nowhere larger than twice the first."""
_LEAST = 1e-4
"""Density, over that of points spread evenly over the box, below which it counts as this."""


class Surroundings(nn.Module):
    """The density of the points around each, with its slopes and curvatures, at several reaches.

    For each reach there is a lattice over the box with that spacing and hat functions N_a. With
    w_j the weights of the points, 0 at masked ones,

        M_a = sum_j w_j N_a(x_j) / sum_j w_j            the part of the mass that is at a node
        r_k(x) = sum_a N_a(x) (D_k M)_a                 D_k: a stencil of three nodes per axis
        features = [log(r_0 / r_even), 2 r_1 / r_0, 2 r_2 / r_0, ...]

    D_0 is a mean, the others are first and second differences. r_even is r_0 of points that fill
    the box evenly. Inside of an even cloud the features are those of its volume; at a boundary the
    slopes point inwards: a point knows that it is at a boundary, and which way it faces. With
    quadrature weights they describe the domain and not the mesh.

    Points meet in the sums M_a only: the cost is linear in points, there is no list of neighbours,
    permuting points permutes the features, and they converge when a mesh is refined. So it has the
    halves that attention has: `encode`, or `moments` of parts of a cloud and `carried`, keep the
    M_a, and any other points read them. Points outside the box count as at its nearest face.
    Gradients reach positions and weights too.

    reaches: spacings as fractions of the longest side of the box; lower, upper: its corners.

    >>> layer = Surroundings(2, reaches=(1 / 32, 1 / 16))
    >>> layer(Points(torch.rand(3, 500, 2))).shape
    torch.Size([3, 500, 12])
    """

    def __init__(
        self,
        dims: int,
        *,
        reaches: Sequence[float],
        lower: float | Sequence[float] = 0.0,
        upper: float | Sequence[float] = 1.0,
    ) -> None:
        super().__init__()
        if not reaches or not all(0 < reach <= 1 for reach in reaches):
            raise ValueError(
                "reaches: expected fractions of the longest side of the box in (0, 1], got "
                f"{tuple(reaches)}"
            )
        self.lower, self.upper = per_dimension(lower, dims), per_dimension(upper, dims)
        sides = [high - low for low, high in zip(self.lower, self.upper, strict=True)]
        self.lattices = tuple(Lattice.over(sides, reach * max(sides)) for reach in reaches)
        self.kinds = _kinds(dims)
        self.channels = len(self.lattices) * len(self.kinds)
        self.nodes = sum(lattice.size for lattice in self.lattices)
        """Of all lattices together."""
        self.ranks: Ranks | None = None
        """Over which the points are spread; set by `funcattn.spread_points`."""

    @classmethod
    def from_least(
        cls,
        reach: float,
        dims: int,
        *,
        lower: float | Sequence[float] = 0.0,
        upper: float | Sequence[float] = 1.0,
    ) -> "Surroundings":
        """At a reach and at twice that: what networks are given that ask for one."""
        return cls(dims, reaches=(reach, 2 * reach), lower=lower, upper=upper)

    def forward(
        self, points: Points, masses: Float[Tensor, "b a"] | None = None
    ) -> Float[Tensor, "b n k"]:
        """The features of points in the cloud that was encoded, or in the cloud that they are."""
        places = self._places(points)
        if masses is None:
            masses = self._encoded(points, places)
        parts = masses.split([lattice.size for lattice in self.lattices], dim=1)
        found = [
            self._read(mass.unflatten(1, lattice.nodes), lattice.even, *place)
            for lattice, mass, place in zip(self.lattices, parts, places, strict=True)
        ]
        return torch.cat(found, dim=-1).to(places[0][1])

    def encode(self, points: Points) -> Float[Tensor, "b a"]:
        """The M_a of a cloud, of all lattices one after the other."""
        return self._encoded(points, self._places(points))

    def moments(self, points: Points) -> Float[Tensor, "b a"]:
        """sum_j w_j N_a(x_j), over points that may be some of a cloud that comes in parts."""
        return self._moments(points, self._places(points))

    def carried(self, moments: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        """The M_a from the sums over all points."""
        if self.ranks is not None:
            moments = sum_over_ranks(moments, self.ranks.group)
        # The hats of a lattice sum to one, so that its nodes have the weight of all points.
        total = moments[:, : self.lattices[0].size].sum(1, keepdim=True)
        check_total_weight(total)
        return moments / total

    def _encoded(self, points: Points, places: Sequence[Place]) -> Float[Tensor, "b a"]:
        count, spread = places[0][0].shape[1], self.ranks is not None
        check_point_weights(points.weights, points.mask, count, shard=spread)
        return self.carried(self._moments(points, places))

    def _moments(self, points: Points, places: Sequence[Place]) -> Float[Tensor, "b a"]:
        _, like = places[0]
        weights = points.counted(like).to(at_least_float32(like.dtype))
        if points.mask is not None:
            weights = weights * points.mask
        return torch.cat(
            [
                weights.new_zeros(weights.shape[0], lattice.size).scatter_add(
                    1, index.flatten(1), (weights.unsqueeze(-1) * hats).flatten(1)
                )
                for lattice, (index, hats) in zip(self.lattices, places, strict=True)
            ],
            dim=1,
        )

    def _read(
        self,
        mass: Float[Tensor, "b *nodes"],
        even: float,
        index: Int[Tensor, "b n corner"],
        hats: Float[Tensor, "b n corner"],
    ) -> Float[Tensor, "b n k"]:
        at_nodes = torch.stack(_changes(mass, self.kinds), dim=-1)  # (b, *nodes, k)
        at_nodes = at_nodes.flatten(1, -2)  # (b, a, k)
        around = interpolated(at_nodes, index, hats.to(at_nodes.dtype))
        density, changes = around[..., :1], around[..., 1:]
        log_density = (density / even).clamp(min=_LEAST).log()
        # No change is larger than a few times the density: where there is no mass, all are 0.
        safe = density.clamp(min=torch.finfo(density.dtype).tiny)
        return torch.cat([log_density, 2 * changes / safe], dim=-1)

    def _places(self, points: Points) -> list[Place]:
        if points.positions is None:
            raise ValueError("positions: expected those of the points, got none; pass `positions`")
        positions = points.positions
        return [self._around(positions, lattice) for lattice in self.lattices]

    def _around(
        self, positions: Float[Tensor, "b n s"], lattice: "Lattice"
    ) -> tuple[Int[Tensor, "b n corner"], Float[Tensor, "b n corner"]]:
        """The nodes at the corners of each point's cell, row-major, and their hats' values."""
        lower = positions.new_tensor(self.lower)
        last = positions.new_tensor(lattice.nodes) - 1
        place = ((positions - lower) / lattice.spacing).clamp(min=0).minimum(last)
        cell = place.detach().floor().minimum(last - 1)
        above = place - cell
        index = torch.zeros_like(cell[..., :1], dtype=torch.long)
        hats = torch.ones_like(place[..., :1])
        for axis, count in enumerate(lattice.nodes):
            low, part = cell[..., axis, None].long(), above[..., axis, None]
            index = torch.cat([count * index + low, count * index + low + 1], dim=-1)
            hats = torch.cat([hats * (1 - part), hats * part], dim=-1)
        return index, hats


def interpolated(
    at_nodes: Float[Tensor, "b a k"],
    index: Int[Tensor, "b n corner"],
    hats: Float[Tensor, "b n corner"],
) -> Float[Tensor, "b n k"]:
    """The sum over the corners of each point's cell of hat times value."""
    batch, nodes, _ = at_nodes.shape
    rows = index + nodes * torch.arange(batch, device=index.device).view(-1, 1, 1)
    table = at_nodes.flatten(0, 1)  # (b a, k)
    if table.requires_grad or hats.requires_grad or not plain_tensors_only():
        # (b, n, 1, corner) times (b, n, corner, k)
        return (hats.unsqueeze(2) @ table[rows]).squeeze(2)
    # Several times as fast, in a fraction of the memory, and without second derivatives.
    summed = F.embedding_bag(
        rows.flatten(0, 1), table, per_sample_weights=hats.flatten(0, 1), mode="sum"
    )
    return summed.unflatten(0, index.shape[:2])


@dataclass(frozen=True)
class Lattice:
    """Over a box: the distance of its nodes, how many there are per axis, and the part of the mass
    that a node has where points fill the box evenly."""

    spacing: float
    nodes: tuple[int, ...]
    even: float

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return math.prod(self.nodes)

    @staticmethod
    def over(sides: Sequence[float], spacing: float) -> "Lattice":
        """The least one that reaches from end to end."""
        nodes = tuple(max(1, math.ceil(side / spacing - 1e-6)) + 1 for side in sides)
        return Lattice(spacing, nodes, math.prod(spacing / side for side in sides))


def _changes(
    mass: Float[Tensor, "b *nodes"], kinds: Sequence[Kind]
) -> list[Float[Tensor, "b *nodes"]]:
    """The mass after each kind of stencils; beyond the lattice there is none."""
    made: dict[Kind, Tensor] = {(): mass}
    for kind in kinds:
        # What several kinds have along their first axes is made once.
        for axis, taps in enumerate(kind):
            if kind[: axis + 1] not in made:
                before = made[kind[:axis]]
                wide = F.pad(before, (0, 0) * (len(kind) - 1 - axis) + (1, 1))
                low, here, high = (
                    wide.narrow(axis + 1, start, before.shape[axis + 1]) for start in range(3)
                )
                made[kind[: axis + 1]] = taps[0] * low + taps[1] * here + taps[2] * high
    return [made[kind] for kind in kinds]


def _kinds(dims: int) -> list[Kind]:
    """For each feature the stencils: means, slopes, curvatures, mixed second differences."""
    means: Kind = (_MEAN,) * dims
    alone = [
        (*means[:axis], taps, *means[axis + 1 :])
        for taps in (_SLOPE, _CURVATURE)
        for axis in range(dims)
    ]
    mixed = [
        tuple(_SLOPE if axis in pair else _MEAN for axis in range(dims))
        for pair in itertools.combinations(range(dims), 2)
    ]
    return [means, *alone, *mixed]
