"""The plainest network: each point by itself.

Axes: b batch, n point, s space dimension, i input channel, o output channel, k feature, c width.
"""

import itertools
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from funcattn.models.base import FieldNetwork
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.nn.points import Points
from funcattn.settings import NetworkSettings


class MLP(FieldNetwork):
    """Each point by itself, from its position, the values there and the time: a yardstick.

    `layers` hidden layers of `width` channels with GELU, one after another without residuals, then
    a linear map to the outputs. Nothing travels between points, so that grid, mask and weights
    change nothing. It starts as PyTorch's linear maps do.

    Parameters: (k + 1) c + (layers - 1) (c + 1) c + (c + 1) o, with k = space + inputs (+ 1 with
    time) features.

    >>> import torch
    >>> network = MLP(space=2, inputs=1, outputs=1, width=32, layers=3)
    >>> network(torch.rand(3, 500, 2), torch.randn(3, 500, 1)).shape
    torch.Size([3, 500, 1])
    """

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        width: int = 256,
        layers: int = 4,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        self.network = perceptron(self.features, width, outputs, layers=layers)
        self.for_adamw = ("network.0", f"network.{2 * layers}")

    def fields(
        self, values: Tensor | None, time: Tensor | None, points: Points
    ) -> Float[Tensor, "b n o"]:
        """Each point by itself."""
        return self.network(self.features_of(values, time, points))


def perceptron(inputs: int, width: int, outputs: int, *, layers: int) -> nn.Sequential:
    """Linear maps with GELU between them: `layers` hidden layers of `width` channels."""
    if layers < 1:
        raise ValueError(f"layers: expected at least 1 hidden layer, got {layers}")
    sizes = [inputs, *(width,) * layers, outputs]
    modules: list[nn.Module] = []
    for here, there in itertools.pairwise(sizes):
        modules += [nn.Linear(here, there), nn.GELU()]
    return nn.Sequential(*modules[:-1])


@dataclass(frozen=True)
class MLPSettings(NetworkSettings):
    """A perceptron at each point."""

    width: int = 128
    """Channels of the hidden layers."""
    layers: int = 4
    """Hidden layers."""


MODELS.register(
    "mlp",
    ModelEntry(
        "A plain network at each point by itself",
        when="A yardstick: what can be known of a point without looking at others.",
        fields=Form(MLPSettings, from_settings(MLP)),
        muon=True,
        published={"width": 128, "layers": 4},
        small={"width": 64, "layers": 4},
        tiny={"width": 16, "layers": 2},
    ),
)
