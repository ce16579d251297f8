"""Functional attention in its most obvious form, for tests to compare with.

One sample and one head at a time, every matrix written out, inverses taken as such; no code shared
with the fast forms. Slow on purpose.
"""

import torch
from torch import Tensor


def functional_attention_reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_basis: Tensor,
    key_basis: Tensor,
    *,
    gram_scale: Tensor,
    ridge: Tensor,
    projection: str,
    query_weights: Tensor,
    key_weights: Tensor,
) -> tuple[Tensor, Tensor]:
    """(out, C) with C = q~ k~^H (gram_scale k~ k~^H + ridge I)^-1.

    query (b h n d), key (b h m d), value (b h m e), bases (b h n g) and (b h m g), weights (b n)
    and (b m), 0 at masked points; gram_scale and ridge (h,). The stabilisers of `average` and
    `pinv` are the defaults of the fast form.
    """
    b, h = query.shape[:2]
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
            c = q @ k.mH @ torch.linalg.inv(gram_scale[j] * k @ k.mH + ridge[j] * identity)
            real_point = (query_weights[i] > 0).to(field_dtype)
            outs.append(torch.diag(real_point) @ phi @ c @ v)
            maps.append(c)
    return torch.stack(outs).unflatten(0, (b, h)), torch.stack(maps).unflatten(0, (b, h))


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
