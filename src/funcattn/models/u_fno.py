"""U-FNO: Fourier layers, some of them with a small U-Net beside.

Axes: b batch, c width, k feature, o output channel.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.fno import FNOSettings
from funcattn.models.fourier_multiplier import FourierMultiplier
from funcattn.models.grids import (
    CONVOLUTIONS,
    GridNetwork,
    InstanceNorm,
    at_points,
    cut,
    extended,
    padding_of,
)
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.models.unet import multiples

_TRANSPOSED: dict[int, type[nn.Module]] = {
    1: nn.ConvTranspose1d,
    2: nn.ConvTranspose2d,
    3: nn.ConvTranspose3d,
}
_SLOPE = 0.1
"""Of the leaky ReLU below 0."""


class SmallU(nn.Module):
    """Three halvings by strided convolutions and three doublings by transposed ones, one width.

    The grid has to be a multiple of 8 on each axis.
    """

    def __init__(self, space: int, width: int) -> None:
        super().__init__()

        def convolved(stride: int) -> nn.Sequential:
            # The normalisation takes a bias away.
            kernel = CONVOLUTIONS[space](width, width, 3, stride, padding=1, bias=False)
            return nn.Sequential(kernel, InstanceNorm(width), nn.LeakyReLU(_SLOPE))

        def finer(inputs: int) -> nn.Sequential:
            kernel = _TRANSPOSED[space](inputs, width, 4, 2, padding=1)
            return nn.Sequential(kernel, nn.LeakyReLU(_SLOPE))

        self.down = nn.ModuleList(
            [
                convolved(2),
                nn.Sequential(convolved(2), convolved(1)),
                nn.Sequential(convolved(2), convolved(1)),
            ]
        )
        self.up = nn.ModuleList([finer(width), finer(2 * width), finer(2 * width)])
        self.out = CONVOLUTIONS[space](2 * width, width, 3, padding=1)

    def forward(self, x: Float[Tensor, "b c *grid"]) -> Float[Tensor, "b c *grid"]:
        """Down and up, with bridges between equal grids."""
        seen = [x]
        for down in self.down:
            seen.append(down(seen[-1]))
        y = seen.pop()
        for up in self.up:
            y = torch.cat([seen.pop(), up(y)], dim=1)
        return self.out(y)


class UFNO(GridNetwork):
    """U-FNO (Wen, Li, Azizzadenesheli, Anandkumar and Benson, Advances in Water Resources 2022).

        x = lift(position, time, values)
        x = relu(multiplier(x) + linear(x))              in the first half of the `layers`
        x = relu(multiplier(x) + linear(x) + u_net(x))   in the second half
        out = linear(relu(linear(x)))                    with `head` hidden channels

    width, modes: as in `FNO`. padding: as in `FNO`, and up to the next multiple of 8 in any case.

    Relative to the paper: the U-Nets normalise each sample alone, not over the batch; zeros at the
    ends in place of repeated values.

    Parameters, a complex one counted as one: 33 097 829 in 3D with the paper's width 36, 6 layers
    and 10 modes, for its 9 inputs and one output.

    >>> import torch
    >>> network = UFNO(space=2, inputs=1, outputs=1, width=8, layers=2, modes=3)
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
        width: int = 36,
        layers: int = 6,
        modes: int | Sequence[int] = 10,
        head: int = 128,
        padding: float | Sequence[float] = 0.0,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, modes=modes, padding=padding, time=time)
        if layers < 2:
            raise ValueError(f"layers: expected at least 2, half of them with U-Nets, got {layers}")
        self.lift = nn.Conv1d(self.features, width, 1)
        self.multipliers = nn.ModuleList(
            FourierMultiplier(width, width, self.modes, small=True) for _ in range(layers)
        )
        # The multipliers have the bias of the sum.
        self.linears = nn.ModuleList(nn.Conv1d(width, width, 1, bias=False) for _ in range(layers))
        self.u_nets = nn.ModuleList(SmallU(space, width) for _ in range(layers // 2))
        self.expand, self.contract = nn.Conv1d(width, head, 1), nn.Conv1d(head, outputs, 1)

    def on_grid(self, x: Float[Tensor, "b k *grid"]) -> Float[Tensor, "b o *grid"]:
        """Lift, pad, layers, cut, head."""
        grid = x.shape[2:]
        x = extended(at_points(self.lift, x), multiples(self.padded(grid), 8))
        plain = len(self.linears) - len(self.u_nets)
        for i, (multiplier, linear) in enumerate(zip(self.multipliers, self.linears, strict=True)):
            y = multiplier(x) + at_points(linear, x)
            x = F.relu(y if i < plain else y + self.u_nets[i - plain](x))
        return at_points(self.contract, F.relu(at_points(self.expand, cut(x, grid))))


@dataclass(frozen=True)
class UFNOSettings(FNOSettings):
    """Fourier layers, half of them with U-Nets."""

    width: int = 36
    layers: int = 6
    modes: int = 10


MODELS.register(
    "u_fno",
    ModelEntry(
        "Fourier neural operator with U-Nets beside half of its layers",
        "Wen et al., U-FNO, Advances in Water Resources 2022",
        when="As FNO, where fronts and other sharp features matter.",
        fields=Form(UFNOSettings, from_settings(UFNO, padding=padding_of)),
        needs_grid=True,
        cost="n log n",
        published={"width": 36, "layers": 6, "modes": 10},
        small={"width": 24, "layers": 4, "modes": 8},
        tiny={"width": 8, "layers": 2, "modes": 2},
    ),
)
