r"""Functional attention between points and themselves, chunk by chunk: a chunk stays in the cache.

For a learned partition of unity, with the maps of a layer folded into few (`local_maps.py`):

    Phi_h = softmax(y_h S_h + s_h)                      (n g), never in memory as a whole
    T_h   = [field_h, 1]^T w Phi_h                      (f + 1, g), the moments and the mass
    M     = the middle: moments, coefficients, transport, all heads at once, no points
    out   = [Phi_1 M_1, ..., Phi_h M_h] O^T + o         (n c)

There is one pass over the points for T (`passes.sum_forward`) and one for the result
(`passes.lift_forward`). The gradient takes two passes as well: `lift_backward` gives that of M,
autograd takes it through the middle to that of T, and `sum_backward` gives the rest, from T and
from the lift at once, so that Phi is met twice only. All of it is one operation to autograd. Where
the machine has a compiler, the passes are done in C (`native_passes.py`), and on a GPU by kernels
that never store Phi (`ops/fused`).

Phi is computed again on every pass, or stored on the first, or stored at some of the points; that
changes no bit of the result. A gradient that is to be differentiated again (`create_graph=True`) is
made by ordinary operations on whole tensors (`by_operations.py`), with Phi in memory.

Axes: b batch, h head, n point, B point of a chunk, g basis function, c width, k features of all
heads' bases, f field channels of a head, e value channels of a head.
"""

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from funcattn.ops.attention import by_operations, native_middle, native_passes, passes
from funcattn.ops.attention.carrier import Carrier, Maps, Solution
from funcattn.ops.attention.chunks import Store
from funcattn.ops.attention.local_maps import AtPoints, LocalMaps, Remainder, folded
from funcattn.ops.attention.passes import Lifted
from funcattn.ops.attention.transport import Form, Ridge
from funcattn.ops.attention.transport_once import transport_once
from funcattn.ops.buffers import buffers
from funcattn.ops.checks import check_batch, check_point_weights
from funcattn.ops.fused.passes import FusedPasses, fused_passes
from funcattn.ops.linalg import full_precision
from funcattn.ops.memory import saved_tensors_are_taken
from funcattn.ops.moments import Moments
from funcattn.ops.projections import KnowsMass, Projection, ProjectionName, chosen_projection
from funcattn.ops.sharding import Group, Ranks


def functional_attention(
    x: Float[Tensor, "b n c"],
    local: LocalMaps,
    *,
    ridge: Ridge,
    projection: Projection | ProjectionName = "average",
    weights: Tensor | None = None,
    mask: Tensor | None = None,
    form: Form = "auto",
    maps: Maps | None = None,
    group: Group | None = None,
    show: Callable[[Solution], None] | None = None,
    store: int = 0,
    half: torch.dtype | None = None,
) -> Float[Tensor, "b n c"]:
    """From the points of x to themselves, heads mixed.

    The other arguments are those of the plain form; projections are those that know the mass, and
    weights want no gradient.
    local: what is done at each point; it makes basis and fields of x, and mixes the heads.
    store: at how many points of a sample Phi is kept, at most.
    half: that of the result, to which the factors of products at points are rounded too; sums over
        points, softmax and solve stay as they are. See `knows_half`.
    """
    with full_precision(x.device):
        points, remainder = _folded(x, local, half)
        point_weights = _point_weights(points, weights, mask, shard=group is not None)
        middle = _Middle(remainder, Carrier(ridge, projection, form, maps, group), show)
        # The output's map, unless the coefficients have met it already.
        output = local.output.weight if remainder.output_weight is None else None
        given = (*points.tensors, output, local.output.bias, *middle.tensors)
        gradient = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in given)
        kept = _passes(x).store_for(points, store, output=output, gradient=gradient)
        real = None if mask is None else mask.expand(x.shape[:2])
        out: Tensor
        if gradient:
            out = _Attention.apply(  # type: ignore[no-untyped-call]
                middle, kept, points.rest, point_weights, real, *given
            )
        else:
            out = _without_gradient(
                middle, kept, points, point_weights, real, output, local.output.bias
            )
    return out if half is None else out.to(half)


def moments(
    x: Float[Tensor, "b n c"],
    local: LocalMaps,
    *,
    projection: Projection | ProjectionName,
    weights: Tensor | None = None,
    mask: Tensor | None = None,
    shard: bool = False,
    half: torch.dtype | None = None,
) -> Moments:
    """The sums over the points of x alone.

    shard: these are some of the points only, and need not have one that counts.
    """
    with full_precision(x.device):
        points, remainder = _folded(x, local, half)
        point_weights = _point_weights(points, weights, mask, shard=shard)
        sums = _Sums.apply(  # type: ignore[no-untyped-call]
            points.rest, point_weights, *points.tensors
        )
        return remainder.moments(sums, cast("KnowsMass", chosen_projection(projection)))


