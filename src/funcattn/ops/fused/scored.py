"""What the kernels of all kinds are given and asked for."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Scored:
    """Phi_h = softmax(y_h S_h + s_h), by what it is made of.

    features (b h n k), channels side by side: y. weight (h k g): S. bias (h g): s. The features
    may be shorter numbers than the maps; sums are as long as the maps.
    """

    features: Tensor
    weight: Tensor
    bias: Tensor


@dataclass(frozen=True)
class Toward:
    """The gradient that reaches Phi: w (field d_moments + d_mass) + d_values M^T.

    field (b h n f), weights (b n), d_moments (b h f g), d_mass (b h g). d_values (b h n e) and
    coefficients M (b h g e): None where there was no lift.
    """

    field: Tensor
    weights: Tensor | None
    d_moments: Tensor
    d_mass: Tensor
    d_values: Tensor | None
    coefficients: Tensor | None


@runtime_checkable
class Kernels(Protocol):
    """The three things that are done with a basis at points, none of which stores it."""

    def sums(
        self, basis: Scored, field: Float[Tensor, "b h n f"], weights: Float[Tensor, "b n"] | None
    ) -> tuple[Float[Tensor, "b h f g"], Float[Tensor, "b h g"]]:
        """field^T w Phi and w^T Phi."""

    def lifted(
        self, basis: Scored, coefficients: Float[Tensor, "b h g e"]
    ) -> Float[Tensor, "b n h e"]:
        """Phi M, in the dtype of the features."""

    def gradients(
        self, basis: Scored, toward: Toward
    ) -> tuple[Float[Tensor, "b n h k"], Float[Tensor, "h k g"], Float[Tensor, "h g"]]:
        """Of features, weight and bias."""
