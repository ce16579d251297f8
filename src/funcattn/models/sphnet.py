"""SPHNet: convolutions by energies of spherical harmonics, which no rotation changes.

Axes: v point, w coarser point, k near point or feature, c, e channels, r radius, l degree, m order
of a spherical harmonic.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.clouds import Cloud, nearest_in
from funcattn.models.convolving import SIZES, Convolution, ConvolvingSettings, ConvolvingU
from funcattn.models.matrices import Axes
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.models.starts import glorot_by_shape

_PATCH = 48
"""Points around each point that are convolved, as published."""
_DEGREE = 3
"""Largest degree of the spherical harmonics, as published."""
_RADII = 2
"""Radial functions, as published."""
_LEAST = 1e-4
"""Under the roots, as published."""


def harmonics(x: Float[Tensor, "*v 3"]) -> Float[Tensor, "*v m"]:
    """Real spherical harmonics of degree 0 to 3 in the direction of x; all but the first 0 at 0."""
    x, y, z = (x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12)).unbind(-1)
    square = x * x + y * y + z * z
    factors = [
        (1 / 4, torch.ones_like(x)),
        *((3 / 4, axis) for axis in (y, z, x)),
        *((15 / 4, part) for part in (x * y, y * z)),
        (5 / 16, 3 * z * z - square),
        (15 / 4, x * z),
        (15 / 16, x * x - y * y),
        (35 / 32, y * (3 * x * x - y * y)),
        (105 / 4, x * y * z),
        (21 / 32, y * (5 * z * z - square)),
        (7 / 16, z * (5 * z * z - 3 * square)),
        (21 / 32, x * (5 * z * z - square)),
        (105 / 16, z * (x * x - y * y)),
        (35 / 32, x * (x * x - 3 * y * y)),
    ]
    return torch.stack([math.sqrt(factor / math.pi) * part for factor, part in factors], dim=-1)


class HarmonicConvolution(Convolution):
    """A convolution that no rotation changes: energies of spherical harmonics around each point.

        a_rlm(i) = sum over near j of K_rlm(x_j - x_i) z_j / sum over near j of K_000(x_j - x_i)
        out(i) = sum over r, l of W_rl sqrt(max(sum over m of a_rlm(i)^2, 1e-4))

    with K_rlm(x) = exp(-(|x| - rho_r)^2 / 2 radius^2) Y_lm(x) at the radii rho = 0 and `radius`,
    over the nearest 48 points.
    """

    def __init__(self, inputs: int, outputs: int, radius: float) -> None:
        super().__init__()
        self.radius = radius
        weight = glorot_by_shape(outputs, inputs, _RADII, _DEGREE + 1)  # as published
        self.weight = nn.Parameter(weight.flatten(2).movedim(-1, 0).contiguous())

    @property
    def stacks(self) -> dict[str, Axes]:
        """A matrix for each radius and degree, for Muon."""
        return {"weight": (1, 2, False)}

    @torch.no_grad()
    def geometry(self, cloud: Cloud) -> tuple[Tensor, Tensor]:
        """Places (v k) of near points, and kernels (v k r m) to them."""
        distance, near = nearest_in(cloud, cloud, _PATCH)
        offsets = cloud.positions[near] - cloud.positions.unsqueeze(1)
        offsets = F.pad(offsets, (0, 3 - offsets.shape[-1]))  # a plane lies in space
        radii = torch.linspace(0, self.radius, _RADII, device=near.device, dtype=offsets.dtype)
        away = offsets.norm(dim=-1, keepdim=True) - radii
        radial = (-away.square() / (2 * self.radius**2)).exp()
        radial = radial * distance.isfinite().unsqueeze(-1)  # those that stand in count nothing
        kernel = radial.unsqueeze(-1) * harmonics(offsets).unsqueeze(-2)
        return near, kernel / (kernel[:, :, :1, :1].sum(1, keepdim=True) + 1e-6)

    def forward(
        self, z: Float[Tensor, "v c"], geometry: tuple[Tensor, Tensor]
    ) -> Float[Tensor, "v e"]:
        """Energies of each degree, and a linear map."""
        near, kernel = geometry
        energy = torch.einsum("vkrm,vkc->vrmc", kernel, z[near]).square()
        degrees = energy.split([2 * degree + 1 for degree in range(_DEGREE + 1)], dim=2)
        norms = torch.stack([part.sum(2) for part in degrees], dim=2)  # (v, r, l, c)
        norms = norms.clamp(min=_LEAST).sqrt().flatten(1, 2)
        return torch.einsum("vrc,roc->vo", norms, self.weight)


class SPHNet(ConvolvingU):
    """Rotation invariant point network by spherical harmonics (Poulenard et al., 3DV 2019).

    See `ConvolvingU` and `HarmonicConvolution`. The first field is a constant, the time and the
    values: what it knows of positions no rotation and no reflection changes.

    width: channels of the first level, doubled at each. radius: of the first level's kernels,
    doubled at each.

    Relative to the paper: points that are pooled are those of the nearest centre, and come back
    from it, where the code has a tree of boxes, which a rotation changes; a plane is taken as one
    in space; norms are over each sample alone.

    Parameters: 1 776 132 for the 260 classes of RNA, with the published width 64.

    >>> import torch
    >>> network = SPHNet(space=3, inputs=0, outputs=5, width=8)
    >>> network(torch.rand(2, 80, 3)).shape
    torch.Size([2, 80, 5])
    """

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        width: int = 64,
        radius: float = 0.08,
        dropout: float = 0.0,
        time: bool = False,
    ) -> None:
        if space not in (2, 3):
            raise ValueError(f"space: expected 2 or 3 dimensions, got {space}")
        super().__init__(
            space,
            inputs,
            outputs,
            seen=1 + time + inputs,
            width=width,
            dropout=dropout,
            time=time,
            convolution=lambda here, there, level: HarmonicConvolution(
                here, there, radius * 2**level
            ),
        )

    def first(self, x: Float[Tensor, "v k"]) -> Float[Tensor, "v c"]:
        """Features without positions, and a constant."""
        return torch.cat([x[:, self.space :], torch.ones_like(x[:, :1])], dim=-1)

    def spread(self, z: Float[Tensor, "w c"], coarse: Cloud, fine: Cloud) -> Float[Tensor, "v c"]:
        """The value of the nearest centre."""
        return z[nearest_in(coarse, fine, 1)[1][:, 0]]


@dataclass(frozen=True)
class SPHNetSettings(ConvolvingSettings):
    """The same, by spherical harmonics."""

    radius: float = 0.08
    """Of the kernels at the finest level."""


MODELS.register(
    "sphnet",
    ModelEntry(
        "SPHNet: convolutions by spherical harmonics, which no rotation changes",
        "Poulenard et al., Effective Rotation-Invariant Point CNN, 3DV 2019",
        when="Labels of shapes in any pose: it never has to learn what a rotation does.",
        fields=Form(SPHNetSettings, from_settings(SPHNet)),
        spaces=(2, 3),
        **SIZES,
    ),
)
