r"""Functional attention on whole tensors, by ordinary operations: sum, solve, lift.

Attention is read as a linear map between two function spaces. The query space has basis functions
Phi (n points x g), the key space Psi (m points x g). Fields become coefficients, the map C is the
ridge solution of "carry the keys onto the queries", and the values ride along:

    q~ = P(Phi) q      k~ = P(Psi) k      v~ = P(Psi) v                  (g x d), (g x d), (g x e)
    C  = q~ k~^H (k~ k~^H + lambda I_g)^-1                                               (g x g)
    out = Phi C v~                                                                       (n x e)

It can be compiled, exported, and differentiated as often as one likes.

Axes: b batch, h head, n query point, m key point, g basis function, d channel of a query or key,
e channel of a value.
"""

from collections.abc import Callable
from typing import Literal, overload

from torch import Tensor

from funcattn.ops.attention.carrier import Carrier, Maps, Solution, map_of
from funcattn.ops.attention.transport import Form, Ridge
from funcattn.ops.checks import check_finite
from funcattn.ops.moments import Moments, Sums
from funcattn.ops.projections import Basis, Projection, ProjectionName, lift
from funcattn.ops.sharding import Group

Sided = Tensor | tuple[Tensor | None, Tensor | None] | None
"""One tensor for the query and the key side, or a pair of them where the sides differ."""


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
    maps: Maps | None = ...,
    group: Group | None = ...,
    return_map: Literal[False] = ...,
    show: Callable[[Solution], None] | None = ...,
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
    maps: Maps | None = ...,
    group: Group | None = ...,
    return_map: Literal[True],
    show: Callable[[Solution], None] | None = ...,
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
    maps: Maps | None = None,
    group: Group | None = None,
    return_map: bool = False,
    show: Callable[[Solution], None] | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Functional attention of queries at n points to keys and values at m points.

    query (b h n d), key (b h m d), value (b h m e); query_basis (b h n g), key_basis (b h m g). In
    a basis b and h may be 1, and it may be an object with `analyse` and `synthesise` methods
    (`BasisFunctions`) instead of a tensor.

    ridge: a number or a tensor (one, or one per head) that is added, or `Additive(...)`, or
        `Convex(...)`.
    projection: "average", "transpose" (the paper's text), "inner_product", "pinv", or an object
        like these.
    weights, mask: (b n), for both sides, or pairs (query side, key side). A masked point gives
        nothing and receives 0.
    form: "primal", "dual", or "auto" for the smaller of the two systems.
    maps: linear maps (d d) of queries, keys and values. They are applied to coefficients, where
        that is cheap, and a field that is given several times is summed once.
    group: a process group over whose ranks the points are spread.
    return_map: also return C (b h g g), which is not formed otherwise.
    show: called with the coefficients and the system that was solved.

    Returns (b h n e) in the dtype of `value`, or complex where a basis is.

    Relative to the paper: the default projection is the one its public code runs, not the transpose
    of its text; weights and masks are ours.

    >>> import torch
    >>> query, key, value = torch.randn(3, 2, 4, 100, 16)  # 2 samples, 4 heads, 100 points
    >>> basis = torch.randn(2, 4, 100, 8).softmax(-1)
    >>> functional_attention(query, key, value, basis, basis, ridge=1e-2).shape
    torch.Size([2, 4, 100, 16])
    """
    _check_shapes(query, key, value, query_basis, key_basis)
    check_finite(query=query, key=key, value=value, query_basis=query_basis, key_basis=key_basis)

    carrier = Carrier(ridge, projection, form, maps, group)
    moments = moments_of(
        query, key, value, query_basis, key_basis,
        projection=projection, weights=weights, mask=mask, maps=maps, shard=group is not None,
    )  # fmt: skip
    coefficients = carrier(moments, show=show)
    out = lift(query_basis, coefficients, mask=both_sides(mask)[0])

    out = out if out.is_complex() else out.to(value.dtype)
    if not return_map:
        return out
    q, k, _ = carrier.coefficients(moments)
    return out, map_of(q, k, ridge=ridge, form=form)


def moments_of(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_basis: Basis,
    key_basis: Basis,
    *,
    projection: Projection | ProjectionName,
    weights: Sided = None,
    mask: Sided = None,
    maps: Maps | None = None,
    shard: bool = False,
) -> tuple[Moments, ...]:
    """The moments of queries, keys and values: of all three, or of each side, as `Carrier` has it.

    With maps, a field that is given several times is summed once.
    """
    (query_weights, key_weights), (query_mask, key_mask) = both_sides(weights), both_sides(mask)
    of_queries = Sums(query_basis, projection, weights=query_weights, mask=query_mask, shard=shard)
    one_side = query_basis is key_basis and query_weights is key_weights and query_mask is key_mask
    if one_side:
        one_field = maps is not None and query is key is value
        return (of_queries(query) if one_field else of_queries(query, key, value),)
    of_keys = Sums(key_basis, projection, weights=key_weights, mask=key_mask, shard=shard)
    one_field = maps is not None and key is value
    return of_queries(query), of_keys(key) if one_field else of_keys(key, value)


def both_sides(given: Sided) -> tuple[Tensor | None, Tensor | None]:
    """(query side, key side) of an argument that may be given once for both."""
    return given if isinstance(given, tuple) else (given, given)


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
