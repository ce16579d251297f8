"""The passes by ordinary operations on whole tensors, for gradients that are differentiated again.

Axes: b batch, h head, n point, g basis function, c width, f field channels of a head, e value
channels of a head.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from funcattn.ops.attention.local_maps import AtPoints


def sum_forward(
    points: AtPoints, point_weights: Float[Tensor, "b n"] | None
) -> Float[Tensor, "b h f1 g"]:
    """[field, 1]^T w Phi."""
    x, phi = _in_full(points), _basis(points)
    if points.field_weight is not None:
        field = x @ points.field_weight.mT
    else:
        field = x if points.field is None else points.field.to(x.dtype)
    if point_weights is not None:
        phi = phi * point_weights[:, None, :, None]
    moments = _heads_of(field, phi.shape[1]).mT @ phi
    return torch.cat([moments, phi.sum(2, keepdim=True)], 2)


def lift_forward(
    points: AtPoints,
    coefficients: Float[Tensor, "b h g e"],
    output: Float[Tensor, "c he"] | None,
    bias: Float[Tensor, " c"] | None,
    mask: Bool[Tensor, "b n"] | None,
) -> Float[Tensor, "b n c"]:
    """[Phi_1 M_1, ...] O^T + o; 0 O^T + o at masked points."""
    values = (_basis(points) @ coefficients).transpose(1, 2).flatten(2)  # (b, n, h e)
    if mask is not None:
        values = values * mask.unsqueeze(2)
    out = values if output is None else values @ output.mT
    return out if bias is None else out + bias


def gradients(
    compute: Callable[[Sequence[Tensor | None]], Tensor],
    given: Sequence[Tensor | None],
    wanted: Sequence[bool],
    d_out: Tensor,
) -> list[Tensor | None]:
    """Those of what is wanted of the given tensors, with a graph."""
    # Views, as a tensor that is given twice would get both gradients twice.
    own = [
        tensor.view_as(tensor) if tensor is not None and want else tensor
        for tensor, want in zip(given, wanted, strict=True)
    ]
    leaves = [tensor for tensor, want in zip(own, wanted, strict=True) if want]
    out = compute(own)
    made = iter(
        torch.autograd.grad(out, leaves, d_out.to(out.dtype), create_graph=True, allow_unused=True)  # type: ignore[arg-type]
    )
    return [next(made) if want else None for want in wanted]


def _basis(points: AtPoints) -> Float[Tensor, "b h n g"]:
    features = _in_full(points)
    if points.basis_weight is not None:
        features = features @ points.basis_weight.mT
    heads = _heads_of(features, len(points.score_weight))
    scores = heads @ points.score_weight + points.score_bias.unsqueeze(1)
    return scores.unflatten(3, (points.groups, -1)).softmax(-1).flatten(3)


def _in_full(points: AtPoints) -> Tensor:
    return points.x.to(points.score_weight.dtype)


def _heads_of(x: Tensor, heads: int) -> Float[Tensor, "b h n d"]:
    return x.unflatten(2, (heads, -1)).transpose(1, 2)
