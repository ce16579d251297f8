r"""Functional attention, the whole operator: project, solve, lift.

Attention is read as a linear map between two function spaces. The query space has basis functions
Phi (n points x g), the key space Psi (m points x g). Fields become coefficients, the map C is the
ridge solution of "carry the keys onto the queries", and the values ride along:

    q~ = P(Phi) q      k~ = P(Psi) k      v~ = P(Psi) v                  (g x d), (g x d), (g x e)
    C  = q~ k~^H (k~ k~^H + lambda I_g)^-1  =  q~ (k~^H k~ + lambda I_d)^-1 k~^H         (g x g)
    out = Phi C v~                                                                       (n x e)

The left form of C is called primal, the right one dual. They are equal by the push-through identity
and the smaller system is solved. C is formed only on request: out = Phi (q~ M) needs no more than
M = (k~^H k~ + lambda I_d)^-1 k~^H v~, which is d x e.

Axes: b batch, h head, n query point, m key point, g basis function, d channel of a query or key,
e channel of a value. `projections.py` beside this file has P; `reference.py` says the whole in the
most obvious way, and every fast form is tested against it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, overload

import torch
from jaxtyping import Inexact
from torch import Tensor

from funcattn.ops.checks import check_finite, show_system, values_are_visible
from funcattn.ops.linalg import (
    at_least_float32,
    full_precision,
    identity_like,
    real_dtype,
    solve_positive,
    with_digits_to_spare,
)
from funcattn.ops.projections import Basis, Projection, ProjectionName, lift, projector

Form = Literal["auto", "primal", "dual"]
Sided = Tensor | tuple[Tensor | None, Tensor | None] | None
"""One tensor for the query and the key side, or a pair of them where the sides differ."""


@dataclass(frozen=True)
class Additive:
    """Gram + lambda I, the paper's equation; lambda > 0, one for all or one a head."""

    strength: float | Tensor

    def parts(self, key: Tensor) -> tuple[Tensor, Tensor]:
        """What the Gram matrix of the keys is multiplied by, and what is added to it."""
        strength = _ridge_value(
            self.strength, key, "finite and greater than 0", lambda x: (x > 0) & (x < torch.inf)
        )
        return torch.ones_like(strength), strength


@dataclass(frozen=True)
class Convex:
    """(1 - a) Gram + a I, the public reference code; 0 < a <= 1, one for all or one a head."""

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
        gram = key @ key.mH if chosen_form(key, form) == "primal" else key.mH @ key
    scale, shift = ridge_parts(ridge, key)
    return scale * gram + shift * identity_like(gram)


