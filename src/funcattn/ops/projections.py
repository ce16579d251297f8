"""Projections: how sums over points become coefficients, and how coefficients become fields.

A projection needs two sums over points, the moments Phi^H W f and one statistic of the basis
(`moments.py`). So padding, chunks, shards and uneven meshes are all the same thing, terms of a sum.

Axes: b batch, h head, n point, g basis function, d channel.
"""

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Inexact
from torch import Tensor

from funcattn.ops.checks import debugging, values_are_visible
from funcattn.ops.linalg import at_least_float32, full_precision, identity_like, solve_positive
from funcattn.ops.masking import without_padding


@runtime_checkable
class BasisFunctions(Protocol):
    """A basis that is applied by a fast transform instead of being stored as an n x g matrix."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(..., n, g), as of the matrix that is not stored."""

    @property
    def dtype(self) -> torch.dtype:
        """Of the values of the functions."""

    @property
    def device(self) -> torch.device:
        """Where the transforms are done."""

    def analyse(self, field: Inexact[Tensor, "b h n d"]) -> Inexact[Tensor, "b h g d"]:
        """Phi^H field, a sum over points."""

    def synthesise(self, coefficients: Inexact[Tensor, "b h g d"]) -> Inexact[Tensor, "b h n d"]:
        """Phi coefficients, values at the points."""


Basis = Tensor | BasisFunctions


@runtime_checkable
class Projection(Protocol):
    """How sums over points become coefficients."""

    def statistic(self, basis: Basis, weights: Tensor | None) -> Tensor | float:
        """What it must know of the basis besides the moments; a sum over points."""

    def coefficients(self, moments: Tensor, statistic: Tensor | float) -> Tensor:
        """Coefficients from the moments Phi^H W f (b h g d) and the statistic."""


@runtime_checkable
class KnowsMass(Protocol):
    """A projection whose statistic, for a partition of unity, is known from the mass alone."""

    def statistic_of_mass(self, mass: Tensor) -> Tensor | float:
        """From the mass of each function, (b h g 1)."""


@dataclass(frozen=True)
class Transpose:
    """P = Phi^H W, the paper's text. It grows with the number of points unless W integrates."""

    def statistic(self, basis: Basis, weights: Tensor | None) -> float:  # noqa: ARG002
        """Nothing is needed."""
        return 0.0

    def statistic_of_mass(self, mass: Tensor) -> float:  # noqa: ARG002
        """Nothing is needed."""
        return 0.0

    def coefficients(self, moments: Tensor, statistic: Tensor | float) -> Tensor:  # noqa: ARG002
        """The moments as they are."""
        return moments


@dataclass(frozen=True)
class InnerProduct:
    """P = Phi^H W / (sum of W), the L2 inner product over a domain of measure one.

    `Transpose` made independent of the mesh; the one for bases that take both signs.
    """

    def statistic(self, basis: Basis, weights: Tensor | None) -> Tensor | float:
        """The total weight."""
        return float(basis.shape[-2]) if weights is None else weights.sum(-2, keepdim=True)

    def statistic_of_mass(self, mass: Tensor) -> Tensor:
        """The functions sum to one at each point, so their masses sum to the total weight."""
        return mass.sum(-2, keepdim=True)

    def coefficients(self, moments: Tensor, statistic: Tensor | float) -> Tensor:
        """The moments over the total weight."""
        return moments / statistic


