"""The whole network: lift, blocks, head.

A field travels one way: positions and values at the points are lifted to c channels, each block
adds an attention between all points and a network at each point, and the head reads off the output
fields. Nothing here knows a resolution, so the same network takes any number of points.

Axes: b batch, n point, s space dimension, i input channel, o output channel, c width.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from funcattn.models.blocks import Block, Mlp
from funcattn.models.stacked import StackedNetwork
from funcattn.nn import FunctionalAttention, RawPositions, TimeEmbedding
from funcattn.nn.feature_maps import linear
from funcattn.nn.points import Points


@runtime_checkable
class Encoding(Protocol):
    """A module that turns positions in `dims` dimensions (b n s) into `channels` features."""

    dims: int
    channels: int

    def __call__(self, positions: Tensor, /) -> Tensor:
        """The features, (b n channels)."""


@runtime_checkable
class SharesBasis(Protocol):
    """A layer that can use the basis modules of another one of its kind."""

    def share_basis_with(self, other: Any, /) -> None:
        """Use the basis modules of `other` from now on."""


class OperatorTransformer(StackedNetwork):
    """A network from fields on points to fields on the same points.

    space, inputs, outputs: dimension of space, channels of the input values (0: the geometry alone
        is the input) and of the output.
    width, layers: channels inside, number of blocks.
    attention: called once per layer with the width; a layer with the call of `FunctionalAttention`.
    share_basis: all layers use the basis modules of the first.
    mlp_ratio: hidden over outer width of the point-wise networks.
    encoding: a module that turns positions into features, with a `channels` attribute; default: the
        coordinates (`RawPositions`).
    time: the call takes a time for each sample.
    checkpoint: in training, blocks are computed again for the gradient instead of kept: of each
        only its input stays in memory, for one forward pass more.

    Where every layer reads the mesh through coefficients (functional attention with a learned or
    Fourier basis and point-wise features does), `encode` keeps these, and `query` gives the fields
    at any further points for the cost of those points alone.

    >>> import torch
    >>> from functools import partial
    >>> from funcattn import FunctionalAttention, OperatorTransformer
    >>> model = OperatorTransformer(
    ...     space=2, inputs=1, outputs=1, width=32, layers=2,
    ...     attention=partial(FunctionalAttention, heads=4, bases=16),
    ... )
    >>> model(torch.rand(3, 500, 2), torch.randn(3, 500, 1)).shape
    torch.Size([3, 500, 1])
    >>> encoded = model.encode(torch.rand(1, 500, 2), torch.randn(1, 500, 1))
    >>> model.query(encoded, torch.rand(1, 7, 2), torch.randn(1, 7, 1)).shape
    torch.Size([1, 7, 1])
    """

    spreads = True

    def __init__(
        self,
        space: int,
        inputs: int,
        outputs: int,
        *,
        width: int = 128,
        layers: int = 8,
        attention: Callable[[int], nn.Module] = FunctionalAttention,
        share_basis: bool = False,
        mlp_ratio: float = 1.0,
        encoding: Encoding | None = None,
        time: bool = False,
        dropout: float = 0.0,
        checkpoint: bool = False,
    ) -> None:
        super().__init__(space, inputs, outputs, time=time)
        self.width, self.checkpoint = width, checkpoint
        self.encoding: Encoding = RawPositions(space) if encoding is None else encoding
        self.lift = Mlp(self.encoding.channels + inputs, 2 * width, width)
        self.time = TimeEmbedding(width) if time else None
        hidden = round(mlp_ratio * width)
        self.blocks = nn.ModuleList(
            Block(width, attention(width), Mlp(width, hidden, width, dropout=dropout))
            for _ in range(layers)
        )
        if share_basis:
            attentions = [block.get_submodule("attention") for block in self.blocks]
            for layer in attentions[1:]:
                if not isinstance(layer, SharesBasis):
                    raise TypeError(f"share_basis: {type(layer).__name__} has no basis to share")
                layer.share_basis_with(attentions[0])
        self.head_norm, self.head = nn.LayerNorm(width), linear(width, outputs)

    def lifted(
        self,
        values: Float[Tensor, "b n i"] | None,
        time: Float[Tensor, " b"] | None,
        points: Points,
    ) -> Float[Tensor, "b n c"]:
        """The features before the first block, each point by itself."""
        assert points.positions is not None
        features = self.encoding(points.positions)
        x = self.lift(features if values is None else torch.cat([features, values], dim=-1))
        return x if self.time is None else x + self.time(time).unsqueeze(1)

    def headed(self, x: Float[Tensor, "b n c"]) -> Float[Tensor, "b n o"]:
        """The output fields from the features after the last block, each point by itself."""
        return self.head(self.head_norm(x))