def lift(
    x: Float[Tensor, "b n c"],
    local: LocalMaps,
    coefficients: Float[Tensor, "b h g e"],
    *,
    mask: Tensor | None = None,
    half: torch.dtype | None = None,
) -> Float[Tensor, "b n c"]:
    """Coefficients of the result at the points of x, heads mixed; no derivatives."""
    with torch.no_grad(), full_precision(x.device):
        points, remainder = _folded(x, local, half)
        output = local.output.weight if remainder.output_weight is None else None
        real = None if mask is None else mask.expand(x.shape[:2])
        out: Tensor = _passes(x).lift_forward(
            points, remainder.lifted(coefficients), output, local.output.bias, real, Store()
        )
        return out if half is None else out.to(half)


def _passes(x: Tensor) -> Any:
    """What has the passes that go over these points."""
    return native_passes if native_passes.can_do(x) else fused_passes(x) or passes


def knows_half(x: Tensor, half: torch.dtype) -> bool:
    """Whether the passes over these points gain by shorter numbers in their products."""
    by = _passes(x)
    if by is native_passes:
        return half == torch.bfloat16 and native_passes.knows_halves()
    return isinstance(by, FusedPasses)


def _folded(x: Tensor, local: LocalMaps, half: torch.dtype | None) -> tuple[AtPoints, Remainder]:
    is_fused = isinstance(_passes(x), FusedPasses)
    points, remainder = folded(x, local, heads=not is_fused)
    if half is None or not knows_half(x, half):
        return points, remainder
    if not is_fused:
        return replace(points, half=True), remainder
    field = None if points.field is None else points.field.to(half)
    return replace(points, x=points.x.to(half), field=field), remainder


@dataclass(frozen=True)
class _Middle:
    """From the sums over points to coefficients for the lift: small, and differentiable."""

    remainder: Remainder
    carrier: Carrier
    show: Callable[[Solution], None] | None

    def __call__(self, sums: Tensor) -> Tensor:
        projection = cast("KnowsMass", chosen_projection(self.carrier.projection))
        moments = self.remainder.moments(sums, projection)
        return self.remainder.lifted(self.carrier([moments], show=self.show, by=transport_once))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (*self.remainder.tensors, *self.carrier.tensors)

    def with_tensors(self, tensors: tuple[Tensor, ...]) -> "_Middle":
        count = len(self.remainder.tensors)
        remainder = self.remainder.with_tensors(tensors[:count])
        return _Middle(remainder, self.carrier.with_tensors(tensors[count:]), self.show)

    def without_hold(self) -> "Callable[[], _Middle]":
        """What gives it back, for a graph to keep: nobody looks, and its group may end."""
        alone = _Middle(self.remainder, replace(self.carrier, group=None), None)
        if self.carrier.group is None:
            return lambda: alone
        ranks = Ranks(weakref.ref(self.carrier.group))  # type: ignore[arg-type]
        return lambda: replace(alone, carrier=replace(alone.carrier, group=ranks.group))

    def in_c(self, sums: Tensor) -> native_middle.MiddleDone | None:
        """Do it in C, with or without a gradient to come, where C knows how and nobody looks."""
        if self.show is not None or not native_passes.can_do(sums):
            return None
        return native_middle.middle_of(sums, self.remainder, self.carrier)

    def with_gradient(self, sums: Tensor, wanted: bool) -> "_MiddleDone":
        """Do it, with a graph of its own.

        wanted: the sums want a gradient too.
        """
        leaves = (
            sums.detach().requires_grad_(wanted),
            *(tensor.detach().requires_grad_(tensor.requires_grad) for tensor in self.tensors),
        )
        with torch.enable_grad(), _without_hooks():
            coefficients = self.with_tensors(leaves[1:])(leaves[0])
        return _MiddleDone(leaves, coefficients)


def _without_hooks() -> AbstractContextManager[object]:
    """Keep hooks for saved tensors, as those of a checkpoint, away: they are for what is large."""
    # Hooks of our own take their place, but cost time, so not where there are none.
    if not saved_tensors_are_taken():
        return nullcontext()
    return torch.autograd.graph.saved_tensors_hooks(_as_it_is, _as_it_is)


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor


@dataclass(frozen=True)
class _MiddleDone:
    """The middle with its graph, kept for the gradient."""

    leaves: tuple[Tensor, ...]
    """The sums, then the tensors of the middle."""
    coefficients: Tensor

    def backward(self, d_coefficients: Tensor) -> tuple[Tensor | None, list[Tensor | None]]:
        """The gradients of the sums, and of the middle's tensors."""
        wanted = [leaf for leaf in self.leaves if leaf.requires_grad]
        if not wanted:
            return None, [None] * (len(self.leaves) - 1)
        # Kept, as the whole graph may be gone through twice.
        found = iter(
            torch.autograd.grad(
                self.coefficients, wanted, d_coefficients, retain_graph=True, allow_unused=True
            )
        )
        d_sums, *rest = [next(found) if leaf.requires_grad else None for leaf in self.leaves]
        return d_sums, rest


