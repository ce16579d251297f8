"""The passes of `passes.py` done in C (`ops/native/attention.c`), with the same signatures.

What is stored of the first points of each sample are the features, the values of the heads and the
gradient of these, which are products of the width. With several heads the basis is computed again
on every pass, block by block in the cache: that takes no longer than to read it from memory. Where
it is a product of the width too, as in folded maps, it is stored.

Where the points say so, the factors of products are rounded to bfloat16. All that is added up or
stored is in float32: sums over points, softmax, values.

Axes: as in `passes.py`.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from funcattn.ops.attention.chunks import Store
from funcattn.ops.attention.local_maps import AtPoints
from funcattn.ops.attention.passes import Lifted
from funcattn.ops.buffers import buffers
from funcattn.ops.native import Library, library
from funcattn.ops.native.products import in_threads, plain_tensors_only

_BLOCK = 96
"""Points that C works on at once, as in its file."""
_MANY_FEATURES = 64
"""Features of a head's basis from which it takes longer to compute it than to read it again."""
_FEWEST_BLOCKS = 8
"""Blocks that make another thread worth its start."""

_SIZES = ("samples", "points", "c", "h", "k", "g", "parts", "f", "e", "out", "half")
_GIVEN = (
    "x", "field", "maps", "maps_transposed", "scores", "scores_transposed", "score_bias",
    "weights", "mask", "coefficients", "coefficients_transposed", "output", "output_transposed",
    "output_bias",
)  # fmt: skip
_ROOMS = ("basis", "features", "values", "d_values", "packed")


class _Call(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_ssize_t) for name in _SIZES),
        *((name, ctypes.c_void_p) for name in _GIVEN),
        ("kept", ctypes.c_ssize_t),
        *((name, ctypes.c_void_p) for name in _ROOMS),
    ]


class _Gradients(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_void_p)
        for name in (
            "d_sums", "d_moments_transposed", "d_out", "d_x", "d_field", "d_maps", "d_scores",
            "d_score_bias",
        )
    ]  # fmt: skip


@cache
def _functions() -> Library | None:
    """The library, its functions told what they are given."""
    found = library()
    if found is None:
        return None
    call, size, pointer = ctypes.POINTER(_Call), ctypes.c_ssize_t, ctypes.c_void_p
    units = (call, size, size)
    found.room_for.argtypes, found.room_for.restype = (call,), size
    found.room_for_packed.argtypes, found.room_for_packed.restype = (call,), size
    for function, arguments in (
        (found.pack_maps, (call,)),
        (found.sum_forward, (*units, pointer, pointer)),
        (found.lift_forward, (*units, ctypes.c_int, pointer, pointer)),
        (found.lift_backward, (*units, ctypes.c_int, pointer, pointer, pointer, pointer)),
        (found.sum_backward, (*units, ctypes.c_int, ctypes.POINTER(_Gradients), pointer)),
    ):
        function.argtypes, function.restype = arguments, None
    return found


def can_do(x: Tensor) -> bool:
    """Whether there is a library, and it knows the features' kind."""
    return (
        x.device.type == "cpu"
        and x.dtype == torch.float32
        and plain_tensors_only()
        and _functions() is not None
    )


def knows_halves() -> bool:
    """Whether it can round the factors of its products to bfloat16, and gains by it."""
    functions = _functions()
    return functions is not None and bool(functions.has_halves())


def store_for(points: AtPoints, most: int, *, output: Tensor | None, gradient: bool) -> Store:
    """Room for at most so many points of each sample."""
    kept = min(most, points.x.shape[1])
    basis = features = values = None
    h, k, g = points.score_weight.shape
    if kept and k >= _MANY_FEATURES:
        basis = _room(points.x, kept, h * g)
    if kept and points.basis_weight is not None and points.field_weight is not None:
        channels = points.basis_weight.shape[0] + points.field_weight.shape[0]
        features = _room(points.x, kept, channels)
    if kept and gradient and output is not None:
        values = _room(points.x, kept, output.shape[1])
    return Store(kept, basis, features, values)


