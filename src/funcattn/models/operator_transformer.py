"""The whole network: lift, blocks, head.

A field travels one way: positions and values at the points are lifted to c channels, each block
adds an attention between all points and a network at each point, and the head reads off the output
fields. Nothing here knows a resolution, so the same network takes any number of points.

Axes: b batch, n point, s space dimension, i input channel, o output channel, c width.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Float, Inexact
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint as recomputed

from funcattn.models.base import FieldNetwork
from funcattn.models.encoded import POINTS_AT_ONCE, Encoded, rows_of
from funcattn.models.matrices import matrices
from funcattn.nn import FunctionalAttention, RawPositions, TimeEmbedding
from funcattn.nn.feature_maps import linear
from funcattn.nn.points import Points
from funcattn.ops import Moments


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


@runtime_checkable
class Encodes(Protocol):
    """A layer in halves: what a mesh says, in coefficients, and what any point reads of them."""

    def encode(
        self,
        x: Tensor,
        /,
        *,
        positions: Tensor | None,
        mask: Tensor | None,
        weights: Tensor | None,
    ) -> Tensor:
        """The coefficients, from all points."""

    def moments(
        self, x: Tensor, /, *, positions: Tensor | None, weights: Tensor | None
    ) -> tuple[Moments, ...]:
        """The sums over some points."""

    def carried(self, moments: Sequence[Moments], /) -> Tensor:
        """The coefficients, from the sums over all points."""

    def read(self, x: Tensor, coefficients: Tensor, /, *, positions: Tensor | None) -> Tensor:
        """The layer's value at any points."""


class Mlp(nn.Module):
    """Linear, GELU, linear."""

    def __init__(self, inputs: int, hidden: int, outputs: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.expand, self.contract = linear(inputs, hidden), linear(hidden, outputs)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "... i"]) -> Float[Tensor, "... o"]:
        """Each point by itself."""
        return self.dropout(self.contract(F.gelu(self.expand(x))))


class Block(nn.Module):
    """Pre-norm: x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, width: int, attention: nn.Module, mlp: nn.Module) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(width), attention
        self.mlp_norm, self.mlp = nn.LayerNorm(width), mlp

    def forward(self, x: Float[Tensor, "b n c"], points: Points) -> Float[Tensor, "b n c"]:
        """Between the points, then at each point."""
        x = x + self.attention(self.attention_norm(x), **points.arguments)
        return x + self.mlp(self.mlp_norm(x))

    def encode(self, x: Float[Tensor, "b n c"], points: Points) -> Inexact[Tensor, "b h g e"]:
        """What the attention has to say to any point, as coefficients."""
        return self._attention().encode(
            self.attention_norm(x),
            positions=points.positions,
            mask=points.mask,
            weights=points.weights,
        )

    def moments(self, x: Float[Tensor, "b n c"], points: Points) -> tuple[Moments, ...]:
        """What these points of a mesh add to the sums that make the coefficients."""
        return self._attention().moments(
            self.attention_norm(x), positions=points.positions, weights=points.weights
        )

    def carried(self, moments: Sequence[Moments]) -> Inexact[Tensor, "b h g e"]:
        """What `encode` returns, from the sums over all points."""
        return self._attention().carried(moments)

    def read(
        self,
        x: Float[Tensor, "b n c"],
        coefficients: Inexact[Tensor, "b h g e"],
        points: Points,
    ) -> Float[Tensor, "b n c"]:
        """As `forward`, from the coefficients of a mesh; each point by itself."""
        x = x + self._attention().read(
            self.attention_norm(x), coefficients, positions=points.positions
        )
        return x + self.mlp(self.mlp_norm(x))

    def _attention(self) -> "Encodes":
        if not isinstance(self.attention, Encodes):
            raise ValueError(
                "encode: expected attention that points can read from a few coefficients, as "
                f"FunctionalAttention, got {type(self.attention).__name__}; call the network on "
                "all points at once"
            )
        return self.attention


class OperatorTransformer(FieldNetwork):
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

    spreads: ClassVar = True

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

    def fields(
        self, values: Tensor | None, time: Tensor | None, points: Points
    ) -> Float[Tensor, "b n o"]:
        """Lift, blocks, head."""
        x = self.lifted(values, time, points)
        again = self.checkpoint and self.training and torch.is_grad_enabled()
        for block in self.blocks:
            call = partial(recomputed, block, use_reentrant=False) if again else block
            x = call(x, points)
        return self.headed(x)

    def encode(
        self,
        positions: Float[Tensor, "b n s"],
        values: Float[Tensor, "b n i"] | None = None,
        *,
        time: Float[Tensor, " b"] | None = None,
        mask: Bool[Tensor, "b n"] | None = None,
        weights: Float[Tensor, "b n"] | None = None,
    ) -> Encoded:
        """All that the points of a mesh have to say to any point, for `query`.

        `query(encode(positions, values), positions, values)` is `forward(positions, values)`.
        """
        values, points = self.at_the_door(values, time, Points(positions, None, mask, weights))
        x = self.lifted(values, time, points)
        kept: list[Tensor] = []
        for layer, block in enumerate(self.stack):
            if layer:
                x = self.stack[layer - 1].read(x, kept[-1], points)
            kept.append(block.encode(x, points))
        return Encoded(tuple(kept), time)

    def query(
        self,
        encoded: Encoded,
        positions: Float[Tensor, "b n s"],
        values: Float[Tensor, "b n i"] | None = None,
        *,
        mask: Bool[Tensor, "b n"] | None = None,
        chunk: int = POINTS_AT_ONCE,
    ) -> Float[Tensor, "b n o"]:
        """The output fields of an encoded mesh at any points, at its time; 0 at masked points.

        Each point by itself, `chunk` points of each sample at once, so that memory is small for any
        number of them.
        """
        encoded.check(len(self.blocks), len(positions))
        values, points = self.at_the_door(values, encoded.time, Points(positions, mask=mask))
        parts = []
        for rows in rows_of(positions.shape[1], chunk):
            here = points.at(rows)
            x = self.lifted(None if values is None else values[:, rows], encoded.time, here)
            parts.append(self.headed(self.read(x, encoded.coefficients, here)))
        return points.cleared(torch.cat(parts, 1))

    def matrices_for_muon(self) -> list[nn.Parameter]:
        """Those of the blocks."""
        return matrices(self.blocks)

    @property
    def stack(self) -> list[Block]:
        """The blocks, in their order."""
        return cast("list[Block]", list(self.blocks))

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

    def read(
        self, x: Float[Tensor, "b n c"], coefficients: Sequence[Tensor], points: Points
    ) -> Float[Tensor, "b n c"]:
        """The features after the first blocks, whose coefficients are given."""
        for block, kept in zip(self.stack, coefficients, strict=False):
            x = block.read(x, kept, points)
        return x

    def headed(self, x: Float[Tensor, "b n c"]) -> Float[Tensor, "b n o"]:
        """The output fields from the features after the last block, each point by itself."""
        return self.head(self.head_norm(x))
