"""Geometry-informed neural operator: from any points to a regular grid, Fourier layers, and back.

Axes: b batch, n point of the source, m point of the target, e pair of neighbours, s space
dimension, c width, o output channel, k feature.
"""

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from funcattn.models.base import FieldNetwork
from funcattn.models.fourier_multiplier import FourierMultiplier
from funcattn.models.neuralop import forget_metadata, quiet_neuralop
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.nn.points import Points, per_dimension
from funcattn.settings import NetworkSettings

_MOST_DISTANCES = 2**24
"""Held in memory at once."""


class GINO(FieldNetwork):
    """Geometry-informed neural operator (Li et al., NeurIPS 2023), by the parts of `neuralop`.

        f      = lift(position, time, values)                           at the points
        g(y)   = mean over points x within the radius of y of kernel(x, y) f(x)     on the grid
        g      = Fourier layers (g, position), as in `TFNO` with dense weights
        h(x)   = sum over grid points y within the radius of x of kernel'(y, x) g(y)
        out    = head(h)                                                at the points

    The grid has `latent` points per axis, over the box from `lower` to `upper`, ends included; the
    box becomes the unit box, where the `radius` is measured. It takes any points (where they form a
    grid it does not matter), masks, and weights, with which the mean is a weighted one. Every point
    must have grid points within the radius, which the constructor makes sure of within the box.

    Samples of a batch that all have the same points (and no mask) share the kernels; others are
    computed one by one. Cost is that of the kernels, for all pairs of neighbours; distances between
    all points and grid points are computed too, in pieces.

    width, layers, modes: of the Fourier layers. kernel: hidden channels of the kernels, perceptrons
    of both positions as sines and cosines of 2^j pi x, j < frequencies.

    Relative to the paper: no signed distance function on the grid, in its place the positions there
    (the shape is seen through the points alone); the lift before the first mean is ours, so that
    any channels of input will do; sums over neighbours are one indexed addition, where `neuralop`
    without its optional packages loops over points in float32; the kernels of the paper's cars are
    80-80-80 and 512-256.

    Parameters, a complex one counted as two, in 2D with width 32, 12 modes, 4 layers and one input
    and output: 2 413 121.

    >>> import torch
    >>> network = GINO(space=2, inputs=1, outputs=1, width=8, layers=2, modes=4, latent=8,
    ...                radius=0.2)
    >>> network(torch.rand(3, 500, 2), torch.randn(3, 500, 1)).shape
    torch.Size([3, 500, 1])
    """

    for_adamw = (
        "lift",
        *(f"network.{side}.integral_transform.channel_mlp.fcs.0" for side in ("gno_in", "gno_out")),
        "network.projection",
    )

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        lower: float | Sequence[float] = 0.0,
        upper: float | Sequence[float] = 1.0,
        latent: int | Sequence[int] = 32,
        radius: float = 0.05,
        width: int = 32,
        layers: int = 4,
        modes: int | Sequence[int] = 12,
        kernel: Sequence[int] = (80, 80, 80),
        frequencies: int = 4,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        self.lower, self.upper = per_dimension(lower, space), per_dimension(upper, space)
        if not all(a < b for a, b in zip(self.lower, self.upper, strict=True)):
            raise ValueError(f"upper: expected to be above lower={lower} on all axes, got {upper}")
        self.latent = (latent,) * space if isinstance(latent, int) else tuple(latent)
        n_modes = (modes,) * space if isinstance(modes, int) else tuple(modes)
        for name, numbers in {"latent": self.latent, "modes": n_modes}.items():
            if len(numbers) != space or min(numbers) < 1:
                raise ValueError(
                    f"{name}: expected a positive number, or one for each of {space} axes, got "
                    f"{numbers}"
                )
        if any(n < 2 * m for n, m in zip(self.latent, n_modes, strict=True)):
            raise ValueError(
                f"latent: expected at least twice as many points on each axis as there are modes, "
                f"{n_modes}, got {self.latent}"
            )
        furthest = math.hypot(*(0.5 / (n - 1) for n in self.latent))
        if radius <= furthest:
            raise ValueError(
                f"radius: expected more than {furthest:.4g}, so that all points of the unit box "
                f"have one of the grid {self.latent} within it, got {radius:.4g}"
            )
        self.radius = radius
        self.lift = nn.Linear(self.features, width)
        # Sines and cosines of each frequency and axis, of both points.
        kernel_layers = [4 * frequencies * space, *kernel, width]
        with quiet_neuralop("GINO"):
            self.network: Any = importlib.import_module("neuralop.models").GINO(
                in_channels=width,
                out_channels=outputs,
                latent_feature_channels=space,
                gno_coord_dim=space,
                in_gno_radius=radius,
                out_gno_radius=radius,
                in_gno_pos_embed_type="nerf",
                out_gno_pos_embed_type="nerf",
                gno_embed_channels=frequencies,
                in_gno_channel_mlp_hidden_layers=list(kernel_layers),
                out_gno_channel_mlp_hidden_layers=list(kernel_layers),
                gno_use_open3d=False,
                gno_use_torch_scatter=False,
                fno_in_channels=width,
                fno_n_modes=n_modes,
                fno_hidden_channels=width,
                fno_n_layers=layers,
                fno_conv_module=FourierMultiplier,
            )
        nn.Module.register_state_dict_post_hook(self, forget_metadata)

    def fields(
        self, values: Tensor | None, time: Tensor | None, points: Points
    ) -> Float[Tensor, "b n o"]:
        """Samples with the same points together, others one by one."""
        positions, mask, weights = points.positions, points.mask, points.weights
        assert positions is not None
        features = self.lift(self.features_of(values, time, points))
        lower, upper = positions.new_tensor(self.lower), positions.new_tensor(self.upper)
        unit = (positions - lower) / (upper - lower)
        if weights is None:
            weights = torch.ones_like(unit[..., 0])
        weights = weights.to(unit.dtype).expand(unit.shape[:2])
        if mask is None and bool((unit == unit[:1]).all()):
            return self._on_points(unit[0], features, weights)
        out = unit.new_zeros(*unit.shape[:2], self.outputs)
        everywhere = torch.ones_like(unit[..., 0], dtype=torch.bool)
        for b, real in enumerate(everywhere if mask is None else mask.expand_as(everywhere)):
            here = self._on_points(unit[b, real], features[None, b, real], weights[None, b, real])
            out[b, real] = here[0].to(out.dtype)
        return out

    def _on_points(
        self,
        points: Float[Tensor, "n s"],
        features: Float[Tensor, "b n c"],
        weights: Float[Tensor, "b n"],
    ) -> Float[Tensor, "b n o"]:
        """The fields on one set of points in the unit box."""
        axes = [torch.linspace(0, 1, n).to(points) for n in self.latent]
        grid = torch.cartesian_prod(*axes).view(-1, self.space)  # (m, s)
        source, target = neighbours(points, grid, self.radius)
        terms = _kernel(self.network.gno_in, points[source], grid[target]) * features[:, source]
        near = weights[:, source].unsqueeze(-1)
        total, mass = _summed(near * terms, target, grid), _summed(near, target, grid)
        # The mean of no points is 0.
        coarse = total / torch.where(mass > 0, mass, 1)
        coarse = torch.cat([coarse, grid.expand(len(coarse), -1, -1)], dim=-1)
        coarse = self.network.latent_embedding(coarse.unflatten(1, self.latent))
        coarse = coarse.flatten(2).mT  # (b, c, *latent) -> (b, m, c)
        # The same pairs, the other way.
        source, target = target, source
        lonely = points.shape[0] - len(target.unique())
        if lonely:
            raise ValueError(
                f"positions: expected all within the radius {self.radius} of the grid over the box "
                f"from {self.lower} to {self.upper}, got {lonely} that are not; build the model "
                "with a box that holds all points"
            )
        terms = _kernel(self.network.gno_out, grid[source], points[target]) * coarse[:, source]
        return self.network.projection(_summed(terms, target, points).mT).mT


