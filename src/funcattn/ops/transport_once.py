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

from funcattn.ops.attention import Form, Ridge, chosen_form, ridge_parts
from funcattn.ops.checks import refuse_second_derivatives, show_system
from funcattn.ops.linalg import cholesky, identity_like, with_digits_to_spare


def transport_once(
    query: Float[Tensor, "b h g d"],
    key: Float[Tensor, "b h g d"],
    value: Float[Tensor, "b h g e"],
    *,
    ridge: Ridge,
    form: Form = "auto",
) -> Float[Tensor, "b h g e"]:
    """`transport` for real coefficients that are to be differentiated once."""
    primal = chosen_form(key, form) == "primal"

    def solve(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        # One pair for each system, so that autograd does the sums over those that share a ridge.
        parts = (part.expand(*key.shape[:2], 1, 1) for part in ridge_parts(ridge, key))
        return _Transport.apply(query, key, value, *parts, primal)  # type: ignore[no-untyped-call]

    return with_digits_to_spare(solve, query, key, value)


class _Transport(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scale: Tensor,
        shift: Tensor,
        primal: bool,
    ) -> Tensor:
        gram = key @ key.mT if primal else key.mT @ key
        system = scale * gram + shift * identity_like(gram)
        factor = cholesky(system)
        show_system(system)
        solved = torch.cholesky_solve(value if primal else key.mT @ value, factor)
        map_ = key.mT @ solved if primal else solved
        ctx.primal = primal
        ctx.save_for_backward(query, key, value, scale, gram, factor, solved, map_)
        return query @ map_

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        query, key, value, scale, gram, factor, solved, map_ = ctx.saved_tensors
        of_query = gradient @ map_.mT
        of_map = query.mT @ gradient
        if ctx.primal:
            of_value = torch.cholesky_solve(key @ of_map, factor)
            of_key = solved @ of_map.mT
            of_system = -of_value @ solved.mT
            of_key = of_key + scale * (of_system + of_system.mT) @ key
        else:
            of_right = torch.cholesky_solve(of_map, factor)
            of_value = key @ of_right
            of_system = -of_right @ solved.mT
            of_key = value @ of_right.mT + scale * key @ (of_system + of_system.mT)
        of_scale = (of_system * gram).sum((-2, -1), keepdim=True)
        of_shift = of_system.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
        return of_query, of_key, of_value, of_scale, of_shift, None
