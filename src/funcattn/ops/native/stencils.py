"""Stencils whose neighbours are grid points: convolutions, in C where that is faster.

PyTorch's dense convolutions leave little of a processor unused. In C they have fewer
multiplications instead, a quarter of them on two axes, by Winograd's algorithm (`convolution.h`).
Fields stay as they are, channels last, and nobody pads them.
"""

import ctypes
import math
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from funcattn.ops.buffers import buffers
from funcattn.ops.native.library import Library, library
from funcattn.ops.native.products import in_threads, plain_tensors_only

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_WRITTEN, _READ = 4, 6
"""Points of a tile along an axis."""
_VECTOR = 16
_SETUP = 8
"""Tiles that could be done while the taps are transformed."""
_SHARE = 0.7
"""Of the multiplications of the plain form; with more, it is as fast."""


def stencil_on_points(
    u: Float[Tensor, "b *grid c"],
    weight: Float[Tensor, "k i *taps"],
    bias: Float[Tensor, " k"] | None,
    *,
    steps: Sequence[int],
    periodic: bool,
    reached: Sequence[int] | None = None,
) -> Float[Tensor, "b *grid k"]:
    """Neighbours that fall on grid points, the fast case.

    i = c for stencils that mix all channels, i = 1 for one per channel. Beyond the ends of an axis
    the field keeps its last value, or comes round.

    reached: points to the outermost tap on each axis; one step, by default.
    """
    if reached is not None or not _in_c(u, weight, bias, steps):
        return _padded(u, weight, bias, steps, reached or steps, periodic=periodic)
    if torch.is_grad_enabled() and (
        u.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    ):
        out: Tensor = _Stencil.apply(u, weight, bias, steps, periodic)  # type: ignore[no-untyped-call]
        return out
    return _forward(u, weight, bias, steps, periodic=periodic)


def _padded(
    u: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    steps: Sequence[int],
    reached: Sequence[int],
    *,
    periodic: bool,
) -> Tensor:
    """The plain form: a dilated convolution."""
    padding = [points for points in reversed(reached) for _ in range(2)]
    padded = F.pad(u.movedim(-1, 1), padding, mode="circular" if periodic else "replicate")
    groups = u.shape[-1] // weight.shape[1]
    convolution = CONVOLUTIONS[len(steps)]
    return convolution(padded, weight, bias, dilation=list(steps), groups=groups).movedim(1, -1)


def _in_c(u: Tensor, weight: Tensor, bias: Tensor | None, steps: Sequence[int]) -> bool:
    given = [u, weight] if bias is None else [u, weight, bias]
    return (
        # Before sizes are compared, which an exported program would take for a condition.
        plain_tensors_only()
        and all(each.dtype == torch.float32 and each.device.type == "cpu" for each in given)
        and len(steps) in (1, 2)
        and weight.shape[1:] == (u.shape[-1], *(3,) * len(steps))
        and all(channels % _VECTOR == 0 for channels in weight.shape[:2])
        and (bias is None or len(bias) == len(weight))
        and not torch.is_autocast_enabled("cpu")
        and _pays(u.shape[:-1], steps)
        and _functions() is not None
    )


def _pays(samples_and_axes: Sequence[int], steps: Sequence[int]) -> bool:
    """Whether C has little enough to do, and threads enough to do it."""
    samples, *axes = samples_and_axes
    tiles = samples * _plan(tuple(axes), tuple(steps), periodic=False).tiles
    multiplications = (tiles + _SETUP) * _READ ** len(axes)
    return (
        multiplications <= _SHARE * math.prod(samples_and_axes) * 3 ** len(axes)
        # Threads share samples here, and points in PyTorch.
        and torch.get_num_threads() <= 2 * samples
    )


class _Stencil(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        u: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        steps: Sequence[int],
        periodic: bool,
    ) -> Tensor:
        ctx.save_for_backward(u, weight, bias)
        ctx.steps, ctx.periodic = steps, periodic
        return _forward(u, weight, bias, steps, periodic=periodic)

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        u, weight, bias = ctx.saved_tensors
        of_u, of_weight, of_bias, *_ = ctx.needs_input_grad
        if torch.is_grad_enabled():  # these gradients are to be differentiated
            given, wanted = (u, weight, bias), ctx.needs_input_grad[:3]
            out = _padded(*given, ctx.steps, ctx.steps, periodic=ctx.periodic)
            sources = [each for each, is_wanted in zip(given, wanted, strict=True) if is_wanted]
            found = iter(torch.autograd.grad(out, sources, d_out, create_graph=True))
            return *(next(found) if is_wanted else None for is_wanted in wanted), None, None
        d_u = d_weight = d_bias = None
        d_out = d_out.contiguous()
        if of_u or of_weight:
            d_u, d_weight = _backward(
                u, weight, d_out, ctx.steps, periodic=ctx.periodic, of_u=of_u, of_weight=of_weight
            )
        if of_bias:
            d_bias = d_out.flatten(0, -2).sum(0)
        return d_u, d_weight, d_bias, None, None


