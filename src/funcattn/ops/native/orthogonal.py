"""Newton-Schulz steps on stacks of small matrices in C, each in the cache until it is done."""

import ctypes
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from funcattn.ops.buffers import buffers
from funcattn.ops.native.library import Library, library
from funcattn.ops.native.products import in_threads, plain_tensors_only

_MATRICES_OF_A_THREAD = 64


def can_do(stack: Tensor) -> bool:
    """Whether C knows such matrices, and has room for them in the cache."""
    return (
        stack.dtype in (torch.float32, torch.complex64)
        and stack.device.type == "cpu"
        and stack.is_contiguous()
        and plain_tensors_only()
        and _functions() is not None
    )


def orthogonalise(stack: Tensor, steps: int, coefficients: Sequence[float], least: float) -> None:
    """Each matrix of a contiguous stack (k r w), over its norm, through the steps, in place.

        X <- a X + (b X X^H + c (X X^H)^2) X

    coefficients: a, b, c. least: norms are at least that. Tall matrices go by their transposes.
    """
    functions = _functions()
    assert functions is not None
    count, rows, width = stack.shape
    threads = max(1, min(torch.get_num_threads(), count // _MATRICES_OF_A_THREAD))
    each = functions.room_for_orthogonal(rows, width)
    numbers = torch.view_as_real(stack) if stack.is_complex() else stack
    room = buffers.take(threads * each, numbers)
    abc = (ctypes.c_float * 3)(*coefficients)

    def some(part: tuple[int, tuple[int, int]]) -> None:
        thread, (first, last) = part
        functions.orthogonalise(
            first, last, rows, width, stack.is_complex(), steps, abc, least,
            numbers.data_ptr(), room.data_ptr() + 4 * thread * each,
        )  # fmt: skip

    in_threads(some, count, threads)
    buffers.give(room)


@cache
def _functions() -> Library | None:
    """The library, its functions told what they are given."""
    found = library()
    if found is None:
        return None
    size, pointer, whole, number = ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_int, ctypes.c_float
    found.room_for_orthogonal.argtypes = (size, size)
    found.room_for_orthogonal.restype = size
    found.orthogonalise.argtypes = (
        size, size, size, size, whole, whole, ctypes.POINTER(number), number, pointer, pointer,
    )  # fmt: skip
    found.orthogonalise.restype = None
    return found
