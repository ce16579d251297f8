"""Fields with masks: what stands at padding is never looked at."""

from typing import overload

from torch import Tensor


@overload
def without_padding(field: Tensor, mask: Tensor | None, *, axis: int = ...) -> Tensor: ...
@overload
def without_padding(
    field: Tensor | None, mask: Tensor | None, *, axis: int = ...
) -> Tensor | None: ...
def without_padding(field: Tensor | None, mask: Tensor | None, *, axis: int = 1) -> Tensor | None:
    """The field with 0 at masked points, whatever stood there.

    mask: (b n), or (n,) for all samples; True at real points. axis: that of the points.

    >>> import torch
    >>> field = torch.tensor([[[1.0], [torch.nan]]])
    >>> without_padding(field, torch.tensor([[True, False]])).flatten().tolist()
    [1.0, 0.0]
    """
    if field is None or mask is None:
        return field
    padding = ~mask
    axis = axis % field.ndim
    # (b, n) -> (b, 1, ..., n, 1, ...), with n at the axis of the points
    for _ in range(axis - 1):
        padding = padding.unsqueeze(-2)
    for _ in range(field.ndim - axis - 1):
        padding = padding.unsqueeze(-1)
    return field.masked_fill(padding, 0)
