"""LSM: a U-Net whose bridges solve on a few latent tokens, in a basis of sines and cosines.

Axes: b batch, h head, l point of a patch, g latent token, d channel of a head, c channel, k
feature, o output channel.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.grids import OnGrid, at_points, cut, extended
from funcattn.models.registry import MODELS, Form, ModelEntry, from_settings
from funcattn.models.unet import UShape, multiples
from funcattn.settings import NetworkSettings


class NeuralSpectralBlock(nn.Module):
    """On each patch of a grid: points to tokens, a map of tokens by waves, tokens to points.

        z = z_0 + softmax(z_0 k^T) v                             z_0 (g x d) per head, learned
        z <- z + sum over j of a_j sin(pi j z / J) + b_j cos(pi j z / J),   j < J = `waves`
        out = x + softmax(q z^T) z

    with q, k, v linear maps of the points, and a, b numbers for each channel. The grid is cut into
    `patches` pieces per axis.
    """

    for_adamw = ("latent", "coefficients")

    def __init__(self, width: int, heads: int, tokens: int, waves: int, patches: int) -> None:
        super().__init__()
        self.heads, self.waves, self.patches = heads, waves, patches
        self.latent = nn.Parameter(torch.rand(heads, tokens, width // heads) / width)
        self.coefficients = nn.Parameter(torch.rand(width, 2 * waves) / width)
        self.to_key, self.to_value = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.to_query = nn.Linear(width, width)

    def forward(self, x: Float[Tensor, "b c *grid"]) -> Float[Tensor, "b c *grid"]:
        """Patch by patch."""
        pieces, shape = _patched(x, self.patches)  # (b p, l, c)
        query, key, value = (
            of(pieces).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (b p, h, l, d)
            for of in (self.to_query, self.to_key, self.to_value)
        )
        start = self.latent.expand(len(pieces), -1, -1, -1)
        z = start + F.scaled_dot_product_attention(start, key, value, scale=1.0)
        z = z + self._moved(z)
        out = F.scaled_dot_product_attention(query, z, z, scale=1.0)
        return _joined(pieces + out.transpose(1, 2).flatten(2), shape, self.patches)

    def _moved(self, z: Float[Tensor, "b h g d"]) -> Float[Tensor, "b h g d"]:
        """The step of the tokens."""
        frequencies = torch.arange(self.waves, device=z.device, dtype=z.dtype)
        phase = z.unsqueeze(-1) * (math.pi / self.waves * frequencies)
        of_head = self.coefficients.unflatten(0, (self.heads, -1))  # (h, d, 2 J)
        sines, cosines = of_head.chunk(2, dim=-1)
        step = torch.einsum("bhgdj,hdj->bhgd", phase.sin(), sines)
        return step + torch.einsum("bhgdj,hdj->bhgd", phase.cos(), cosines)


def _patched(x: Tensor, patches: int) -> tuple[Tensor, torch.Size]:
    """Pieces of a grid, (b p^s, l, c), and its shape."""
    shape, space = x.shape, x.ndim - 2
    for axis in range(2, 2 + 2 * space, 2):
        x = x.unflatten(axis, (patches, -1))  # (b, c, p, l, p, l, ...)
    order = (0, *range(2, 2 + 2 * space, 2), *range(3, 3 + 2 * space, 2), 1)
    x = x.permute(order)  # (b, p, p, ..., l, l, ..., c)
    return x.flatten(1 + space, -2).flatten(0, space), shape


def _joined(pieces: Tensor, shape: torch.Size, patches: int) -> Tensor:
    """What `_patched` had cut."""
    grid = shape[2:]
    x = pieces.unflatten(1, [length // patches for length in grid])
    x = x.unflatten(0, (shape[0], *(patches for _ in grid)))  # (b, p, p, ..., l, l, ..., c)
    space = len(grid)
    order = [axis for s in range(space) for axis in (1 + s, 1 + space + s)]
    return x.permute(0, 1 + 2 * space, *order).reshape(shape)


class LSM(OnGrid):
    """Latent spectral model (Wu, Hu, Luo, Wang and Long, ICML 2023).

    A U-Net (`UShape`) with a `NeuralSpectralBlock` on the bridge at each resolution, between a lift
    and a head at each point. Patches have the same number of points at every resolution: the
    coarsest grid is one patch, the finest has 2^levels of them per axis.

    width: channels at the finest grid. heads, tokens, waves: of the blocks. levels: halvings.

    Relative to the paper: normalisation over each sample alone, where its public code normalises
    over the batch; the size of a patch follows from the grid, where the code states it (6 x 6 for
    Darcy, with 85 points extended to 96, and 4 x 4 for Navier-Stokes: the same numbers); keys have
    no bias, which has no effect. On point clouds the paper puts the layers of Geo-FNO in front,
    which we leave out.

    Parameters: 19 185 985 in 2D with width 64, 4 levels, 8 heads, 4 tokens, 12 waves and one input
    and output, the published configuration for Darcy; the public code has 1 472 more, the biases of
    the keys.

    >>> import torch
    >>> network = LSM(space=2, inputs=1, outputs=1, width=8, levels=2, heads=2)
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
        levels: int = 4,
        heads: int = 8,
        tokens: int = 4,
        waves: int = 12,
        head: int = 128,
        time: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        if width % heads:
            raise ValueError(f"width: expected a multiple of heads={heads}, got {width}")
        self.multiple = 2**levels
        self.lift = nn.Conv1d(self.features, width, 1)
        self.shape = UShape(
            space,
            width,
            levels,
            [
                NeuralSpectralBlock(c, heads, tokens, waves, patches=2 ** (levels - level))
                for level, c in enumerate(UShape.widths(width, levels))
            ],
        )
        self.out = nn.Conv1d(width, width, 1)
        self.expand, self.contract = nn.Conv1d(width, head, 1), nn.Conv1d(head, outputs, 1)

    def on_grid(self, x: Float[Tensor, "b k *grid"]) -> Float[Tensor, "b o *grid"]:
        """Lift, extend, the U with its bridges, cut, head."""
        grid = x.shape[2:]
        x = extended(at_points(self.lift, x), multiples(grid, self.multiple))
        x = cut(at_points(self.out, self.shape(x)), grid)
        return at_points(self.contract, F.gelu(at_points(self.expand, x)))


@dataclass(frozen=True)
class LSMSettings(NetworkSettings):
    """A U-Net with latent tokens on its bridges."""

    width: int = 64
    """Channels at the finest grid."""
    levels: int = 4
    """How often the grid is halved."""
    heads: int = 8
    tokens: int = 4
    """Latent tokens of a patch, per head."""
    waves: int = 12
    """Sines and cosines by which tokens are mapped."""


MODELS.register(
    "lsm",
    ModelEntry(
        "Latent spectral model: a U-Net with latent tokens on its bridges",
        "Wu et al., Solving High-Dimensional PDEs with Latent Spectral Models, ICML 2023",
        when="Grids with features of many scales, where a U-Net is nearly enough.",
        fields=Form(LSMSettings, from_settings(LSM)),
        needs_grid=True,
        published={"width": 64, "levels": 4, "heads": 8, "tokens": 4, "waves": 12},
        small={"width": 16, "levels": 3, "heads": 4},
        tiny={"width": 8, "levels": 2, "heads": 2, "waves": 3},
    ),
)
