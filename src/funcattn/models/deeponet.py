"""DeepONet: the solution as a sum of learned functions of position, weighted by the input.

Axes: b batch, n point, s space dimension, i input channel, o output channel, p basis function.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.base import FieldNetwork
from funcattn.models.mlp import perceptron
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.models.starts import glorot
from funcattn.nn.points import Points
from funcattn.problem import Problem
from funcattn.settings import NetworkSettings


class DeepONet(FieldNetwork):
    """Deep operator network, unstacked, with bias (Lu et al., Nature Machine Intelligence 2021).

        G(u)(x) = sum over p of branch_p(u) trunk_p(x) + bias

    branch: a perceptron on the values at all points, flattened; where there are none (inputs=0) on
    the positions of all points. trunk: a perceptron on position and time, with its activation
    after the last map too, as published. Each has `layers` hidden layers of `width` channels; there
    are `bases` functions for each output channel.

    sensors: the number of points. The branch knows each of them by its place in the sequence, so
    that all samples must have this many, in the same order, and where values are the input at the
    same positions: a grid, or a mesh of fixed numbering. Masks are refused. Weights change nothing.

    Relative to the paper: GELU instead of ReLU or tanh; several output channels, with functions of
    their own for each; the answer is asked for at the sensors and not at random points.

    Parameters: with width and bases 40, layers 1, 100 sensors and one input, output and dimension,
    which is the antiderivative example with maps 100-40-40 and 1-40-40, 7401.

    >>> import torch
    >>> network = DeepONet(space=2, inputs=1, outputs=1, sensors=500, width=32, layers=2, bases=16)
    >>> network(torch.rand(3, 500, 2), torch.randn(3, 500, 1)).shape
    torch.Size([3, 500, 1])
    """

    takes_mask = False
    for_adamw = ()

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        sensors: int,
        width: int = 128,
        layers: int = 3,
        bases: int = 128,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        for name, number in {"sensors": sensors, "bases": bases}.items():
            if number < 1:
                raise ValueError(f"{name}: expected at least 1, got {number}")
        self.sensors = sensors
        seen = sensors * (inputs or space)
        self.branch = perceptron(seen, width, outputs * bases, layers=layers)
        self.trunk = perceptron(self.coordinates, width, outputs * bases, layers=layers)
        self.bias = nn.Parameter(torch.zeros(outputs))
        glorot(self)

    def fields(
        self, values: Tensor | None, time: Tensor | None, points: Points
    ) -> Float[Tensor, "b n o"]:
        """The sum over the basis functions."""
        coordinates = self.coordinates_of(time, points)
        if coordinates.shape[1] != self.sensors:
            raise ValueError(
                f"positions: expected the {self.sensors} points of the sensors the model was built "
                f"with, got {coordinates.shape[1]}; build one with sensors={coordinates.shape[1]}"
            )
        # With inputs=0 the shape of the domain is what varies, and time says when to look at it.
        seen = points.positions if values is None else values
        assert seen is not None
        coefficients = self.branch(seen.flatten(1)).unflatten(-1, (self.outputs, -1))
        bases = F.gelu(self.trunk(coordinates)).unflatten(-1, (self.outputs, -1))
        return torch.einsum("bop,bnop->bno", coefficients, bases) + self.bias


@dataclass(frozen=True)
class DeepONetSettings(NetworkSettings):
    """Branch and trunk."""

    width: int = 128
    """Channels of the hidden layers."""
    layers: int = 3
    """Hidden layers of each."""
    bases: int = 128
    """Functions of position for each output channel."""


def sensors_of(problem: Problem) -> int:
    """As many as the samples have points."""
    if problem.points is None:
        raise ValueError("points: expected the number of points of all samples, got None")
    return problem.points


MODELS.register(
    "deeponet",
    ModelEntry(
        "Deep operator network with the points as sensors",
        "Lu et al., DeepONet, Nature Machine Intelligence 2021",
        when="All samples have the same points in the same order, and fast training matters.",
        fields=Form(DeepONetSettings, from_settings(DeepONet, sensors=sensors_of)),
        needs_size=True,
        muon=True,
        published={"width": 128, "layers": 3, "bases": 128},
        small={"width": 128, "layers": 3, "bases": 128},
        tiny={"width": 16, "layers": 2, "bases": 8},
    ),
)
