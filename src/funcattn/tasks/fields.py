"""Errors of several fields with units of their own, missing values and quadrature weights.

Every function gives one number per sample, (b,). NaN in the truth stands for a value that is not
known and is left out; so are masked points. Axes: b sample, n point, k channel of a field.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F  # noqa: N812


def root_mean_square_error(
    prediction: Float[Tensor, "b n *k"],
    truth: Float[Tensor, "b n *k"],
    *,
    deviation: float = 1.0,
    mask: Bool[Tensor, "b n"] | None = None,
    weights: Float[Tensor, "b n"] | None = None,
) -> Float[Tensor, " b"]:
    """The root of the weighted mean square of (prediction - truth) / deviation.

    The mean is over the points and all axes after them, with the weights of the points. 0 for a
    sample without known values.
    """
    known = ~truth.isnan()
    if mask is not None:
        known = known & _beside(mask, truth)
    # Both are cut to known values before the difference, so that gradients elsewhere are 0, and
    # divided before they are squared, so that no unit is too small for float32.
    difference = prediction.masked_fill(~known, 0) - truth.masked_fill(~known, 0)
    squares = (difference / deviation).square()
    share = known.to(squares.dtype)
    if weights is not None:
        share = share * _beside(weights, truth).to(squares.dtype)
        share = share.masked_fill(~known, 0)
    # Weights may be tiny (cell volumes in metres): only their ratios matter.
    largest = share.flatten(1).amax(1).clamp(min=torch.finfo(share.dtype).tiny)
    share = share / largest.reshape(-1, *(1,) * (share.ndim - 1))
    total = share.flatten(1).sum(1)
    mean = (share * squares).flatten(1).sum(1) / total.clamp(min=torch.finfo(total.dtype).tiny)
    # The root has no gradient at 0, where a prediction is exact or nothing is known.
    positive = mean > 0
    return torch.where(positive, mean.where(positive, torch.ones_like(mean)).sqrt(), 0)


def known_cross_entropy(
    logits: Float[Tensor, "b n k"],
    labels: Int[Tensor, "b n"],
    mask: Bool[Tensor, "b n"] | None = None,
    weights: Float[Tensor, "b n"] | None = None,
) -> Float[Tensor, " b"]:
    """The weighted mean of -log softmax(logits) at the label, over points with a label >= 0."""
    known = labels >= 0 if mask is None else (labels >= 0) & mask
    safe = logits.masked_fill(~known.unsqueeze(-1), 0)
    each = F.cross_entropy(safe.transpose(1, 2), labels.clamp(min=0), reduction="none")
    return _known_mean(each, known, weights)


def known_accuracy(
    logits: Float[Tensor, "b n k"],
    labels: Int[Tensor, "b n"],
    mask: Bool[Tensor, "b n"] | None = None,
    weights: Float[Tensor, "b n"] | None = None,
) -> Float[Tensor, " b"]:
    """The weighted fraction of points with a label >= 0 whose largest logit is the label's."""
    known = labels >= 0 if mask is None else (labels >= 0) & mask
    dtype = torch.promote_types(logits.dtype, torch.float32)
    return _known_mean((logits.argmax(-1) == labels).to(dtype), known, weights)


def _known_mean(values: Tensor, known: Tensor, weights: Tensor | None) -> Tensor:
    share = known.to(values.dtype)
    if weights is not None:
        share = share * weights.to(values.dtype).masked_fill(~known, 0)
    total = share.sum(1).clamp(min=torch.finfo(share.dtype).tiny)
    return (values.masked_fill(~known, 0) * share).sum(1) / total


def _beside(per_point: Tensor, field: Tensor) -> Tensor:
    """(b n) with as many axes as a field (b n *k), to be broadcast along them."""
    return per_point.reshape(*per_point.shape, *(1,) * (field.ndim - 2)).expand_as(field)
