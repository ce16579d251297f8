r"""The small part of functional attention as one operation, with a gradient of its own.

In the dual form, with A = s k~^T k~ + r I_d and M = A^-1 k~^T v~, the result is q~ M. Its gradient
needs one more solve with the same factor, and no more than a dozen small products:

    G = A^-1 q~^T dout,   dA = -G M^T,
    dq~ = dout M^T,   dv~ = k~ G,   dk~ = v~ G^T + s k~ (dA + dA^T),
    ds = <dA, k~^T k~>,   dr = tr dA

and likewise in the primal form, where A = s k~ k~^T + r I_g. The plain form leaves this to
autograd, which takes several times as many operations: that is felt where there are few points.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from funcattn.ops.attention.transport import Form, Ridge, Show, is_primal, ridge_parts
from funcattn.ops.linalg import cholesky, identity_like, with_digits_to_spare


def transport_once(
    query: Float[Tensor, "b h g d"],
    key: Float[Tensor, "b h g d"],
    value: Float[Tensor, "b h g e"],
    *,
    ridge: Ridge,
    form: Form = "auto",
    show: Show | None = None,
) -> Float[Tensor, "b h g e"]:
    """`transport` for real coefficients; quickest where they are differentiated once."""
    primal = is_primal(key.shape[-2], key.shape[-1], form)

    def solve(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        # One pair for each system, so that autograd does the sums over those that share a ridge.
        parts = (part.expand(*key.shape[:2], 1, 1) for part in ridge_parts(ridge, key))
        return _TransportOnce.apply(  # type: ignore[no-untyped-call]
            query, key, value, *parts, primal, show
        )

    return with_digits_to_spare(solve, query, key, value)


class _TransportOnce(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scale: Tensor,
        shift: Tensor,
        primal: bool,
        show: Show | None,
    ) -> Tensor:
        out, system, kept = forward(query, key, value, scale, shift, primal=primal)
        if show is not None:
            show(system)
        ctx.primal = primal
        ctx.save_for_backward(query, key, value, scale, shift, *kept)
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, scale, shift, *kept = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient is to be differentiated: so is what it needs
            _, _, kept = forward(query, key, value, scale, shift, primal=ctx.primal)
        return *backward(d_out, query, key, value, scale, *kept, primal=ctx.primal), None, None


Kept = tuple[Tensor, Tensor, Tensor, Tensor]


def forward(
    query: Tensor, key: Tensor, value: Tensor, scale: Tensor, shift: Tensor, *, primal: bool
) -> tuple[Tensor, Tensor, Kept]:
    """q~ M, the system, and what the gradient needs: Gram matrix, factor, solution, M."""
    gram = key @ key.mT if primal else key.mT @ key
    system = scale * gram + shift * identity_like(gram)
    factor = cholesky(system)
    solved = torch.cholesky_solve(value if primal else key.mT @ value, factor)
    map_ = key.mT @ solved if primal else solved
    return query @ map_, system, (gram, factor, solved, map_)


def backward(
    d_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: Tensor,
    gram: Tensor,
    factor: Tensor,
    solved: Tensor,
    map_: Tensor,
    *,
    primal: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of query, key, value, scale and shift."""
    d_query = d_out @ map_.mT
    d_map = query.mT @ d_out
    if primal:
        d_value = torch.cholesky_solve(key @ d_map, factor)
        d_key = solved @ d_map.mT
        d_system = -d_value @ solved.mT
        d_key = d_key + scale * (d_system + d_system.mT) @ key
    else:
        d_right = torch.cholesky_solve(d_map, factor)
        d_value = key @ d_right
        d_system = -d_right @ solved.mT
        d_key = value @ d_right.mT + scale * key @ (d_system + d_system.mT)
    d_scale = (d_system * gram).sum((-2, -1), keepdim=True)
    d_shift = d_system.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    return d_query, d_key, d_value, d_scale, d_shift
