"""Losses and metrics of the paper: one number for each sample of a batch.

`prediction` and `truth` have the axes (b n o); a mask (b n) is True at real points, and what stands
at the others is never looked at.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F  # noqa: N812


def relative_l2(
    prediction: Float[Tensor, "b n *o"],
    truth: Float[Tensor, "b n *o"],
    mask: Bool[Tensor, "b n"] | None = None,
) -> Float[Tensor, " b"]:
    """||prediction - truth|| / ||truth||, over the points and all axes after them."""
    return _norm(prediction - truth, mask) / _norm(truth, mask)


def mean_squared_error(
    prediction: Float[Tensor, "b n *o"],
    truth: Float[Tensor, "b n *o"],
    mask: Bool[Tensor, "b n"] | None = None,
) -> Float[Tensor, " b"]:
    """The mean, over the points and all axes after them, of the squared error."""
    squares = _at_real_points(prediction - truth, mask).square()
    return _point_mean(squares.reshape(*squares.shape[:2], -1).mean(-1), mask)


def relative_gradient(
    prediction: Float[Tensor, "b n o"], truth: Float[Tensor, "b n o"], grid: tuple[int, ...]
) -> Float[Tensor, " b"]:
    """The relative L2 error of the gradient, by central differences at the inner points of a grid.

    The spacing is taken to be the same everywhere and on all axes: then it cancels.
    """
    return _norm(_differences(prediction - truth, grid), None) / _norm(
        _differences(truth, grid), None
    )


def relative_periodic_derivative(
    prediction: Float[Tensor, "b n o"], truth: Float[Tensor, "b n o"]
) -> Float[Tensor, " b"]:
    """The relative L2 error of the derivative on a periodic line, by central differences."""

    def derivative(u: Tensor) -> Tensor:
        return u.roll(-1, dims=1) - u.roll(1, dims=1)

    return _norm(derivative(prediction - truth), None) / _norm(derivative(truth), None)


def volume_and_surface_error(
    prediction: Float[Tensor, "b n o"],
    truth: Float[Tensor, "b n o"],
    surface: Bool[Tensor, "b n"],
    mask: Bool[Tensor, "b n"] | None = None,
) -> Float[Tensor, " b"]:
    """Mean squared error over the points off the surface, plus the one over those on it."""
    real = torch.ones_like(surface) if mask is None else mask
    return mean_squared_error(prediction, truth, real & ~surface) + mean_squared_error(
        prediction, truth, real & surface
    )


def cross_entropy(
    logits: Float[Tensor, "b n k"],
    labels: Int[Tensor, "b n"],
    mask: Bool[Tensor, "b n"] | None = None,
) -> Float[Tensor, " b"]:
    """The mean over the points of -log softmax(logits) at the label."""
    logits = _at_real_points(logits, mask)
    return _point_mean(F.cross_entropy(logits.transpose(1, 2), labels, reduction="none"), mask)


def accuracy(
    logits: Float[Tensor, "b n k"],
    labels: Int[Tensor, "b n"],
    mask: Bool[Tensor, "b n"] | None = None,
) -> Float[Tensor, " b"]:
    """The fraction of points whose largest logit is the label's."""
    # In float32 at least: in bfloat16 the mean over some thousand points keeps two digits.
    dtype = torch.promote_types(logits.dtype, torch.float32)
    return _point_mean((logits.argmax(-1) == labels).to(dtype), mask)


def force_coefficients(
    pressure: Float[Tensor, " n"],
    shear: Float[Tensor, "n 2"],
    normals: Float[Tensor, "n 2"],
    lengths: Float[Tensor, " n"],
    *,
    incidence: float,
    speed: float,
    chord: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """(drag, lift) of a body in a flow of unit density, by surface pressure and wall shear stress.

    normals point out of the body, lengths are those of the surface elements, incidence is the angle
    of the oncoming flow in radians. The force on the body is the integral of shear - pressure *
    normal; drag is its part along the flow, lift the part across it, over speed^2 chord / 2.
    """
    force = ((shear - pressure[:, None] * normals) * lengths[:, None]).sum(0)
    angle = force.new_tensor(incidence)
    along = torch.stack([angle.cos(), angle.sin()])
    across = torch.stack([-angle.sin(), angle.cos()])
    scale = 2 / (speed**2 * chord)
    return scale * force @ along, scale * force @ across


def rank_correlation(a: Float[Tensor, " k"], b: Float[Tensor, " k"]) -> float:
    """Spearman's rank correlation; equal values share the mean of their ranks."""

    def centred_ranks(x: Tensor) -> Tensor:
        below = (x[None, :] < x[:, None]).sum(1).double()
        equal = (x[None, :] == x[:, None]).sum(1).double()
        ranks = below + (equal + 1) / 2
        return ranks - ranks.mean()

    ranks_a, ranks_b = centred_ranks(a), centred_ranks(b)
    return float(ranks_a @ ranks_b / (ranks_a.norm() * ranks_b.norm()))


def _norm(field: Tensor, mask: Tensor | None) -> Tensor:
    return torch.linalg.vector_norm(_at_real_points(field, mask).flatten(1), dim=1)


def _at_real_points(field: Tensor, mask: Tensor | None) -> Tensor:
    """The field (b n *o) with 0 at masked points, so that gradients there are 0 too."""
    if mask is None:
        return field
    return field.masked_fill(~mask.reshape(*mask.shape, *(1,) * (field.ndim - 2)), 0)


def _point_mean(values: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return values.mean(1)
    return values.masked_fill(~mask, 0).sum(1) / mask.sum(1).clamp(min=1)


def _differences(field: Tensor, grid: tuple[int, ...]) -> Tensor:
    """Central differences along each axis, at the points inside; (b n o) -> (b points axes*o)."""
    u = field.unflatten(1, grid)
    axes = range(1, 1 + len(grid))
    pieces = []
    for axis in axes:
        inner = u
        for other in axes:
            if other != axis:
                inner = inner.narrow(other, 1, inner.shape[other] - 2)
        length = inner.shape[axis]
        pieces.append(inner.narrow(axis, 2, length - 2) - inner.narrow(axis, 0, length - 2))
    return torch.cat([piece.flatten(1, len(grid)) for piece in pieces], dim=-1)
