"""The middle of functional attention in C (`ops/native/middle.h`): all heads at once, by one call.

It is small, but in PyTorch some forty operations, which are felt where there are few points. Done
here is what most layers have: averages of one field, maps of it for queries, keys and values, and
the dual form. `middle_of` says no to others, and to systems that single precision cannot factor.
"""

import ctypes
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from funcattn.ops.attention.carrier import Carrier, strength_of
from funcattn.ops.attention.local_maps import Remainder
from funcattn.ops.attention.transport import Convex, chosen_form
from funcattn.ops.buffers import buffers
from funcattn.ops.native import Library, library
from funcattn.ops.projections import Average, chosen_projection

_SIZES = ("count", "heads", "d", "g")


class _Middle(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_ssize_t) for name in _SIZES),
        ("epsilon", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in ("sums", "bias", "maps", "strength")),
        ("convex", ctypes.c_ssize_t),
        *((name, ctypes.c_void_p) for name in ("kept", "room")),
    ]


@cache
def _functions() -> Library | None:
    """The library, its functions told what they are given."""
    found = library()
    if found is None:
        return None
    call, size, pointer = ctypes.POINTER(_Middle), ctypes.c_ssize_t, ctypes.c_void_p
    for function in (found.kept_for_middle, found.room_for_middle):
        function.argtypes, function.restype = (size, size), size
    found.middle_forward.argtypes, found.middle_forward.restype = (call, pointer), size
    found.middle_backward.argtypes = (call, *5 * (pointer,))
    found.middle_backward.restype = None
    return found


@dataclass(frozen=True)
class MiddleDone:
    """A middle that was done, with what its gradient needs."""

    coefficients: Tensor
    """(b h g d)."""
    sums: Tensor
    bias: Tensor | None
    maps: Tensor
    """Those of queries, keys and values, (3 d, d)."""
    strength: Tensor
    """Of the ridge of each system, (b h)."""
    learned: Tensor | None
    """The strength that may want a gradient."""
    convex: bool
    epsilon: float
    kept: Tensor

    def backward(self, d_coefficients: Tensor) -> tuple[Tensor, list[Tensor | None]]:
        """The gradients of the sums, and of bias, maps and strength of the ridge."""
        functions = _functions()
        assert functions is not None
        d_out = d_coefficients.mT.contiguous()  # (b, h, d, g)
        d_sums, d_maps = torch.empty_like(self.sums), torch.zeros_like(self.maps)
        d_bias = None if self.bias is None else torch.zeros_like(self.bias)
        d_strength = torch.empty_like(self.strength)
        call, room = self.call(functions)
        functions.middle_backward(
            call, d_out.data_ptr(), d_sums.data_ptr(), _address(d_bias), d_maps.data_ptr(),
            d_strength.data_ptr(),
        )  # fmt: skip
        buffers.give(room)
        found: list[Tensor | None] = [] if d_bias is None else [d_bias]
        found += d_maps.chunk(3)
        if self.learned is not None:
            found.append(d_strength.sum_to_size(self.learned.shape))
        return d_sums, found

    def call(self, functions: Library) -> tuple[_Middle, Tensor]:
        """What C is told, and the room that it has, which is to be given back."""
        b, h, rows, g = self.sums.shape
        room = buffers.take(functions.room_for_middle(rows - 1, g), self.sums)
        given = map(_address, (self.sums, self.bias, self.maps, self.strength))
        rest = (self.convex, self.kept.data_ptr(), room.data_ptr())
        return _Middle(b * h, h, rows - 1, g, self.epsilon, *given, *rest), room


def middle_of(sums: Tensor, remainder: Remainder, carrier: Carrier) -> MiddleDone | None:
    """From the sums [field, 1]^T w Phi, (b h d+1 g), to the coefficients of the result, or None."""
    functions = _functions()
    if functions is None or not _is_usual(sums, remainder, carrier):
        return None
    b, h, rows, g = sums.shape
    d, bias, given = rows - 1, remainder.field_bias, strength_of(carrier.ridge)
    learned = given if isinstance(given, Tensor) else None
    strength = sums.new_tensor(given) if learned is None else learned.detach()
    maps = torch.cat(carrier.maps or ()).detach()
    if maps.shape != (3 * d, d):
        return None
    projection = chosen_projection(carrier.projection)
    assert isinstance(projection, Average)
    done = MiddleDone(
        sums.new_empty(b, h, g, d),
        sums.detach().contiguous(),
        None if bias is None else bias.detach().contiguous(),
        maps,
        strength.expand(b, h).contiguous(),
        learned,
        isinstance(carrier.ridge, Convex),
        projection.epsilon,
        sums.new_empty(b * h, functions.kept_for_middle(d, g)),
    )
    call, room = done.call(functions)
    failed = functions.middle_forward(call, done.coefficients.data_ptr())
    buffers.give(room)
    return None if failed else done


def _is_usual(sums: Tensor, remainder: Remainder, carrier: Carrier) -> bool:
    """Whether it is what C knows."""
    strength, maps = strength_of(carrier.ridge), carrier.maps
    tensors = (*(maps or ()), *(t for t in (remainder.field_bias, strength) if t is not None))
    return (
        maps is not None
        and carrier.group is None
        and type(chosen_projection(carrier.projection)) is Average
        and remainder.fields == 1
        and remainder.field_weight is None
        and remainder.output_weight is None
        and chosen_form(sums[:, :, :-1].mT, carrier.form) == "dual"
        and all(t.dtype == torch.float32 for t in tensors if isinstance(t, Tensor))
        and (not isinstance(strength, Tensor) or strength.shape in ((), (1,), sums.shape[1:2]))
    )


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
