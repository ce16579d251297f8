"""WNO: maps of the coarsest wavelet coefficients of a field.

Axes: b batch, c width, k feature, o output channel.
"""

import importlib
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.grids import OnGrid, at_points, cut
from funcattn.models.mwt import LowModes
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.settings import NetworkSettings

_NAMES = {1: ("wavedec", "waverec"), 2: ("wavedec2", "waverec2"), 3: ("wavedec3", "waverec3")}


class WaveletLayer(nn.Module):
    """The coarsest coefficients of a wavelet transform, each kind through a map of its own.

        a, (d_1 ... d_q), finer details = transform of x      q = 2^s - 1 kinds of details
        out = inverse transform of (A a, D_1 d_1 ... D_q d_q, 0)

    A and D multiply low Fourier modes of the coefficients by matrices, which is a convolution in
    the space of coefficients.
    """

    def __init__(self, space: int, width: int, modes: int, levels: int, wavelet: str) -> None:
        super().__init__()
        self.space, self.levels, self.wavelet = space, levels, wavelet
        self.maps = nn.ModuleList(LowModes(width, (modes,) * space) for _ in range(2**space))

    def forward(self, x: Float[Tensor, "b c *grid"]) -> Float[Tensor, "b c *grid"]:
        """There and back; the transform repeats the field beyond its ends as in a mirror."""
        there, back = (getattr(_wavelets(), name) for name in _NAMES[self.space])
        flat = x.flatten(0, 1)  # a transform for each channel
        coarse, *details = there(flat, self.wavelet, mode="symmetric", level=self.levels)
        approximation, *of_details = self.maps

        def mapped(map_: nn.Module, field: Tensor) -> Tensor:
            return map_(field.unflatten(0, x.shape[:2])).flatten(0, 1)

        kept = [mapped(approximation, coarse)]
        for level, detail in enumerate(details):
            names, fields = _parts(detail)
            if level == 0:
                fields = [mapped(m, field) for m, field in zip(of_details, fields, strict=True)]
            else:
                fields = [torch.zeros_like(field) for field in fields]
            kept.append(_whole(detail, names, fields))
        return cut(back(kept, self.wavelet).unflatten(0, x.shape[:2]), x.shape[2:])


def _parts(detail: Any) -> tuple[list[str], list[Tensor]]:
    """The kinds of details of a level: one field, a tuple of them, or by names."""
    if isinstance(detail, Tensor):
        return [], [detail]
    if isinstance(detail, dict):
        return list(detail), list(detail.values())
    return [], list(detail)


def _whole(like: Any, names: list[str], fields: list[Tensor]) -> Any:
    """Details as the library has them."""
    if isinstance(like, Tensor):
        return fields[0]
    if isinstance(like, dict):
        return dict(zip(names, fields, strict=True))
    return type(like)(*fields) if hasattr(like, "_fields") else tuple(fields)


def _wavelets() -> Any:
    try:
        return importlib.import_module("ptwt")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"WNO needs the package ptwt, of which {error.name!r} is missing: "
            "pip install 'funcattn[baselines]'",
            name=error.name,
        ) from error


class WNO(OnGrid):
    """Wavelet neural operator (Tripura and Chakraborty, CMAME 2023), in its third public version.

        x = lift(position, time, values)
        x = mish(wavelet layer(x) + linear(x))   `layers` times, without mish after the last
        out = linear(mish(linear(x)))            with `head` hidden channels

    width: channels. levels: of the wavelet transform, as many as the grid allows. modes: of the
    coefficients. wavelet: of PyWavelets, by its name.

    Relative to the paper: the coefficients meet matrices in Fourier space, as in the authors' third
    version, where the paper has a matrix for each coefficient, and therefore one resolution; modes
    are given, where that version takes an eighth of the coefficients of its grid (6 for Darcy). On
    other resolutions the number of levels stays, where the code changes it with the grid.

    Parameters, a complex one counted as one, in 2D with the published width 40, 4 layers, 6 modes
    and one input and output: 1 855 297.

    >>> import torch
    >>> network = WNO(space=2, inputs=1, outputs=1, width=8, layers=2, modes=3)
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
        width: int = 40,
        layers: int = 4,
        levels: int = 1,
        modes: int = 6,
        wavelet: str = "db2",
        head: int = 128,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        self.lift = nn.Conv1d(self.features, width, 1)
        self.wavelets = nn.ModuleList(
            WaveletLayer(space, width, modes, levels, wavelet) for _ in range(layers)
        )
        self.linears = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers))
        self.expand, self.contract = nn.Conv1d(width, head, 1), nn.Conv1d(head, outputs, 1)

    def on_grid(self, x: Float[Tensor, "b k *grid"]) -> Float[Tensor, "b o *grid"]:
        """Lift, layers, head."""
        x = at_points(self.lift, x)
        last = len(self.linears) - 1
        for i, (wavelets, linear) in enumerate(zip(self.wavelets, self.linears, strict=True)):
            x = wavelets(x) + at_points(linear, x)
            x = x if i == last else F.mish(x)
        return at_points(self.contract, F.mish(at_points(self.expand, x)))


@dataclass(frozen=True)
class WNOSettings(NetworkSettings):
    """Wavelet layers."""

    width: int = 40
    """Channels inside."""
    layers: int = 4
    levels: int = 1
    """Of the wavelet transform."""
    modes: int = 6
    """Fourier modes of the coefficients, per axis."""


MODELS.register(
    "wno",
    ModelEntry(
        "Wavelet neural operator (ptwt)",
        "Tripura and Chakraborty, Wavelet Neural Operator, CMAME 2023",
        when="As FNO, where fields have edges and corners and are not periodic.",
        fields=Form(WNOSettings, from_settings(WNO)),
        needs_grid=True,
        published={"width": 40, "layers": 4, "levels": 1, "modes": 6},
        small={"width": 24, "layers": 4, "levels": 1, "modes": 4},
        tiny={"width": 8, "layers": 2, "levels": 1, "modes": 2},
    ),
)
