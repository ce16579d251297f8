"""x W^T + b in C, with a gradient.

MKL, by which PyTorch multiplies float32 matrices on a CPU, leaves half of some processors unused:
those that Intel did not make. The products of a network at the points have many rows and small
maps, for which little is needed to do better there (`products.h`). On Intel's own MKL is faster.
"""

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F  # noqa: N812

from funcattn.ops.buffers import buffers
from funcattn.ops.native.library import Library, library
from funcattn.processor import is_intel

_FEWEST_OPERATIONS = 2**19
"""Multiplications below which PyTorch is faster, as the way to C takes some microseconds."""
_ROWS_OF_A_THREAD = 512
_LONG = 768
"""Terms of a sum beyond which the right factor is not copied as a whole."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight^T + bias, as `torch.nn.functional.linear` computes it; may be differentiated again.

    In C where that is faster and can be done: for many points on a CPU in float32.
    """
    if not _in_c(x, weight, bias):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled() and (
        x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    ):
        out: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return out
    return _forward(x, weight, bias)


def plain_tensors_only() -> bool:
    """Whether nothing traces, transforms or watches the operations of PyTorch."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


def _in_c(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    return (
        x.dtype == torch.float32
        # Before sizes are compared, which an exported program would take for a condition.
        and plain_tensors_only()
        and x.numel() * len(weight) >= _FEWEST_OPERATIONS
        and weight.dtype == torch.float32
        and (bias is None or bias.dtype == torch.float32)
        and x.device.type == "cpu"
        and weight.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and _faster_in_c()
        and _functions() is not None
    )


@cache
def _faster_in_c() -> bool:
    """Whether this processor has more to give than PyTorch takes."""
    return not (is_intel() and torch.backends.mkl.is_available())


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _forward(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        if torch.is_grad_enabled():  # these gradients are to be differentiated
            d_rows, rows = d_out.flatten(0, -2), x.flatten(0, -2)
            return (
                d_out @ weight if of_x else None,
                d_rows.mT @ rows if of_weight else None,
                d_rows.sum(0) if of_bias else None,
            )
        d_out = d_out.contiguous()
        d_x = d_weight = d_bias = None
        if of_x:
            d_x = multiplied(d_out.view(-1, d_out.shape[-1]), weight).view(x.shape)
        if of_weight:
            x = x.contiguous()
            d_weight = multiplied(d_out.view(-1, d_out.shape[-1]).T, x.view(-1, x.shape[-1]))
        if of_bias:
            d_bias = d_out.sum(tuple(range(d_out.ndim - 1)))
        return d_x, d_weight, d_bias


def _forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    x = x.contiguous()
    out = multiplied(x.view(-1, x.shape[-1]), weight.T, bias)
    return out.view(*x.shape[:-1], len(weight))


def multiplied(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """left right + bias for matrices with any strides, without a gradient."""
    functions = _functions()
    assert functions is not None
    right = right.contiguous()
    bias = None if bias is None else bias.contiguous()
    (rows, depth), width = left.shape, right.shape[1]
    out = left.new_empty(rows, width)
    # Of a long sum, a thread has to have some rows of the result too.
    threads = max(1, min(torch.get_num_threads(), rows * depth // (_ROWS_OF_A_THREAD * 128), rows))
    room = buffers.take(threads * depth * width, left) if depth <= _LONG else None
    pointer, to = None if bias is None else bias.data_ptr(), out.data_ptr()

    def some(part: tuple[int, tuple[int, int]]) -> None:
        thread, (first, last) = part
        functions.multiply(
            first, last, width, depth, left.data_ptr(), left.stride(0), left.stride(1),
            right.data_ptr(), pointer, to,
            None if room is None else room.data_ptr() + 4 * thread * depth * width,
        )  # fmt: skip

    in_threads(some, rows, threads)
    if room is not None:
        buffers.give(room)
    return out


def in_threads(
    some: Callable[[tuple[int, tuple[int, int]]], None], count: int, threads: int
) -> None:
    """some((thread, (first, one past the last))) for parts of so many things, each in a thread.

    While C works, Python's lock is free.
    """
    if threads == 1:
        some((0, (0, count)))
        return
    edges = pairwise(count * i // threads for i in range(threads + 1))
    list(_threads(threads).map(some, enumerate(edges)))


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="funcattn-native")


@cache
def _functions() -> Library | None:
    """The library, its function told what it is given."""
    found = library()
    if found is None:
        return None
    size, pointer = ctypes.c_ssize_t, ctypes.c_void_p
    found.multiply.argtypes = (
        size, size, size, size, pointer, size, size, pointer, pointer, pointer, pointer,
    )  # fmt: skip
    found.multiply.restype = None
    return found
