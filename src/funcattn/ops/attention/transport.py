r"""The small part of functional attention: coefficients in, coefficients out, no points.

    C = q~ k~^H (s k~ k~^H + r I_g)^-1  =  q~ (s k~^H k~ + r I_d)^-1 k~^H                (g x g)
    C v~                                                                                 (g x e)

The left form of C is called primal, the right one dual. They are equal by the push-through identity
and the smaller system is solved. C itself is not formed: in the dual form the result is q~ M with
M = (s k~^H k~ + r I_d)^-1 k~^H v~, which is d x e.

Axes: b batch, h head, g basis function, d channel of a query or key, e channel of a value.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Inexact
from torch import Tensor

from funcattn.ops.checks import values_are_visible
from funcattn.ops.linalg import (
    at_least_float32,
    full_precision,
    identity_like,
    real_dtype,
    solve_positive,
    with_digits_to_spare,
)

Form = Literal["auto", "primal", "dual"]
Show = Callable[[Tensor], None]
"""Called with the matrix that was solved with, for those who want to see it."""


@dataclass(frozen=True)
class Additive:
    """Gram + lambda I, the paper's equation; lambda > 0, one for all or one per head."""

    strength: float | Tensor

    def parts(self, key: Tensor) -> tuple[Tensor, Tensor]:
        """What the Gram matrix of the keys is multiplied by, and what is added to it."""
        strength = _ridge_value(
            self.strength, key, "finite and greater than 0", lambda x: (x > 0) & (x < torch.inf)
        )
        return torch.ones_like(strength), strength


@dataclass(frozen=True)
class Convex:
    """(1 - a) Gram + a I, the public reference code; 0 < a <= 1, one for all or one per head."""

    weight: float | Tensor

    def parts(self, key: Tensor) -> tuple[Tensor, Tensor]:
        """What the Gram matrix of the keys is multiplied by, and what is added to it."""
        weight = _ridge_value(
            self.weight, key, "greater than 0 and at most 1", lambda x: (x > 0) & (x <= 1)
        )
        return 1 - weight, weight


Ridge = float | Tensor | Additive | Convex


def ridge_parts(ridge: Ridge, key: Inexact[Tensor, "*batch g d"]) -> tuple[Tensor, Tensor]:
    """(s, r) of the system s Gram + r I; numbers, or one for each Gram matrix (... 1 1)."""
    return (ridge if isinstance(ridge, Additive | Convex) else Additive(ridge)).parts(key)


def ridge_system(
    key: Inexact[Tensor, "*batch g d"], *, ridge: Ridge, form: Form = "auto"
) -> Inexact[Tensor, "*batch k k"]:
    """The matrix that is inverted: k = g in the primal form, d in the dual, the smaller in auto."""
    with full_precision(key.device):
        key = key.to(at_least_float32(key.dtype))
        gram = key @ key.mH if is_primal(key.shape[-2], key.shape[-1], form) else key.mH @ key
    scale, shift = ridge_parts(ridge, key)
    return scale * gram + shift * identity_like(gram)


def transport(
    query: Inexact[Tensor, "*batch n d"],
    key: Inexact[Tensor, "*batch g d"],
    value: Inexact[Tensor, "*batch g e"],
    *,
    ridge: Ridge,
    form: Form = "auto",
    show: Show | None = None,
) -> Inexact[Tensor, "*batch n e"]:
    """C v~ for coefficients q~, k~, v~ without forming C; in float32 at least.

    show: called with the matrix that was solved with.
    """

    def solve(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        system = ridge_system(key, ridge=ridge, form=form)
        primal = is_primal(key.shape[-2], key.shape[-1], form)
        solved = solve_positive(system, value if primal else key.mH @ value)
        if show is not None:
            show(system.detach())
        return query @ (key.mH @ solved if primal else solved)

    with full_precision(key.device):
        dtype = at_least_float32(query.dtype, key.dtype, value.dtype)
        return with_digits_to_spare(solve, query.to(dtype), key.to(dtype), value.to(dtype))


def is_primal(bases: int, channels: int, form: Form) -> bool:
    """Whether keys of so many functions and channels take the primal form: for "auto", the one with
    the smaller system."""
    if form not in ("auto", "primal", "dual"):
        raise ValueError(f"form: expected 'auto', 'primal' or 'dual', got {form!r}")
    return bases < channels if form == "auto" else form == "primal"


def _ridge_value(
    value: float | Tensor, key: Tensor, wanted: str, valid: Callable[[Tensor], Tensor]
) -> Tensor:
    """The ridge as a tensor that broadcasts against the Gram matrices (b h k k) of keys."""
    given = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
    heads = key.shape[:-2]
    if given.ndim > len(heads) or any(
        size not in (1, of_gram)
        for size, of_gram in zip(reversed(given.shape), reversed(heads), strict=False)
    ):
        raise ValueError(
            f"ridge: expected one number, one per head, or shape {tuple(heads)}, got shape "
            f"{tuple(given.shape)}"
        )
    if values_are_visible(given) and not bool(valid(given).all()):
        raise ValueError(
            f"ridge: expected every value {wanted}, so that the system is positive definite, got "
            f"{given.tolist()}"
        )
    given = given.to(key.device, real_dtype(key.dtype))
    return given if given.ndim == 0 else given[..., None, None]