def transport(
    query: Inexact[Tensor, "*batch n d"],
    key: Inexact[Tensor, "*batch g d"],
    value: Inexact[Tensor, "*batch g e"],
    *,
    ridge: Ridge,
    form: Form = "auto",
) -> Inexact[Tensor, "*batch n e"]:
    """C v~ for coefficients q~, k~, v~ without forming C; in float32 at least."""

    def solve(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        system = ridge_system(key, ridge=ridge, form=form)
        primal = chosen_form(key, form) == "primal"
        solved = solve_positive(system, value if primal else key.mH @ value)
        show_system(system)
        return query @ (key.mH @ solved if primal else solved)

    with full_precision(key.device):
        dtype = at_least_float32(query.dtype, key.dtype, value.dtype)
        return with_digits_to_spare(solve, query.to(dtype), key.to(dtype), value.to(dtype))


@overload
def functional_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_basis: Basis,
    key_basis: Basis,
    *,
    ridge: Ridge,
    projection: Projection | ProjectionName = ...,
    weights: Sided = ...,
    mask: Sided = ...,
    form: Form = ...,
    return_map: Literal[False] = ...,
) -> Tensor: ...
@overload
def functional_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_basis: Basis,
    key_basis: Basis,
    *,
    ridge: Ridge,
    projection: Projection | ProjectionName = ...,
    weights: Sided = ...,
    mask: Sided = ...,
    form: Form = ...,
    return_map: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def functional_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_basis: Basis,
    key_basis: Basis,
    *,
    ridge: Ridge,
    projection: Projection | ProjectionName = "average",
    weights: Sided = None,
    mask: Sided = None,
    form: Form = "auto",
    return_map: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Functional attention of queries at n points to keys and values at m points.

    query (b h n d), key (b h m d), value (b h m e); query_basis (b h n g), key_basis (b h m g). In
    a basis b and h may be 1, and it may be an object with `analyse` and `synthesise` methods
    (`BasisFunctions`) instead of a tensor.

    ridge: a number or a tensor (one, or one a head) that is added, or `Additive(...)`, or
        `Convex(...)`.
    projection: "average", "transpose" (the paper's text), "inner_product", "pinv", or an object
        like these.
    weights, mask: (b n), for both sides, or pairs (query side, key side). A masked point gives
        nothing and receives 0.
    form: "primal", "dual", or "auto" for the smaller of the two systems.
    return_map: also return C (b h g g), which is not formed otherwise.

    Returns (b h n e) in the dtype of `value`, or complex where a basis is.

    Relative to the paper: the default projection is the one its public code runs, not the transpose
    of its text; weights and masks are ours.

    >>> import torch
    >>> query, key, value = torch.randn(3, 2, 4, 100, 16)  # 2 samples, 4 heads, 100 points
    >>> basis = torch.randn(2, 4, 100, 8).softmax(-1)
    >>> functional_attention(query, key, value, basis, basis, ridge=1e-2).shape
    torch.Size([2, 4, 100, 16])
    """
    (query_weights, key_weights), (query_mask, key_mask) = both_sides(weights), both_sides(mask)
    _check_shapes(query, key, value, query_basis, key_basis)
    check_finite(query=query, key=key, value=value, query_basis=query_basis, key_basis=key_basis)

    of_queries = projector(query_basis, projection, weights=query_weights, mask=query_mask)
    one_side = query_basis is key_basis and query_weights is key_weights and query_mask is key_mask
    of_keys = (
        of_queries
        if one_side
        else projector(key_basis, projection, weights=key_weights, mask=key_mask)
    )
    q, k, v = of_queries(query), of_keys(key), of_keys(value)
    out = lift(query_basis, transport(q, k, v, ridge=ridge, form=form), mask=query_mask)
    out = out if out.is_complex() else out.to(value.dtype)
    if not return_map:
        return out
    identity = torch.eye(k.shape[-2], dtype=k.dtype, device=k.device).expand(*k.shape[:2], -1, -1)
    return out, transport(q, k, identity, ridge=ridge, form=form)


def both_sides(given: Sided) -> tuple[Tensor | None, Tensor | None]:
    """(query side, key side) of an argument that may be given once for both."""
    return given if isinstance(given, tuple) else (given, given)


def chosen_form(key: Tensor, form: Form) -> Form:
    """The smaller system of the two, where it is not said which."""
    if form not in ("auto", "primal", "dual"):
        raise ValueError(f"form: expected 'auto', 'primal' or 'dual', got {form!r}")
    if form != "auto":
        return form
    return "primal" if key.shape[-2] < key.shape[-1] else "dual"


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
            f"ridge: expected one number, one a head, or shape {tuple(heads)}, got shape "
            f"{tuple(given.shape)}"
        )
    if values_are_visible(given) and not bool(valid(given).all()):
        raise ValueError(
            f"ridge: expected every value {wanted}, so that the system is positive definite, got "
            f"{given.tolist()}"
        )
    given = given.to(key.device, real_dtype(key.dtype))
    return given if given.ndim == 0 else given[..., None, None]


def _check_shapes(
    query: Tensor, key: Tensor, value: Tensor, query_basis: Basis, key_basis: Basis
) -> None:
    """Say which axis does not fit, with all the shapes."""
    shapes = {
        "query": query.shape,
        "key": key.shape,
        "value": value.shape,
        "query_basis": query_basis.shape,
        "key_basis": key_basis.shape,
    }
    wrong = [name for name, shape in shapes.items() if len(shape) != 4]
    if not wrong:
        b, h, n, d = query.shape
        m, g = key.shape[2], query_basis.shape[3]
        rules = {
            "key (b h m d)": tuple(key.shape) == (b, h, m, d),
            "value (b h m e)": tuple(value.shape[:3]) == (b, h, m),
            "query_basis (b h n g)": query_basis.shape[2] == n,
            "key_basis (b h m g)": tuple(key_basis.shape[2:]) == (m, g),
            "batch and heads of query_basis": _fits(query_basis.shape, b, h),
            "batch and heads of key_basis": _fits(key_basis.shape, b, h),
        }
        wrong = [name for name, right in rules.items() if not right]
    if wrong:
        got = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise ValueError(
            f"shapes do not fit at {', '.join(wrong)}: expected query (b h n d), key (b h m d), "
            f"value (b h m e), query_basis (b h n g), key_basis (b h m g), got {got}"
        )


def _fits(shape: tuple[int, ...], b: int, h: int) -> bool:
    # Not `in`, which cannot be compiled for a size that may change.
    return (shape[0] == b or shape[0] == 1) and (shape[1] == h or shape[1] == 1)