@dataclass(frozen=True)
class Average:
    """P = Phi^H W over the column mass: each coefficient is the mean of the field under a function.

    For bases without negative values, such as a partition of unity. It does not change when the
    mesh is refined or the weights are scaled. `epsilon`, relative to the mean mass, matters only
    for functions that vanish at every point: their coefficient is 0.
    """

    epsilon: float = 1e-8

    def statistic(self, basis: Basis, weights: Tensor | None) -> Tensor:
        """The mass of each function, (b h g 1)."""
        if not isinstance(basis, Tensor):
            raise TypeError(f"{_NOT_SIGNED} {type(basis).__name__}; {_FOR_SIGNED}")
        if basis.is_complex():
            raise TypeError(f"{_NOT_SIGNED} a complex basis; {_FOR_SIGNED}")
        mass = basis.sum(-2).unsqueeze(-1) if weights is None else analyse(basis, weights)
        # Looking at every value would cost as much as the sum, so without debug mode that is done
        # only where dividing by the mass is dangerous: next to nothing, as values cancelled.
        if debugging() or (
            values_are_visible(mass) and bool((mass <= 1e-6 * mass.mean(-2, keepdim=True)).any())
        ):
            values = basis if weights is None else weights * basis
            if values.numel() and bool((lowest := values.min()) < 0):
                raise ValueError(f"{_NOT_SIGNED} {lowest.item():g}; {_FOR_SIGNED}")
        return mass

    def statistic_of_mass(self, mass: Tensor) -> Tensor:
        """It is the mass."""
        return mass

    def coefficients(self, moments: Tensor, statistic: Tensor | float) -> Tensor:
        """The moments over the mass."""
        mass = torch.as_tensor(statistic)
        return moments / (mass + self.epsilon * mass.mean(-2, keepdim=True))


_NOT_SIGNED = "projection 'average': expected basis functions without negative values, got"
_FOR_SIGNED = "for such a basis use 'inner_product', 'transpose' or 'pinv'"


@dataclass(frozen=True)
class PseudoInverse:
    """P = (Phi^H W Phi + t I)^-1 Phi^H W: least squares, Tikhonov-stabilised.

    `tikhonov` is relative to the mean diagonal of Phi^H W Phi, so that neither the number of points
    nor the scale of the weights matters.
    """

    tikhonov: float = 1e-4

    def statistic(self, basis: Basis, weights: Tensor | None) -> Tensor:
        """The Gram matrix of the functions, (b h g g)."""
        values = dense(basis)
        return analyse(basis, values if weights is None else weights * values)

    def coefficients(self, moments: Tensor, statistic: Tensor | float) -> Tensor:
        """The stabilised least-squares solution."""
        gram = torch.as_tensor(statistic)
        shift = self.tikhonov * gram.diagonal(dim1=-2, dim2=-1).real.mean(-1)[..., None, None]
        return solve_positive(gram + shift * identity_like(gram), moments)


ProjectionName = Literal["transpose", "inner_product", "average", "pinv"]
PROJECTIONS: dict[str, Projection] = {
    "transpose": Transpose(),
    "inner_product": InnerProduct(),
    "average": Average(),
    "pinv": PseudoInverse(),
}


def lift(basis: Basis, coefficients: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Phi coefficients, values at the points: (b h g d) -> (b h n d); 0 at masked points."""
    with full_precision(coefficients.device):
        if isinstance(basis, Tensor):
            dtype = at_least_float32(basis.dtype, coefficients.dtype)
            field = basis.to(dtype) @ coefficients.to(dtype)
        else:
            field = basis.synthesise(coefficients)
    return without_padding(field, mask, axis=-2)


def analyse(basis: Basis, field: Tensor) -> Tensor:
    """Phi^H field, a sum over points: (b h n d) -> (b h g d)."""
    if not isinstance(basis, Tensor):
        return basis.analyse(field)
    dtype = torch.promote_types(basis.dtype, field.dtype)
    return basis.to(dtype).mH @ field.to(dtype)


def dense(basis: Basis) -> Tensor:
    """The basis as an n x g matrix."""
    if isinstance(basis, Tensor):
        return basis
    dtype = at_least_float32(basis.dtype)
    identity = torch.eye(basis.shape[-1], dtype=dtype, device=basis.device)
    return basis.synthesise(identity[None, None])


def chosen_projection(projection: Projection | str) -> Projection:
    """The projection of that name, or as given."""
    if not isinstance(projection, str):
        return projection
    if projection not in PROJECTIONS:
        raise ValueError(
            f"projection: expected one of {', '.join(PROJECTIONS)}, got {projection!r}"
        )
    return PROJECTIONS[projection]
