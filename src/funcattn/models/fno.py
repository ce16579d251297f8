"""Fourier neural operators on grids: FNO, TFNO with factorised weights, and the U-shaped UNO.

All take points that form a grid (straight or curved: they see indices, and the positions only as
input channels), at any resolution that carries their modes, and refuse masks. Weights of the points
change nothing: a grid has equal ones in the coordinates of its indices.

FNO is written here, as first published. TFNO and UNO are networks of the package `neuralop`, with
`FourierMultiplier` in place of its spectral convolution. Version 2.0 of that (a) restores the
spectrum by a second fftshift, which on axes of odd length moves every frequency by one; (b) changes
resolution by cutting or extending the spectrum at its end, where the negative frequencies are; and
(c) computes in float32 whatever the input. Without a network at each point, its FNO applies the
activation twice.

Axes: b batch, c channel, i, o channels in and out, n point, s space dimension.
"""

import contextlib
import importlib
import io
import math
import string
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.grids import OnGrid, at_points, cut, extended
from funcattn.models.matrices import Axes
from funcattn.models.registry import MODELS, Form, ModelEntry
from funcattn.models.starts import uniform_modes
from funcattn.nn.points import per_dimension
from funcattn.ops.linalg import at_least_float32
from funcattn.problem import Problem
from funcattn.settings import NetworkSettings

_INTERPOLATIONS = {1: "linear", 2: "bicubic", 3: "trilinear"}


@contextlib.contextmanager
def quiet_neuralop(what: str) -> Iterator[None]:
    """Import and build networks of `neuralop` in here: what it warns and prints is not for users.

    Its import also changes the warning filters of the whole process; they are put back.
    """
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{what} needs the package neuralop, of which {error.name!r} is missing: "
            "pip install 'funcattn[baselines]'",
            name=error.name,
        ) from error


def forget_metadata(module: nn.Module, state: dict[str, Any], prefix: str, _: object) -> None:  # noqa: ARG001
    """Take the constructor arguments that `neuralop` puts among the tensors out of a state."""
    state.pop("_metadata", None)


