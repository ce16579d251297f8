"""DiffusionNet: heat diffusion with learned times along the surface of the points.

Axes: b batch, n point, c width, g eigenfunction, o output channel.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from funcattn.models.base import FieldNetwork
from funcattn.models.laplacians import OperatorCache
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.nn.points import Points
from funcattn.settings import NetworkSettings

Diffusing = Literal["spectral", "implicit"]
_SHORTEST = 1e-8
"""Diffusion time, as in the public code: from 0 the time would have no slope."""
_CACHE = OperatorCache()
SIGNATURES = 16
"""Times of the heat kernel signature, as in the public code."""


class Surface(NamedTuple):
    """Operators of the clouds of a batch, padded: without mass, and without edges to padding."""

    mass: Float[Tensor, "b n"]
    values: Float[Tensor, "b g"]
    functions: Float[Tensor, "b n g"]
    laplacian: Tensor
    """Sparse, (b n, b n), a block per sample."""
    gradient: Tensor
    """Sparse, (2 b n, b n): both components, one after the other."""


def surface_of(points: Points, functions: int) -> Surface:
    """The operators of each sample, from the cache where it has them."""
    assert points.positions is not None
    b, n, _ = points.positions.shape
    device = points.positions.device
    mask = points.mask
    made = [
        _CACHE(cloud if mask is None else cloud[mask[i]], functions)
        for i, cloud in enumerate(points.positions)
    ]
    # Where real points stand: their operators know nothing of padding between them.
    places = [torch.arange(n) if mask is None else mask[i].cpu().nonzero()[:, 0] for i in range(b)]
    g = max(len(o.values) for o in made)
    mass, values = made[0].mass.new_zeros(b, n), made[0].mass.new_zeros(b, g)
    vectors = mass.new_zeros(b, n, g)
    entries, near = [], []
    for i, (o, at) in enumerate(zip(made, places, strict=True)):
        mass[i, at], values[i, : len(o.values)] = o.mass, o.values
        vectors[i, at, : len(o.values)] = o.functions
        entries.append(i * n + at[o.entries])
        rows = (i * n + at).repeat_interleave(o.near.shape[1])
        near += [
            torch.stack([part * b * n + rows, i * n + at[o.near.flatten()]]) for part in (0, 1)
        ]

    def sparse(index: list[Tensor], weights: list[Tensor], rows: int) -> Tensor:
        return torch.sparse_coo_tensor(
            torch.cat(index, 1), torch.cat(weights), (rows, b * n), check_invariants=False
        ).coalesce()

    laplacian = sparse(entries, [o.weights for o in made], b * n)
    slopes = [part.flatten() for o in made for part in o.gradient.unbind(-1)]
    gradient = sparse(near, slopes, 2 * b * n)
    return Surface(*(t.to(device) for t in (mass, values, vectors, laplacian, gradient)))


class _Implicit(torch.autograd.Function):
    """x -> (M + t L)^-1 M x, a time t for each channel, by conjugate gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, time: Tensor, mass: Tensor, laplacian: Tensor) -> Tensor:
        out = _solved(mass * x, time, mass, laplacian)
        ctx.save_for_backward(out, time, mass, laplacian)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        out, time, mass, laplacian = ctx.saved_tensors
        # The operator is symmetric, so that the adjoint is one more solution.
        y = _solved(gradients[0], time, mass, laplacian)
        return mass * y, -(y * torch.sparse.mm(laplacian, out)).sum(0), None, None


def _solved(
    right: Float[Tensor, "v c"], time: Float[Tensor, " c"], mass: Tensor, laplacian: Tensor
) -> Float[Tensor, "v c"]:
    """(M + t L)^-1 right: all channels in one iteration, with the diagonal as preconditioner."""
    row, column = laplacian.indices()
    diagonal = torch.zeros_like(mass[:, 0])
    on = row == column
    diagonal = diagonal.index_put((row[on],), laplacian.values()[on]).unsqueeze(-1)
    scale = mass + time * diagonal
    x = right / scale
    close = 10 * torch.finfo(right.dtype).eps * right.norm(dim=0)

    def applied(field: Tensor) -> Tensor:
        return mass * field + time * torch.sparse.mm(laplacian, field)

    residual = right - applied(x)
    direction = z = residual / scale
    product = (residual * z).sum(0)
    for _ in range(len(right)):
        if (residual.norm(dim=0) <= close).all():
            break
        image = applied(direction)
        # Channels that are solved stay as they are.
        step = product / (direction * image).sum(0).clamp(min=torch.finfo(right.dtype).tiny)
        x, residual = x + step * direction, residual - step * image
        z = residual / scale
        product, before = (residual * z).sum(0), product
        direction = z + product / before.clamp(min=torch.finfo(right.dtype).tiny) * direction
    return x


