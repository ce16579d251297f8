"""Networks of the package `neuralop`: TFNO, of factorised weights, and the U-shaped UNO.

They take what FNO takes, and have our `FourierMultiplier` in place of the package's spectral
convolution, which says why. Without a network at each point, its FNO applies the activation twice.

Axes: b batch, k feature, o output channel.
"""

import contextlib
import importlib
import io
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from funcattn.models.fno import FNOSettings
from funcattn.models.fourier_multiplier import FourierMultiplier
from funcattn.models.grids import GridNetwork, padding_of
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings


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


@dataclass(frozen=True)
class UNOSettings(FNOSettings):
    """Fourier layers at several resolutions."""

    layers: int = 5
    """An odd number."""


MODELS.register(
    "tfno",
    ModelEntry(
        "Fourier neural operator with factorised weights (neuraloperator)",
        "Kossaifi et al., Multi-Grid Tensorized FNO, TMLR 2024",
        when="As FNO, with a tenth of its parameters.",
        fields=Form(FNOSettings, from_settings(TFNO, padding=padding_of)),
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
        fields=Form(UNOSettings, from_settings(UNO, padding=padding_of)),
        needs_grid=True,
        spaces=(1, 2),
        cost="n log n",
        published={"width": 32, "layers": 5, "modes": 12},
        small={"width": 24, "modes": 8},
        tiny={"width": 8, "modes": 2},
    ),
)
