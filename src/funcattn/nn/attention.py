"""The functional attention layer."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from funcattn.nn.bases import LearnedBasis, split_heads
from funcattn.nn.feature_maps import FeatureMap, Pointwise, linear
from funcattn.nn.points import Points
from funcattn.nn.ridges import ConvexRidge
from funcattn.ops import (
    Basis,
    Form,
    Projection,
    ProjectionName,
    Ridge,
    Sided,
    both_sides,
    functional_attention,
    lift,
    projector,
    transport,
)
from funcattn.ops.checks import check_finite


class FunctionalAttention(nn.Module):
    """Functional attention between the points of x, or from the points of x to those of a context.

    The layer makes bases and fields from features, lets `funcattn.ops.functional_attention` carry
    the values, and mixes the heads: (b n c) -> (b n c), linear in n.

    width, heads, bases: c, h (divides c) and g.
    basis: a module as described in `funcattn.nn.bases`; default `LearnedBasis`.
    key_basis: the same for the key side; default: the same module as `basis`.
    features: point-wise maps, or stencils for points that form a grid (`Stencil`).
    maps: where queries, keys and values are made: on the "coefficients", by d x d maps that the
        heads share (the public reference code, cheaper), or at the "points", by c x c maps (the
        paper's text).
    projection, form: as in `functional_attention`.
    ridge: a module that returns the op's ridge, or a fixed number that is added; default
        `ConvexRidge()`.

    >>> import torch
    >>> layer = FunctionalAttention(width=64, heads=4, bases=16)
    >>> x = torch.randn(2, 1000, 64)
    >>> layer(x).shape
    torch.Size([2, 1000, 64])
    >>> layer(x, torch.randn(2, 300, 64)).shape  # to 300 other points
    torch.Size([2, 1000, 64])
    """

    def __init__(
        self,
        width: int,
        heads: int = 8,
        bases: int = 64,
        *,
        basis: nn.Module | None = None,
        key_basis: nn.Module | None = None,
        features: FeatureMap = Pointwise,
        maps: Literal["coefficients", "points"] = "coefficients",
        projection: Projection | ProjectionName = "average",
        ridge: nn.Module | float | None = None,
        form: Form = "auto",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width: expected a multiple of heads={heads}, got {width}")
        if maps not in ("coefficients", "points"):
            raise ValueError(f"maps: expected 'coefficients' or 'points', got {maps!r}")
        self.to_query: nn.Module
        self.to_key: nn.Module
        self.to_value: nn.Module
        self.heads, self.maps, self.projection, self.form = heads, maps, projection, form
        if basis is None:
            basis = LearnedBasis(width, heads, bases, features=features)
        self.basis = basis
        self.key_basis = basis if key_basis is None else key_basis
        self.ridge = ConvexRidge() if ridge is None else ridge
        if maps == "coefficients":
            self.features = features(width, width)
            channels = width // heads
            self.to_query, self.to_key, self.to_value = (
                linear(channels, channels, bias=False) for _ in range(3)
            )
        else:
            self.to_query, self.to_key, self.to_value = (features(width, width) for _ in range(3))
        self.to_output = linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "b n c"],
        context: Float[Tensor, "b m c"] | None = None,
        *,
        positions: Sided = None,
        grid: tuple[int, ...] | None = None,
        mask: Sided = None,
        weights: Sided = None,
    ) -> Float[Tensor, "b n c"]:
        """Attend from x to itself, or to `context` where one is given.

        With a context, `positions`, `mask` and `weights` may be pairs (of x, of the context).
        `grid` is the one of x; stencil features therefore do not go with a context.
        """
        (x_positions, context_positions) = both_sides(positions)
        (x_mask, context_mask), (x_weights, context_weights) = both_sides(mask), both_sides(weights)
        check_finite(x=x, context=context)
        here = Points(x_positions, grid, x_mask, x_weights)
        source, there = x, here
        if context is not None:
            source, there = context, Points(context_positions, None, context_mask, context_weights)

        query_basis = self.basis(x, here)
        one_basis = context is None and self.key_basis is self.basis
        key_basis = query_basis if one_basis else self.key_basis(source, there)
        ridge = self.ridge() if isinstance(self.ridge, nn.Module) else self.ridge

        if self.maps == "points":
            out = functional_attention(
                split_heads(self.to_query(x, here), self.heads),
                split_heads(self.to_key(source, there), self.heads),
                split_heads(self.to_value(source, there), self.heads),
                query_basis,
                key_basis,
                ridge=ridge,
                projection=self.projection,
                weights=(here.weights, there.weights),
                mask=(here.mask, there.mask),
                form=self.form,
            )
        else:
            out = self._on_coefficients(x, source, query_basis, key_basis, here, there, ridge)
        out = out.real if out.is_complex() else out
        out = out.transpose(1, 2).flatten(2)  # (b, h, n, d) -> (b, n, h d)
        return self.dropout(self.to_output(out.to(x.dtype)))

    def _on_coefficients(
        self,
        x: Tensor,
        source: Tensor,
        query_basis: Basis,
        key_basis: Basis,
        here: Points,
        there: Points,
        ridge: Ridge,
    ) -> Tensor:
        """Project one field a side, make queries, keys and values of its coefficients."""
        field = split_heads(self.features(x, here), self.heads)
        of_query = projector(query_basis, self.projection, weights=here.weights, mask=here.mask)(
            field
        )
        of_key = of_query
        if there is not here or key_basis is not query_basis:
            if there is not here:
                field = split_heads(self.features(source, there), self.heads)
            of_key = projector(key_basis, self.projection, weights=there.weights, mask=there.mask)(
                field
            )
        moved = transport(
            _mapped(of_query, self.to_query),
            _mapped(of_key, self.to_key),
            _mapped(of_key, self.to_value),
            ridge=ridge,
            form=self.form,
        )
        return lift(query_basis, moved, mask=here.mask)

    def share_basis_with(self, other: "FunctionalAttention") -> None:
        """Use the basis modules of another layer, and its value features, from now on."""
        self.basis, self.key_basis = other.basis, other.key_basis
        if self.maps == other.maps == "coefficients":
            self.features = other.features


def _mapped(coefficients: Tensor, layer: nn.Module) -> Tensor:
    """A linear map of coefficients, which may be complex or longer than the layer's dtype."""
    weight = layer.get_parameter("weight")
    return coefficients @ weight.mT.to(coefficients.dtype)
