"""A block of a network in which points meet in attention only, and its halves.

Axes: b batch, n point, c width, h head, g basis function, e channel of a value.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Inexact
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn.feature_maps import linear
from funcattn.nn.points import Points
from funcattn.ops import Moments


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
