"""Convolutions on points at several resolutions: PCNN and SPHNet, in one U-shaped network.

Weights of the points change nothing.

Axes: v, u point, w coarser point, k neighbour, c, e channels, s space dimension, t translation,
r radius, l degree, m order of a spherical harmonic, o output channel.
"""

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

from funcattn.models.clouds import Cloud, CloudNetwork, nearest_in, thinned
from funcattn.models.graphs import SampleNorm
from funcattn.models.matrices import Axes
from funcattn.models.registry import MODELS, Form, ModelEntry
from funcattn.problem import Problem
from funcattn.settings import NetworkSettings

_FEWER = (4, 4, 8)
"""Points of a level for each of the next: of 2048 points 512, 128 and 16, as published."""
_PATCH = 48
"""Points around each point that SPHNet convolves, as published."""
_DEGREE = 3
"""Largest degree of the spherical harmonics, as published."""
_RADII = 2
"""Radial functions of SPHNet, as published."""
_MOST_GAUSSIANS = 2**22
"""Of PCNN, held in memory at once."""
_LEAST = 1e-4
"""Under the roots of SPHNet, as published."""


class Convolution(nn.Module):
    """A convolution from a cloud to itself: `geometry` once per cloud, then `forward`."""

    @abstractmethod
    def geometry(self, cloud: Cloud) -> Any:
        """What the convolutions of one level on one cloud share."""

    @abstractmethod
    def forward(self, z: Float[Tensor, "v c"], geometry: Any) -> Float[Tensor, "v e"]:
        """From fields to fields."""


class ConvolvingU(CloudNetwork):
    """Convolutions, pooling to fewer points, and back: what PCNN and SPHNet share.

        z_l = relu(norm(conv(z_{l-1} pooled)))                         three levels
        y_l = [z_l, relu(norm(conv(y_{l+1} spread to the points of l)))]
        out = conv(y_0) + b

    Pooling takes the largest value among the points whose nearest centre is the same.
    """

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        seen: int,
        width: int,
        dropout: float,
        time: bool,
        convolution: Callable[[int, int, int], Convolution],
    ) -> None:
        """seen: channels of the first field. convolution: of inputs, outputs and level.

        The norms take biases away, so that only the head has one.
        """
        super().__init__(space, inputs, outputs, time=time)
        widths = [width * 2**level for level in range(len(_FEWER))]
        self.down = nn.ModuleList(
            convolution(here, there, level)
            for level, (here, there) in enumerate(itertools.pairwise([seen, *widths]))
        )
        above = [*(2 * w for w in widths[1:]), widths[-1]]
        self.up = nn.ModuleList(
            convolution(here, there, level)
            for level, (here, there) in enumerate(zip(above, widths, strict=True))
        )
        self.norms = nn.ModuleList(SampleNorm(w) for w in (*widths, *widths))
        self.head, self.bias = (
            convolution(2 * widths[0], outputs, 0),
            nn.Parameter(torch.zeros(outputs)),
        )
        self.dropout = nn.Dropout(dropout)

    def on_cloud(self, x: Float[Tensor, "v k"], cloud: Cloud) -> Float[Tensor, "v o"]:
        """Down to few points, and up to all."""
        clouds, seen, geometries = [cloud], [], []
        z, levels = self.first(x), len(_FEWER)
        for level, (down, fewer) in enumerate(zip(self.down, _FEWER, strict=True)):
            assert isinstance(down, Convolution)
            geometries.append(down.geometry(clouds[level]))
            norm = self.norms[level]
            z = F.relu(norm(down(z, geometries[level]), clouds[level].sample))
            seen.append(z)
            clouds.append(thinned(clouds[level], fewer))
            z = pooled(z, clouds[level], clouds[level + 1])
        for level in reversed(range(levels)):
            fine = clouds[level]
            z = self.up[level](self.spread(z, clouds[level + 1], fine), geometries[level])
            z = F.relu(self.norms[levels + level](z, fine.sample))
            z = torch.cat([seen[level], z], dim=-1)
            z = self.dropout(z) if level < levels - 1 else z
        return self.head(z, geometries[0]) + self.bias

    @abstractmethod
    def first(self, x: Float[Tensor, "v k"]) -> Float[Tensor, "v c"]:
        """The first field, from the features."""

    @abstractmethod
    def spread(self, z: Float[Tensor, "w c"], coarse: Cloud, fine: Cloud) -> Float[Tensor, "v c"]:
        """A field on a coarse cloud at the points of a finer one."""


def pooled(z: Float[Tensor, "v c"], cloud: Cloud, centres: Cloud) -> Float[Tensor, "w c"]:
    """The largest value among the points whose nearest centre is the same."""
    of = nearest_in(centres, cloud, 1)[1]  # (v, 1)
    least = z.new_full((len(centres.sample), z.shape[-1]), -torch.inf)
    return least.scatter_reduce(0, of.expand_as(z), z, "amax")


# PCNN


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
        std = math.sqrt(2 / (3**space * (inputs + outputs)))
        self.weight = nn.Parameter(std * torch.randn(3**space, outputs, inputs))

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
    first, *others = (-away.square() / (4 * sigma**2)).exp().unbind(2)
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


# SPHNet


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
        seen = _RADII * (_DEGREE + 1)
        bound = math.sqrt(6 / (seen * (inputs + outputs)))
        weight = torch.empty(seen, outputs, inputs).uniform_(-bound, bound)
        self.weight = nn.Parameter(weight)

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
class PCNNSettings(NetworkSettings):
    """Convolutions on points at three levels."""

    width: int = 64
    """Channels of the first level."""
    dropout: float = 0.0

    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {"dropout": (0, 1)}


@dataclass(frozen=True)
class SPHNetSettings(PCNNSettings):
    """The same, by spherical harmonics."""

    radius: float = 0.08
    """Of the kernels at the finest level."""


def _built(network: Callable[..., nn.Module]) -> Callable[[PCNNSettings, Problem], nn.Module]:
    def build(settings: PCNNSettings, problem: Problem) -> nn.Module:
        more = {"radius": settings.radius} if isinstance(settings, SPHNetSettings) else {}
        return network(
            problem.space,
            problem.input_channels,
            problem.output_channels,
            width=settings.width,
            dropout=settings.dropout,
            time=problem.time,
            **more,
        )

    return build


_SIZES: Mapping[str, Any] = {
    "cost": "n²",
    "published": {"width": 64},
    "of_task": {"rna": {"dropout": 0.5}},
    "small": {"width": 16},
    "tiny": {"width": 8},
}

MODELS.register(
    "pcnn",
    ModelEntry(
        "PCNN: convolutions of fields extended from the points to space",
        "Atzmon et al., Point Convolutional Neural Networks by Extension Operators, TOG 2018",
        when="Small clouds where convolutions as on grids are wanted; quadratic in the points.",
        fields=Form(PCNNSettings, _built(PCNN)),
        **_SIZES,
    ),
)
MODELS.register(
    "sphnet",
    ModelEntry(
        "SPHNet: convolutions by spherical harmonics, which no rotation changes",
        "Poulenard et al., Effective Rotation-Invariant Point CNN, 3DV 2019",
        when="Labels of shapes in any pose: it never has to learn what a rotation does.",
        fields=Form(SPHNetSettings, _built(SPHNet)),
        spaces=(2, 3),
        **_SIZES,
    ),
)
