"""GAOT: attention from near points to a latent grid, a transformer of its patches, and back.

Axes: b batch, n point, m node of the latent grid, e edge, s space dimension, c channel, k feature,
o output channel, l patch, w width.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.base import FieldNetwork
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.nn.bases import split_heads
from funcattn.nn.points import Points, per_dimension
from funcattn.settings import NetworkSettings

_REACH = 1.04
"""Of nodes and points, in spacings of the latent grid: the published 0.033 on 64 nodes over 2."""


class Edges(NamedTuple):
    """Between all points (b n) and all nodes (b m) of a batch, in rows."""

    point: Int[Tensor, " e"]
    node: Int[Tensor, " e"]


def edges_of(where: Float[Tensor, "b n s"], latent: int, mask: Tensor | None) -> Edges:
    """Pairs within reach; where: positions in spacings of the grid, from its first node.

    Candidates are the few nodes around each point, so that the cost is linear in n.
    """
    _, n, s = where.shape
    around = torch.arange(-math.floor(_REACH), math.ceil(_REACH) + 1, device=where.device)
    steps = torch.cartesian_prod(*(around for _ in range(s))).view(-1, s)
    nodes = where.floor().long().unsqueeze(2) + steps  # (b, n, 4^s, s)
    near = (nodes - where.unsqueeze(2)).square().sum(-1) <= _REACH**2
    near = near & ((nodes >= 0) & (nodes < latent)).all(-1)
    if mask is not None:
        near = near & mask.unsqueeze(-1)
    sample, point, which = near.nonzero().unbind(-1)
    strides = torch.tensor([latent**axis for axis in reversed(range(s))], device=where.device)
    node = (nodes[sample, point, which] * strides).sum(-1)
    return Edges(sample * n + point, sample * latent**s + node)


def summed(field: Float[Tensor, "e *c"], to: Int[Tensor, " e"], rows: int) -> Tensor:
    """The values at the edges, added where they lead."""
    return field.new_zeros(rows, *field.shape[1:]).index_add(0, to, field)


@torch.no_grad()
def neighbourhoods(
    source: Float[Tensor, "e s"], target: Float[Tensor, "v s"], to: Int[Tensor, " e"]
) -> Float[Tensor, "v k"]:
    """What the sources of each target look like; 0 where it has none.

    Their number, mean and variance of their distances, their mean from the target, and the
    eigenvalues of their covariance, the largest first.
    """
    rows = len(target)
    count = summed(torch.ones_like(source[:, 0]), to, rows)
    over = count.clamp(min=1)

    def mean(field: Tensor) -> Tensor:
        return summed(field, to, rows) / over.view(-1, *(1,) * (field.ndim - 1))

    offsets = source - target[to]
    distance = offsets.norm(dim=-1)
    spread = (mean(distance.square()) - mean(distance).square()).clamp(min=0)
    centred = offsets - mean(offsets)[to]
    covariance = mean(centred.unsqueeze(2) * centred.unsqueeze(1))
    axes = torch.linalg.eigvalsh(covariance).flip(-1)
    return torch.cat(
        [torch.stack([count, mean(distance), spread], -1), mean(offsets), axes], dim=-1
    )


class GraphAttention(nn.Module):
    """From sources to targets along edges, and what the neighbourhoods look like.

        z_i = sum over near j of a_ij kappa(y_j, x_i) f_j,   a_i = softmax over j of cos(x_i, y_j)
        out_i = W [z_i, network(statistics of the y_j, normalised over all i)]

    with kappa a perceptron to one factor per channel, and cos the cosine of the angle between the
    two positions as seen from the middle of the box.
    """

    def __init__(self, space: int, channels: int, hidden: int) -> None:
        super().__init__()
        widths = [2 * space, *(hidden for _ in range(3)), channels]
        maps = [nn.Linear(here, there) for here, there in itertools.pairwise(widths)]
        self.kernel = nn.Sequential(
            *(layer for map_ in maps[:-1] for layer in (map_, nn.GELU())), maps[-1]
        )
        self.shape = nn.Sequential(nn.Linear(3 + 2 * space, 64), nn.ReLU(), nn.Linear(64, channels))
        self.mix = nn.Linear(2 * channels, channels)

    def forward(
        self,
        f: Float[Tensor, "u c"],
        source: Float[Tensor, "u s"],
        target: Float[Tensor, "b v s"],
        start: Int[Tensor, " e"],
        to: Int[Tensor, " e"],
        *,
        weights: Float[Tensor, " u"] | None = None,
        real: Tensor | None = None,
    ) -> Float[Tensor, "b v c"]:
        """weights: how much each source counts. real (b v): targets that are no padding."""
        y, x = source[start], target.flatten(0, 1)
        likeness = F.cosine_similarity(y, x[to], dim=-1, eps=1e-12).exp()
        if weights is not None:
            likeness = likeness * weights[start]
        rows = len(x)
        total = summed(likeness, to, rows).clamp(min=torch.finfo(f.dtype).tiny)
        carried = self.kernel(torch.cat([y, x[to]], dim=-1)) * f[start]
        z = summed(likeness.unsqueeze(-1) * carried, to, rows) / total.unsqueeze(-1)
        shape = self.shape(_normalised(neighbourhoods(y, x, to).view(*target.shape[:2], -1), real))
        return self.mix(torch.cat([z.view(*target.shape[:2], -1), shape], dim=-1))


def _normalised(features: Float[Tensor, "b v k"], real: Tensor | None) -> Float[Tensor, "b v k"]:
    """With mean 0 and deviation 1 over the targets of each sample."""
    counted = torch.ones_like(features[..., :1]) if real is None else real.unsqueeze(-1)
    counted = counted.to(features.dtype)
    number = counted.sum(1, keepdim=True)
    centred = features - (counted * features).sum(1, keepdim=True) / number
    variance = (counted * centred.square()).sum(1, keepdim=True) / (number - 1).clamp(min=1)
    deviation = variance.sqrt()
    return centred / torch.where(deviation < 1e-6, 1.0, deviation)


class PatchBlock(nn.Module):
    """Pre-norm attention, then h = norm(h), h + gated network(h), as in the public code.

    joins: a field from before is taken in by a linear map first.
    """

    def __init__(self, width: int, heads: int, *, joins: bool) -> None:
        super().__init__()
        self.heads = heads
        self.join = nn.Linear(2 * width, width) if joins else None
        self.attention_norm, self.mlp_norm = (nn.RMSNorm(width, eps=1e-6) for _ in range(2))
        self.to_query, self.to_key, self.to_value, self.to_output = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.gate, self.expand = (nn.Linear(width, 4 * width, bias=False) for _ in range(2))
        self.contract = nn.Linear(4 * width, width, bias=False)

    def forward(
        self, x: Float[Tensor, "b l w"], before: Tensor | None = None
    ) -> Float[Tensor, "b l w"]:
        """Between the patches, then at each of them."""
        if self.join is not None:
            assert before is not None
            x = self.join(torch.cat([x, before], dim=-1))
        y = self.attention_norm(x)
        query, key, value = (
            split_heads(map_(y), self.heads) for map_ in (self.to_query, self.to_key, self.to_value)
        )
        attended = F.scaled_dot_product_attention(query, key, value)
        x = x + self.to_output(attended.transpose(1, 2).flatten(2))  # (b, h, l, d) -> (b, l, h d)
        x = self.mlp_norm(x)
        return x + self.contract(F.silu(self.gate(x)) * self.expand(x))


class GAOT(FieldNetwork):
    """Geometry-aware operator transformer (Wen, Kumbhat, Lingsch, Mousavi, Zhao and Mishra, 2025).

        v = attention of the nodes of a latent grid to near points       (`GraphAttention`)
        v = transformer of its patches, the first half joined to the second
        out = head(attention of the points to near nodes)

    The box becomes [-1, 1] on each axis. It takes any points, masks and weights: each point counts
    by its weight in the softmax.

    width: of the transformer. channels: of points and nodes. latent: nodes per axis. patch: nodes
    of a patch per axis. hidden: of the kernels.

    Relative to the paper: the network of its public code with one scale of neighbourhoods and
    absolute positions of the patches, as for Elasticity; time is an input of each point; the reach
    of 0.033 is kept as 1.04 spacings of the grid where there are fewer nodes; no dropout of edges.

    Parameters: 3 396 161 in 2D with the published channels 64, hidden 64, width 256, 3 layers and
    patches of 2, one input and output.

    >>> import torch
    >>> network = GAOT(space=2, inputs=1, outputs=1, width=32, channels=8, layers=2, latent=8)
    >>> network(torch.rand(3, 50, 2), torch.randn(3, 50, 1)).shape
    torch.Size([3, 50, 1])
    """

    for_adamw: Sequence[str] = (
        *("lift", "to_nodes.kernel.0", "to_nodes.shape.0"),
        *("to_points.kernel.0", "to_points.shape.0", "head"),
    )

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        lower: float | Sequence[float] = 0.0,
        upper: float | Sequence[float] = 1.0,
        width: int = 256,
        channels: int = 64,
        layers: int = 3,
        heads: int = 8,
        latent: int = 64,
        patch: int = 2,
        hidden: int = 64,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        self.lower, self.upper = per_dimension(lower, space), per_dimension(upper, space)
        if latent % patch or latent < 2:
            raise ValueError(f"latent: expected a multiple of patch={patch}, got {latent}")
        if width % heads:
            raise ValueError(f"width: expected a multiple of heads={heads}, got {width}")
        self.latent, self.patch, self.width = latent, patch, width
        tokens = channels * patch**space
        self.lift = nn.Linear(self.features, channels)
        self.to_nodes = GraphAttention(space, channels, hidden)
        self.mix = nn.Linear(tokens, tokens)
        same = tokens == width
        self.widen = nn.Identity() if same else nn.Linear(tokens, width)
        self.narrow = nn.Identity() if same else nn.Linear(width, tokens)
        half = layers // 2
        self.blocks = nn.ModuleList(
            PatchBlock(width, heads, joins=i >= layers - half) for i in range(layers)
        )
        self.to_points = GraphAttention(space, channels, hidden)
        self.head = nn.Linear(channels, outputs)

    def fields(
        self, values: Tensor | None, time: Tensor | None, points: Points
    ) -> Float[Tensor, "b n o"]:
        """To the grid, between its patches, and back."""
        assert points.positions is not None
        b = len(points.positions)
        lower, upper = (points.positions.new_tensor(corner) for corner in (self.lower, self.upper))
        unit = (points.positions - lower) / (upper - lower)
        edges = edges_of(unit.detach() * (self.latent - 1), self.latent, points.mask)
        axis = torch.linspace(-1, 1, self.latent, device=unit.device, dtype=unit.dtype)
        nodes = torch.cartesian_prod(*(axis for _ in range(self.space))).view(1, -1, self.space)
        nodes, where = nodes.expand(b, -1, -1), 2 * unit - 1
        f = self.lift(self.features_of(values, time, points)).flatten(0, 1)
        weights = None if points.weights is None else points.weights.to(f.dtype)
        if weights is not None:
            weights = weights.expand(b, -1).flatten()
        rows, at = where.flatten(0, 1), nodes.flatten(0, 1)
        v = self.to_nodes(f, rows, nodes, edges.point, edges.node, weights=weights)
        v = self._between_patches(v).flatten(0, 1)
        out = self.to_points(v, at, where, edges.node, edges.point, real=points.mask)
        return self.head(out)

    def _between_patches(self, v: Float[Tensor, "b m c"]) -> Float[Tensor, "b m c"]:
        """Patches in a row, the transformer, and back to the nodes."""
        s, p, count = self.space, self.patch, self.latent // self.patch
        for axis in range(s):
            v = v.unflatten(1 + 2 * axis, (count, p, *(self.latent for _ in range(s - 1 - axis))))
            v = v.flatten(3 + 2 * axis, v.ndim - 2) if axis < s - 1 else v
        order = [0, *range(1, 2 * s, 2), *range(2, 2 * s + 1, 2), 2 * s + 1]
        v = v.permute(order)  # (b, count..., p..., c)
        shape = v.shape
        x = self.widen(self.mix(v.flatten(1 + s).flatten(1, s)))
        x = self._through(x + self._places(count, x))
        x = self.narrow(x).view(shape).permute(sorted(range(len(order)), key=order.__getitem__))
        return x.reshape(len(x), self.latent**s, -1)

    def _through(self, x: Float[Tensor, "b l w"]) -> Float[Tensor, "b l w"]:
        """The blocks; what the first half gave comes back in the second, the last first."""
        half = len(self.blocks) // 2
        seen: list[Tensor] = []
        for i, block in enumerate(self.blocks):
            x = block(x, seen.pop() if block.join is not None else None)
            if i < half:
                seen.append(x)
        return x

    def _places(self, count: int, like: Tensor) -> Float[Tensor, "l w"]:
        """Sines and cosines of the patch's number along each axis; 0 where channels are left."""
        numbers = torch.arange(count, device=like.device, dtype=like.dtype)
        places = torch.cartesian_prod(*(numbers for _ in range(self.space))).view(-1, self.space)
        waves = self.width // (2 * self.space)
        exponents = torch.arange(waves, device=like.device, dtype=like.dtype) / max(waves, 1)
        phase = places.unsqueeze(-1) * 10000.0**-exponents  # (l, s, waves)
        found = torch.cat([phase.sin(), phase.cos()], dim=-1).flatten(1)
        return F.pad(found, (0, self.width - found.shape[1]))


@dataclass(frozen=True)
class GAOTSettings(NetworkSettings):
    """A transformer of patches of a latent grid."""

    width: int = 256
    """Channels of the transformer."""
    channels: int = 64
    """At points and nodes of the grid."""
    layers: int = 3
    heads: int = 8
    latent: int = 64
    """Nodes of the grid per axis."""
    patch: int = 2
    """Nodes of a patch per axis."""


MODELS.register(
    "gaot",
    ModelEntry(
        "Geometry-aware operator transformer: near points to a latent grid, its patches, and back",
        "Wen et al., Geometry Aware Operator Transformer, NeurIPS 2025",
        when="Clouds that fill a box unevenly: it sees how points lie around each place.",
        fields=Form(
            GAOTSettings, from_settings(GAOT, lower=attrgetter("lower"), upper=attrgetter("upper"))
        ),
        muon=True,
        published={
            "width": 256,
            "channels": 64,
            "layers": 3,
            "heads": 8,
            "latent": 64,
            "patch": 2,
        },
        of_task={"rna": {"latent": 32}},
        small={"width": 64, "channels": 16, "layers": 3, "heads": 4, "latent": 16},
        tiny={"width": 16, "channels": 8, "layers": 2, "heads": 2, "latent": 8},
    ),
)
