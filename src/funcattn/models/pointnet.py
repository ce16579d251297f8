"""PointNet: each point by itself, and the largest of each feature over all points.

Axes: b batch, n point, k feature, c channel, o output channel.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from funcattn.models.base import FieldNetwork
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.nn.points import Points
from funcattn.settings import NetworkSettings


def relu_network(*widths: int) -> nn.Sequential:
    """Linear maps between these widths, ReLU between them."""
    modules: list[nn.Module] = []
    for here, there in itertools.pairwise(widths):
        modules += [nn.Linear(here, there), nn.ReLU()]
    return nn.Sequential(*modules[:-1])


class PointNet(FieldNetwork):
    """PointNet (Qi, Su, Mo and Guibas, CVPR 2017), as AirfRANS compares with it.

        z = encoder(position, time, values),  z = first(z)             at each point
        g = max over points of global(z)                               one vector per sample
        out = decoder(last([z, g]))                                    at each point

    All parts are perceptrons with ReLU. It takes any points and masks; weights change nothing, as
    the largest value does not count points.

    width: the base width w: first has w, 2 w channels, global 4 w, 8 w, 32 w, last 16 w, 8 w, 4 w.
    hidden, code: widths of encoder and decoder, and between them and the rest.

    Relative to the paper: the network for segmentation without the two learned transforms of the
    input, as in the public comparison on AirfRANS.

    Parameters: 75 244 with the published width 8, hidden 64 and code 8, for the 7 features (two of
    them positions) and 4 fields of AirfRANS.

    >>> import torch
    >>> network = PointNet(space=2, inputs=1, outputs=1)
    >>> network(torch.rand(3, 500, 2), torch.randn(3, 500, 1)).shape
    torch.Size([3, 500, 1])
    """

    for_adamw: Sequence[str] = ("encoder.0", "decoder.4")

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        width: int = 8,
        hidden: int = 64,
        code: int = 8,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        w = width
        self.encoder = relu_network(self.features, hidden, hidden, code)
        self.first = relu_network(code, w, 2 * w)
        self.global_ = relu_network(2 * w, 4 * w, 8 * w, 32 * w)
        self.last = relu_network(34 * w, 16 * w, 8 * w, 4 * w)
        self.to_code = nn.Linear(4 * w, code)
        self.decoder = relu_network(code, hidden, hidden, outputs)

    def fields(
        self, values: Tensor | None, time: Tensor | None, points: Points
    ) -> Float[Tensor, "b n o"]:
        """At each point, over all of them, at each point."""
        z = self.first(self.encoder(self.features_of(values, time, points)))
        whole = self.global_(z)
        if points.mask is not None:
            whole = whole.masked_fill(~points.mask.unsqueeze(-1), -torch.inf)
        whole = whole.amax(1, keepdim=True).expand(-1, z.shape[1], -1)
        return self.decoder(self.to_code(self.last(torch.cat([z, whole], dim=-1))))


@dataclass(frozen=True)
class PointNetSettings(NetworkSettings):
    """Perceptrons at the points."""

    width: int = 8
    """Base width."""
    hidden: int = 64
    """Hidden channels of encoder and decoder."""


MODELS.register(
    "pointnet",
    ModelEntry(
        "PointNet: each point by itself, and the largest of each feature over all",
        "Qi et al., PointNet, CVPR 2017",
        when="A cheap yardstick for clouds: what one summary of all points adds to each of them.",
        fields=Form(PointNetSettings, from_settings(PointNet)),
        muon=True,
        published={"width": 8, "hidden": 64},
        small={"width": 8, "hidden": 64},
        tiny={"width": 8, "hidden": 32},
    ),
)
