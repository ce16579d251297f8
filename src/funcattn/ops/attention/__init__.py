"""Functional attention: one operator, in forms that agree.

    reference.py    the obvious form: one sample and one head at a time, every matrix written out
    plain.py        on whole tensors, by ordinary operations; any bases, any derivatives
    chunked.py      in two passes over chunks of points, for a learned partition of unity

Between two meetings with points, all forms do the same small thing (`carrier.py`, `transport.py`,
and `transport_once.py` with a gradient of its own).
"""

from funcattn.ops.attention.carrier import Carrier, CarrierOptions, Maps, Solution, map_of
from funcattn.ops.attention.plain import Sided, both_sides, functional_attention, moments_of
from funcattn.ops.attention.transport import (
    Additive,
    Convex,
    Form,
    Ridge,
    Show,
    ridge_system,
    transport,
)

__all__ = [
    "Additive",
    "Carrier",
    "CarrierOptions",
    "Convex",
    "Form",
    "Maps",
    "Ridge",
    "Show",
    "Sided",
    "Solution",
    "both_sides",
    "functional_attention",
    "map_of",
    "moments_of",
    "ridge_system",
    "transport",
]
