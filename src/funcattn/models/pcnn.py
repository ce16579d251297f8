"""PCNN: convolutions of fields that Gaussians extend from the points to all space.

Axes: v, u point, w coarser point, c, e channels, k feature, s space dimension, t translation.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from funcattn.models.clouds import Cloud
from funcattn.models.convolving import SIZES, Convolution, ConvolvingSettings, ConvolvingU
from funcattn.models.matrices import Axes
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.models.starts import glorot_by_shape

_MOST_GAUSSIANS = 2**22
"""Held in memory at once."""


class GaussianConvolution(Convolution):
    """A field extended to all space by Gaussians, convolved with a sum of Gaussians.

        out(x_i) = sum over t, j of exp(-|x_i - x_j - y_t|^2 / 2 (sigma^2 + sigma^2)) W_t w_j
        w_j = z_j / sum over i of exp(-|x_i - x_j|^2 / 2 sigma^2)

    over the 3^s translations y_t by 2 sigma along the axes; sigma is one over the root of the
    number of points, their distance where they fill a surface of size 1 (on a line, one over
    their number).
    """

    def __init__(self, space: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.space = space
        weight = glorot_by_shape(outputs, inputs, 3**space)  # as published
        self.weight = nn.Parameter(weight.movedim(-1, 0).contiguous())

    @property
    def stacks(self) -> dict[str, Axes]:
        """A matrix for each translation, for Muon."""
        return {"weight": (1, 2, False)}

    def geometry(self, cloud: Cloud) -> list[tuple[Tensor, float]]:
        """Positions and sigma of each sample."""
        return [(part, width_of(part)) for part in cloud.parts()]

    def forward(
        self, z: Float[Tensor, "v c"], geometry: list[tuple[Tensor, float]]
    ) -> Float[Tensor, "v e"]:
        """Each sample by itself; in parts, whose Gaussians are made again for the gradient."""
        rows = []
        for part, (x, sigma) in zip(z.split([len(x) for x, _ in geometry]), geometry, strict=True):
            with torch.no_grad():
                mass = gaussians(x, x, sigma).sum(-1, keepdim=True)
            carried = torch.einsum("uc,tec->ute", part / mass, self.weight)
            some = x.split(max(1, _MOST_GAUSSIANS // (len(x) * 3**self.space)))
            if len(some) == 1:
                rows.append(_convolved(x, x, sigma, carried))
                continue
            rows += [
                checkpoint(_convolved, targets, x, sigma, carried, use_reentrant=False)
                for targets in some
            ]
        return torch.cat(rows)


def _convolved(
    x: Float[Tensor, "v s"], y: Float[Tensor, "u s"], sigma: float, carried: Float[Tensor, "u t e"]
) -> Float[Tensor, "v e"]:
    """The sum over all translations: each Gaussian is a product over the axes."""
    steps = 2 * sigma * torch.arange(-1, 2, device=x.device, dtype=x.dtype)
    away = (x.unsqueeze(1) - y).unsqueeze(-1) - steps  # (v, u, s, 3)
    # Nothing smaller, as products would be subnormal numbers, with which processors are slow: of
    # points that are further away this leaves 3e-13 in single precision.
    least = math.log(torch.finfo(x.dtype).tiny) / x.shape[-1]
    first, *others = (-away.square() / (4 * sigma**2)).clamp(min=least).exp().unbind(2)
    for factor in others:
        first = (first.unsqueeze(-1) * factor.unsqueeze(-2)).flatten(2)  # (v, u, 3^axes)
    return first.flatten(1) @ carried.flatten(0, 1)


def width_of(x: Float[Tensor, "n s"]) -> float:
    """Sigma of a cloud."""
    return len(x) ** (-1 / min(x.shape[-1], 2))


def gaussians(
    x: Float[Tensor, "n s"], y: Float[Tensor, "m s"], sigma: float
) -> Float[Tensor, "n m"]:
    """exp(-|x - y|^2 / 2 sigma^2)."""
    distance = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    return (-distance.square() / (2 * sigma**2)).exp()


class PCNN(ConvolvingU):
    """Point convolutional network by extension operators (Atzmon, Maron and Lipman, 2018).

    See `ConvolvingU` and `GaussianConvolution`. The first field is all features and a constant; a
    coarse field is spread by the Gaussians of its points.

    width: channels of the first level, doubled at each.

    Relative to the paper: its network for segmentation with the extension that only weighs, as
    published; fewer points are chosen far from each other, where the code takes the first of the
    list; norms are over each sample alone. All pairs of points are computed, which is quadratic.

    Parameters: 5 994 756 in space for the 260 classes of RNA, with the published
    width 64.

    >>> import torch
    >>> network = PCNN(space=2, inputs=1, outputs=1, width=8)
    >>> network(torch.rand(2, 80, 2), torch.randn(2, 80, 1)).shape
    torch.Size([2, 80, 1])
    """

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        width: int = 64,
        dropout: float = 0.0,
        time: bool = False,
    ) -> None:
        super().__init__(
            space,
            inputs,
            outputs,
            seen=space + time + inputs + 1,
            width=width,
            dropout=dropout,
            time=time,
            convolution=lambda here, there, _: GaussianConvolution(space, here, there),
        )

    def first(self, x: Float[Tensor, "v k"]) -> Float[Tensor, "v c"]:
        """The features, and a constant."""
        return torch.cat([x, torch.ones_like(x[:, :1])], dim=-1)

    def spread(self, z: Float[Tensor, "w c"], coarse: Cloud, fine: Cloud) -> Float[Tensor, "v c"]:
        """Its extension by Gaussians."""
        rows = []
        parts = zip(z.split(coarse.counts()), coarse.parts(), fine.parts(), strict=True)
        for part, x, y in parts:
            with torch.no_grad():
                sigma = width_of(x)
                mass = gaussians(x, x, sigma).sum(-1, keepdim=True)
                reach = gaussians(y, x, sigma)
            rows.append(reach @ (part / mass))
        return torch.cat(rows)


MODELS.register(
    "pcnn",
    ModelEntry(
        "PCNN: convolutions of fields extended from the points to space",
        "Atzmon et al., Point Convolutional Neural Networks by Extension Operators, TOG 2018",
        when="Small clouds where convolutions as on grids are wanted; quadratic in the points.",
        fields=Form(ConvolvingSettings, from_settings(PCNN)),
        **SIZES,
    ),
)
