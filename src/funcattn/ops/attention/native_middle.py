"""The middle of functional attention in C (`ops/native/middle.h`): all heads at once, by one call.

It is small, but in PyTorch some forty operations, which are felt where there are few points. Done
here is what most layers have: averages of one field, and maps of it for queries, keys and values.
`middle_of` says no to others, and to systems that single precision cannot factor.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from funcattn.ops.attention.carrier import Carrier, strength_of
from funcattn.ops.attention.local_maps import Remainder
from funcattn.ops.attention.transport import Convex, is_primal
from funcattn.ops.buffers import buffers
from funcattn.ops.native import Library, library
from funcattn.ops.projections import Average, chosen_projection

_SIZES = ("count", "heads", "d", "g", "f", "e")
_GIVEN = ("sums", "field_map", "bias", "maps", "output", "strength")


class _Middle(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_ssize_t) for name in _SIZES),
        ("epsilon", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in _GIVEN),
        *((name, ctypes.c_ssize_t) for name in ("convex", "primal")),
        *((name, ctypes.c_void_p) for name in ("kept", "room")),
    ]


class _Gradients(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in _GIVEN]


@cache
def _functions() -> Library | None:
    """The library, its functions told what they are given."""
    found = library()
    if found is None:
        return None
    call, size, pointer = ctypes.POINTER(_Middle), ctypes.c_ssize_t, ctypes.c_void_p
    for function in (found.kept_for_middle, found.room_for_middle):
        function.argtypes, function.restype = (call,), size
    found.middle_forward.argtypes, found.middle_forward.restype = (call, pointer), size
    found.middle_backward.argtypes = (call, pointer, ctypes.POINTER(_Gradients))
    found.middle_backward.restype = None
    return found


@dataclass(frozen=True)
class MiddleDone:
    """A middle that was done, with what its gradient needs."""

    coefficients: Tensor
    """As the lift wants them: (b h g e), or (b 1 hg e) where maps are folded."""
    given: dict[str, Tensor]
    """By its name in C; all contiguous."""
    learned: Tensor | None
    """The strength that may want a gradient."""
    call: _Middle
    kept: Tensor
    """What the call has filled."""

    def backward(self, d_coefficients: Tensor) -> tuple[Tensor, list[Tensor | None]]:
        """The gradients of the sums, and of all maps, bias, and strength of the ridge."""
        functions = _functions()
        assert functions is not None
        d_out = d_coefficients.mT  # (b, 1, e, h g) or (b, h, e, g)
        call = self.call
        if d_out.shape[1] != call.heads:
            # (b, 1, e, h g) -> (b, h, e, g)
            d_out = d_out.unflatten(-1, (call.heads, -1)).movedim(-2, 1)[:, :, 0]
        d_out = d_out.contiguous()
        filled = ("sums", "strength")
        found = {
            name: torch.empty_like(given) if name in filled else torch.zeros_like(given)
            for name, given in self.given.items()
        }
        gradients = _Gradients(**{name: tensor.data_ptr() for name, tensor in found.items()})
        with _room(call, functions, d_out):
            functions.middle_backward(call, d_out.data_ptr(), gradients)
        of_remainder = (found.get(name) for name in ("field_map", "bias", "output"))
        rest: list[Tensor | None] = [tensor for tensor in of_remainder if tensor is not None]
        rest += found["maps"].chunk(3)
        if self.learned is not None:
            rest.append(found["strength"].sum_to_size(self.learned.shape))
        return found["sums"], rest


@contextmanager
def _room(call: _Middle, functions: Library, like: Tensor) -> Iterator[None]:
    """Room for a call, while it lasts."""
    room = buffers.take(functions.room_for_middle(call), like)
    call.room = room.data_ptr()
    yield
    buffers.give(room)


def middle_of(sums: Tensor, remainder: Remainder, carrier: Carrier) -> MiddleDone | None:
    """From the sums [field, 1]^T w Phi, (b h f+1 g), to the coefficients of the result, or None."""
    functions = _functions()
    if functions is None or not _is_usual(remainder, carrier):
        return None
    assert carrier.maps is not None
    (b, groups, rows, g), h, d = sums.shape, remainder.heads, carrier.maps[0].shape[0]
    f, g = rows - 1, g * groups // h
    output, strength = remainder.output_weight, strength_of(carrier.ridge)
    e = d if output is None else output.shape[0]
    learned = strength if isinstance(strength, Tensor) else None
    if learned is not None and learned.shape not in ((), (1,), (h,)):
        return None
    maps = torch.cat(carrier.maps)
    if maps.shape != (3 * d, d) or (remainder.field_weight is None and f != d):
        return None
    projection = chosen_projection(carrier.projection)
    assert isinstance(projection, Average)
    of_systems = sums.new_tensor(strength) if learned is None else learned
    places: dict[str, Tensor | None] = {
        "sums": sums, "field_map": remainder.field_weight, "bias": remainder.field_bias,
        "maps": maps, "output": output, "strength": of_systems.expand(b, h),
    }  # fmt: skip
    given = {
        name: tensor.detach().contiguous() for name, tensor in places.items() if tensor is not None
    }
    call = _Middle(
        *(b * h, h, d, g, f, e),
        projection.epsilon,
        convex=isinstance(carrier.ridge, Convex),
        primal=is_primal(g, d, carrier.form),
        **{name: tensor.data_ptr() for name, tensor in given.items()},
    )
    kept = sums.new_empty(b * h * functions.kept_for_middle(call))
    call.kept = kept.data_ptr()
    coefficients = sums.new_empty(b, groups, h * g // groups, e)
    with _room(call, functions, sums):
        failed = functions.middle_forward(call, coefficients.data_ptr())
    return None if failed else MiddleDone(coefficients, given, learned, call, kept)


def _is_usual(remainder: Remainder, carrier: Carrier) -> bool:
    """Whether it is what C knows."""
    tensors = (*remainder.tensors, *carrier.tensors)
    return (
        carrier.maps is not None
        and carrier.group is None
        and type(chosen_projection(carrier.projection)) is Average
        and remainder.fields == 1
        and all(tensor.dtype == torch.float32 for tensor in tensors)
    )
