"""The whole network: lift, blocks, head.

A field travels one way: positions and values at the points are lifted to c channels, each block
adds an attention between all points and a network at each point, and the head reads off the output
fields. Nothing here knows a resolution, so the same network takes any number of points.

Axes: b batch, n point, s space dimension, i input channel, o output channel, c width.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Float, Inexact
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint as recomputed

from funcattn.models.encoded import POINTS_AT_ONCE, Encoded, rows_of
from funcattn.nn import FunctionalAttention, RawPositions, TimeEmbedding
from funcattn.nn.chunked import computed_again
from funcattn.nn.feature_maps import linear
from funcattn.ops.checks import check_batch, check_point_weights


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
        self, x: Tensor, /, *, positions: Tensor, mask: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """The coefficients, from all points."""

    def sums(
        self, x: Tensor, /, *, positions: Tensor, weights: Tensor | None
    ) -> tuple[Tensor, ...]:
        """What some points add to the sums over all."""

    def coefficients(self, sums: Sequence[Tensor], /) -> Tensor:
        """The coefficients, from the sums over all points."""

    def read(self, x: Tensor, coefficients: Tensor, /, *, positions: Tensor) -> Tensor:
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

    def forward(
        self,
        x: Float[Tensor, "b n c"],
        *,
        positions: Tensor,
        grid: tuple[int, ...] | None,
        mask: Tensor | None,
        weights: Tensor | None,
    ) -> Float[Tensor, "b n c"]:
        """Between the points, then at each point."""
        x = x + self.attention(
            self.attention_norm(x), positions=positions, grid=grid, mask=mask, weights=weights
        )
        return x + self.mlp(self.mlp_norm(x))

    def encode(
        self,
        x: Float[Tensor, "b n c"],
        *,
        positions: Tensor,
        mask: Tensor | None,
        weights: Tensor | None,
    ) -> Inexact[Tensor, "b h g e"]:
        """What the attention has to say to any point, as coefficients."""
        return self._attention().encode(
            self.attention_norm(x), positions=positions, mask=mask, weights=weights
        )

    def sums(
        self, x: Float[Tensor, "b n c"], *, positions: Tensor, weights: Tensor | None
    ) -> tuple[Tensor, ...]:
        """What these points of a mesh add to the sums that make the coefficients."""
        return self._attention().sums(self.attention_norm(x), positions=positions, weights=weights)

    def coefficients(self, sums: Sequence[Tensor]) -> Inexact[Tensor, "b h g e"]:
        """What `encode` returns, from the sums over all points."""
        return self._attention().coefficients(sums)

    def read(
        self,
        x: Float[Tensor, "b n c"],
        coefficients: Inexact[Tensor, "b h g e"],
        *,
        positions: Tensor,
    ) -> Float[Tensor, "b n c"]:
        """As `forward`, from the coefficients of a mesh; each point by itself."""
        x = x + self._attention().read(self.attention_norm(x), coefficients, positions=positions)
        return x + self.mlp(self.mlp_norm(x))

    def _attention(self) -> "Encodes":
        if not isinstance(self.attention, Encodes):
            raise ValueError(
                "encode: expected attention that points can read from a few coefficients, as "
                f"FunctionalAttention, got {type(self.attention).__name__}; call the network on "
                "all points at once"
            )
        return self.attention


class OperatorTransformer(nn.Module):
    """A network from fields on points to fields on the same points.

    space, inputs, outputs: dimension of space, channels of the input values (0: the geometry alone
        is the input) and of the output.
    width, layers: channels inside, number of blocks.
    attention: called with the width once a layer; any layer with the call of `FunctionalAttention`.
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
        super().__init__()
        self.space, self.inputs, self.outputs = space, inputs, outputs
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

    def forward(
        self,
        positions: Float[Tensor, "b n s"],
        values: Float[Tensor, "b n i"] | None = None,
        *,
        grid: tuple[int, ...] | None = None,
        time: Float[Tensor, " b"] | None = None,
        mask: Bool[Tensor, "b n"] | None = None,
        weights: Float[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n o"]:
        """The output fields at the points; 0 at masked points.

        grid: axis lengths where the points form a grid, row-major. mask: True at real points; what
        stands at the others is never looked at. weights: quadrature weights or cell volumes.
        """
        self.check(positions, values, time)
        check_point_weights(None, mask, positions.shape[1], shard=True)
        check_batch(positions.shape[0], mask=mask, weights=weights)
        positions, values, weights = _without_padding(positions, values, weights, mask)
        x = self.lifted(positions, values, time)
        again = self.checkpoint and self.training and torch.is_grad_enabled()
        for block in self.blocks:
            call = partial(recomputed, _again, block, use_reentrant=False) if again else block
            x = call(x, positions=positions, grid=grid, mask=mask, weights=weights)
        out = self.headed(x)
        return out if mask is None else out.masked_fill(~mask.unsqueeze(-1), 0)

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
        self.check(positions, values, time)
        check_point_weights(None, mask, positions.shape[1], shard=True)
        check_batch(positions.shape[0], mask=mask, weights=weights)
        positions, values, weights = _without_padding(positions, values, weights, mask)
        x = self.lifted(positions, values, time)
        kept: list[Tensor] = []
        for layer, block in enumerate(self.stack):
            if layer:
                x = self.stack[layer - 1].read(x, kept[-1], positions=positions)
            kept.append(block.encode(x, positions=positions, mask=mask, weights=weights))
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
        self.check(positions, values, encoded.time)
        check_point_weights(None, mask, positions.shape[1], shard=True)
        positions, values, _ = _without_padding(positions, values, None, mask)
        parts = []
        for rows in rows_of(positions.shape[1], chunk):
            here = positions[:, rows]
            x = self.lifted(here, None if values is None else values[:, rows], encoded.time)
            parts.append(self.headed(self.read(x, encoded.coefficients, here)))
        out = torch.cat(parts, 1)
        return out if mask is None else out.masked_fill(~mask.unsqueeze(-1), 0)

    @property
    def stack(self) -> list[Block]:
        """The blocks, in their order."""
        return cast("list[Block]", list(self.blocks))

    def lifted(
        self,
        positions: Float[Tensor, "b n s"],
        values: Float[Tensor, "b n i"] | None,
        time: Float[Tensor, " b"] | None,
    ) -> Float[Tensor, "b n c"]:
        """The features before the first block, each point by itself."""
        features = self.encoding(positions)
        x = self.lift(features if values is None else torch.cat([features, values], dim=-1))
        return x if self.time is None else x + self.time(time).unsqueeze(1)

    def read(
        self,
        x: Float[Tensor, "b n c"],
        coefficients: Sequence[Tensor],
        positions: Float[Tensor, "b n s"],
    ) -> Float[Tensor, "b n c"]:
        """The features after the first blocks, whose coefficients are given."""
        for block, kept in zip(self.stack, coefficients, strict=False):
            x = block.read(x, kept, positions=positions)
        return x

    def headed(self, x: Float[Tensor, "b n c"]) -> Float[Tensor, "b n o"]:
        """The output fields from the features after the last block, each point by itself."""
        return self.head(self.head_norm(x))

    def check(self, positions: Tensor, values: Tensor | None, time: Tensor | None) -> None:
        """Shapes at the door, in words."""
        if positions.ndim != 3 or positions.shape[-1] != self.space:
            raise ValueError(
                f"positions: expected (b, n, {self.space}), got {tuple(positions.shape)}"
            )
        b, n = positions.shape[:2]
        got: tuple[int, ...] | None = None if values is None else tuple(values.shape)
        wanted: tuple[int, ...] | None = (b, n, self.inputs) if self.inputs else None
        if got != wanted:
            raise ValueError(
                f"values: expected {wanted or 'none, the model was built with inputs=0'}, got {got}"
            )
        got = None if time is None else tuple(time.shape)
        wanted = None if self.time is None else (b,)
        if got != wanted:
            raise ValueError(
                f"time: expected {wanted}, as the model was built with "
                f"time={self.time is not None}, got {got}"
            )


def _again(block: Block, x: Tensor, **points: Any) -> Tensor:
    """A block whose call is repeated for the gradient."""
    if torch.compiler.is_compiling():
        return block(x, **points)
    with computed_again():
        return block(x, **points)


def _without_padding(
    positions: Tensor, values: Tensor | None, weights: Tensor | None, mask: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The same with 0 at masked points, whatever stood there."""
    if mask is None:
        return positions, values, weights
    padding = ~mask.unsqueeze(-1)
    return (
        positions.masked_fill(padding, 0),
        None if values is None else values.masked_fill(padding, 0),
        None if weights is None else weights.masked_fill(~mask, 0),
    )
