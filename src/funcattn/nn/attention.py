"""The functional attention layer."""

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from jaxtyping import Float, Inexact
from torch import Tensor, nn

from funcattn.nn.bases import GridFourierBasis, LearnedBasis, OrthonormalBasis, split_heads
from funcattn.nn.chunked import (
    Execution,
    coefficients_of_points,
    has_few_points,
    points_to_store,
    prepared,
    sums_of_points,
    values_at_points,
    why_not_chunked,
)
from funcattn.nn.feature_maps import FeatureMap, GridConvolution, Pointwise, Stencil, linear
from funcattn.nn.points import Points
from funcattn.nn.ridges import ConvexRidge
from funcattn.ops import (
    Basis,
    Form,
    Projection,
    ProjectionName,
    Sided,
    analyse,
    both_sides,
    lift,
    projector,
    transport,
)
from funcattn.ops.checks import check_finite
from funcattn.ops.chunked import Gathered
from funcattn.ops.linalg import at_least_float32, full_precision
from funcattn.ops.projections import chosen_projection
from funcattn.ops.sharding import Ranks, sum_together
from funcattn.ops.transport_once import transport_once

NOT_LOCAL = (Stencil, GridConvolution, OrthonormalBasis, GridFourierBasis)
"""Modules that look at other points than the one they give a value for."""


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
    execution: how self-attention with a learned basis is computed, which changes nothing but
        rounding: "plain", by ordinary operations on all points, which can be differentiated as
        often as one likes; "stored" and "streamed", in chunks of points with a gradient of its own,
        the basis stored for it or computed again (slower, in a few hundred bytes a point
        instead of thousands). "auto": stored at as many points as memory allows, computed again
        at the others; plain for few points, where that is faster, and where neither can do it, as
        when it is compiled.

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
        execution: Execution = "auto",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width: expected a multiple of heads={heads}, got {width}")
        if maps not in ("coefficients", "points"):
            raise ValueError(f"maps: expected 'coefficients' or 'points', got {maps!r}")
        if execution not in get_args(Execution):
            raise ValueError(
                f"execution: expected one of {', '.join(get_args(Execution))}, got {execution!r}"
            )
        self.execution = execution
        self.ranks: Ranks | None = None
        """Over which the points are spread; set by `funcattn.spread_points`."""
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
        if context is None:
            return self._to_itself(x, here)
        there = Points(context_positions, None, context_mask, context_weights)
        bases = self.basis(x, here), self.key_basis(context, there)
        return self._mixed(x, *self._attended(x, context, *bases, here, there))

    def encode(
        self,
        x: Float[Tensor, "b n c"],
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Inexact[Tensor, "b h g e"]:
        """What the points of x have to say to any point, in a few coefficients.

        `read(x, encode(x))` is `forward(x)`. Only for layers whose basis and features at a point
        depend on nothing but that point.
        """
        self._check_local()
        here = Points(positions, None, mask, weights)
        if self._is_chunked(x, here):
            given = prepared(self, x, here)
            return self._transported(coefficients_of_points(self, given, here, store=0)[0])
        basis = self.basis(x, here)
        key_basis = basis if self.key_basis is self.basis else self.key_basis(x, here)
        return self._attended(x, x, basis, key_basis, here, here)[1]

    def sums(
        self,
        x: Float[Tensor, "b n c"],
        *,
        positions: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """What the points of x add to the sums over all points of a mesh that comes in parts.

        Sums of the parts add up, one by one, to those of the mesh, and `coefficients` makes of them
        what `encode` says of the mesh.
        """
        self._check_local()
        here = Points(positions, None, None, weights)
        if self._is_chunked(x, here):
            return _as_tensors(*sums_of_points(self, prepared(self, x, here), here))
        if self.maps == "points":
            features = (self.to_query, self.to_key, self.to_value)
            # (b, h, n, d) each -> (b, h, n, 3 d), the channels of a head side by side
            field = torch.cat([split_heads(f(x, here), self.heads) for f in features], -1)
        else:
            field = split_heads(self.features(x, here), self.heads)
        sides = [self.basis] if self.key_basis is self.basis else [self.basis, self.key_basis]
        of_sides = (self._moments(basis(x, here), field, weights) for basis in sides)
        return tuple(total for pair in of_sides for total in pair)

    def coefficients(self, sums: Sequence[Tensor]) -> Inexact[Tensor, "b h g e"]:
        """What `encode` returns, from `sums` over all points of a mesh."""
        projection = chosen_projection(self.projection)
        if self.ranks is not None:
            sums = sum_together(sums, self.ranks.group)
        of_query = projection.coefficients(sums[0], sums[1])
        if self.key_basis is self.basis:
            return self._transported(of_query)
        of_key = projection.coefficients(sums[2], sums[3])
        if self.maps == "points":
            return self._moved(of_query.chunk(3, -1)[0], *of_key.chunk(3, -1)[1:])
        return self._moved(
            _mapped(of_query, self.to_query),
            _mapped(of_key, self.to_key),
            _mapped(of_key, self.to_value),
        )

    def _moments(self, basis: Basis, field: Tensor, weights: Tensor | None) -> tuple[Tensor, ...]:
        """The sums over points of one basis: moments of a field (b h g f), and the statistic."""
        projection = chosen_projection(self.projection)
        with full_precision(field.device):
            field = field.to(at_least_float32(field.dtype))
            if isinstance(basis, Tensor):
                basis = basis.to(at_least_float32(basis.dtype))
            per_point = None
            if weights is not None:
                per_point = weights.to(field.dtype).unsqueeze(-2).unsqueeze(-1)  # (b, 1, n, 1)
                field = per_point * field
            return _as_tensors(analyse(basis, field), projection.statistic(basis, per_point))

    def read(
        self,
        x: Float[Tensor, "b n c"],
        coefficients: Inexact[Tensor, "b h g e"],
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Float[Tensor, "b n c"]:
        """What `encode` has kept, as the points of x see it; these may be any others."""
        self._check_local()
        here = Points(positions, None, mask, None)
        # The second pass leaves its gradient to that of a first one, which there is not.
        if not torch.is_grad_enabled() and self._is_chunked(x, here):
            given = prepared(self, x, here)
            gathered = Gathered(given.x, given.maps, None, None)
            return self.dropout(values_at_points(self, gathered, coefficients, here))
        return self._mixed(x, self.basis(x, here), coefficients, here)

    def _to_itself(self, x: Tensor, points: Points) -> Tensor:
        """Self-attention, in chunks of points or at once."""
        if not self._is_chunked(x, points):
            basis = self.basis(x, points)
            key_basis = basis if self.key_basis is self.basis else self.key_basis(x, points)
            return self._mixed(x, *self._attended(x, x, basis, key_basis, points, points))
        store = {"stored": x.shape[1], "streamed": 0}.get(self.execution)
        if store is None:
            store = points_to_store(self, x)
        given = prepared(self, x, points)
        coefficients, gathered = coefficients_of_points(self, given, points, store=store)
        moved = self._transported(coefficients, transport_once)
        return self.dropout(values_at_points(self, gathered, moved, points))

    def _is_chunked(self, x: Tensor, points: Points) -> bool:
        """Whether the call is done in chunks of points."""
        if self.execution == "plain":
            return False
        obstacle = why_not_chunked(self, x, points)
        if self.execution == "auto":
            # Autocast is a wish for products in half precision, which chunks do not make. What is
            # compiled has an obstacle: its number of points must not be looked at.
            return not (
                obstacle or torch.is_autocast_enabled(x.device.type) or has_few_points(self, x)
            )
        if obstacle is not None:
            raise ValueError(
                f"execution: expected a call that can be done in chunks for {self.execution!r}, "
                f"got one that cannot: {obstacle}; use 'auto' or 'plain'"
            )
        return True

    def _attended(
        self,
        x: Tensor,
        source: Tensor,
        query_basis: Basis,
        key_basis: Basis,
        here: Points,
        there: Points,
    ) -> tuple[Basis, Tensor, Points]:
        """The query basis, its coefficients of the result, and the points to lift them to."""
        of_queries = self._projector(query_basis, x, here)
        of_keys = of_queries
        if there is not here or key_basis is not query_basis:
            of_keys = self._projector(key_basis, source, there)
        if self.maps == "points":
            moved = self._moved(
                of_queries(split_heads(self.to_query(x, here), self.heads)),
                of_keys(split_heads(self.to_key(source, there), self.heads)),
                of_keys(split_heads(self.to_value(source, there), self.heads)),
            )
            return query_basis, moved, here
        field = split_heads(self.features(x, here), self.heads)
        of_query = of_queries(field)
        if of_keys is of_queries:
            return query_basis, self._transported(of_query), here
        if there is not here:
            field = split_heads(self.features(source, there), self.heads)
        of_key = of_keys(field)
        moved = self._moved(
            _mapped(of_query, self.to_query),
            _mapped(of_key, self.to_key),
            _mapped(of_key, self.to_value),
        )
        return query_basis, moved, here

    def _projector(self, basis: Basis, x: Tensor, points: Points) -> Callable[[Tensor], Tensor]:
        """The projection of fields at the points of x, by sums over all ranks that have points."""
        if self.ranks is None:
            return projector(basis, self.projection, weights=points.weights, mask=points.mask)
        # One number for every sample, so that sums have one shape on all ranks, also where some of
        # them have weights or masks and others none.
        weights = x.new_ones(()) if points.weights is None else points.weights
        weights = weights.expand(x.shape[:2])
        group = self.ranks.group
        return projector(basis, self.projection, weights=weights, mask=points.mask, group=group)

    def _transported(self, coefficients: Tensor, by: Callable[..., Tensor] = transport) -> Tensor:
        """Transport between points and themselves, from the coefficients of their field or, with
        maps at the points, from those of queries, keys and values side by side."""
        if self.maps == "points":
            return self._moved(*coefficients.chunk(3, -1), by=by)
        # One product for the three maps.
        maps = [_weight(layer) for layer in (self.to_query, self.to_key, self.to_value)]
        weight = torch.cat(maps).to(coefficients.dtype)
        return self._moved(*(coefficients @ weight.mT).chunk(3, -1), by=by)

    def _moved(
        self, query: Tensor, key: Tensor, value: Tensor, *, by: Callable[..., Tensor] = transport
    ) -> Tensor:
        ridge = self.ridge() if isinstance(self.ridge, nn.Module) else self.ridge
        return by(query, key, value, ridge=ridge, form=self.form)

    def _mixed(self, x: Tensor, basis: Basis, coefficients: Tensor, points: Points) -> Tensor:
        """Coefficients to values at the points, heads mixed."""
        out = lift(basis, coefficients, mask=points.mask)
        out = out.real if out.is_complex() else out
        out = out.transpose(1, 2).flatten(2)  # (b, h, n, d) -> (b, n, h d)
        return self.dropout(self.to_output(out.to(x.dtype)))

    def _check_local(self) -> None:
        """Raise where what the layer does at a point depends on others than by the sums."""
        for module in self.modules():
            if isinstance(module, NOT_LOCAL):
                raise ValueError(
                    "encode: expected a layer whose basis and features at a point depend on that "
                    f"point alone, got {type(module).__name__}; use a learned or Fourier basis of "
                    "the positions and point-wise features"
                )

    def share_basis_with(self, other: "FunctionalAttention") -> None:
        """Use the basis modules of another layer, and its value features, from now on."""
        self.basis, self.key_basis = other.basis, other.key_basis
        if self.maps == other.maps == "coefficients":
            self.features = other.features


def _mapped(coefficients: Tensor, layer: nn.Module) -> Tensor:
    """A linear map of coefficients, which may be complex or longer than the layer's dtype."""
    return coefficients @ _weight(layer).mT.to(coefficients.dtype)


def _weight(layer: nn.Module) -> Tensor:
    assert isinstance(layer.weight, Tensor)
    return layer.weight


def _as_tensors(moments: Tensor, statistic: Tensor | float) -> tuple[Tensor, Tensor]:
    """Both as tensors, so that those of several parts of a mesh can be added."""
    if not isinstance(statistic, Tensor):
        # A count of points, which may have more digits than single precision.
        statistic = torch.tensor(statistic, dtype=torch.float64, device=moments.device)
    return moments, statistic