@torch.no_grad()
def _without_gradient(
    middle: _Middle,
    store: Store,
    points: AtPoints,
    point_weights: Tensor | None,
    mask: Tensor | None,
    output: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    """Both passes, and nothing kept."""
    by = _passes(points.x)
    sums = by.sum_forward(points, point_weights, store)
    in_c = middle.in_c(sums)
    coefficients = middle(sums) if in_c is None else in_c.coefficients
    out: Tensor = by.lift_forward(points, coefficients, output, bias, mask, store)
    store.give_back()
    return out


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        middle: _Middle,
        store: Store,
        rest: tuple[int, bool],
        point_weights: Tensor | None,
        mask: Tensor | None,
        *given: Tensor | None,
    ) -> Tensor:
        points, output, bias = AtPoints.of(given[:6], *rest), given[6], given[7]
        by = _passes(points.x)
        out: Tensor
        sums = by.sum_forward(points, point_weights, store)
        done = middle.in_c(sums) or middle.with_gradient(sums, points.wants_gradient)
        out = by.lift_forward(points, done.coefficients.detach(), output, bias, mask, store)
        ctx.done, ctx.kept, ctx.rest, ctx.store_is_gone = done, store.kept, rest, False
        ctx.middle, ctx.given = middle.without_hold(), len(given)
        ctx.save_for_backward(*given, point_weights, mask, *store.tensors)
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # once: a checkpoint gives each of them only once
        given, (point_weights, mask, *kept) = saved[: ctx.given], saved[ctx.given :]
        if torch.is_grad_enabled():
            whole = partial(_by_operations, ctx.middle(), ctx.rest, point_weights, mask)
            wanted = ctx.needs_input_grad[5:]
            return (*(None,) * 5, *by_operations.gradients(whole, given, wanted, d_out))
        by = _passes(d_out)
        points, output, bias = AtPoints.of(given[:6], *ctx.rest), given[6], given[7]
        stored = Store(ctx.kept, *kept)
        # Its buffers are others' after one backward pass; a second one computes all of it again.
        store = Store() if ctx.store_is_gone else stored
        d_out, coefficients = d_out.contiguous(), ctx.done.coefficients.detach()

        lifted = Lifted(d_out, coefficients, output, mask, by.d_values_store(points, output, store))
        d_coefficients, d_output = by.lift_backward(points, lifted, store)
        d_sums, d_middle = ctx.done.backward(d_coefficients)
        d_points: tuple[Tensor | None, ...] = (None,) * 6
        if d_sums is not None:
            d_points = by.sum_backward(points, d_sums, point_weights, store, lifted)

        if not ctx.store_is_gone:
            ctx.store_is_gone = True
            stored.give_back()
        if lifted.d_values is not None:
            buffers.give(lifted.d_values)
        d_bias = None if bias is None else d_out.sum((0, 1), dtype=bias.dtype)
        return (*(None,) * 5, *d_points, d_output, d_bias, *d_middle)


def _by_operations(
    middle: _Middle,
    rest: tuple[int, bool],
    point_weights: Tensor | None,
    mask: Tensor | None,
    given: Sequence[Tensor | None],
) -> Tensor:
    """The whole, on whole tensors."""
    points, output, bias, tensors = AtPoints.of(given[:6], *rest), given[6], given[7], given[8:]
    sums = by_operations.sum_forward(points, point_weights)
    coefficients = middle.with_tensors(cast("tuple[Tensor, ...]", tuple(tensors)))(sums)
    return by_operations.lift_forward(points, coefficients, output, bias, mask)


class _Sums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rest: tuple[int, bool], point_weights: Tensor | None, *given: Tensor | None
    ) -> Tensor:
        ctx.rest = rest
        ctx.save_for_backward(point_weights, *given)
        points = AtPoints.of(given, *rest)
        sums: Tensor = _passes(points.x).sum_forward(points, point_weights, Store())
        return sums

    @staticmethod
    def backward(ctx: Any, d_sums: Tensor) -> tuple[Tensor | None, ...]:
        point_weights, *given = ctx.saved_tensors
        if torch.is_grad_enabled():

            def sums(given: Sequence[Tensor | None]) -> Tensor:
                return by_operations.sum_forward(AtPoints.of(given, *ctx.rest), point_weights)

            wanted = ctx.needs_input_grad[2:]
            return None, None, *by_operations.gradients(sums, given, wanted, d_sums)
        points = AtPoints.of(given, *ctx.rest)
        by = _passes(points.x)
        return None, None, *by.sum_backward(points, d_sums, point_weights, Store(), None)


def _point_weights(
    points: AtPoints, weights: Tensor | None, mask: Tensor | None, *, shard: bool
) -> Tensor | None:
    """Weights and mask as one factor at each point, (b n)."""
    x, dtype = points.x, points.score_weight.dtype
    check_point_weights(weights, mask, x.shape[1], shard=shard)
    check_batch(len(x), weights=weights, mask=mask)
    factor = None if weights is None else weights.to(dtype)
    if mask is not None:
        factor = mask.to(dtype) if factor is None else factor * mask.to(dtype)
    return None if factor is None else factor.expand(x.shape[:2])
