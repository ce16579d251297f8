"""Networks on graphs of near points: GraphSAGE, MeshGraphNet and the graph kernel network.

All connect each point with its nearest ones, itself among them, whatever the mesh was: what the
networks get is points. Real points of all samples of a batch are nodes of one graph without edges
between samples. Weights of the points change nothing.

Axes: b batch, n point, v node, e edge, s space dimension, c width, k feature, o output channel.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.base import FieldNetwork
from funcattn.models.pointnet import relu_network
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.models.starts import truncated_by_inputs
from funcattn.nn.points import Points
from funcattn.settings import NetworkSettings

_MOST_DISTANCES = 2**24
"""Held in memory at once."""


class Graph(NamedTuple):
    """Edges from `source` to `target` nodes, and the sample of each node."""

    source: Int[Tensor, " e"]
    target: Int[Tensor, " e"]
    sample: Int[Tensor, " v"]
    positions: Float[Tensor, "v s"]

    def summed(self, messages: Float[Tensor, "e c"]) -> Float[Tensor, "v c"]:
        """The messages of the edges to each node, added."""
        total = messages.new_zeros(len(self.sample), messages.shape[-1])
        return total.index_add(0, self.target, messages)

    def mean(self, messages: Float[Tensor, "e c"]) -> Float[Tensor, "v c"]:
        """The same, over the number of edges."""
        edges = self.summed(torch.ones_like(messages[:, :1]))
        return self.summed(messages) / edges

    @property
    def offsets(self) -> Float[Tensor, "e s"]:
        """From target to source."""
        return self.positions[self.source] - self.positions[self.target]


@torch.no_grad()
def nearest(positions: Float[Tensor, "n s"], neighbours: int) -> Int[Tensor, "n k"]:
    """The nearest points of each point, itself first; all of them where there are fewer."""
    found = []
    step = max(1, _MOST_DISTANCES // len(positions))
    for start in range(0, len(positions), step):
        # The products of the faster formula would cost half the digits.
        distances = torch.cdist(
            positions[start : start + step],
            positions,
            compute_mode="donot_use_mm_for_euclid_dist",
        )
        count = min(neighbours, len(positions))
        found.append(distances.topk(count, largest=False, sorted=True).indices)
    return torch.cat(found)


def graph_of(positions: Float[Tensor, "v s"], sample: Int[Tensor, " v"], neighbours: int) -> Graph:
    """The edges from the nearest points of its sample to each point; samples lie in a row."""
    sources, targets, first = [], [], 0
    for where in positions.split(torch.bincount(sample).tolist()):
        near = nearest(where, neighbours)  # (n, k)
        sources.append(near.flatten() + first)
        here = torch.arange(len(near), device=near.device)
        targets.append(here.repeat_interleave(near.shape[1]) + first)
        first += len(near)
    return Graph(torch.cat(sources), torch.cat(targets), sample, positions)


class GraphNetwork(FieldNetwork):
    """A network on the graph of near points: `on_graph` is to be filled in.

    neighbours: of each point, itself included.
    """

    def __init__(
        self, space: int, inputs: int, outputs: int, *, neighbours: int, time: bool
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        if neighbours < 1:
            raise ValueError(f"neighbours: expected at least 1, got {neighbours}")
        self.neighbours = neighbours

    def fields(
        self, values: Tensor | None, time: Tensor | None, points: Points
    ) -> Float[Tensor, "b n o"]:
        """Nodes and edges of the batch, the network, and back to the points."""
        features = self.features_of(values, time, points)
        assert points.positions is not None
        real = torch.ones_like(features[..., 0], dtype=torch.bool)
        if points.mask is not None:
            real = real & points.mask
        sample = real.nonzero()[:, 0]
        graph = graph_of(points.positions[real], sample, self.neighbours)
        out = features.new_zeros(*real.shape, self.outputs)
        out[real] = self.on_graph(features[real], graph).to(out.dtype)
        return out

    @abstractmethod
    def on_graph(self, x: Float[Tensor, "v k"], graph: Graph) -> Float[Tensor, "v o"]:
        """From the features at the nodes to the outputs."""


class SampleNorm(nn.Module):
    """Mean 0 and variance 1 over the nodes of each sample, times a gain, plus a shift."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Float[Tensor, "v c"], sample: Int[Tensor, " v"]) -> Float[Tensor, "v c"]:
        """Each channel by itself; sample: that of each node."""
        count = torch.bincount(sample).to(x.dtype).unsqueeze(-1)

        def mean(field: Tensor) -> Tensor:
            total = field.new_zeros(len(count), field.shape[-1])
            return (total.index_add(0, sample, field) / count)[sample]

        centred = x - mean(x)
        return centred * (mean(centred.square()) + 1e-5).rsqrt() * self.gain + self.shift


