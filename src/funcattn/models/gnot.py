"""GNOT: linear cross-attention from points to the input, self-attention, experts by position.

Axes: b batch, h head, n point, d channel of a head, c width, e expert, k feature, o output channel.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from funcattn.models.base import FieldNetwork
from funcattn.models.lno import ResidualPerceptron
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.nn.baselines.base import measure
from funcattn.nn.bases import split_heads
from funcattn.nn.points import Points
from funcattn.settings import NetworkSettings


class NormalisedAttention(nn.Module):
    """Linear attention whose weights are positive and sum to one, with the query added.

        out_i = W_o (q_i + sum over j of w_j (q_i . k_j) v_j / sum over j of w_j (q_i . k_j))

    with q and k softmaxes over channels, and w the measure of the points.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_query, self.to_key, self.to_value, self.to_output = (
            nn.Linear(width, width) for _ in range(4)
        )

    def forward(
        self, x: Float[Tensor, "b n c"], source: Float[Tensor, "b n c"], points: Points
    ) -> Float[Tensor, "b n c"]:
        """From the source, which lies on the same points, to x."""
        query = split_heads(self.to_query(x), self.heads).softmax(-1)
        key = split_heads(self.to_key(source), self.heads).softmax(-1)
        value = split_heads(self.to_value(source), self.heads)
        weights = measure(points, key)
        key = key if weights is None else key * weights
        mass = (query * key.sum(-2, keepdim=True)).sum(-1, keepdim=True)
        out = query + query @ (key.mT @ value) / mass
        return self.to_output(out.transpose(1, 2).flatten(2))  # (b, h, n, d) -> (b, n, h d)


class Experts(nn.Module):
    """Several networks at each point, mixed by a gate that depends on the position alone."""

    def __init__(self, width: int, hidden: int, experts: int) -> None:
        super().__init__()
        self.networks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
            for _ in range(experts)
        )

    def forward(
        self, x: Float[Tensor, "b n c"], gate: Float[Tensor, "b n e"]
    ) -> Float[Tensor, "b n c"]:
        """Their mixture."""
        parts = torch.stack([network(x) for network in self.networks], dim=-1)
        return (parts * gate.unsqueeze(-2)).sum(-1)


class GNOTBlock(nn.Module):
    """x + cross(norm x, norm y), x + norm(experts x), x + self(norm x), x + norm(experts x)."""

    def __init__(self, space: int, width: int, heads: int, hidden: int, experts: int) -> None:
        super().__init__()
        self.cross, self.self_ = (NormalisedAttention(width, heads) for _ in range(2))
        self.first, self.second = (Experts(width, hidden, experts) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.gate = nn.Sequential(
            nn.Linear(space, hidden),
            nn.GELU(),
            nn.Linear(hidden, hidden),
            nn.GELU(),
            nn.Linear(hidden, experts),
        )

    for_adamw = ("gate.0",)

    def forward(self, x: Tensor, y: Tensor, points: Points) -> Float[Tensor, "b n c"]:
        """The input y is read, then the points read each other."""
        gate = self.gate(points.positions).softmax(-1)
        at_x, at_y, after_cross, before_self, after_self = self.norms
        x = x + self.cross(at_x(x), at_y(y), points)
        x = x + after_cross(self.first(x, gate))
        normed = before_self(x)
        x = x + self.self_(normed, normed, points)
        return x + after_self(self.second(x, gate))


class GNOT(FieldNetwork):
    """General neural operator transformer (Hao et al., ICML 2023).

        x = trunk(position, time)            what asks
        y = branch(position, time, values)   what is asked
        x = block(x, y)                      `layers` times: cross- and self-attention, experts
        out = head(x)

    Trunk, branch and head are residual networks at each point. The experts of a block are mixed by
    a softmax of a network of the position: a soft decomposition of the domain. Linear in n.

    width, layers, heads: of the blocks. ratio: hidden over outer width of experts and gates.
    experts: in each place. perceptron: residual layers of trunk, branch and head.

    Relative to the paper: one input function, on the points of the answer, where the paper takes
    several, each on its own points; masks and weights are as everywhere here.

    Parameters: 3 767 306 in 2D with width 128, 3 layers, 1 head, 3 experts and one input and
    output.

    >>> import torch
    >>> network = GNOT(space=2, inputs=1, outputs=1, width=16, layers=2, heads=2)
    >>> network(torch.rand(3, 500, 2), torch.randn(3, 500, 1)).shape
    torch.Size([3, 500, 1])
    """

    for_adamw = ("trunk.lift", "branch.lift", "head.head")

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        width: int = 128,
        layers: int = 3,
        heads: int = 1,
        experts: int = 3,
        ratio: int = 4,
        perceptron: int = 3,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        if width % heads:
            raise ValueError(f"width: expected a multiple of heads={heads}, got {width}")
        self.trunk = ResidualPerceptron(self.coordinates, width, width, layers=perceptron)
        self.branch = ResidualPerceptron(self.features, width, width, layers=perceptron)
        self.blocks = nn.ModuleList(
            GNOTBlock(space, width, heads, ratio * width, experts) for _ in range(layers)
        )
        self.head = ResidualPerceptron(width, width, outputs, layers=perceptron)

    def fields(
        self, values: Tensor | None, time: Tensor | None, points: Points
    ) -> Float[Tensor, "b n o"]:
        """Trunk, branch, blocks, head."""
        x = self.trunk(self.coordinates_of(time, points))
        y = self.branch(self.features_of(values, time, points))
        for block in self.blocks:
            x = block(x, y, points)
        return self.head(x)


@dataclass(frozen=True)
class GNOTSettings(NetworkSettings):
    """Blocks with experts."""

    width: int = 128
    """Channels inside."""
    layers: int = 3
    heads: int = 1
    experts: int = 3
    """Networks at each point, mixed by position."""


MODELS.register(
    "gnot",
    ModelEntry(
        "General neural operator transformer: linear attention, experts by position",
        "Hao et al., GNOT, ICML 2023",
        when="Points whose behaviour differs from region to region.",
        fields=Form(GNOTSettings, from_settings(GNOT)),
        muon=True,
        published={"width": 128, "layers": 3, "heads": 1, "experts": 3},
        small={"width": 32, "layers": 3, "heads": 1, "experts": 3},
        tiny={"width": 8, "layers": 2, "heads": 2, "experts": 2},
    ),
)
