"""Functional attention with a learned basis in two passes over chunks of points.

What the layer says in products of n x c matrices, said in the fewest: linear maps that meet are
multiplied beforehand where that saves work, biases become part of small matrices, and
`funcattn.ops.chunked` does the rest without a matrix of n x g.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal, cast

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from funcattn.nn.bases import LearnedBasis
from funcattn.nn.feature_maps import Pointwise
from funcattn.nn.points import Points
from funcattn.ops.buffers import buffers
from funcattn.ops.checks import check_batch, check_point_weights, check_total_weight
from funcattn.ops.chunked import Gathered, LocalMaps, gather, scatter
from funcattn.ops.linalg import full_precision
from funcattn.ops.memory import available_bytes
from funcattn.ops.projections import KnowsMass, chosen_projection
from funcattn.ops.sharding import sum_over_ranks

if TYPE_CHECKING:
    from funcattn.nn.attention import FunctionalAttention

Execution = Literal["auto", "plain", "stored", "streamed"]

_FEW_VALUES = 2**15
"""Values of a sample's features below which the plain form is faster: chunks have small products of
their own, and more Python. Channels beyond `_MANY_CHANNELS` do not make it so any sooner."""
_MANY_CHANNELS = 128
_SMALL_STORE = 2**26
"""Bytes of a stored basis that nobody minds."""
_SHARE_OF_MEMORY = 1 / 16
"""The part of the free memory that one layer's stored basis may take: of a network's layers all are
kept for the gradient. Each layer leaves less to the next, so that many do not fill the memory."""
_SHARE_WITHOUT_GRADIENT = 1 / 8
"""The same where there will be no gradient: it is kept from the layer's first pass to its second,
and one layer comes after the other."""
_computed_again: ContextVar[bool] = ContextVar("funcattn_computed_again", default=False)


def why_not_chunked(layer: "FunctionalAttention", x: Tensor, points: Points) -> str | None:
    """What keeps self-attention from being done in chunks, in words, or None."""
    basis = layer.basis
    if type(basis) is not LearnedBasis or layer.key_basis is not basis:
        return "it has another basis than one LearnedBasis"
    if not _knows_mass(type(chosen_projection(layer.projection))):
        return "its projection needs more of the basis than the mass"
    if layer.maps == "points" and not all(
        isinstance(features, Pointwise) for features in (basis.features, layer.to_query)
    ):
        return "its maps at the points are not point-wise"
    if type(layer.to_output) is not nn.Linear:
        return "its output map is not linear"
    if torch.compiler.is_compiling():
        return "it is compiled or exported"
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return "a transform of functions is at work"
    if x.dtype not in (torch.float32, torch.float64) or layer.to_output.weight.dtype != x.dtype:
        return "its features are not in float32 or float64 as its weights are"
    if any(_is_watched(part) for part in layer.children()):
        return "a hook waits for one of its parts to be called"
    if points.weights is not None and points.weights.requires_grad:
        return "the point weights want a gradient"
    return None


def has_few_points(layer: "FunctionalAttention", x: Tensor) -> bool:
    """Whether the plain form is faster for so few points."""
    # Ranks have numbers of points of their own, but all make the same calls.
    return layer.ranks is None and x.shape[1] * min(x.shape[2], _MANY_CHANNELS) < _FEW_VALUES


def _is_watched(module: nn.Module) -> bool:
    """Whether somebody waits for a call of this module or of one in it: chunks make none."""
    return any(
        part._forward_hooks
        or part._forward_pre_hooks
        or part._backward_hooks
        or part._backward_pre_hooks
        for part in module.modules()
    )


@cache
def _knows_mass(projection: type) -> bool:
    # Remembered: to look at a class for the methods of a protocol takes its time.
    return issubclass(projection, KnowsMass)


def is_folded(layer: "FunctionalAttention") -> bool:
    """Whether maps of the width are multiplied with those of the heads beforehand.

    c x c and then, head by head, d x g are then c x hg at once, which is less work for one head, or
    few functions; the field's map is left to its few coefficients, and that of the output likewise.
    """
    basis = _learned(layer)
    is_local = isinstance(basis.features, Pointwise) and (
        layer.maps == "points" or isinstance(layer.features, Pointwise)
    )
    return is_local and basis.bases * (layer.heads - 1) <= layer.to_output.in_features


def points_to_store(layer: "FunctionalAttention", x: Tensor) -> int:
    """At how many points of a sample there is memory to store the basis; at the others it is
    computed again."""
    a_number = len(x) * x.element_size()
    basis = a_number * layer.heads * _learned(layer).bases
    # Features, values and the gradient of these; where maps are folded there are none.
    with_features = basis if is_folded(layer) else basis + a_number * 4 * x.shape[2]
    if with_features * x.shape[1] <= _SMALL_STORE:
        return x.shape[1]
    if _computed_again.get():
        return 0
    free = available_bytes(x.device) + (buffers.idle if x.device.type == "cpu" else 0)
    if torch.is_grad_enabled():
        return int(_SHARE_OF_MEMORY * free / with_features)
    # Beyond the buffers that are used again, fresh memory costs as much as the basis once more.
    return int(min(buffers.most, _SHARE_WITHOUT_GRADIENT * free) / basis)


@contextmanager
def computed_again() -> Iterator[None]:
    """For layers whose call is repeated for the gradient, and must then choose as at first.

    The free memory, which is another the second time, has no say here.
    """
    token = _computed_again.set(True)
    try:
        yield
    finally:
        _computed_again.reset(token)


@dataclass(frozen=True)
class Prepared:
    """A layer's maps, multiplied where they meet.

    x, field, maps: for the passes over the points. field_weight (h f, c), field_bias (h f): what
    the moments have yet to be mapped by, on coefficients; None: nothing.
    """

    x: Tensor
    field: Tensor | None
    maps: LocalMaps
    field_weight: Tensor | None
    field_bias: Tensor | None


def prepared(layer: "FunctionalAttention", x: Tensor, points: Points) -> Prepared:
    """The maps of a layer for a call."""
    basis, h = _learned(layer), layer.heads
    with full_precision(x.device):
        temperature = basis.bounded_temperature()
        score_weight = basis.scores.weight.mT / temperature.view(-1, 1, 1)  # (h, d, g)
        score_bias = basis.scores.bias / temperature.view(-1, 1)
        by_point = _field_map(layer)
        if by_point is None or not isinstance(basis.features, Pointwise):
            field = layer.features(x, points)
            maps = LocalMaps(None, score_weight, score_bias)
            return Prepared(basis.features(x, points), field, maps, None, None)
        field_weight, field_bias = by_point
        first = basis.features.map
        score_bias = score_bias + (first.bias.view(h, 1, -1) @ score_weight).squeeze(1)
        if is_folded(layer):
            by_heads = first.weight.unflatten(0, (h, -1)).mT @ score_weight  # (h, c, g)
            weight = by_heads.transpose(0, 1).flatten(1)  # (c, h g)
            maps = LocalMaps(None, weight.unsqueeze(0), score_bias.view(1, -1), groups=h)
            return Prepared(x, None, maps, field_weight, field_bias)
        maps = LocalMaps(torch.cat([first.weight, field_weight]), score_weight, score_bias)
        return Prepared(x, None, maps, None, field_bias)


def coefficients_of_points(
    layer: "FunctionalAttention", given: Prepared, points: Points, *, store: int
) -> tuple[Tensor, Gathered]:
    """The first pass, and the coefficients (b h g f) of the fields that the layer transports."""
    x = given.x
    shard = layer.ranks is not None
    check_point_weights(points.weights, points.mask, x.shape[1], shard=shard)
    check_batch(len(x), weights=points.weights, mask=points.mask)
    with full_precision(x.device):
        sums, gathered = gather(
            x, given.field, given.maps, point_weights=_weights(x, points), store=store
        )
        if layer.ranks is not None:
            sums = sum_over_ranks(sums, layer.ranks.group)
            check_total_weight(sums[:, :, -1].sum(-1))
        moments_and_statistic = _of_the_field(layer, given, sums)
        return chosen_projection(layer.projection).coefficients(*moments_and_statistic), gathered


def sums_of_points(
    layer: "FunctionalAttention", given: Prepared, points: Points
) -> tuple[Tensor, Tensor | float]:
    """What the points add to the moments (b h g f) and to the statistic of the whole mesh."""
    with full_precision(given.x.device):
        point_weights = _weights(given.x, points)
        sums, _ = gather(given.x, given.field, given.maps, point_weights=point_weights, store=0)
        return _of_the_field(layer, given, sums)


def _of_the_field(
    layer: "FunctionalAttention", given: Prepared, sums: Tensor
) -> tuple[Tensor, Tensor | float]:
    """The moments of the fields that the layer transports, and the projection's statistic."""
    moments, mass = sums[:, :, :-1].mT, sums[:, :, -1:].mT
    if given.field_weight is not None:
        # (b, 1, h g, c) -> (b, h, g, c)
        moments, mass = (total.unflatten(2, (layer.heads, -1))[:, 0] for total in (moments, mass))
        moments = moments @ given.field_weight.unflatten(0, (layer.heads, -1)).mT
    if given.field_bias is not None:
        moments = moments + mass * given.field_bias.view(layer.heads, 1, -1)
    projection = cast("KnowsMass", chosen_projection(layer.projection))
    return moments, projection.statistic_of_mass(mass)