def d_values_store(points: AtPoints, output: Tensor | None, store: Store) -> Tensor | None:
    """Room for the gradient of the values at the points whose features are stored."""
    if not store.kept or output is None:
        return None
    return _room(points.x, store.kept, output.shape[1])


def sum_forward(points: AtPoints, point_weights: Tensor | None, store: Store) -> Tensor:
    """[field, 1]^T w Phi, the first pass, which fills the store. The last row is the mass."""
    done = _Pass(points, store, weights=point_weights, fills=True)
    q = done.call
    sums = points.x.new_zeros(done.threads, q.samples, q.h, q.f + 1, q.g)

    def some(functions: Any, thread: int, first: int, last: int, room: int) -> None:
        functions.sum_forward(q, first, last, sums[thread].data_ptr(), room)

    done.run(some)
    return _summed(sums)


def lift_forward(
    points: AtPoints,
    coefficients: Tensor,
    output: Tensor | None,
    bias: Tensor | None,
    mask: Tensor | None,
    store: Store,
) -> Tensor:
    """[Phi_1 M_1, ...] O^T + o, the second pass; 0 O^T + o at masked points."""
    done = _Pass(points, store, coefficients=coefficients, output=output, bias=bias, mask=mask)
    q = done.call
    out = points.x.new_empty(q.samples, q.points, q.out)

    def some(functions: Any, thread: int, first: int, last: int, room: int) -> None:  # noqa: ARG001
        functions.lift_forward(q, first, last, bool(store.kept), out.data_ptr(), room)

    done.run(some)
    return out


def lift_backward(points: AtPoints, lifted: Lifted, store: Store) -> tuple[Tensor, Tensor | None]:
    """The gradients of the coefficients and of the output's map: the first pass back."""
    done = _Pass.of_lifted(points, store, lifted)
    q, output = done.call, lifted.output
    d_coefficients = points.x.new_zeros(done.threads, q.samples, q.h, q.e * q.g)
    d_output = None if output is None else output.new_zeros(done.threads, *output.shape)

    def some(functions: Any, thread: int, first: int, last: int, room: int) -> None:
        functions.lift_backward(
            q, first, last, bool(store.kept),
            lifted.d_out.data_ptr(), d_coefficients[thread].data_ptr(),
            None if d_output is None else d_output[thread].data_ptr(), room,
        )  # fmt: skip

    done.run(some)
    found = _summed(d_coefficients).unflatten(-1, (q.e, q.g)).mT
    return found, None if d_output is None else _summed(d_output)


def sum_backward(
    points: AtPoints,
    d_sums: Tensor,
    point_weights: Tensor | None,
    store: Store,
    lifted: Lifted | None,
) -> tuple[Tensor | None, ...]:
    """The gradients of the tensors of `points`, from the sums and from the lift: the second pass.

    lifted: None where there was no lift.
    """
    if lifted is None:
        done = _Pass(points, store, weights=point_weights, backward=True)
    else:
        done = _Pass.of_lifted(points, store, lifted, weights=point_weights)
    q, x = done.call, points.x
    d_sums = d_sums.contiguous()
    back = d_sums[:, :, :-1].mT.contiguous()
    d_x = torch.empty_like(x)
    d_field = None if points.field is None else torch.empty_like(points.field)
    has_maps = points.basis_weight is not None
    d_maps = x.new_zeros(done.threads, q.h * (q.k + q.f), q.c) if has_maps else None
    d_scores = x.new_zeros(done.threads, *points.score_weight.shape)
    d_score_bias = x.new_zeros(done.threads, *points.score_bias.shape)

    def some(functions: Any, thread: int, first: int, last: int, room: int) -> None:
        d = _Gradients(
            d_sums.data_ptr(), back.data_ptr(),
            None if lifted is None else lifted.d_out.data_ptr(), d_x.data_ptr(),
            None if d_field is None else d_field.data_ptr(),
            None if d_maps is None else d_maps[thread].data_ptr(),
            d_scores[thread].data_ptr(), d_score_bias[thread].data_ptr(),
        )  # fmt: skip
        functions.sum_backward(q, first, last, bool(store.kept), d, room)

    done.run(some)
    d_both: tuple[Tensor | None, Tensor | None] = (None, None)
    if d_maps is not None:
        of_both = _summed(d_maps)
        d_both = of_both[: q.h * q.k], of_both[q.h * q.k :]
    return d_x, d_field, *d_both, _summed(d_scores), _summed(d_score_bias)


