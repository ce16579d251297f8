"""What a run is asked about, looked at before its network sees it.

Shapes that do not fit, numbers that are none and numbers of a wrong unit are refused; numbers
outside of the range of training are told of.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from funcattn.arrays import Array
from funcattn.data import Batch, trapezoid_weights
from funcattn.models import NormalisedNetwork
from funcattn.models.encoded import rows_of
from funcattn.ops.linalg import NotPositiveError
from funcattn.tasks import Task

_FAR = 1e12
"""Inputs so many times as far from what was trained on as that is wide have a wrong unit."""
_SCANNED = 2**18
"""Points of a file whose numbers are looked at together."""


def prepared_batch(
    task: Task,
    network: NormalisedNetwork,
    given: Mapping[str, object],
    *,
    grid: tuple[int, ...] | None,
    needs_weights: bool = True,
) -> tuple[Batch, list[str]]:
    """Arrays by the names of `Predictor.predict` as a batch, and where they leave the known range.

    Raises:
        ValueError: they do not fit the task or each other, or are not of ordinary size.
    """
    tensors = {
        name: None if array is None else _tensor(name, array) for name, array in given.items()
    }
    if tensors["positions"] is not None and tensors["positions"].ndim == 2:
        tensors = {k: None if t is None else t.unsqueeze(0) for k, t in tensors.items()}
    batch = _checked(task, tensors, grid, like=network.position_range)
    if needs_weights and batch.weights is None and task.weighted:
        batch = replace(batch, weights=grid_weights(task, batch.positions, grid))
    outside: list[str] = []
    for name, tensor, known in (
        ("positions", batch.positions, network.position_range),
        ("values", batch.values, network.value_range),
    ):
        if tensor is not None:
            points = tensor if batch.mask is None else tensor[batch.mask]
            channels = points.reshape(-1, tensor.shape[-1])
            outside += _outside(name, channels.amin(0), channels.amax(0), known)
    return batch, outside


def outside_of_file(name: str, array: Array, known: Tensor) -> list[str]:
    """Where an array (n k) leaves the known range (2 k), read in chunks.

    Raises:
        ValueError: it has another shape, or numbers that are not of ordinary size.
    """
    if array.ndim != 2 or array.shape[1] != known.shape[1] or array.dtype.kind not in "fiu":
        raise ValueError(
            f"{name}: expected numbers (n, {known.shape[1]}), got {array.shape} of {array.dtype}"
        )
    found = []
    for rows in rows_of(len(array), _SCANNED):
        part = array[rows]
        if len(part):
            found.append(np.stack([part.min(0), part.max(0)]))
    if not found:
        raise ValueError(f"{name}: expected at least one point, got {array.shape}")
    # A value that is none is the smallest and the largest of its chunk, and of all.
    lows, highs = np.stack(found).min(0)[0], np.stack(found).max(0)[1]
    lowest, highest = (
        torch.from_numpy(extreme.astype(np.float64)).to(known) for extreme in (lows, highs)
    )
    if not bool((lowest.isfinite() & highest.isfinite()).all()):
        raise ValueError(f"{name}: expected finite numbers, got some that are not")
    return _outside(name, lowest, highest, known)


def grid_weights(task: Task, positions: Tensor, grid: tuple[int, ...] | None) -> Tensor:
    """The weights of the points of a grid, for a network that was trained with them."""
    if grid is None:
        raise ValueError(
            f"weights: expected the quadrature weights of the points, as {task.name} was "
            "trained with, got none; give them, or the grid, from which they are computed"
        )
    weights = trapezoid_weights(grid, periodic=task.problem.periodic)
    return weights.to(positions).expand(len(positions), -1)


@contextmanager
def blaming_inputs(batch: Batch) -> Iterator[None]:
    """A network that fails by the size of its numbers is reported as such."""
    try:
        yield
    except (NotPositiveError, _NotFiniteError) as error:
        raise ValueError(
            "prediction: expected inputs of ordinary size after normalisation, as in the training "
            f"data, got {_range_words(batch)}, with which {error}; check their units"
        ) from error


class _NotFiniteError(Exception):
    """A prediction that is none."""


def check_finite(out: Tensor, mask: Tensor | None) -> None:
    """Refuse a prediction that is none; within `blaming_inputs`."""
    seen = out if mask is None else out[mask]
    if not bool(seen.isfinite().all()):
        raise _NotFiniteError("the prediction is not finite")


def _range_words(batch: Batch) -> str:
    """The ranges of the inputs at real points, for messages."""
    words = []
    for name in ("positions", "values", "context", "weights"):
        tensor = getattr(batch, name)
        if tensor is not None:
            seen = tensor if batch.mask is None or name == "context" else tensor[batch.mask]
            words.append(f"{name} from {seen.min():.4g} to {seen.max():.4g}")
    return ", ".join(words)


def _tensor(name: str, array: object) -> Tensor:
    """A tensor of its own, whatever the array's strides, and whether or not it may be written."""
    if isinstance(array, Tensor):
        return array
    try:
        plain = np.array(array)
        return torch.from_numpy(plain.astype(plain.dtype.newbyteorder("="), copy=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: expected numbers, got {error}") from error


def _checked(
    task: Task, tensors: Mapping[str, Tensor | None], grid: tuple[int, ...] | None, *, like: Tensor
) -> Batch:
    """Tensors that fit the task and each other, as those of the network are."""
    positions, values = tensors["positions"], tensors["values"]
    space, channels = task.problem.space, task.problem.input_channels
    if positions is None or positions.ndim != 3 or positions.shape[-1] != space:
        got = None if positions is None else tuple(positions.shape)
        raise ValueError(f"positions: expected (b, n, {space}), got {got}")
    b, n = positions.shape[:2]
    if not b * n:
        raise ValueError(f"positions: expected at least one point, got {tuple(positions.shape)}")
    if grid is not None and (len(grid) != space or min(grid) < 1 or math.prod(grid) != n):
        raise ValueError(
            f"grid: expected {space} axis lengths whose product is {n}, got {str(grid)[:100]}"
        )
    wanted = (b, n, channels) if channels else None
    got = None if values is None else tuple(values.shape)
    if got != wanted:
        raise ValueError(f"values: expected {wanted} for {task.name}, got {got}")
    mask, weights = tensors["mask"], tensors["weights"]
    for name, tensor in (("mask", mask), ("weights", weights)):
        if tensor is not None and tensor.shape != (b, n):
            raise ValueError(f"{name}: expected {(b, n)}, got {tuple(tensor.shape)}")
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError(f"mask: expected booleans, True at real points, got {mask.dtype}")
    if mask is not None and not bool(mask.any(-1).all()):
        raise ValueError("mask: expected a real point in every sample, got a sample without")
    ready: dict[str, Any] = {
        name: None if tensor is None else tensor.to(like.device, like.dtype)
        for name, tensor in tensors.items()
        if name != "mask"
    }
    for name, tensor in ready.items():
        if tensor is None:
            continue
        # What stands at masked points is never looked at.
        seen = tensor if mask is None or name == "context" else tensor[mask]
        if not bool(seen.isfinite().all()):
            raise ValueError(f"{name}: expected finite numbers, got some that are not")
    return Batch(
        **ready,
        target=like.new_zeros(b, n, *task.target_axes),
        grid=grid,
        mask=None if mask is None else mask.to(like.device),
    )


def _outside(name: str, lowest: Tensor, highest: Tensor, known: Tensor) -> list[str]:
    """Words about channels that leave the training range by more than a tenth of its width."""
    _check_size(name, lowest, highest, known)
    low, high = known
    slack = 0.1 * (high - low)
    outside = (lowest < low - slack) | (highest > high + slack)
    return [
        f"{name}, channel {channel}: the network was trained on "
        f"{low[channel]:.4g} to {high[channel]:.4g} and is asked at "
        f"{lowest[channel]:.4g} to {highest[channel]:.4g}; "
        "the prediction may be far off"
        for channel in outside.nonzero().flatten().tolist()
    ]


def _check_size(name: str, lowest: Tensor, highest: Tensor, known: Tensor) -> None:
    """Refuse numbers beside which those that the network was trained on are nothing."""
    # In float64, where the differences of large numbers do not overflow.
    lowest, highest = lowest.double(), highest.double()
    low, high = known.double()
    size = torch.maximum(high - low, torch.maximum(low.abs(), high.abs())).clamp_min(1.0)
    far = torch.maximum((lowest - low).abs(), (highest - high).abs()) > _FAR * size
    for channel in far.nonzero().flatten().tolist():
        raise ValueError(
            f"{name}, channel {channel}: expected numbers of ordinary size, near the "
            f"{low[channel]:.4g} to {high[channel]:.4g} of the training data, got "
            f"{lowest[channel]:.4g} to {highest[channel]:.4g}; check the units"
        )
