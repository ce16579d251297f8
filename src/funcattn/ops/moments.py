"""Sums over points, the only way in which points enter functional attention.

    moments      Phi^H W f      (b h g d) for each field f
    statistic    what the projection must know of the basis: its mass, its Gram matrix, a count
    weight       sum of W

Every way of summing over points returns a :class:`Moments`: on whole tensors (:class:`Sums` below),
in chunks whose basis is stored or computed again (`attention/chunked.py`), from a mesh that comes
from disk in parts (their moments are added), over the ranks of a process group (`over_ranks`), with
masks and with weights (factors at the points). Whoever has the moments of all points has all that
is needed of them:

    moments -> coefficients(projection) -> transport -> lift

Axes: b batch, h head, n point, g basis function, d channel.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from funcattn.ops.checks import check_batch, check_point_weights, check_total_weight
from funcattn.ops.linalg import at_least_float32, full_precision, real_dtype
from funcattn.ops.projections import (
    Basis,
    Projection,
    ProjectionName,
    analyse,
    chosen_projection,
)
from funcattn.ops.sharding import Group, sum_together


@dataclass(frozen=True)
class Moments:
    """The sums over some points that one basis makes of one or more fields.

    fields: Phi^H W f, (b h g d), for each field. statistic: the projection's. weight: the total
    weight of the points, a number or one for each sample (b ...).

    >>> import torch
    >>> basis, field = torch.rand(1, 2, 10, 3), torch.rand(1, 2, 10, 4)
    >>> parts = [Sums(basis[:, :, rows])(field[:, :, rows]) for rows in (slice(0, 6), slice(6, 10))]
    >>> (together,) = (parts[0] + parts[1]).coefficients("average")
    >>> (whole,) = Sums(basis)(field).coefficients("average")
    >>> torch.allclose(together, whole)
    True
    """

    fields: tuple[Tensor, ...]
    statistic: Tensor | float
    weight: Tensor | float

    def __add__(self, other: "Moments") -> "Moments":
        """Those of the points of both."""
        return Moments(
            tuple(a + b for a, b in zip(self.fields, other.fields, strict=True)),
            self.statistic + other.statistic,
            self.weight + other.weight,
        )

    def to(self, dtype: torch.dtype) -> "Moments":
        """In the precision of a real dtype; complex sums stay complex."""
        return Moments(
            tuple(_with_precision(field, dtype) for field in self.fields),
            *(
                _with_precision(part, dtype) if isinstance(part, Tensor) else part
                for part in (self.statistic, self.weight)
            ),
        )

    def over_ranks(self, group: Group) -> "Moments":
        """Those of the points of all ranks, on each of them: one message, which has a gradient.

        Raises:
            ValueError: no rank has a point that counts, in some sample.
        """
        # A count may have more digits than single precision.
        count = self.fields[0].new_empty((1, 1), dtype=torch.float64)
        rest = (
            part if isinstance(part, Tensor) else torch.full_like(count, part)
            for part in (self.statistic, self.weight)
        )
        *fields, statistic, weight = sum_together([*self.fields, *rest], group)
        check_total_weight(weight)
        return Moments(tuple(fields), statistic, weight)

    def coefficients(self, projection: Projection | ProjectionName) -> tuple[Tensor, ...]:
        """The coefficients of each field, (b h g d)."""
        chosen = chosen_projection(projection)
        with full_precision(self.fields[0].device):
            return tuple(chosen.coefficients(field, self.statistic) for field in self.fields)


class Sums:
    """Sums over the points of one basis, on whole tensors: fields (b h n d) -> `Moments`.

    weights (b n): quadrature weights or cell volumes; mask (b n): True at real points. Sums are
    done in float32 at least.
    shard: these are some of the points only, and need not have one that counts. Moments then have
    one shape for any points, if weights are given.
    """

    def __init__(
        self,
        basis: Basis,
        projection: Projection | ProjectionName = "average",
        *,
        weights: Tensor | None = None,
        mask: Tensor | None = None,
        shard: bool = False,
    ) -> None:
        check_point_weights(weights, mask, basis.shape[-2], shard=shard)
        if basis.shape[0] > 1:
            check_batch(basis.shape[0], weights=weights, mask=mask)
        self._weights, self._mask = weights, mask
        self._factor = _point_factor(weights, mask, at_least_float32(real_dtype(basis.dtype)))
        with full_precision(basis.device):
            if isinstance(basis, Tensor):
                basis = basis.to(at_least_float32(basis.dtype))
            self._basis = basis
            self._statistic = chosen_projection(projection).statistic(basis, self._factor)

    def __call__(self, *fields: Tensor) -> Moments:
        """The moments of these fields."""
        count = self._basis.shape[-2] * 1.0  # not float(...), which would fix the number in exports
        weight = count if self._factor is None else self._factor.sum(-2)
        moments = tuple(self._moments(field) for field in fields)
        return Moments(moments, self._statistic, weight)

    def _moments(self, field: Tensor) -> Tensor:
        check_batch(field.shape[0], weights=self._weights, mask=self._mask)
        with full_precision(field.device):
            field = field.to(at_least_float32(field.dtype))
            return analyse(self._basis, field if self._factor is None else self._factor * field)


def projector(
    basis: Basis,
    projection: Projection | ProjectionName = "average",
    *,
    weights: Tensor | None = None,
    mask: Tensor | None = None,
    group: Group | None = None,
) -> Callable[[Tensor], Tensor]:
    """P(basis), as a function of fields (b h n d) -> (b h g d): the moments, then the coefficients.

    group: sums go over its ranks, each with points of its own; `weights` and `mask` then have as
    many samples on all of them.
    """
    sums = Sums(basis, projection, weights=weights, mask=mask, shard=group is not None)

    def project(field: Tensor) -> Tensor:
        moments = sums(field)
        if group is not None:
            moments = moments.over_ranks(group)
        return moments.coefficients(projection)[0]

    return project


def _point_factor(weights: Tensor | None, mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Weights and mask as one factor at each point, (b 1 n 1) or (1 n 1)."""
    factor = None if weights is None else weights.to(dtype)
    if mask is not None:
        factor = mask.to(dtype) if factor is None else factor * mask
    return None if factor is None else factor.unsqueeze(-2).unsqueeze(-1)


def _with_precision(part: Tensor, dtype: torch.dtype) -> Tensor:
    return part.to(dtype.to_complex() if part.is_complex() else dtype)
