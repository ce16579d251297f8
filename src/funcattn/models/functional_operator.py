"""Our network: functional attention whose basis functions have an identity, on clouds and grids.

Axes: b batch, n point, s space dimension, i input channel, o output channel, c width.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.blocks import Block, Mlp
from funcattn.models.registry import MODELS, Form, ModelEntry
from funcattn.models.stacked import StackedNetwork
from funcattn.nn import TimeEmbedding
from funcattn.nn.operator import (
    FourierFeatures,
    FourierMap,
    LocalStencil,
    MetricAttention,
    ModewiseMap,
    PartitionAttention,
    Surroundings,
    spread_on_grid,
    start_by_fan_in,
)
from funcattn.nn.points import Points, per_dimension
from funcattn.problem import Problem
from funcattn.settings import MUON_RECIPE, NetworkSettings

Branch = Callable[[int], nn.Module]
"""Makes a part of a block from the width: the attention of a block on a cloud, called as
`FunctionalAttention` is, or a branch of a block on a grid, called as `branch(x, points)`."""


_RANK = 16
"""Matrices that those of the cosines are sums of beside a metric: with a matrix for each function
the network learns coefficients by heart. Other inputs, and geometries, need them all."""


class GridBlock(nn.Module):
    """x + W2 gelu(y), y = W1 x + sum of the branches of x: all branches see the same field.

    gate: x + W2 (y * gelu(W3 x)) instead, a product of the field with what the branches say.
    """

    def __init__(self, width: int, branches: Sequence[nn.Module], *, gate: bool = False) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)
        self.before, self.after = nn.Linear(width, width), nn.Linear(width, width)
        self.gate = nn.Linear(width, width) if gate else None

    def forward(self, x: Float[Tensor, "b n c"], points: Points) -> Float[Tensor, "b n c"]:
        """Side by side, then at each point."""
        y = self.before(x)
        for branch in self.branches:
            y = y + branch(x, points)
        return x + self.after(F.gelu(y) if self.gate is None else y * F.gelu(self.gate(x)))


class FunctionalOperator(StackedNetwork):
    """Functional attention with the parts that the points offer.

    On clouds of points each block has a `PartitionAttention` and a network at each point. On grids
    (`grid`) each block has branches side by side: on a torus (`periodic`) mode-wise maps
    (`FourierMap`), on a circle with a gate, else one along each axis; elsewhere mode-wise
    maps of cosines (`ModewiseMap`), a `LocalStencil` of fixed physical reach and, where asked for
    (`metric`), in the last block a `MetricAttention` of sines. `branches` replaces these.

    The input is lifted from values and `FourierFeatures` of the positions, on clouds also, where
    asked for (`surroundings`), from the `Surroundings` of each point. All linear maps start by
    fan-in; on a torus with input values, those of the positions start at 0, so that the network
    begins as one that moves with its input. Nothing knows a resolution. On a grid everything is in
    the coordinates of its indices, so that it may be curved in space, and weights of the points
    change nothing; on clouds they are quadrature weights. The cost is linear in points.

    space, inputs, outputs, time: as of every `FieldNetwork`.
    width, layers: channels inside, number of blocks.
    bases: functions of a learned partition. solve, latent_mlp: steps on its coefficients (`solve`
        and `mlp` of `PartitionAttention`). mlp_ratio: hidden over outer width at each point of a
        cloud.
    surroundings: of the points of a cloud; the least of two reaches, as a fraction of the longest
        side of the box; the other is twice as far.
    modes: functions per axis of a grid, one number or one per axis; a coarser grid uses those that
        it carries. along_axes: on a torus of several axes, waves of one axis at a time, and not
        products of waves of all axes. metric: for inputs that are coefficients of an equation; not
        on a torus, and not without input values. heads: coefficients of the metric, each for its
        part of the channels. reach: of the stencils, as a fraction of the axis, one number or one
        per axis.
    waves: of the Fourier features. lower, upper: corners of the box of positions. fade: on a grid
        that is no torus, waves fade where positions go far within the reach of the stencils: on a
        stretched grid the points of training do not say what such waves do between them.

    >>> cloud = FunctionalOperator(space=2, inputs=1, outputs=1, width=32, layers=2, bases=16)
    >>> cloud(torch.rand(3, 500, 2), torch.randn(3, 500, 1)).shape
    torch.Size([3, 500, 1])
    >>> square = FunctionalOperator(2, 1, 1, width=32, layers=2, modes=6, grid=True)
    >>> square(torch.rand(3, 99, 2), torch.randn(3, 99, 1), grid=(9, 11)).shape
    torch.Size([3, 99, 1])
    """

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        width: int = 64,
        layers: int = 3,
        bases: int = 32,
        solve: bool = False,
        latent_mlp: bool = True,
        mlp_ratio: float = 2.0,
        surroundings: float | None = None,
        modes: int | Sequence[int] = 12,
        along_axes: bool = True,
        metric: bool = True,
        heads: int = 1,
        reach: float | Sequence[float] = 1 / 32,
        waves: int = 32,
        lower: float | Sequence[float] = 0.0,
        upper: float | Sequence[float] = 1.0,
        fade: bool = False,
        grid: bool = False,
        periodic: bool = False,
        time: bool = False,
        branches: Sequence[Branch] | None = None,
    ) -> None:
        around = None
        if surroundings is not None and not grid:
            around = Surroundings.from_least(surroundings, space, lower=lower, upper=upper)
        super().__init__(space, inputs, outputs, time=time, surroundings=around)
        if layers < 1:
            raise ValueError(f"layers: expected at least 1, got {layers}")
        self.width, self.spreads = width, not grid
        self.encoding = FourierFeatures(
            space, waves=waves, lower=lower, upper=upper, periodic=periodic and grid
        )
        self.fading = per_dimension(reach, space) if fade and grid and not periodic else None
        """Reach along the axes over which waves of the positions fade."""
        known = inputs if around is None else inputs + around.channels
        self.lift = nn.Linear(self.encoding.channels + known, width)
        self.time = TimeEmbedding(width) if time else None
        if grid:
            per_axis = (modes,) * space if isinstance(modes, int) else tuple(modes)
            if len(per_axis) != space or min(per_axis) < 1:
                raise ValueError(
                    f"modes: expected a positive number, or one for each of {space} axes, "
                    f"got {modes}"
                )
            metric = metric and inputs > 0
            self.blocks = nn.ModuleList()
            for layer in range(layers):
                parts = branches or grid_branches(
                    per_axis,
                    heads=heads,
                    reach=reach,
                    periodic=periodic,
                    along_axes=along_axes,
                    rank=_RANK if metric else None,
                    metric=metric and layer == layers - 1,
                )
                made = [branch(width) for branch in parts]
                self.blocks.append(GridBlock(width, made, gate=periodic and space == 1))
            self.head_norm = None
        else:
            (attention,) = branches or [
                partial(PartitionAttention, bases=bases, solve=solve, mlp=latent_mlp)
            ]
            hidden = round(mlp_ratio * width)
            self.blocks = nn.ModuleList(
                Block(width, attention(width), Mlp(width, hidden, width)) for _ in range(layers)
            )
            self.head_norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, outputs)
        start_by_fan_in(self)
        if grid and periodic:
            self._start_on_a_torus()

    @torch.no_grad()
    def _start_on_a_torus(self) -> None:
        """As a network that moves with its input, whose products do not grow with the blocks."""
        for block in self.blocks:
            assert isinstance(block, GridBlock)
            block.after.weight.div_(len(self.blocks) ** 0.5)
            for branch in block.branches:  # so that their sum starts as large as one of them
                if isinstance(branch, FourierMap):
                    branch.weight.div_(len(block.branches) ** 0.5)
        if self.inputs:
            self.lift.weight[:, : self.encoding.channels] = 0
            self.lift.weight *= (self.lift.in_features / self.inputs) ** 0.5

    def lifted(
        self, values: Tensor | None, time: Tensor | None, points: Points
    ) -> Float[Tensor, "b n c"]:
        """The features before the first block; on clouds each point by itself."""
        assert points.positions is not None
        spread = None if self.fading is None else spread_on_grid(points, self.fading)
        features = [self.encoding(points.positions, spread)]
        if values is not None:
            features.append(values)
        x = self.lift(torch.cat(features, dim=-1))
        return x if self.time is None else x + self.time(time).unsqueeze(1)

    def headed(self, x: Float[Tensor, "b n c"]) -> Float[Tensor, "b n o"]:
        """The output fields from the features after the last block, each point by itself."""
        return self.head(x if self.head_norm is None else self.head_norm(x))


def grid_branches(
    modes: tuple[int, ...],
    *,
    heads: int,
    reach: float | Sequence[float],
    periodic: bool,
    along_axes: bool,
    rank: int | None,
    metric: bool,
) -> list[Branch]:
    """What a block has on a grid."""
    if periodic:
        every = range(len(modes))
        each = [tuple(m if i == axis else None for i, m in enumerate(modes)) for axis in every]
        return [
            lambda width, waves=waves: FourierMap(width, width, waves)  # type: ignore[misc]
            for waves in (each if along_axes else [modes])
        ]
    solve = [partial(MetricAttention, modes=modes, family="sine", heads=heads)] if metric else []
    return [
        *solve,
        lambda width: ModewiseMap(width, width, modes, "cosine", decay=1.0, rank=rank),
        partial(LocalStencil, reach=reach, dims=len(modes)),
    ]


@dataclass(frozen=True)
class FunctionalOperatorSettings(NetworkSettings):
    """What the blocks have on clouds and on grids."""

    width: int | None = None
    """Channels inside; None: 64 on clouds, 32 on grids."""
    layers: int | None = None
    """Blocks; None: 3, and 4 on a grid that is a torus."""
    bases: int = 32
    """On clouds: functions of a learned partition."""
    solve: bool = False
    """On clouds: carry the values by the ridge solution."""
    latent_mlp: bool = True
    """On clouds: a network at each coefficient."""
    mlp_ratio: float = 2.0
    """On clouds: hidden over outer width of the point-wise networks."""
    surroundings: float | Literal["auto"] | None = "auto"
    """On clouds: look at the density of points around each, at this reach, as a fraction of the
    longest side of the box, and at twice the reach; auto: a thirty-second in the plane, not in
    space; None: do not."""
    modes: int | None = None
    """On grids: functions per axis; None: 10; on a torus of several axes 12, or 8 with products."""
    along_axes: bool | None = None
    """On a torus of two or more axes: waves of one axis at a time, and not products of waves of all
    axes; None: yes."""
    metric: bool | None = None
    """On grids that are no torus, with fields as the input: a metric in the last block, and
    matrices of the functions that are sums of sixteen; None: unless the problem says that its
    inputs are no coefficients of the equation."""
    heads: int = 1
    """On grids that are no torus: coefficients of the metric."""
    reach: float | tuple[float, ...] | None = None
    """On grids: reach of the stencils as a fraction of the axis, one number or one per axis; None:
    a thirty-second."""
    fade: bool | None = None
    """On grids that are no torus: waves of the positions fade where these go far within the reach,
    for grids that are stretched; None: they do not."""

    before: ClassVar[Mapping[str, Any]] = {
        "metric": True,
        "along_axes": False,
        "surroundings": None,
    }


def reach_of_surroundings(asked: float | Literal["auto"] | None, problem: Problem) -> float | None:
    """The least reach at which a network looks around the points of a problem; None: at none.

    Grids have stencils. The ends of a torus would look like boundaries. In space it did not pay,
    and in one dimension there was no trial.

    >>> from funcattn.problem import Field
    >>> plane = Problem(2, (), (Field("u"),))
    >>> reach_of_surroundings("auto", plane), reach_of_surroundings(0.1, plane)
    (0.03125, 0.1)
    """
    if problem.grid:
        return None
    if asked != "auto":
        return asked
    return 1 / 32 if problem.space == 2 and not problem.periodic else None


def _built(settings: FunctionalOperatorSettings, problem: Problem) -> FunctionalOperator:
    width = 32 if problem.grid else 64
    layers = 4 if problem.grid and problem.periodic else 3
    along_axes = settings.along_axes is not False
    modes = (12 if along_axes else 8) if problem.periodic and problem.space > 1 else 10
    return FunctionalOperator(
        problem.space,
        problem.input_channels,
        problem.output_channels,
        width=width if settings.width is None else settings.width,
        layers=layers if settings.layers is None else settings.layers,
        bases=settings.bases,
        solve=settings.solve,
        latent_mlp=settings.latent_mlp,
        mlp_ratio=settings.mlp_ratio,
        surroundings=reach_of_surroundings(settings.surroundings, problem),
        modes=modes if settings.modes is None else settings.modes,
        along_axes=along_axes,
        metric=problem.coefficients is not False if settings.metric is None else settings.metric,
        heads=settings.heads,
        reach=1 / 32 if settings.reach is None else settings.reach,
        lower=problem.lower,
        upper=problem.upper,
        fade=settings.fade is True,
        grid=problem.grid,
        periodic=problem.periodic,
        time=problem.time,
    )


MODELS.register(
    "functional_operator",
    ModelEntry(
        "Functional attention whose basis functions have an identity",
        when="The least error for a given time of training, on clouds and on grids.",
        fields=Form(FunctionalOperatorSettings, _built),
        muon=True,
        recipe=MUON_RECIPE,
        published={
            "width": None,
            "layers": None,
            "bases": 32,
            "mlp_ratio": 2.0,
            "modes": None,
            "metric": None,
            "heads": 1,
        },
        tiny={"width": 16, "layers": 2, "bases": 8, "modes": 4},
    ),
)