def _forward(
    u: Tensor, weight: Tensor, bias: Tensor | None, steps: Sequence[int], *, periodic: bool
) -> Tensor:
    call = _Call(u, weight, steps, periodic=periodic)
    bias = None if bias is None else bias.contiguous()
    out = u.new_empty(*u.shape[:-1], len(weight))

    def some(part: tuple[int, tuple[int, int]]) -> None:
        thread, (first, last) = part
        call.functions.convolve(
            call.plan, first, last, *call.channels, *call.pointers,
            None if bias is None else bias.data_ptr(), out.data_ptr(), call.room_of(thread),
        )  # fmt: skip

    call.run(some)
    return out


def _backward(
    u: Tensor,
    weight: Tensor,
    d_out: Tensor,
    steps: Sequence[int],
    *,
    periodic: bool,
    of_u: bool,
    of_weight: bool,
) -> tuple[Tensor | None, Tensor | None]:
    call = _Call(u, weight, steps, periodic=periodic)
    d_u = u.new_empty(u.shape) if of_u else None
    d_weights = weight.new_empty(call.threads, *weight.shape) if of_weight else None

    def some(part: tuple[int, tuple[int, int]]) -> None:
        thread, (first, last) = part
        call.functions.convolve_backward(
            call.plan, first, last, *call.channels, *call.pointers, d_out.data_ptr(),
            None if d_u is None else d_u.data_ptr(),
            None if d_weights is None else d_weights[thread].data_ptr(), call.room_of(thread),
        )  # fmt: skip

    call.run(some)
    if d_weights is None:
        return d_u, None
    return d_u, d_weights[0] if call.threads == 1 else d_weights.sum(0)


class _Call:
    """What both passes tell C, and the room that it works in."""

    def __init__(self, u: Tensor, weight: Tensor, steps: Sequence[int], *, periodic: bool) -> None:
        functions = _functions()
        assert functions is not None
        self.functions = functions
        self._u, self._weight = u.contiguous(), weight.contiguous()
        self.pointers = self._u.data_ptr(), self._weight.data_ptr()
        self.channels = u.shape[-1], len(weight)
        self._samples, axes = len(u), tuple(u.shape[1:-1])
        self.plan = _plan(axes, tuple(steps), periodic=periodic)
        self.threads = max(1, min(torch.get_num_threads(), self._samples))
        self._each = functions.room_for_convolution(len(axes), *self.channels)
        self._room = buffers.take(self.threads * self._each, u)

    def room_of(self, thread: int) -> int:
        return self._room.data_ptr() + 4 * thread * self._each

    def run(self, some: Callable[[tuple[int, tuple[int, int]]], None]) -> None:
        in_threads(some, self._samples, self.threads)
        buffers.give(self._room)


class _Plan(ctypes.Structure):
    """Which points of a grid the tiles read and write."""

    _fields_ = (
        *((name, ctypes.c_ssize_t) for name in ("axes", "height", "width", "down", "across")),
        *((name, ctypes.c_void_p) for name in ("rows_read", "rows_written")),
        *((name, ctypes.c_void_p) for name in ("columns_read", "columns_written")),
    )
    tables: list[Tensor]
    """What the pointers point to."""
    tiles: int


@lru_cache(maxsize=256)
def _plan(axes: tuple[int, ...], steps: tuple[int, ...], *, periodic: bool) -> _Plan:
    one_row = torch.zeros(1, 1, dtype=torch.int64)
    tables = [] if len(axes) == 2 else [one_row, one_row]
    for length, step in zip(axes, steps, strict=True):
        tables += _tiles(length, step, periodic=periodic)
    height, width = (1, *axes)[-2:]
    down, across = len(tables[0]), len(tables[2])
    plan = _Plan(len(axes), height, width, down, across, *(table.data_ptr() for table in tables))
    plan.tables, plan.tiles = tables, down * across
    return plan


def _tiles(
    length: int, step: int, *, periodic: bool
) -> tuple[Int64[Tensor, "tile 6"], Int64[Tensor, "tile 4"]]:
    """The points of an axis that each tile reads and those that it writes, -1 beyond the end.

    The points of a tile are a step apart, so that there are tiles for each remainder.
    """
    starts = [
        start for rest in range(min(step, length)) for start in range(rest, length, _WRITTEN * step)
    ]
    first = torch.tensor(starts)[:, None]
    read = first + step * torch.arange(-1, _READ - 1)
    written = first + step * torch.arange(_WRITTEN)
    read = read % length if periodic else read.clamp(0, length - 1)
    return read, written.masked_fill(written >= length, -1)


@cache
def _functions() -> Library | None:
    """The library, its functions told what they are given."""
    found = library()
    if found is None:
        return None
    size, pointer, plan = ctypes.c_ssize_t, ctypes.c_void_p, ctypes.POINTER(_Plan)
    found.room_for_convolution.argtypes = (size, size, size)
    found.room_for_convolution.restype = size
    common = (plan, size, size, size, size)
    found.convolve.argtypes = (*common, *(pointer,) * 5)
    found.convolve_backward.argtypes = (*common, *(pointer,) * 6)
    found.convolve.restype = found.convolve_backward.restype = None
    return found