class Diffusion(nn.Module):
    """Heat that flows along the surface for a learned time, one for each channel.

    spectral: Phi e^(-value t) Phi^T M x, in the eigenfunctions that are there. implicit: one
    implicit step (M + t L)^-1 M x, which needs none.
    """

    def __init__(self, width: int, how: Diffusing) -> None:
        super().__init__()
        self.how = how
        self.time = nn.Parameter(torch.zeros(width))

    def forward(self, x: Float[Tensor, "b n c"], surface: Surface) -> Float[Tensor, "b n c"]:
        """Each channel by itself."""
        with torch.no_grad():
            self.time.clamp_(min=_SHORTEST)
        if self.how == "spectral":
            coefficients = surface.functions.mT @ (surface.mass.unsqueeze(-1) * x)  # (b, g, c)
            decay = (-surface.values.unsqueeze(-1) * self.time).exp()
            return surface.functions @ (decay * coefficients)
        # Padding has no mass; with some, it stays as it is.
        mass = torch.where(surface.mass > 0, surface.mass, 1.0).flatten().unsqueeze(-1)
        apply: Callable[..., Tensor] = _Implicit.apply
        flat = apply(x.flatten(0, 1), self.time, mass, surface.laplacian)
        return flat.unflatten(0, x.shape[:2])


class GradientFeatures(nn.Module):
    """tanh of <grad x, A grad x> at each point, with a learned matrix A between channels.

    oriented: A is complex, which turns gradients in the tangent plane; that needs planes of one
    orientation. Either way the choice of axes in the plane does not matter.
    """

    def __init__(self, width: int, *, oriented: bool) -> None:
        super().__init__()
        self.real = nn.Linear(width, width, bias=False)
        self.imaginary = nn.Linear(width, width, bias=False) if oriented else None

    def forward(self, x: Float[Tensor, "b n c"], surface: Surface) -> Float[Tensor, "b n c"]:
        """From a field to its products of slopes."""
        slopes = torch.sparse.mm(surface.gradient, x.flatten(0, 1)).view(2, *x.shape)
        one, two = (self.real(slope) for slope in slopes)
        if self.imaginary is not None:
            one, two = one - self.imaginary(slopes[1]), two + self.imaginary(slopes[0])
        return torch.tanh(slopes[0] * one + slopes[1] * two)


class DiffusionBlock(nn.Module):
    """x + network([x, diffused, products of slopes of what is diffused])."""

    def __init__(self, width: int, how: Diffusing, *, dropout: float, oriented: bool) -> None:
        super().__init__()
        self.diffusion = Diffusion(width, how)
        self.gradients = GradientFeatures(width, oriented=oriented)
        self.network = nn.Sequential(
            nn.Linear(3 * width, width),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(width, width),
        )

    def forward(self, x: Float[Tensor, "b n c"], surface: Surface) -> Float[Tensor, "b n c"]:
        """Along the surface, then at each point."""
        diffused = self.diffusion(x, surface)
        slopes = self.gradients(diffused, surface)
        return x + self.network(torch.cat([x, diffused, slopes], dim=-1))


