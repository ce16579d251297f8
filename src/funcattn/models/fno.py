"""Fourier neural operator on grids, as first published.

It takes points that form a grid (straight or curved: it sees indices, and the positions only as
input channels), at any resolution that carries its modes, and refuses masks. Weights of the points
change nothing: a grid has equal ones in the coordinates of its indices.

Axes: b batch, k feature, o output channel.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.fourier_multiplier import FourierMultiplier
from funcattn.models.grids import GridNetwork, at_points, cut, extended, padding_of
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.settings import NetworkSettings


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


@dataclass(frozen=True)
class FNOSettings(NetworkSettings):
    """Fourier layers."""

    width: int = 32
    """Channels inside."""
    layers: int = 4
    modes: int = 12
    """Fourier modes per axis."""


MODELS.register(
    "fno",
    ModelEntry(
        "Fourier neural operator",
        "Li et al., Fourier Neural Operator, ICLR 2021",
        when="Smooth fields on regular grids, above all periodic ones; fast.",
        fields=Form(FNOSettings, from_settings(FNO, padding=padding_of)),
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
