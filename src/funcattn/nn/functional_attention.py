"""The functional attention layer: moments -> coefficients -> transport -> lift."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

import torch
from jaxtyping import Float, Inexact
from torch import Tensor, nn

from funcattn.nn.attention import Attention
from funcattn.nn.bases import GridFourierBasis, LearnedBasis, OrthonormalBasis, split_heads
from funcattn.nn.execution import Execution, Parts, is_few, is_watched, points_to_store
from funcattn.nn.feature_maps import FeatureMap, GridConvolution, Pointwise, Stencil, linear
from funcattn.nn.points import Points
from funcattn.nn.ridges import ConvexRidge
from funcattn.ops import (
    Basis,
    Carrier,
    CarrierOptions,
    Form,
    Maps,
    Moments,
    Projection,
    ProjectionName,
    functional_attention,
    lift,
    moments_of,
)
from funcattn.ops.attention import chunked
from funcattn.ops.linalg import autocast_dtype
from funcattn.ops.sharding import Ranks

NOT_LOCAL = (Stencil, GridConvolution, OrthonormalBasis, GridFourierBasis)
"""Modules that look at other points than the one they give a value for."""


class FunctionalAttention(Attention):
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
        the basis stored for it or computed again (slower, in a few hundred bytes per point
        instead of thousands), the same to the bit. "auto": stored at as many points as memory
        allows, computed again at the others; plain for few points, where that is faster, and where
        neither can do it, as when it is compiled.

    >>> import torch
    >>> layer = FunctionalAttention(width=64, heads=4, bases=16)
    >>> x = torch.randn(2, 1000, 64)
    >>> layer(x).shape
    torch.Size([2, 1000, 64])
    >>> layer(x, torch.randn(2, 300, 64)).shape  # to 300 other points
    torch.Size([2, 1000, 64])
    >>> layer.inspect(x).map.shape  # C
    torch.Size([2, 4, 16, 16])
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
        super().__init__(width, heads)
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
        self.maps, self.projection, self.form = maps, projection, form
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
        self.add_output(width, dropout)

    def share_basis_with(self, other: "FunctionalAttention") -> None:
        """Use the basis modules of another layer, and its value features, from now on."""
        self.basis, self.key_basis = other.basis, other.key_basis
        if self.maps == other.maps == "coefficients":
            self.features = other.features

    def mixed(
        self, x: Tensor, source: Tensor, here: Points, there: Points
    ) -> Float[Tensor, "b n c"]:
        """The whole layer: in chunks of points, or on whole tensors (`attend`)."""
        parts = self._in_chunks(x, here) if there is here else None
        if parts is None:
            return super().mixed(x, source, here, there)
        x = x.to(parts.dtype)  # under autocast it may be shorter
        local = parts.local_maps(x, here)
        store = {"stored": x.shape[1], "streamed": 0}.get(self.execution)
        return chunked.functional_attention(
            x,
            local,
            **self._options(),
            weights=here.weights,
            mask=here.mask,
            store=points_to_store(x, local) if store is None else store,
            half=autocast_dtype(x.device),
            show=self.shown(lambda: self._bases(x, x, here, here)),
        )

    def attend(
        self, x: Tensor, source: Tensor, here: Points, there: Points
    ) -> Float[Tensor, "b h n d"]:
        """On whole tensors."""
        bases = self._bases(x, source, here, there)
        out = functional_attention(
            *self._fields(x, source, here, there),
            *bases,
            **self._options(),
            weights=self._weights(x, source, here, there),
            mask=here.mask if there is here else (here.mask, there.mask),
            show=self.shown(lambda: bases),
        )
        return out.real if out.is_complex() else out

    def moments(
        self,
        x: Float[Tensor, "b n c"],
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> tuple[Moments, ...]:
        """The sums over the points of x, which may be some of a mesh that comes in parts.

        One for both sides, or one for the queries and one for the keys, where these have a basis of
        their own. Those of the parts add up to those of the mesh. Only for layers whose basis and
        features at a point depend on nothing but that point.
        """
        return self._moments(x, Points(positions, None, mask, weights), shard=True)

    def carried(self, moments: Sequence[Moments]) -> Inexact[Tensor, "b h g e"]:
        """What a mesh has to say to any point, in a few coefficients, from its moments."""
        return Carrier(**self._options())(moments, show=self.shown(lambda: (None, None)))

    def encode(
        self,
        x: Float[Tensor, "b n c"],
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Inexact[Tensor, "b h g e"]:
        """What the points of x have to say to any point: `read(x, encode(x))` is `forward(x)`."""
        here = Points(positions, None, mask, weights)
        shard = self.ranks is not None
        if shard:
            here = replace(here, weights=here.counted(x))
        return self.carried(self._moments(x, here, shard=shard))

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
        # The gradient of the lift in chunks comes with that of the sums, and here are none.
        if not torch.is_grad_enabled() and (parts := self._in_chunks(x, here)):
            x = x.to(parts.dtype)
            local, half = parts.local_maps(x, here), autocast_dtype(x.device)
            return self.dropout(chunked.lift(x, local, coefficients, mask=mask, half=half))
        out = lift(self.basis(x, here), coefficients, mask=mask)
        return self.dropout(self.mix(out.real if out.is_complex() else out, x.dtype))

    def _moments(self, x: Tensor, here: Points, *, shard: bool) -> tuple[Moments, ...]:
        """The sums over these points; shard: others are summed elsewhere."""
        self._check_local()
        if parts := self._in_chunks(x, here):
            x = x.to(parts.dtype)
            of_both = chunked.moments(
                x,
                parts.local_maps(x, here),
                projection=self.projection,
                weights=here.weights,
                mask=here.mask,
                shard=shard,
                half=autocast_dtype(x.device),
            )
            return (of_both,)
        return moments_of(
            *self._fields(x, x, here, here),
            *self._bases(x, x, here, here),
            projection=self.projection,
            weights=here.weights,
            mask=here.mask,
            maps=self._maps(),
            shard=shard,
        )

    def check_points(self, x: Tensor, source: Tensor, here: Points, there: Points) -> None:
        """Done by the operator, which knows whether other ranks have points too."""

    def _bases(self, x: Tensor, source: Tensor, here: Points, there: Points) -> tuple[Basis, Basis]:
        """The functions at the points of both sides; one object where these are the same."""
        basis = self.basis(x, here)
        if there is here and self.key_basis is self.basis:
            return basis, basis
        return basis, self.key_basis(source, there)

    def _fields(
        self, x: Tensor, source: Tensor, here: Points, there: Points
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values at the points, or the fields of which these are maps."""
        if self.maps == "points":
            query = self.to_query(x, here)
            key, value = self.to_key(source, there), self.to_value(source, there)
            fields = [split_heads(field, self.heads) for field in (query, key, value)]
            return fields[0], fields[1], fields[2]
        query = key = split_heads(self.features(x, here), self.heads)
        if there is not here:
            key = split_heads(self.features(source, there), self.heads)
        return query, key, key

    def _maps(self) -> Maps | None:
        """The maps of queries, keys and values on the coefficients."""
        if self.maps == "points":
            return None
        return _weight(self.to_query), _weight(self.to_key), _weight(self.to_value)

    def _options(self) -> CarrierOptions:
        """What all forms of the operator are told, whatever the points."""
        return CarrierOptions(
            ridge=self.ridge() if isinstance(self.ridge, nn.Module) else self.ridge,
            projection=self.projection,
            form=self.form,
            maps=self._maps(),
            group=None if self.ranks is None else self.ranks.group,
        )

    def _weights(
        self, x: Tensor, source: Tensor, here: Points, there: Points
    ) -> Tensor | tuple[Tensor | None, Tensor | None] | None:
        """The weights of the points of both sides."""
        if self.ranks is None:
            return here.weights if there is here else (here.weights, there.weights)
        weights = here.counted(x)
        return weights if there is here else (weights, there.counted(source))

    def _in_chunks(self, x: Tensor, points: Points) -> Parts | None:
        """The parts that the chunked form stands on, where the call is done in chunks of points."""
        if self.execution == "plain":
            return None
        by_points = self.maps == "points"
        parts = Parts(
            self.basis,
            self.key_basis,
            (self.to_query, self.to_key, self.to_value) if by_points else (self.features,),
            self.to_output,
            self.projection,
            self.heads,
        )
        obstacle = parts.why_not_in_chunks(x, points)
        if obstacle is None and any(is_watched(part) for part in self.children()):
            obstacle = "a hook waits for one of its parts to be called"
        if self.execution == "auto":
            # Autocast is a wish for products in half precision, which not all chunks make. What is
            # compiled has an obstacle: its number of points must not be looked at. Ranks have
            # numbers of points of their own, but all make the same calls.
            half = autocast_dtype(x.device)
            is_plain = (
                obstacle
                or (self.ranks is None and is_few(x, parts))
                or (
                    half is not None
                    and not chunked.knows_half(x.new_empty(0, dtype=parts.dtype), half)
                )
            )
            return None if is_plain else parts
        if obstacle is not None:
            raise ValueError(
                f"execution: expected a call that can be done in chunks for {self.execution!r}, "
                f"got one that cannot: {obstacle}; use 'auto' or 'plain'"
            )
        return parts

    def _check_local(self) -> None:
        """Raise where what the layer does at a point depends on others than by the sums."""
        for module in self.modules():
            if isinstance(module, NOT_LOCAL):
                raise ValueError(
                    "encode: expected a layer whose basis and features at a point depend on that "
                    f"point alone, got {type(module).__name__}; use a learned or Fourier basis of "
                    "the positions and point-wise features"
                )


def _weight(layer: nn.Module) -> Tensor:
    assert isinstance(layer.weight, Tensor)
    return layer.weight