class SageLayer(nn.Module):
    """W_1 mean over neighbours of x + b + W_2 x."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True) -> None:
        super().__init__()
        self.near = nn.Linear(inputs, outputs, bias=bias)
        self.own = nn.Linear(inputs, outputs, bias=False)

    def forward(self, x: Float[Tensor, "v c"], graph: Graph) -> Float[Tensor, "v d"]:
        """One step along the edges."""
        return self.near(graph.mean(x[graph.source])) + self.own(x)


class GraphSAGE(GraphNetwork):
    """GraphSAGE (Hamilton, Ying and Leskovec, NeurIPS 2017), as AirfRANS compares with it.

        z = encoder(position, time, values)
        z = relu(norm(W_1 mean over neighbours of z + W_2 z))     `layers` times
        out = decoder(W_1 mean over neighbours of z + W_2 z)

    width: hidden channels. code: channels before and after the graph layers.

    Relative to the public comparison: the nearest points, where it takes up to 64 within 0.05 of
    each; the norm over the points of each sample, as there with one sample per batch.

    Parameters: 29 004 with the published width 64, 3 layers and code 8, for the 7 features (two of
    them positions) and 4 fields of AirfRANS; the public network has 200 more, biases without
    effect.

    >>> import torch
    >>> network = GraphSAGE(space=2, inputs=1, outputs=1, width=16)
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
        width: int = 64,
        layers: int = 3,
        code: int = 8,
        neighbours: int = 16,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, neighbours=neighbours, time=time)
        if layers < 1:
            raise ValueError(f"layers: expected at least 1, got {layers}")
        # The norms take biases away.
        self.encoder = nn.Sequential(
            *list(relu_network(self.features, width, width, code))[:-1],
            nn.Linear(width, code, bias=False),
        )
        self.layers = nn.ModuleList(
            SageLayer(here, width, bias=False)
            for here in (code, *(width for _ in range(layers - 1)))
        )
        self.norms = nn.ModuleList(SampleNorm(width) for _ in range(layers))
        self.last = SageLayer(width, code)
        self.decoder = relu_network(code, width, width, outputs)

    def on_graph(self, x: Float[Tensor, "v k"], graph: Graph) -> Float[Tensor, "v o"]:
        """Encode, layers, decode."""
        z = self.encoder(x)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            z = F.relu(norm(layer(z, graph), graph.sample))
        return self.decoder(self.last(z, graph))


