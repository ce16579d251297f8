"""F-FNO: Fourier layers one axis at a time, in deep residual networks.

Axes: b batch, i, o channels in and out, c width, k feature or mode.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.fno import FNOSettings
from funcattn.models.grids import GridNetwork, at_points, cut, extended, padding_of
from funcattn.models.matrices import Axes
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.ops.linalg import at_least_float32


class FactorisedLayer(nn.Module):
    """y = W_2 relu(W_1 sum over axes of multiplier_axis(x)), the multipliers along one axis each.

        multiplied^(k) = R_k^T x^(k)   for 0 <= k < m along the axis, 0 beyond

    with x^ the Fourier coefficients along that axis alone: a network needs s m matrices where FNO
    needs m^s of them.
    """

    def __init__(self, width: int, modes: Sequence[int], factor: int) -> None:
        super().__init__()
        # As in the public code, whose start counts modes and both parts among the inputs.
        self.weights = nn.ParameterList(
            torch.randn(width, width, m, 2) / math.sqrt(2 * m * width) for m in modes
        )
        self.expand = nn.Conv1d(width, factor * width, 1)
        self.contract = nn.Conv1d(factor * width, width, 1)

    @property
    def stacks(self) -> dict[str, Axes]:
        """A matrix for each mode of each axis, for Muon."""
        return {f"weights.{axis}": (1, 0, True) for axis in range(len(self.weights))}

    def forward(self, x: Float[Tensor, "b c *grid"]) -> Float[Tensor, "b c *grid"]:
        """Along each axis, then at each point."""
        field = x.to(at_least_float32(x.dtype))
        along = [_multiplied(field, axis, w) for axis, w in enumerate(self.weights, start=2)]
        y = torch.stack(along).sum(0).to(x.dtype)
        return at_points(self.contract, F.relu(at_points(self.expand, y)))


def _multiplied(x: Tensor, axis: int, weight: Tensor) -> Tensor:
    length, modes = x.shape[axis], weight.shape[2]
    if length < 2 * modes:
        raise ValueError(
            f"grid: expected at least {2 * modes} points on an axis with {modes} modes, got "
            f"{length} (padding counts); use a finer grid or fewer modes"
        )
    spectrum = torch.fft.rfft(x, dim=axis).narrow(axis, 0, modes).movedim(axis, -1)
    matrices = torch.view_as_complex(weight).to(spectrum.dtype)
    spectrum = torch.einsum("bi...k,iok->bo...k", spectrum, matrices).movedim(-1, axis)
    return torch.fft.irfft(spectrum, n=length, dim=axis)  # which adds the zeros


class FFNO(GridNetwork):
    """Factorised Fourier neural operator (Tran, Mathews, Xie and Ong, ICLR 2023).

        x = lift(position, time, values)
        x = x + y_l,  y_l = layer_l(x)      `layers` times, each as in `FactorisedLayer`
        out = linear(linear(y of the last layer)), with `head` hidden channels

    width: channels inside. modes: m along each axis, one number or one per axis. factor: hidden
    over outer width in the layers. padding: as in `FNO`.

    Relative to the paper: as in its public code for structured meshes, the head has no activation
    and reads the last layer alone, and layers share no weights (the paper's torus does share
    them); no weight normalisation; positions come once, not also as indices of the grid.

    Parameters, a complex one counted as two, in 2D with the paper's width 64, 24 layers, modes
    32 and 16 and factor 4, for Airfoil with two coordinates in and one field out: 10 239 937.

    >>> import torch
    >>> network = FFNO(space=2, inputs=1, outputs=1, width=16, layers=2, modes=4)
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
        width: int = 64,
        layers: int = 24,
        modes: int | Sequence[int] = 16,
        factor: int = 4,
        head: int = 128,
        padding: float | Sequence[float] = 0.0,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, modes=modes, padding=padding, time=time)
        if layers < 1:
            raise ValueError(f"layers: expected at least 1, got {layers}")
        self.lift = nn.Conv1d(self.features, width, 1)
        self.layers = nn.ModuleList(
            FactorisedLayer(width, self.modes, factor) for _ in range(layers)
        )
        self.expand, self.contract = nn.Conv1d(width, head, 1), nn.Conv1d(head, outputs, 1)

    def on_grid(self, x: Float[Tensor, "b k *grid"]) -> Float[Tensor, "b o *grid"]:
        """Lift, pad, layers, cut, head."""
        grid = x.shape[2:]
        x = extended(at_points(self.lift, x), self.padded(grid))
        for layer in self.layers:
            y = layer(x)
            x = x + y
        return at_points(self.contract, at_points(self.expand, cut(y, grid)))


@dataclass(frozen=True)
class FFNOSettings(FNOSettings):
    """Fourier layers along one axis at a time."""

    width: int = 64
    layers: int = 24
    modes: int = 16


MODELS.register(
    "f_fno",
    ModelEntry(
        "Fourier neural operator, factorised by axes",
        "Tran et al., Factorized Fourier Neural Operators, ICLR 2023",
        when="As FNO, for deep networks and many axes: few parameters per layer.",
        fields=Form(FFNOSettings, from_settings(FFNO, padding=padding_of)),
        needs_grid=True,
        cost="n log n",
        published={"width": 64, "layers": 24, "modes": 16},
        small={"width": 32, "layers": 6, "modes": 8},
        tiny={"width": 8, "layers": 2, "modes": 2},
    ),
)
