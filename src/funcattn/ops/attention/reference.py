"""Functional attention in its most obvious form, for tests to compare with.

One sample and one head at a time, every matrix written out, inverses taken as such; the arguments
are those of the plain form, but no code is shared with it. Slow on purpose.
"""

import torch
from torch import Tensor

from funcattn.ops.attention.plain import Sided
from funcattn.ops.attention.transport import Additive, Convex, Ridge


def functional_attention_reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_basis: Tensor,
    key_basis: Tensor,
    *,
    ridge: Ridge,
    projection: str = "average",
    weights: Sided = None,
    mask: Sided = None,
) -> tuple[Tensor, Tensor]:
    """(out, C), as the plain form returns them with `return_map=True`; arguments as there.

    C = q~ k~^H (s k~ k~^H + r I)^-1, where (s, r) = (1, r) for an additive ridge and (1 - r, r) for
    a convex one. The stabilisers of `average` and `pinv` are the defaults of the fast forms.
    """
    b, h = query.shape[:2]
    query_weights, key_weights = (
        _weights(field, *given)
        for field, *given in zip((query, key), _pair(weights), _pair(mask), strict=True)
    )
    scale, shift = _system(ridge, query.new_ones(h))
    outs, maps = [], []
    for i in range(b):
        for j in range(h):
            phi, psi = query_basis[i, j], key_basis[i, j]
            p_phi = _projection_matrix(projection, phi, query_weights[i])
            p_psi = _projection_matrix(projection, psi, key_weights[i])
            field_dtype = p_psi.dtype
            q = p_phi @ query[i, j].to(field_dtype)
            k = p_psi @ key[i, j].to(field_dtype)
            v = p_psi @ value[i, j].to(field_dtype)
            identity = torch.eye(len(k), dtype=field_dtype)
            c = q @ k.mH @ torch.linalg.inv(scale[j] * k @ k.mH + shift[j] * identity)
            real_point = (query_weights[i] > 0).to(field_dtype)
            outs.append(torch.diag(real_point) @ phi @ c @ v)
            maps.append(c)
    return torch.stack(outs).unflatten(0, (b, h)), torch.stack(maps).unflatten(0, (b, h))


def _pair(given: Sided) -> tuple[Tensor | None, Tensor | None]:
    return given if isinstance(given, tuple) else (given, given)


def _weights(field: Tensor, weights: Tensor | None, mask: Tensor | None) -> Tensor:
    """A weight for each point of each sample, (b n), 0 at masked points."""
    factor = field.new_ones(field.shape[0], field.shape[2])
    for given in (weights, mask):
        factor = factor if given is None else factor * given
    return factor


def _system(ridge: Ridge, one: Tensor) -> tuple[Tensor, Tensor]:
    """s and r of the system s k~ k~^H + r I, each (h,)."""
    if isinstance(ridge, Convex):
        return one * (1 - ridge.weight), one * ridge.weight
    return one, one * (ridge.strength if isinstance(ridge, Additive) else ridge)


def _projection_matrix(projection: str, basis: Tensor, weights: Tensor) -> Tensor:
    """P (g x n) of one basis (n x g)."""
    g = basis.shape[1]
    w = torch.diag(weights).to(basis.dtype)
    transpose = basis.mH @ w
    if projection == "transpose":
        return transpose
    if projection == "inner_product":
        return transpose / weights.sum()
    if projection == "average":
        mass = transpose.sum(1)
        return torch.diag(1 / (mass + 1e-8 * mass.mean())) @ transpose
    if projection == "pinv":
        gram = transpose @ basis
        stabiliser = 1e-4 * torch.trace(gram) / g
        return torch.linalg.inv(gram + stabiliser * torch.eye(g, dtype=gram.dtype)) @ transpose
    raise ValueError(projection)
