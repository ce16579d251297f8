"""What functional attention does between its two meetings with points, as one object.

    moments -> over ranks -> coefficients q~, k~, v~ -> C v~

Every form of the operator has this in its middle: plain and chunked, a mesh that is encoded for
others to read, and a mesh that comes from disk in parts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

import torch
from torch import Tensor

from funcattn.ops.attention.transport import Additive, Convex, Form, Ridge, transport
from funcattn.ops.moments import Moments
from funcattn.ops.projections import Projection, ProjectionName
from funcattn.ops.sharding import Group

Maps = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Solution:
    """A transport that was done, for those who look inside.

    query, key, value: the coefficients q~, k~, v~ (b h g d). system: the matrix that was solved
    with, (b h k k), k = g in the primal form and d in the dual.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    ridge: Ridge
    form: Form
    system: Tensor


class CarrierOptions(TypedDict):
    """The options of a `Carrier`, which are those of every form of the operator."""

    ridge: Ridge
    projection: Projection | ProjectionName
    form: Form
    maps: Maps | None
    group: Group | None


@dataclass(frozen=True)
class Carrier:
    """From the moments of the fields to the coefficients of the result.

    maps: linear maps (d d) of queries, keys and values, done on their coefficients.
    group: the ranks over which the points are spread.
    """

    ridge: Ridge
    projection: Projection | ProjectionName = "average"
    form: Form = "auto"
    maps: Maps | None = None
    group: Group | None = None

    def __call__(
        self,
        moments: Sequence[Moments],
        *,
        show: Callable[[Solution], None] | None = None,
        by: Callable[..., Tensor] = transport,
    ) -> Tensor:
        """C v~, (b h g e).

        moments: of queries, keys and values on one basis; or of queries, and of keys and values on
        a basis of their own. Where all three are maps of one field, of that field.
        show: called with what was solved. by: does the transport.
        """
        query, key, value = self.coefficients(moments)
        systems: list[Tensor] = []
        seen = None if show is None else systems.append
        out = by(query, key, value, ridge=self.ridge, form=self.form, show=seen)
        if show is not None:
            given = query.detach(), key.detach(), value.detach()
            show(Solution(*given, self.ridge, self.form, systems[-1]))
        return out

    def coefficients(self, moments: Sequence[Moments]) -> tuple[Tensor, Tensor, Tensor]:
        """q~, k~ and v~."""
        if self.group is not None:
            moments = [side.over_ranks(self.group) for side in moments]
        fields = [field for side in moments for field in side.coefficients(self.projection)]
        if self.maps is None:
            query, key, value = fields
        elif len(fields) == 1:
            # One field on one basis: one product for the three maps.
            weight = torch.cat(self.maps).to(fields[0].dtype)
            query, key, value = (fields[0] @ weight.mT).chunk(3, -1)
        else:
            given = (fields[0], fields[1], fields[-1])
            query, key, value = (
                field @ weight.mT.to(field.dtype)
                for field, weight in zip(given, self.maps, strict=True)
            )
        return query, key, value

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors that it works with, each of which may want a gradient."""
        strength = strength_of(self.ridge)
        return (*(self.maps or ()), *((strength,) if isinstance(strength, Tensor) else ()))

    def with_tensors(self, tensors: Sequence[Tensor]) -> "Carrier":
        """The same with others in their places."""
        maps, ridge = self.maps, self.ridge
        if maps is not None:
            maps, tensors = (tensors[0], tensors[1], tensors[2]), tensors[3:]
        if tensors:
            kind = type(ridge) if isinstance(ridge, Additive | Convex) else Additive
            ridge = kind(tensors[0])
        return replace(self, maps=maps, ridge=ridge)


def map_of(query: Tensor, key: Tensor, *, ridge: Ridge, form: Form = "auto") -> Tensor:
    """C (b h g g), from the coefficients q~ and k~."""
    identity = torch.eye(key.shape[-2], dtype=key.dtype, device=key.device)
    return transport(query, key, identity.expand(*key.shape[:2], -1, -1), ridge=ridge, form=form)


def strength_of(ridge: Ridge) -> float | Tensor:
    """The number, or numbers, of a ridge."""
    if isinstance(ridge, Additive):
        return ridge.strength
    return ridge.weight if isinstance(ridge, Convex) else ridge