class Normed(nn.Module):
    """A perceptron of two hidden layers with ReLU, and a layer norm after it."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.network, self.norm = relu_network(inputs, width, width, width), nn.LayerNorm(width)

    def forward(self, x: Float[Tensor, "v k"]) -> Float[Tensor, "v c"]:
        """Each row by itself."""
        return self.norm(self.network(x))


class MeshGraphNet(GraphNetwork):
    """MeshGraphNet (Pfaff, Fortunato, Sanchez-Gonzalez and Battaglia, ICLR 2021).

        v = network(position, time, values),   e = network(x_source - x_target, its length)
        e = e + network(e, v_source, v_target),  v = v + network(v, sum of e)    `layers` times
        out = network(v)

    The networks have two hidden layers with ReLU and, but for the last, a layer norm.

    Relative to the paper: edges to the nearest points in place of those of the mesh; the position
    itself is a feature of a node, as some tasks have no other; one step of the answer, no noise.

    Parameters: 2 331 777 in 2D with the published width 128 and 15 layers, one input and output.

    >>> import torch
    >>> network = MeshGraphNet(space=2, inputs=1, outputs=1, width=8, layers=2)
    >>> network(torch.rand(3, 50, 2), torch.randn(3, 50, 1)).shape
    torch.Size([3, 50, 1])
    """

    for_adamw: Sequence[str] = ("nodes.network.0", "edges.network.0", "decoder.4")

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        width: int = 128,
        layers: int = 15,
        neighbours: int = 7,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, neighbours=neighbours, time=time)
        self.nodes, self.edges = Normed(self.features, width), Normed(space + 1, width)
        self.edge_steps = nn.ModuleList(Normed(3 * width, width) for _ in range(layers))
        self.node_steps = nn.ModuleList(Normed(2 * width, width) for _ in range(layers))
        self.decoder = relu_network(width, width, width, outputs)
        truncated_by_inputs(self)

    def on_graph(self, x: Float[Tensor, "v k"], graph: Graph) -> Float[Tensor, "v o"]:
        """Encode, pass messages, decode."""
        offsets = graph.offsets
        v = self.nodes(x)
        e = self.edges(torch.cat([offsets, offsets.norm(dim=-1, keepdim=True)], dim=-1))
        for edge_step, node_step in zip(self.edge_steps, self.node_steps, strict=True):
            e = e + edge_step(torch.cat([e, v[graph.source], v[graph.target]], dim=-1))
            v = v + node_step(torch.cat([v, graph.summed(e)], dim=-1))
        return self.decoder(v)


class GNO(GraphNetwork):
    """Graph kernel network (Li et al., Neural Operator: Graph Kernel Network for PDEs, 2020).

        v = lift(position, time, values)
        v_i = relu(W v_i + mean over near j of kappa(x_i, x_j, a_i, a_j) v_j)     `layers` times
        out = W' v

    kappa is a perceptron to matrices (c x c) of all that is known at both points. The layers share
    kappa and W, as published.

    width: c. kernel: hidden channels of kappa, of which its first layer has half.

    Relative to the paper: the mean is over the nearest points, where the paper has all within a
    radius, or random ones.

    Parameters: 4 731 777 in 2D with the published width 64, kernel 1024, one input and output.

    >>> import torch
    >>> network = GNO(space=2, inputs=1, outputs=1, width=8, kernel=16, layers=2)
    >>> network(torch.rand(3, 50, 2), torch.randn(3, 50, 1)).shape
    torch.Size([3, 50, 1])
    """

    for_adamw: Sequence[str] = ("lift", "kappa.0", "head")

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        width: int = 64,
        layers: int = 6,
        kernel: int = 1024,
        neighbours: int = 16,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, neighbours=neighbours, time=time)
        self.width, self.layers = width, layers
        self.lift = nn.Linear(self.features, width)
        self.kappa = relu_network(2 * self.features, kernel // 2, kernel, width * width)
        self.own = nn.Linear(width, width)
        self.head = nn.Linear(width, outputs)

    def on_graph(self, x: Float[Tensor, "v k"], graph: Graph) -> Float[Tensor, "v o"]:
        """Lift, the same layer several times, head."""
        pairs = torch.cat([x[graph.target], x[graph.source]], dim=-1)
        matrices = self.kappa(pairs).unflatten(-1, (self.width, self.width))  # (e, c, c)
        v = self.lift(x)
        for _ in range(self.layers):
            messages = torch.einsum("eij,ej->ei", matrices, v[graph.source])
            v = F.relu(self.own(v) + graph.mean(messages))
        return self.head(v)


@dataclass(frozen=True)
class GraphSettings(NetworkSettings):
    """Layers on a graph of near points."""

    width: int = 64
    """Channels inside."""
    layers: int = 3
    neighbours: int = 16
    """Points that each point is connected with, itself included."""


@dataclass(frozen=True)
class GNOSettings(GraphSettings):
    """Kernels between near points."""

    layers: int = 6
    kernel: int = 1024
    """Hidden channels of the kernel."""


MODELS.register(
    "graphsage",
    ModelEntry(
        "GraphSAGE: averages over near points",
        "Hamilton et al., Inductive Representation Learning on Large Graphs, NeurIPS 2017",
        when="A cheap yardstick for clouds: what near points know of each other.",
        fields=Form(GraphSettings, from_settings(GraphSAGE)),
        muon=True,
        cost="n²",
        published={"width": 64, "layers": 3, "neighbours": 64},
        small={"width": 32, "layers": 3, "neighbours": 16},
        tiny={"width": 8, "layers": 2, "neighbours": 4},
    ),
)
MODELS.register(
    "meshgraphnet",
    ModelEntry(
        "MeshGraphNet: messages along edges between near points",
        "Pfaff et al., Learning Mesh-Based Simulation with Graph Networks, ICLR 2021",
        when="Local physics on meshes: what happens at a point depends on near ones.",
        fields=Form(GraphSettings, from_settings(MeshGraphNet)),
        muon=True,
        cost="n²",
        published={"width": 128, "layers": 15, "neighbours": 7},
        small={"width": 32, "layers": 6, "neighbours": 7},
        tiny={"width": 8, "layers": 2, "neighbours": 4},
    ),
)
MODELS.register(
    "gno",
    ModelEntry(
        "Graph kernel network: integrals over near points",
        "Li et al., Neural Operator: Graph Kernel Network, 2020",
        when="The first neural operator, for comparison: a kernel for each pair of near points.",
        fields=Form(GNOSettings, from_settings(GNO)),
        muon=True,
        cost="n²",
        published={"width": 64, "layers": 6, "neighbours": 16, "kernel": 1024},
        small={"width": 16, "layers": 4, "neighbours": 8, "kernel": 32},
        tiny={"width": 8, "layers": 3, "neighbours": 8, "kernel": 16},
    ),
)
