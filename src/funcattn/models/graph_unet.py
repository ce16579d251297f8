"""Graph U-Net: averages over near points on ever fewer points, and back.

Axes: v node, c width, k feature, o output channel.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.graphs import Graph, GraphNetwork, SageLayer, SampleNorm, graph_of
from funcattn.models.pointnet import relu_network
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.settings import NetworkSettings


class Pooling(nn.Module):
    """Half of the nodes of each sample: those with the largest scores z . p / |p|.

    What is kept is multiplied by the sigmoid of its score, by which p learns.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        bound = width**-0.5
        self.direction = nn.Parameter(torch.empty(width).uniform_(-bound, bound))

    def forward(
        self, z: Float[Tensor, "v c"], graph: Graph
    ) -> tuple[Float[Tensor, "w c"], Int[Tensor, " w"]]:
        """The kept features, and which nodes they are of, in their order."""
        scores = z @ self.direction / self.direction.norm()
        kept, first = [], 0
        for part in scores.detach().split(torch.bincount(graph.sample).tolist()):
            best = part.topk(-(-len(part) // 2)).indices
            kept.append(best.sort().values + first)
            first += len(part)
        where = torch.cat(kept)
        return z[where] * scores[where].sigmoid().unsqueeze(-1), where


@torch.no_grad()
def nearest_of(fine: Graph, coarse: Graph) -> Int[Tensor, " v"]:
    """For each node of a graph the nearest one of a coarser graph of the same sample."""
    found, first = [], 0
    counts = torch.bincount(coarse.sample).tolist()
    sides = zip(
        fine.positions.split(torch.bincount(fine.sample).tolist()),
        coarse.positions.split(counts),
        counts,
        strict=True,
    )
    for here, there, count in sides:
        found.append(torch.cdist(here, there).argmin(-1) + first)
        first += count
    return torch.cat(found)


class GraphUNet(GraphNetwork):
    """Graph U-Net (Gao and Ji, ICML 2019), with the layers of the comparison on AirfRANS.

        z_0 = relu(norm(sage(encoder(position, time, values))))
        z_l = relu(norm(sage(half of the nodes of z_{l-1})))         widths doubled
        y = z_L;   y = relu(norm(sage([y of the nearest node, z_l])))   up to all nodes
        out = decoder(y)

    The graph of every level connects each of its nodes with its nearest ones. Nodes are kept by
    learned scores (`Pooling`), which is the idea of the paper.

    width: of the finest level. levels: how often nodes are halved.

    Relative to the paper: layers are those of GraphSAGE, and what comes up is joined with what went
    down, not added, as in the comparison on AirfRANS; that one keeps random nodes, with which no
    prediction could be repeated, and takes up to 64 nodes within radii from 0.05 to 10.

    Parameters: 65 564 with the published width 8 and 4 levels, for the 7 features (two of them
    positions) and 4 fields of AirfRANS.

    >>> import torch
    >>> network = GraphUNet(space=2, inputs=1, outputs=1, levels=2)
    >>> network(torch.rand(3, 50, 2), torch.randn(3, 50, 1)).shape
    torch.Size([3, 50, 1])
    """

    for_adamw: Sequence[str] = ("encoder.0", "decoder.4")

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        width: int = 8,
        levels: int = 4,
        hidden: int = 64,
        code: int = 8,
        neighbours: int = 16,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, neighbours=neighbours, time=time)
        if levels < 1:
            raise ValueError(f"levels: expected at least 1, got {levels}")
        # The norms take biases away.
        self.encoder = nn.Sequential(
            *list(relu_network(self.features, hidden, hidden, code))[:-1],
            nn.Linear(hidden, code, bias=False),
        )
        widths = [width * 2**level for level in range(levels + 1)]
        self.first, self.first_norm = SageLayer(code, width, bias=False), SampleNorm(width)
        self.pools = nn.ModuleList(Pooling(w) for w in widths[:-1])
        self.down = nn.ModuleList(SageLayer(w, 2 * w, bias=False) for w in widths[:-1])
        self.down_norms = nn.ModuleList(SampleNorm(w) for w in widths[1:])
        outs = [code, *widths[1:-1]]
        self.up = nn.ModuleList(
            SageLayer(3 * w, out, bias=False) for w, out in zip(widths[:-1], outs, strict=True)
        )
        self.up_norms = nn.ModuleList(SampleNorm(out) for out in outs)
        self.decoder = relu_network(code, hidden, hidden, outputs)

    def on_graph(self, x: Float[Tensor, "v k"], graph: Graph) -> Float[Tensor, "v o"]:
        """Encode, down, up, decode."""
        z = F.relu(self.first_norm(self.first(self.encoder(x), graph), graph.sample))
        seen: list[tuple[Tensor, Graph]] = []
        for pool, layer, norm in zip(self.pools, self.down, self.down_norms, strict=True):
            seen.append((z, graph))
            z, kept = pool(z, graph)
            graph = graph_of(graph.positions[kept], graph.sample[kept], self.neighbours)
            z = F.relu(norm(layer(z, graph), graph.sample))
        for level in reversed(range(len(seen))):
            across, finer = seen[level]
            z = torch.cat([z[nearest_of(finer, graph)], across], dim=-1)
            graph = finer
            z = self.up_norms[level](self.up[level](z, graph), graph.sample)
            z = F.relu(z) if level else z
        return self.decoder(z)


@dataclass(frozen=True)
class GraphUNetSettings(NetworkSettings):
    """Layers on graphs of ever fewer points."""

    width: int = 8
    """Channels at all points; each level has twice as many."""
    levels: int = 4
    """How often points are halved."""
    neighbours: int = 64
    """Points that each point is connected with, itself included."""


MODELS.register(
    "graph_unet",
    ModelEntry(
        "Graph U-Net: averages over near points on ever fewer points, and back",
        "Gao and Ji, Graph U-Nets, ICML 2019",
        when="As GraphSAGE, where points that are far from each other matter.",
        fields=Form(GraphUNetSettings, from_settings(GraphUNet)),
        muon=True,
        cost="n²",
        published={"width": 8, "levels": 4, "neighbours": 64},
        small={"width": 8, "levels": 4, "neighbours": 16},
        tiny={"width": 8, "levels": 2, "neighbours": 8},
    ),
)
