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


def values_are_visible(tensor: Tensor) -> bool:
    """Whether looking at the tensor's values now is allowed and cheap, or was asked for."""
    return not torch.compiler.is_compiling() and (tensor.device.type == "cpu" or _debugging.get())


def check_finite(**values: object) -> None:
    """In debug mode, raise for the first tensor with a value that is not finite."""
    if torch.compiler.is_compiling() or not _debugging.get():
        return
    for name, tensor in values.items():
        if not isinstance(tensor, Tensor) or bool(tensor.isfinite().all()):
            continue
        bad = (~tensor.isfinite()).nonzero()
        raise ValueError(
            f"{name}: expected finite values, got {len(bad)} that are not (of {tensor.numel()}), "
            f"first at {bad[0].tolist()}"
        )


def check_mask(mask: Tensor | None, points: int) -> None:
    """A mask is boolean, True at real points, and leaves no sample without a point."""
    if mask is None:
        return
    if mask.dtype != torch.bool:
        raise TypeError(
            f"mask: expected a boolean tensor, True at real points, got {mask.dtype}; "
            "for point weights use `weights`"
        )
    _check_points_axis("mask", mask, points)
    if values_are_visible(mask) and not bool(mask.any(-1).all()):
        empty = (~mask.any(-1)).nonzero().flatten().tolist()
        raise ValueError(
            f"mask: every point is masked in row {empty}, so there is no function to project; "
            "drop such samples from the batch"
        )


def check_weights(weights: Tensor | None, points: int) -> None:
    """Weights are not negative and not all zero, as a quadrature rule's are."""
    if weights is None:
        return
    if not weights.is_floating_point():
        raise TypeError(f"weights: expected floating point numbers, got {weights.dtype}")
    _check_points_axis("weights", weights, points)
    if values_are_visible(weights) and not (
        bool((weights >= 0).all()) and bool((weights > 0).any(-1).all())
    ):
        raise ValueError(
            "weights: expected no negative number, and a positive one in every row, got a smallest "
            f"of {weights.min().item():g} and a smallest row sum of "
            f"{weights.sum(-1).min().item():g}"
        )


def _check_points_axis(name: str, tensor: Tensor, points: int) -> None:
    """One number a point, for the whole batch or for each sample."""
    if tensor.ndim not in (1, 2) or tensor.shape[-1] != points:
        raise ValueError(
            f"{name}: expected one number for each of {points} points, shape (b, {points}), got "
            f"{tuple(tensor.shape)}; where queries and keys live on different points, pass a pair "
            f"`{name}=(query side, key side)`"
        )