@torch.no_grad()
def neighbours(
    source: Float[Tensor, "n s"], target: Float[Tensor, "m s"], radius: float
) -> tuple[Int[Tensor, " e"], Int[Tensor, " e"]]:
    """All pairs of a source and a target point within the radius, as two rows of indices."""
    pairs = []
    step = max(1, _MOST_DISTANCES // len(source))
    for start in range(0, len(target), step):
        # The products of the faster formula would cost half the digits.
        distances = torch.cdist(
            target[start : start + step], source, compute_mode="donot_use_mm_for_euclid_dist"
        )
        pairs.append((distances <= radius).nonzero() + torch.tensor([start, 0]).to(target.device))
    to, from_ = torch.cat(pairs).unbind(-1)
    return from_, to


def _kernel(
    block: Any, source: Float[Tensor, "e s"], target: Float[Tensor, "e s"]
) -> Float[Tensor, "e c"]:
    """The kernel of a graph layer of `neuralop`, at pairs of points."""
    embedded = torch.cat([block.pos_embedding(source), block.pos_embedding(target)], dim=-1)
    return block.integral_transform.channel_mlp(embedded.to(source.dtype))


def _summed(
    terms: Float[Tensor, "b e c"], target: Int[Tensor, " e"], points: Float[Tensor, "m s"]
) -> Float[Tensor, "b m c"]:
    """The terms of each of the target points, added."""
    total = terms.new_zeros(len(terms), len(points), terms.shape[-1])
    return total.index_add(1, target, terms)


@dataclass(frozen=True)
class GINOSettings(NetworkSettings):
    """Fourier layers on a latent grid."""

    width: int = 32
    """Channels of the Fourier layers."""
    layers: int = 4
    modes: int = 12
    """Fourier modes per axis."""


MODELS.register(
    "gino",
    ModelEntry(
        "Kernels to a grid, a Fourier neural operator there, and back (neuraloperator)",
        "Li et al., Geometry-Informed Neural Operator, NeurIPS 2023",
        when="Clouds of points that fill a box, where Fourier layers are wanted.",
        fields=Form(
            GINOSettings, from_settings(GINO, lower=attrgetter("lower"), upper=attrgetter("upper"))
        ),
        published={"width": 32, "layers": 4, "modes": 12},
        small={"width": 24, "modes": 8},
        tiny={"width": 8, "layers": 2, "modes": 2},
    ),
)