class _Pass:
    """One pass: what C is told of it, and its threads, each of which does blocks in a row."""

    def __init__(
        self,
        points: AtPoints,
        store: Store,
        *,
        weights: Tensor | None = None,
        mask: Tensor | None = None,
        coefficients: Tensor | None = None,
        output: Tensor | None = None,
        bias: Tensor | None = None,
        d_values: Tensor | None = None,
        backward: bool = False,
        fills: bool = False,
    ) -> None:
        x, (h, k, g) = points.x, points.score_weight.shape
        # Of a tensor, shape[0] takes a tenth of the time of len, and few points feel it.
        if points.field_weight is not None:
            channels = points.field_weight.shape[0]
        else:
            channels = (x if points.field is None else points.field).shape[-1]
        e = 0 if coefficients is None else coefficients.shape[-1]
        given: dict[str, Tensor | None] = {
            "x": x, "field": points.field, "scores": points.score_weight,
            "score_bias": points.score_bias, "weights": weights,
            "mask": None if mask is None else mask.to(x.dtype),
            "coefficients": coefficients, "output": output, "output_bias": bias,
        }  # fmt: skip
        if points.maps is not None:
            given["maps_transposed"] = points.maps
            if fills or store.features is None or store.kept < x.shape[1]:
                given["maps"] = points.maps.T
        if backward:
            given["scores_transposed"] = points.score_weight.mT
        if backward and coefficients is not None:
            given["coefficients_transposed"] = coefficients.mT
        if output is not None and not backward:
            given["output_transposed"] = output.T
        self._given = {
            name: tensor.detach().contiguous()
            for name, tensor in given.items()
            if tensor is not None
        }
        rooms = {
            "basis": store.basis, "features": store.features, "values": store.values,
            "d_values": d_values,
        }  # fmt: skip
        self.call = _Call(
            *(*x.shape, h, k, g, points.groups, channels // h, e),
            *(e if output is None else output.shape[0], points.half),
            kept=store.kept,
            **{name: tensor.data_ptr() for name, tensor in self._given.items()},
            **{name: room.data_ptr() for name, room in rooms.items() if room is not None},
        )
        self._like = x
        self._units = x.shape[0] * -(-x.shape[1] // _BLOCK)
        self.threads = max(1, min(torch.get_num_threads(), self._units // _FEWEST_BLOCKS))

    @staticmethod
    def of_lifted(
        points: AtPoints, store: Store, lifted: Lifted, *, weights: Tensor | None = None
    ) -> "_Pass":
        """One for the gradient of a lift."""
        return _Pass(
            points,
            store,
            weights=weights,
            mask=lifted.mask,
            coefficients=lifted.coefficients,
            output=lifted.output,
            d_values=lifted.d_values,
            backward=True,
        )

    def run(self, some: Callable[[Any, int, int, int, int], None]) -> None:
        """Do it: some(functions, thread, first unit, one past the last, address of its room)."""
        functions = _functions()
        assert functions is not None
        packed = buffers.take(functions.room_for_packed(self.call) or 1, self._like)
        self.call.packed = packed.data_ptr()
        functions.pack_maps(self.call)
        each = functions.room_for(self.call)
        room = buffers.take(each * self.threads, self._like)
        start = room.data_ptr()

        def part(given: tuple[int, tuple[int, int]]) -> None:
            thread, (first, last) = given
            some(functions, thread, first, last, start + 4 * thread * each)

        in_threads(part, self._units, self.threads)
        buffers.give(packed)
        buffers.give(room)


def _summed(by_threads: Tensor) -> Tensor:
    """The sum of what the threads have added up."""
    return by_threads[0] if by_threads.shape[0] == 1 else by_threads.sum(0)


def _room(x: Tensor, points: int, channels: int) -> Tensor:
    return buffers.take(x.shape[0] * points * channels, x)
