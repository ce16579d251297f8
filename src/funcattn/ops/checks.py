"""Checks at the door of the operators: what was expected, what came, what to do.

Shapes are always checked: that costs nothing. Values are only looked at where looking is cheap
(tensors on the CPU) or asked for (:func:`debug`), because reading a value from an accelerator makes
the program wait for it. Nothing is checked while a graph is traced.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

_debugging: ContextVar[bool] = ContextVar("funcattn_debugging", default=False)


@contextmanager
def debug() -> Iterator[None]:
    """Within this context every operator also checks its inputs for values that are not finite.

    >>> import torch
    >>> from funcattn import debug, functional_attention
    >>> x = torch.full((1, 1, 5, 2), torch.nan)
    >>> basis = torch.full((1, 1, 5, 3), 1 / 3)
    >>> with debug():
    ...     functional_attention(x, x, x, basis, basis, ridge=0.1)
    Traceback (most recent call last):
    ValueError: query: expected finite values, got 10 that are not (of 10), first at [0, 0, 0, 0]
    """
    token = _debugging.set(True)
    try:
        yield
    finally:
        _debugging.reset(token)


def debugging() -> bool:
    """Whether this runs inside `debug()`."""
    return not torch.compiler.is_compiling() and _debugging.get()


def values_are_visible(tensor: Tensor) -> bool:
    """Whether looking at the tensor's values now is allowed and cheap, or was asked for."""
    return debugging() or (not torch.compiler.is_compiling() and tensor.device.type == "cpu")


def check_finite(**values: object) -> None:
    """In debug mode, raise for the first tensor with a value that is not finite."""
    if not debugging():
        return
    for name, tensor in values.items():
        if not isinstance(tensor, Tensor) or bool(tensor.isfinite().all()):
            continue
        bad = (~tensor.isfinite()).nonzero()
        raise ValueError(
            f"{name}: expected finite values, got {len(bad)} that are not (of {tensor.numel()}), "
            f"first at {bad[0].tolist()}"
        )


def check_point_weights(
    weights: Tensor | None, mask: Tensor | None, points: int, *, shard: bool = False
) -> None:
    """Weights like a quadrature rule, a mask, and something left of both.

    shard: these may be some of the points only, of which nothing need be left.
    """
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(
            f"mask: expected a boolean tensor, True at real points, got {mask.dtype}; "
            "for point weights use `weights`"
        )
    if weights is not None and not weights.is_floating_point():
        raise TypeError(f"weights: expected floating point numbers, got {weights.dtype}")
    for name, tensor in (("weights", weights), ("mask", mask)):
        if tensor is not None and (tensor.ndim not in (1, 2) or tensor.shape[-1] != points):
            raise ValueError(
                f"{name}: expected one number for each of {points} points, shape (b, {points}), "
                f"got {tuple(tensor.shape)}; where queries and keys live on different points, pass "
                f"a pair `{name}=(query side, key side)`"
            )
    visible = mask is not None and not shard and values_are_visible(mask)
    if mask is not None and visible and not bool(mask.any(-1).all()):
        rows = (~mask.any(-1)).flatten().nonzero().flatten().tolist()
        raise ValueError(
            f"mask: every point is masked in row {rows}, so there is no function to project; "
            "drop such samples from the batch"
        )
    if weights is None or not values_are_visible(weights):
        return
    if not bool(((weights >= 0) & (weights < torch.inf)).all()):
        raise ValueError(
            "weights: expected finite numbers, none of them negative, got values from "
            f"{weights.min().item():g} to {weights.max().item():g}"
        )
    if shard:
        return
    positive = weights > 0 if mask is None else (weights > 0) & mask
    if not bool(positive.any(-1).all()):
        raise ValueError(
            "weights: expected a positive one in every row, at a point that is not masked, got "
            f"none in row {(~positive.any(-1)).flatten().nonzero().flatten().tolist()}"
        )


def check_total_weight(total: Tensor) -> None:
    """Something is left of the weights and masks of all shards, in every row (b ...)."""
    if values_are_visible(total) and not bool((total > 0).all()):
        rows = (total <= 0).flatten(1).any(1).nonzero().flatten().tolist()
        raise ValueError(
            f"points: no rank has one that is not masked and has a positive weight in row {rows}, "
            "so there is no function to project; drop such samples from the batch"
        )


def check_batch(batch: int, **per_point: Tensor | None) -> None:
    """Weights and masks (b n) are those of as many samples as the fields have, or of one."""
    for name, tensor in per_point.items():
        if tensor is None or tensor.ndim != 2:
            continue
        # Not `in`, which cannot be compiled for a size that may change.
        if tensor.shape[0] != batch and tensor.shape[0] != 1:
            raise ValueError(
                f"{name}: expected those of {batch} samples, got shape {tuple(tensor.shape)}"
            )