class DiffusionNet(FieldNetwork):
    """DiffusionNet (Sharp, Attaiki, Crane and Ovsjanikov, ACM Transactions on Graphics 2022).

        x = lift(position, time, values)
        x = x + network([x, H_t x, tanh <grad H_t x, A grad H_t x>])       `layers` times
        out = head(x)

    H_t lets heat flow along the surface of the points for a learned time, one per channel
    (`Diffusion`). Points in a plane have that plane as their surface. The operators (`laplacians`)
    are made on the CPU when a cloud is first seen, and kept.

    features: what the lift sees of the geometry: positions, or the heat kernel signature (the
    diagonal of H_t at 16 times), which no rotation changes. diffusion: spectral, by the first
    `functions` eigenfunctions; implicit, by a linear system. oriented: see `GradientFeatures`; by
    default in the plane only, as the authors advise where normals have no common orientation.

    Relative to the paper: Laplacians of points as in its public code for clouds (the paper's RNA
    surfaces are meshes, whose triangles a cloud does not have); the linear systems are solved by
    conjugate gradients, one iteration for all channels, where the code factorises a dense matrix
    for each channel.

    Parameters: 494 852 for the 260 classes of RNA with the published width 128 and 4 layers,
    oriented as for meshes; 429 316 for clouds.

    >>> import torch
    >>> network = DiffusionNet(space=2, inputs=1, outputs=1, width=8, layers=1, functions=16)
    >>> network(torch.rand(2, 50, 2), torch.randn(2, 50, 1)).shape
    torch.Size([2, 50, 1])
    """

    for_adamw: Sequence[str] = ("lift", "head")

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        width: int = 128,
        layers: int = 4,
        functions: int = 128,
        features: Literal["positions", "heat"] = "positions",
        diffusion: Diffusing = "spectral",
        dropout: float = 0.0,
        oriented: bool | None = None,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        if space not in (2, 3):
            raise ValueError(f"space: expected 2 or 3 dimensions, got {space}")
        self.heat = features == "heat"
        # An implicit step needs none.
        self.functions = functions if self.heat or diffusion == "spectral" else 0
        oriented = space == 2 if oriented is None else oriented
        seen = self.features - space + SIGNATURES if self.heat else self.features
        self.lift = nn.Linear(seen, width)
        self.blocks = nn.ModuleList(
            DiffusionBlock(width, diffusion, dropout=dropout, oriented=oriented)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, outputs)

    def fields(
        self, values: Tensor | None, time: Tensor | None, points: Points
    ) -> Float[Tensor, "b n o"]:
        """Lift, blocks, head."""
        assert points.positions is not None
        surface = surface_of(points, self.functions)
        seen = self.features_of(values, time, points)
        if self.heat:
            seen = torch.cat([heat_signature(surface), seen[..., self.space :]], dim=-1)
        x = self.lift(seen)
        for block in self.blocks:
            x = block(x, surface)
        return self.head(x)


def heat_signature(surface: Surface) -> Float[Tensor, "b n 16"]:
    """How much heat stays at each point, at times from 0.01 to 1: sum e^(-value t) function^2."""
    times = torch.logspace(-2, 0, SIGNATURES, device=surface.values.device)
    decay = (-surface.values.unsqueeze(-1) * times.to(surface.values.dtype)).exp()  # (b, g, t)
    return surface.functions.square() @ decay


@dataclass(frozen=True)
class DiffusionNetSettings(NetworkSettings):
    """Blocks of diffusion."""

    width: int = 128
    """Channels inside."""
    layers: int = 4
    functions: int = 128
    """Eigenfunctions of the Laplacian."""
    features: Literal["positions", "heat"] = "positions"
    """What is known of the geometry at a point; heat: what no rotation changes."""
    diffusion: Diffusing = "spectral"
    """By eigenfunctions, or by one implicit step."""
    dropout: float = 0.0

    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {"dropout": (0, 1)}


MODELS.register(
    "diffusion_net",
    ModelEntry(
        "DiffusionNet: heat flows along the surface of the points for learned times",
        "Sharp et al., DiffusionNet, ACM Transactions on Graphics 2022",
        when="Surfaces in space, few of them: with features `heat` no rotation matters.",
        fields=Form(DiffusionNetSettings, from_settings(DiffusionNet)),
        spaces=(2, 3),
        muon=True,
        published={"width": 128, "layers": 4, "functions": 128},
        of_task={"rna": {"dropout": 0.5}},
        small={"width": 48, "layers": 4, "functions": 64},
        tiny={"width": 16, "layers": 2, "functions": 24},
    ),
)
