"""Geo-FNO: a learned deformation of the points, Fourier layers on a regular grid, and back.

Axes: b batch, n point, m point of the latent grid, s space dimension, g wave, i, o channels in and
out, c width, k feature.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.base import FieldNetwork
from funcattn.models.fourier_multiplier import FourierMultiplier
from funcattn.models.grids import at_points
from funcattn.models.matrices import Axes
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.models.starts import uniform_modes
from funcattn.nn.points import Points, per_dimension
from funcattn.ops.linalg import at_least_float32
from funcattn.settings import NetworkSettings


class Deformation(nn.Module):
    """xi = x + x * network(x): from positions to where Fourier series are taken.

    The network sees the position, in 2D its angle and distance from the middle too, through a
    linear map and as sines and cosines of pi 2^j times it, j < width / 4; it has tanh between four
    linear maps.
    """

    for_adamw = ("lift", "head")

    def __init__(self, space: int, width: int = 32) -> None:
        super().__init__()
        self.octaves = width // 4
        seen = space + 2 * (space == 2)
        self.lift = nn.Linear(seen, width)
        self.mix = nn.Linear(width + 2 * seen * self.octaves, 4 * width)
        self.layers = nn.ModuleList(nn.Linear(4 * width, 4 * width) for _ in range(3))
        self.head = nn.Linear(4 * width, space)

    def forward(self, x: Float[Tensor, "b n s"]) -> Float[Tensor, "b n s"]:
        """Each point by itself."""
        seen = x
        if x.shape[-1] == 2:
            # A little off the middle, where the angle has no slope.
            off = x - 0.5 - 1e-4
            angle = torch.atan2(off[..., 1:], off[..., :1])
            seen = torch.cat([x, angle, off.square().sum(-1, keepdim=True).sqrt()], dim=-1)
        octaves = math.pi * 2.0 ** torch.arange(self.octaves, device=x.device, dtype=x.dtype)
        phase = (seen.unsqueeze(-1) * octaves).flatten(-2)
        y = self.mix(torch.cat([self.lift(seen), phase.sin(), phase.cos()], dim=-1))
        for layer in self.layers:
            y = torch.tanh(layer(y))
        return x + x * self.head(y)


class WaveMap(nn.Module):
    """A complex matrix for each wave: coefficients (b i g) to coefficients (b o g).

    scale: of the matrices at the start.
    """

    def __init__(self, inputs: int, outputs: int, waves: int, scale: float = 1.0) -> None:
        super().__init__()
        self.parts = nn.Parameter(scale * uniform_modes(inputs, outputs, waves))

    @property
    def stacks(self) -> dict[str, Axes]:
        """A matrix for each wave, for Muon."""
        return {"parts": (1, 0, True)}

    def forward(self, coefficients: Complex[Tensor, "b i g"]) -> Complex[Tensor, "b o g"]:
        """Each wave by itself."""
        weight = torch.view_as_complex(self.parts).to(coefficients.dtype)
        return torch.einsum("big,iog->bog", coefficients, weight)


class GeoFNO(FieldNetwork):
    """Fourier neural operator with learned deformations (Li, Huang, Liu and Anandkumar, JMLR 2023).

        u = lift(position, time, values),   xi = deformation(position)
        c_k = mean over points of u e^(-2 pi i k . xi)
        v = gelu(series of R_k c_k + b(x))                on a grid
        v = gelu(multiplier(v) + linear(v) + b(x))        three times, on the grid
        out = head(series of R_k v^(k), at the points xi + b(position))

    The box of the points becomes the unit box. It takes any points, masks and weights (with which
    the mean is a weighted one).

    width: channels. modes: m of `FourierMultiplier`. latent: points per axis of the grid. layers:
    Fourier layers on the grid.

    Relative to the paper: the mean over points is a sum there, of any points as of those of the
    grid; the matrices that read it start as if there were as many points as on the grid. No code of
    the shape enters the deformation, as not every task has one. Where points form a grid, the paper
    takes its indices as the deformation, which is our `fno`; this one takes it as a cloud.

    Parameters, a complex one counted as one: 1 544 931 in 2D with width 32, 12 modes and one
    output, the published configuration for Elasticity; the public code has 1 472 more: two biases
    in one place on the grid, and the map of the code of the shape.

    >>> import torch
    >>> network = GeoFNO(space=2, inputs=1, outputs=1, width=8, modes=3, latent=8)
    >>> network(torch.rand(3, 50, 2), torch.randn(3, 50, 1)).shape
    torch.Size([3, 50, 1])
    """

    waves: Tensor
    for_adamw = ("lift", "places", "place", "expand", "contract")

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        lower: float | Sequence[float] = 0.0,
        upper: float | Sequence[float] = 1.0,
        width: int = 32,
        layers: int = 3,
        modes: int = 12,
        latent: int = 40,
        head: int = 128,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        self.lower, self.upper = per_dimension(lower, space), per_dimension(upper, space)
        if latent < 2 * modes:
            raise ValueError(
                f"latent: expected at least twice the {modes} modes per axis, got {latent}"
            )
        self.latent = latent
        both, half = range(-modes, modes), range(modes)
        waves = torch.tensor(list(itertools.product(*(both for _ in range(space - 1)), half)))
        self.register_buffer("waves", waves.float(), persistent=False)
        self.deformation = Deformation(space)
        self.lift = nn.Linear(self.features, width)
        self.to_grid = WaveMap(width, width, len(waves))
        # The public code transforms to the grid with a mean over it, and to the points without one.
        self.to_points = WaveMap(width, width, len(waves), scale=float(latent**space))
        self.multipliers = nn.ModuleList(
            FourierMultiplier(width, width, (modes,) * space, small=True) for _ in range(layers)
        )
        # The multipliers have the bias of the sum.
        self.linears = nn.ModuleList(nn.Conv1d(width, width, 1, bias=False) for _ in range(layers))
        self.places = nn.ModuleList(
            nn.Conv1d(space, width, 1, bias=first)
            for first in (True, *(False for _ in range(layers)))
        )
        self.place = nn.Linear(space, width)
        self.expand, self.contract = nn.Linear(width, head), nn.Linear(head, outputs)

    def fields(
        self, values: Tensor | None, time: Tensor | None, points: Points
    ) -> Float[Tensor, "b n o"]:
        """To the grid, along it, and back."""
        assert points.positions is not None
        lower, upper = (points.positions.new_tensor(corner) for corner in (self.lower, self.upper))
        unit = (points.positions - lower) / (upper - lower)
        where = self.deformation(unit)
        u = self.lift(self.features_of(values, time, points))
        grid = [torch.arange(self.latent, device=u.device, dtype=unit.dtype) / self.latent]
        nodes = torch.cartesian_prod(*grid * self.space).view(1, -1, self.space)  # (1, m, s)
        coefficients = self._coefficients(u, where, points)
        v = self._series(self.to_grid(coefficients), nodes).to(u.dtype)  # (b, c, m)
        v = F.gelu(v + self.places[0](nodes.mT)).unflatten(-1, (self.latent,) * self.space)
        place = nodes.mT.unflatten(-1, v.shape[2:])
        layers = zip(self.multipliers, self.linears, list(self.places)[1:], strict=True)
        for multiplier, linear, of_place in layers:
            v = F.gelu(multiplier(v) + at_points(linear, v) + at_points(of_place, place))
        out = self._series(self.to_points(self._coefficients_on(v.flatten(2).mT, nodes)), where)
        x = out.mT.to(u.dtype) + self.place(unit)
        return self.contract(F.gelu(self.expand(x)))

    def _phases(self, where: Float[Tensor, "b n s"]) -> Complex[Tensor, "b n g"]:
        """e^(2 pi i k . x) of all waves."""
        where = where.to(at_least_float32(where.dtype))
        angle = 2 * math.pi * where @ self.waves.to(where.dtype).T
        return torch.complex(angle.cos(), angle.sin())

    def _coefficients(
        self, u: Float[Tensor, "b n c"], where: Float[Tensor, "#b n s"], points: Points
    ) -> Complex[Tensor, "b c g"]:
        """Of the field at the points, which count by their weights."""
        shares = torch.ones_like(where[..., 0]) if points.weights is None else points.weights
        shares = shares.to(where.dtype).expand(where.shape[:2])
        if points.mask is not None:
            shares = shares * points.mask
        shares = shares / shares.sum(-1, keepdim=True)
        return self._summed(shares.unsqueeze(-1) * u, where)

    def _coefficients_on(
        self, u: Float[Tensor, "b m c"], nodes: Float[Tensor, "1 m s"]
    ) -> Complex[Tensor, "b c g"]:
        """Of a field on the grid."""
        return self._summed(u / u.shape[1], nodes)

    def _summed(self, u: Tensor, where: Tensor) -> Complex[Tensor, "b c g"]:
        phases = self._phases(where).conj()
        return torch.einsum("bnc,bng->bcg", u.to(phases.dtype), phases.expand(len(u), -1, -1))

    def _series(
        self, coefficients: Complex[Tensor, "b c g"], where: Float[Tensor, "#b n s"]
    ) -> Float[Tensor, "b c n"]:
        """The real field of such coefficients; waves beyond the first half are their conjugates."""
        doubled = 1 + (self.waves[:, -1] > 0).to(coefficients.real.dtype)
        phases = self._phases(where).expand(len(coefficients), -1, -1)
        return torch.einsum("bcg,bng->bcn", coefficients * doubled, phases).real


@dataclass(frozen=True)
class GeoFNOSettings(NetworkSettings):
    """Fourier layers on a latent grid, and a deformation."""

    width: int = 32
    """Channels inside."""
    layers: int = 3
    """Fourier layers on the grid."""
    modes: int = 12
    """Fourier modes per axis."""
    latent: int = 40
    """Points per axis of the grid."""


MODELS.register(
    "geo_fno",
    ModelEntry(
        "Fourier neural operator on points, by a learned deformation to a grid",
        "Li et al., Fourier Neural Operator with Learned Deformations, JMLR 2023",
        when="Clouds of points of one topology, where Fourier layers are wanted.",
        fields=Form(
            GeoFNOSettings,
            from_settings(GeoFNO, lower=attrgetter("lower"), upper=attrgetter("upper")),
        ),
        published={"width": 32, "layers": 3, "modes": 12, "latent": 40},
        small={"width": 24, "modes": 8, "latent": 20},
        tiny={"width": 8, "layers": 2, "modes": 2, "latent": 4},
    ),
)