def values_at_points(
    layer: "FunctionalAttention", gathered: Gathered, coefficients: Tensor, points: Points
) -> Tensor:
    """The second pass: the functions that the coefficients stand for, heads mixed, (b n c)."""
    weight, bias = layer.to_output.weight, layer.to_output.bias
    x = gathered.x
    mask = None if points.mask is None else points.mask.expand(x.shape[:2])
    with full_precision(x.device):
        if len(gathered.maps.score_weight) == 1:  # one head, or all folded into one
            by_heads = weight.unflatten(1, (layer.heads, -1)).permute(1, 2, 0)  # (h, e, c)
            moved = (coefficients @ by_heads).flatten(1, 2).unsqueeze(1)  # (b, 1, h g, c)
            return scatter(gathered, moved, None, bias, mask=mask)
        return scatter(gathered, coefficients, weight, bias, mask=mask)


def _field_map(layer: "FunctionalAttention") -> tuple[Tensor, Tensor] | None:
    """One map to the fields of all heads, head by head; None where it is not point-wise."""
    if layer.maps == "coefficients":
        field = layer.features
        return (field.map.weight, field.map.bias) if isinstance(field, Pointwise) else None
    maps = [
        features.map
        for features in (layer.to_query, layer.to_key, layer.to_value)
        if isinstance(features, Pointwise)
    ]
    h = layer.heads
    # 3 of (h, d, c) -> (h, 3, d, c): the channels of a head side by side
    weight = torch.stack([m.weight.unflatten(0, (h, -1)) for m in maps], 1).flatten(0, 2)
    return weight, torch.stack([m.bias.unflatten(0, (h, -1)) for m in maps], 1).flatten()


def _weights(x: Tensor, points: Points) -> Tensor | None:
    """Weights and mask as one factor at each point."""
    weights = None if points.weights is None else points.weights.to(x.dtype)
    if points.mask is not None:
        mask = points.mask.to(x.dtype)
        weights = mask if weights is None else weights * mask
    return None if weights is None else weights.expand(x.shape[:2])


def _learned(layer: "FunctionalAttention") -> LearnedBasis:
    assert isinstance(layer.basis, LearnedBasis)
    return layer.basis