class FourierMultiplier(nn.Module):
    """Multiplies each low Fourier coefficient of a field by a matrix of its own; adds a bias.

        out^(k) = W_k^T x^(k)   for -m <= k < m on each axis but the last, 0 <= k < m on that

    with x^ the coefficients of the Fourier series, so that nothing depends on the resolution; the
    negative k of the last axis follow, as the field is real. Given another shape of the output, the
    same series is evaluated there. On a grid of N points per axis, 2 m <= N is required.

    modes: m for each axis. resolution_scaling_factor: the output has this many times the points of
    the input, one number per axis. factorization: "Tucker" makes W = core x factors, one factor per
    axis of W (inputs, outputs, and modes of each axis), with about rank times the parameters of W;
    rank 1 is full rank, which represents every W. small: start as the first public code of FNO does
    (`uniform_modes`), with the bias of a linear map, where that of `neuralop` is normal.
    What is complex is kept as pairs of reals, so that it is counted, cast and saved as the rest.

    Has the call of the spectral convolution of `neuralop`, which passes more options than these;
    none of the others is used here.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        modes: Sequence[int],
        *,
        resolution_scaling_factor: Sequence[float] | None = None,
        factorization: str | None = None,
        rank: float = 1.0,
        small: bool = False,
        **_others: object,
    ) -> None:
        super().__init__()
        self.modes, self.scaling = tuple(modes), resolution_scaling_factor
        shape = (in_channels, out_channels, *(2 * m for m in modes[:-1]), modes[-1])
        std = bias_std = math.sqrt(2 / (in_channels + out_channels))
        shapes: list[Sequence[int]] = [shape]
        if factorization is not None:
            ranks = _tucker_ranks(shape, rank)
            shapes = [ranks, *zip(shape, ranks, strict=True)]
            # So that the entries of W, sums of products, have the deviation of a dense W.
            std = (std / math.sqrt(math.prod(ranks))) ** (1 / len(shapes))
        self.parts = nn.ParameterList(
            torch.view_as_real(std * torch.randn(*size, dtype=torch.complex64)) for size in shapes
        )
        self.bias = nn.Parameter(bias_std * torch.randn(out_channels, *(1,) * len(self.modes)))
        if small:
            self.parts = nn.ParameterList([uniform_modes(*shape)])
            nn.init.uniform_(self.bias, -(in_channels**-0.5), in_channels**-0.5)

    @property
    def stacks(self) -> dict[str, Axes]:
        """A matrix for each mode, for Muon; factors of one are no matrices of their own."""
        return {"parts.0": (1, 0, True)} if len(self.parts) == 1 else {}

    @property
    def for_adamw(self) -> tuple[str, ...]:
        """Factors: a step of one is one of the product by all the others, of whatever size."""
        return ("parts",) if len(self.parts) > 1 else ()

    def weight(self) -> Tensor:
        """W, complex (i o *modes); on axes but the last the negative modes are at the end."""
        core, *factors = (torch.view_as_complex(part) for part in self.parts)
        if not factors:
            return core
        ranks, axes = string.ascii_lowercase[: core.ndim], string.ascii_uppercase[: core.ndim]
        pairs = [axis + rank for axis, rank in zip(axes, ranks, strict=True)]
        return torch.einsum(f"{ranks},{','.join(pairs)}->{axes}", core, *factors)

    def forward(
        self, x: Float[Tensor, "b i *grid"], output_shape: Sequence[int] | None = None
    ) -> Float[Tensor, "b o *out"]:
        """The field with its coefficients multiplied."""
        grid, size = x.shape[2:], self._size(x, output_shape)
        for m, *lengths in zip(self.modes, grid, size, strict=True):
            if min(lengths) < 2 * m:
                raise ValueError(
                    f"grid: expected at least {2 * m} points on an axis with {m} modes, got "
                    f"{min(lengths)} (a layer may see a coarser grid than the network, and padding "
                    "counts); use a finer grid or fewer modes"
                )
        axes = tuple(range(2, x.ndim))
        field = x.to(at_least_float32(x.dtype))
        spectrum = torch.fft.rfftn(field, dim=axes, norm="forward")
        spectrum = spectrum.narrow(-1, 0, self.modes[-1])
        for axis, m in zip(axes, self.modes[:-1], strict=False):
            ends = spectrum.narrow(axis, 0, m), spectrum.narrow(axis, grid[axis - 2] - m, m)
            spectrum = torch.cat(ends, dim=axis)
        spectrum = torch.einsum("bi...,io...->bo...", spectrum, self.weight().to(spectrum.dtype))
        for axis, m in zip(axes, self.modes[:-1], strict=False):
            low, negative = spectrum.split(m, dim=axis)
            gap = list(low.shape)
            gap[axis] = size[axis - 2] - 2 * m
            spectrum = torch.cat([low, low.new_zeros(gap), negative], dim=axis)
        # The last axis is extended by irfftn itself.
        out = torch.fft.irfftn(spectrum, s=size, dim=axes, norm="forward") + self.bias
        return out.to(x.dtype)

    def transform(
        self, x: Float[Tensor, "b c *grid"], output_shape: Sequence[int] | None = None
    ) -> Float[Tensor, "b c *out"]:
        """A field that passes by this layer, interpolated to the resolution of its output."""
        size = self._size(x, output_shape)
        if size == tuple(x.shape[2:]):
            return x
        return F.interpolate(x, size, mode=_INTERPOLATIONS[len(size)], align_corners=True)

    def _size(self, x: Tensor, output_shape: Sequence[int] | None) -> tuple[int, ...]:
        if output_shape is not None:
            return tuple(output_shape)
        scaling = self.scaling or (1.0,) * len(self.modes)
        return tuple(round(n * r) for n, r in zip(x.shape[2:], scaling, strict=True))


class GridNetwork(OnGrid):
    """A network on a grid that has modes, and padding where the grid is not periodic."""

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        modes: int | Sequence[int],
        padding: float | Sequence[float],
        time: bool,
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        self.modes = (modes,) * space if isinstance(modes, int) else tuple(modes)
        if len(self.modes) != space or min(self.modes) < 1:
            raise ValueError(
                f"modes: expected a positive number, or one for each of {space} axes, got {modes}"
            )
        self.padding = per_dimension(padding, space)
        if not all(0 <= p <= 1 for p in self.padding):
            raise ValueError(f"padding: expected fractions of the axes in [0, 1], got {padding}")

    def padded(self, grid: Sequence[int]) -> list[int]:
        """The axis lengths with padding."""
        pairs = zip(self.padding, grid, strict=True)
        return [length + round(fraction * length) for fraction, length in pairs]


class FNO(GridNetwork):
    """Fourier neural operator (Li et al., ICLR 2021), as first published.

        x = lift(position, time, values)
        x = gelu(multiplier(x) + linear(x))   `layers` times, without gelu after the last
        out = linear(gelu(linear(x)))         with `head` hidden channels

    width: channels inside. modes: m of `FourierMultiplier`, one number or one per axis.
    padding: the lifted field is extended by zeros at the end of each axis by this fraction of it,
    for fields that are not periodic; the published network for Darcy flow has 9 points for 85.

    Relative to the paper: GELU, as in its public code since 2021, for ReLU; the matrices of the
    multiplier start at deviation (i + o)^-1/2 around 0, as in `neuralop`, instead of uniform in
    [0, 1 / (i o)).

    Parameters, a complex one counted as two: 2 368 001 in 2D with width 32, 12 modes, 4 layers and
    one input and output (1 188 353 if counted as one); 549 569 in 1D with width 64 and 16 modes.

    >>> import torch
    >>> network = FNO(space=2, inputs=1, outputs=1, width=16, layers=2, modes=4)
    >>> network(torch.rand(3, 99, 2), torch.randn(3, 99, 1), grid=(9, 11)).shape
    torch.Size([3, 99, 1])
    """

    for_adamw = ("lift", "expand", "contract")

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        width: int = 32,
        layers: int = 4,
        modes: int | Sequence[int] = 12,
        head: int = 128,
        padding: float | Sequence[float] = 0.0,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, modes=modes, padding=padding, time=time)
        if layers < 1:
            raise ValueError(f"layers: expected at least 1, got {layers}")
        # Kernels of one point: convolutions are the linear maps that take channels first.
        self.lift = nn.Conv1d(self.features, width, 1)
        self.multipliers = nn.ModuleList(
            FourierMultiplier(width, width, self.modes) for _ in range(layers)
        )
        # The multipliers have the bias of the sum.
        self.linears = nn.ModuleList(nn.Conv1d(width, width, 1, bias=False) for _ in range(layers))
        self.expand, self.contract = nn.Conv1d(width, head, 1), nn.Conv1d(head, outputs, 1)

    def on_grid(self, x: Float[Tensor, "b k *grid"]) -> Float[Tensor, "b o *grid"]:
        """Lift, pad, layers, cut, head."""
        grid = x.shape[2:]
        x = extended(at_points(self.lift, x), self.padded(grid))
        last = len(self.linears) - 1
        for i, (multiplier, linear) in enumerate(zip(self.multipliers, self.linears, strict=True)):
            x = multiplier(x) + at_points(linear, x)
            x = x if i == last else F.gelu(x)
        return at_points(self.contract, F.gelu(at_points(self.expand, cut(x, grid))))


class TFNO(GridNetwork):
    """Fourier neural operator of `neuralop`, its weights Tucker-factorised (Kossaifi et al., 2023).

    A layer is gelu(multiplier(x) + linear(x)), then a network at each point with a gated skip, then
    gelu; lift and head have a hidden layer each.

    rank: parameters of the factorised matrices over those of dense ones, roughly (1: full rank);
    None: dense ones, which is the FNO of that package. width, modes: as in `FNO`. padding: as in
    `FNO`, but at both ends of each axis.

    Relative to the paper: each layer is factorised by itself, where the paper joins all layers in
    one tensor; no multigrid patching; no normalisation.

    Parameters, a complex one counted as two, in 2D with width 32, 12 modes, 4 layers, rank 0.1 and
    one input and output: 261 409, of which 248 256 in the multipliers' matrices; dense 2 372 449.

    >>> import torch
    >>> network = TFNO(space=2, inputs=1, outputs=1, width=16, layers=2, modes=4, rank=0.1)
    >>> network(torch.rand(3, 99, 2), torch.randn(3, 99, 1), grid=(9, 11)).shape
    torch.Size([3, 99, 1])
    """

    for_adamw = ("network.lifting", "network.projection")

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        width: int = 32,
        layers: int = 4,
        modes: int | Sequence[int] = 12,
        rank: float | None = 0.1,
        padding: float | Sequence[float] = 0.0,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, modes=modes, padding=padding, time=time)
        if rank is not None and not 0 < rank <= 1:
            raise ValueError(f"rank: expected a fraction of the parameters in (0, 1], got {rank}")
        with quiet_neuralop("TFNO"):
            self.network = importlib.import_module("neuralop.models").FNO(
                n_modes=self.modes,
                in_channels=self.features,
                out_channels=outputs,
                hidden_channels=width,
                n_layers=layers,
                positional_embedding=None,
                domain_padding=list(self.padding),
                factorization=None if rank is None else "Tucker",
                rank=1.0 if rank is None else rank,
                conv_module=FourierMultiplier,
            )
        nn.Module.register_state_dict_post_hook(self, forget_metadata)

    def on_grid(self, x: Float[Tensor, "b k *grid"]) -> Float[Tensor, "b o *grid"]:
        """The network of `neuralop`."""
        return self.network(x)


class UNO(GridNetwork):
    """U-shaped neural operator (Rahman et al., TMLR 2023), by the network of `neuralop`.

    `layers` Fourier layers, an odd number: one at full resolution; some that halve the resolution
    and the modes and double the channels; one in the middle; as many that undo it, each also given
    the output of its counterpart on the way down; one at full resolution, also given that of the
    first. With 5 layers:

        resolution after it    1    1/2   1/2    1     1
        channels               c    2 c   2 c   2 c    c
        modes                  m    m/2   m/2   m/2    m

    A layer is multiplier(gelu(x)) + linear(gelu(x)); lift and head have a hidden layer each.

    width: c. modes: m, as in `FNO`. padding: zeros at both ends of each axis, as a fraction of it.
    Grids of 1 or 2 axes.

    Relative to the paper: channels and modes follow the rule above, where its networks choose them
    layer by layer. Fields that pass by a layer of another resolution are interpolated, by cubics in
    2D and linearly in 1D, as in `neuralop`. Layers have their activation first, so that there is
    one between every two of them; those of `neuralop` 2.0 have none of their own, only a network at
    each point that is nonlinear, which is left out here, as in the paper.

    Parameters, a complex one counted as two, in 2D with width 32, 5 layers, 12 modes, one input and
    output: 4 452 001.

    >>> import torch
    >>> network = UNO(space=2, inputs=1, outputs=1, width=8, modes=4)
    >>> network(torch.rand(3, 99, 2), torch.randn(3, 99, 1), grid=(9, 11)).shape
    torch.Size([3, 99, 1])
    """

    for_adamw = ("network.lifting", "network.projection")

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        width: int = 32,
        layers: int = 5,
        modes: int | Sequence[int] = 12,
        padding: float | Sequence[float] = 0.0,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, modes=modes, padding=padding, time=time)
        if space > 2:
            raise ValueError(f"space: expected a grid of 1 or 2 axes, got {space}")
        if layers < 5 or layers % 2 == 0:
            raise ValueError(f"layers: expected an odd number, at least 5, got {layers}")
        depth = (layers - 3) // 2
        scalings = [1.0, *(0.5,) * depth, 1.0, *(2.0,) * depth, 1.0]
        # How often the coarser side of each layer is halved.
        halvings = [0, *range(1, depth + 1), depth, *range(depth, 0, -1), 0]
        if min(self.modes) < 2**depth:
            raise ValueError(
                f"modes: expected at least {2**depth}, as they are halved {depth} times with "
                f"layers={layers}, got {modes}"
            )
        with quiet_neuralop("UNO"):
            blocks = importlib.import_module("neuralop.layers.fno_block").FNOBlocks
            self.network = importlib.import_module("neuralop.models").UNO(
                in_channels=self.features,
                out_channels=outputs,
                hidden_channels=width,
                lifting_channels=2 * width,
                projection_channels=2 * width,
                positional_embedding=None,
                n_layers=layers,
                uno_out_channels=[width * 2**h for h in halvings],
                uno_n_modes=[[m // 2**h for m in self.modes] for h in halvings],
                uno_scalings=[[scaling] * space for scaling in scalings],
                channel_mlp_skip=None,
                preactivation=True,
                operator_block=partial(
                    blocks, conv_module=FourierMultiplier, use_channel_mlp=False
                ),
                domain_padding=list(self.padding),
            )

    def on_grid(self, x: Float[Tensor, "b k *grid"]) -> Float[Tensor, "b o *grid"]:
        """The network of `neuralop`."""
        return self.network(x)


def _tucker_ranks(shape: Sequence[int], fraction: float) -> tuple[int, ...]:
    """Ranks in proportion to the shape, with about this fraction of the dense parameters."""
    if fraction == 1:
        return tuple(shape)
    tensorly = importlib.import_module("tensorly.tucker_tensor")
    return tuple(tensorly.validate_tucker_rank(tuple(shape), rank=fraction))


@dataclass(frozen=True)
class FNOSettings(NetworkSettings):
    """Fourier layers."""

    width: int = 32
    """Channels inside."""
    layers: int = 4
    modes: int = 12
    """Fourier modes per axis."""


@dataclass(frozen=True)
class UNOSettings(FNOSettings):
    """Fourier layers at several resolutions."""

    layers: int = 5
    """An odd number."""


def _built(network: Callable[..., nn.Module]) -> Callable[[FNOSettings, Problem], nn.Module]:
    def build(settings: FNOSettings, problem: Problem) -> nn.Module:
        return network(
            problem.space,
            problem.input_channels,
            problem.output_channels,
            width=settings.width,
            layers=settings.layers,
            modes=settings.modes,
            # Where space is not a torus, a tenth of each axis keeps its ends apart.
            padding=0.0 if problem.periodic else 0.1,
            time=problem.time,
        )

    return build


MODELS.register(
    "fno",
    ModelEntry(
        "Fourier neural operator",
        "Li et al., Fourier Neural Operator, ICLR 2021",
        when="Smooth fields on regular grids, above all periodic ones; fast.",
        fields=Form(FNOSettings, _built(FNO)),
        needs_grid=True,
        cost="n log n",
        published={"width": 32, "layers": 4, "modes": 12},
        of_task={
            "burgers": {"width": 64, "modes": 16},
            "navier_stokes": {"width": 20},
        },
        small={"width": 32, "modes": 8},
        tiny={"width": 8, "layers": 2, "modes": 2},
    ),
)
MODELS.register(
    "tfno",
    ModelEntry(
        "Fourier neural operator with factorised weights (neuraloperator)",
        "Kossaifi et al., Multi-Grid Tensorized FNO, TMLR 2024",
        when="As FNO, with a tenth of its parameters.",
        fields=Form(FNOSettings, _built(TFNO)),
        needs_grid=True,
        cost="n log n",
        published={"width": 32, "layers": 4, "modes": 12},
        small={"width": 32, "modes": 8},
        tiny={"width": 8, "layers": 2, "modes": 2},
    ),
)
MODELS.register(
    "uno",
    ModelEntry(
        "Fourier neural operator shaped as a U (neuraloperator)",
        "Rahman et al., U-NO, TMLR 2023",
        when="As FNO, for deeper networks in the same memory.",
        fields=Form(UNOSettings, _built(UNO)),
        needs_grid=True,
        spaces=(1, 2),
        cost="n log n",
        published={"width": 32, "layers": 5, "modes": 12},
        small={"width": 24, "modes": 8},
        tiny={"width": 8, "modes": 2},
    ),
)
