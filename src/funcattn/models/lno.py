"""Latent Neural Operator: from the points to a few latent ones, a transformer there, and back.

Axes: b batch, n point, l latent point, s space dimension, i input channel, o output channel,
c width, k feature.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.base import FieldNetwork
from funcattn.models.registry import MODELS, Form, ModelEntry
from funcattn.nn.bases import split_heads
from funcattn.nn.points import Points
from funcattn.problem import Problem
from funcattn.settings import NetworkSettings


class ResidualPerceptron(nn.Module):
    """A lift, `layers` residual layers x + gelu(linear(x)), a linear map."""

    def __init__(self, inputs: int, width: int, outputs: int, *, layers: int) -> None:
        super().__init__()
        self.lift = nn.Linear(inputs, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Float[Tensor, "... i"]) -> Float[Tensor, "... o"]:
        """Each point by itself."""
        x = F.gelu(self.lift(x))
        for layer in self.layers:
            x = x + F.gelu(layer(x))
        return self.head(x)


class LatentBlock(nn.Module):
    """Pre-norm transformer block: x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.to_query, self.to_value = nn.Linear(width, width), nn.Linear(width, width)
        # A bias of the keys adds the same to all scores of a query, and softmax forgets it.
        self.to_key = nn.Linear(width, width, bias=False)
        self.to_output = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Float[Tensor, "b l c"]) -> Float[Tensor, "b l c"]:
        """Between the latent points, then at each of them."""
        y = self.attention_norm(x)
        query, key, value = (
            split_heads(map_(y), self.heads) for map_ in (self.to_query, self.to_key, self.to_value)
        )
        attended = F.scaled_dot_product_attention(query, key, value)
        x = x + self.to_output(attended.transpose(1, 2).flatten(2))  # (b, h, l, d) -> (b, l, h d)
        return x + self.mlp(self.mlp_norm(x))


class LNO(FieldNetwork):
    """Latent Neural Operator (Wang and Wang, NeurIPS 2024).

        scores  = attention(trunk(x))                             (n x l)
        latent  = softmax over points of scores, transposed, times branch(x, u)      (l x c)
        latent  = `layers` transformer blocks
        out     = head(softmax over latent points of scores, times latent)           (n x o)

    The scores, between positions and `latents` learned latent points, are the same both ways: the
    "physics-cross-attention". Cost is linear in the number of points. It takes any points, masks
    and weights: softmax over points becomes weights * exp(scores) over their sum.

    width, layers, heads: of the transformer between latent points. projector: residual layers of
    each of the four point-wise networks. unit_box: positions lie all over the unit box, and are
    taken from its middle, in standard deviations of points all over it. As they are, they leave the
    scores so flat that latent points coincide, and some networks never get away from there.

    Relative to the paper: where its text and its public code differ, this follows the code: scores
    come from a perceptron on the trunk, in place of a product with learned latent positions. The
    keys between latent points have no bias, which would have no effect. Time is one more coordinate
    of trunk and branch, where the code gives all times at once, as output channels. The code scales
    the positions of Elasticity and Darcy flow, by the points it trains on, which comes to the same.
    Weights of the points are an addition.

    Parameters: 761 601 in 2D with one input and output and the defaults, which are the published
    ones for Darcy flow; the public code has 512 more, the biases of the keys.

    >>> import torch
    >>> network = LNO(space=2, inputs=1, outputs=1, width=32, layers=2, latents=16, heads=4)
    >>> network(torch.rand(3, 500, 2), torch.randn(3, 500, 1)).shape
    torch.Size([3, 500, 1])
    """

    for_adamw = ()

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        width: int = 128,
        layers: int = 4,
        latents: int = 256,
        heads: int = 8,
        projector: int = 2,
        unit_box: bool = True,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        if width % heads:
            raise ValueError(f"width: expected a multiple of heads={heads}, got {width}")
        self.unit_box = unit_box
        self.trunk = ResidualPerceptron(self.coordinates, width, width, layers=projector)
        self.branch = ResidualPerceptron(self.features, width, width, layers=projector)
        self.attention = ResidualPerceptron(width, width, latents, layers=projector)
        self.blocks = nn.ModuleList(LatentBlock(width, heads) for _ in range(layers))
        self.head = ResidualPerceptron(width, width, outputs, layers=projector)

    def fields(
        self, values: Tensor | None, time: Tensor | None, points: Points
    ) -> Float[Tensor, "b n o"]:
        """To the latent points, between them, and back."""
        if self.unit_box:
            assert points.positions is not None
            # Of mean 0 and variance 1, where they are spread evenly.
            points = replace(points, positions=(points.positions - 0.5) * math.sqrt(12))
        scores = self.attention(self.trunk(self.coordinates_of(time, points)))
        to_latent, to_points = cross_attention(scores, points)
        latent = to_latent.mT @ self.branch(self.features_of(values, time, points))
        for block in self.blocks:
            latent = block(latent)
        return self.head(to_points @ latent)


def cross_attention(
    scores: Float[Tensor, "b n l"], points: Points
) -> tuple[Float[Tensor, "b n l"], Float[Tensor, "b n l"]]:
    """How much each latent point takes of each point, and each point of each latent one.

    The first sums to one over the points that are not masked, each counted with its weight, the
    second over the latent points.
    """
    counted = scores
    if points.weights is not None:
        counted = counted + points.weights.to(scores.dtype).log().unsqueeze(-1)
    if points.mask is not None:
        counted = counted.masked_fill(~points.mask.unsqueeze(-1), -torch.inf)
    return counted.softmax(dim=1), scores.softmax(dim=-1)


@dataclass(frozen=True)
class LNOSettings(NetworkSettings):
    """A transformer on latent points."""

    width: int = 128
    """Channels inside."""
    layers: int = 8
    heads: int = 8
    bases: int = 256
    """Latent points."""


def _build(settings: LNOSettings, problem: Problem) -> LNO:
    return LNO(
        problem.space,
        problem.input_channels,
        problem.output_channels,
        width=settings.width,
        layers=settings.layers,
        time=problem.time,
        heads=settings.heads,
        latents=settings.bases,
        unit_box=(problem.lower, problem.upper) == (0.0, 1.0),
    )


MODELS.register(
    "lno",
    ModelEntry(
        "Latent neural operator: to a few latent points, attention there, and back",
        "Wang and Wang, Latent Neural Operator, NeurIPS 2024",
        when="Many points, with the work done once, on a few latent ones.",
        fields=Form(LNOSettings, _build),
        muon=True,
        published={"width": 128, "layers": 8, "heads": 8, "bases": 256},
        of_task={"darcy": {"layers": 4}, "navier_stokes": {"width": 256}},
        small={"width": 64, "layers": 4, "heads": 4, "bases": 64},
        tiny={"width": 16, "layers": 2, "heads": 2, "bases": 8},
    ),
)
