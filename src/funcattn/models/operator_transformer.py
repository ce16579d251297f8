"""The whole network: lift, blocks, head.

A field travels one way: positions and values at the points are lifted to c channels, each block
adds an attention between all points and a network at each point, and the head reads off the output
fields. Nothing here knows a resolution, so the same network takes any number of points.

Axes: b batch, n point, s space dimension, i input channel, o output channel, c width.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn import FunctionalAttention, RawPositions, TimeEmbedding
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

    >>> import torch
    >>> from functools import partial
    >>> from funcattn import FunctionalAttention, OperatorTransformer
    >>> model = OperatorTransformer(
    ...     space=2, inputs=1, outputs=1, width=32, layers=2,
    ...     attention=partial(FunctionalAttention, heads=4, bases=16),
    ... )
    >>> model(torch.rand(3, 500, 2), torch.randn(3, 500, 1)).shape
    torch.Size([3, 500, 1])
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
    ) -> None:
        super().__init__()
        self.space, self.inputs = space, inputs
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
        self._check(positions, values, time)
        check_point_weights(None, mask, positions.shape[1])
        check_batch(len(positions), mask=mask, weights=weights)
        if mask is not None:
            padding = ~mask.unsqueeze(-1)
            positions = positions.masked_fill(padding, 0)
            values = None if values is None else values.masked_fill(padding, 0)
            weights = None if weights is None else weights.masked_fill(~mask, 0)
        features = self.encoding(positions)
        x = self.lift(features if values is None else torch.cat([features, values], dim=-1))
        if self.time is not None:
            x = x + self.time(time).unsqueeze(1)
        for block in self.blocks:
            x = block(x, positions=positions, grid=grid, mask=mask, weights=weights)
        out = self.head(self.head_norm(x))
        return out if mask is None else out.masked_fill(padding, 0)

    def _check(self, positions: Tensor, values: Tensor | None, time: Tensor | None) -> None:
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
