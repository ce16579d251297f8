"""A trained run as an object that predicts."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from funcattn.data import Batch
from funcattn.models import Surrogate
from funcattn.tasks import TASKS, Task
from funcattn.training.checkpoint import restore_model
from funcattn.training.loop import best_checkpoint
from funcattn.training.setup import build_surrogate, read_settings

Field = TypeVar("Field", Tensor, npt.NDArray[Any])


class OutsideTrainingWarning(UserWarning):
    """An input lies far outside what the network was trained on."""


class Predictor:
    """A network at its best epoch, with its normalisers; real units in, real units out."""

    def __init__(self, task: Task, surrogate: Surrogate) -> None:
        self.task, self.surrogate = task, surrogate.eval()

    def predict(
        self,
        positions: Field,
        values: Field | None = None,
        *,
        grid: Sequence[int] | None = None,
        mask: Field | None = None,
        weights: Field | None = None,
        context: Field | None = None,
    ) -> Field:
        """The output fields at the points, (b n o); numpy in, numpy out, torch in, torch out.

        Tasks in time give all their frames: (b n t), or (b n t o) where the time is an input.

        positions (b n s), values (b n i) where the task has input values, both also without b for
        one sample; grid: axis lengths where the points form a grid, row-major; mask (b n), True at
        real points; weights (b n); context: observations, where the task has them.
        """
        given = {
            "positions": positions,
            "values": values,
            "mask": mask,
            "weights": weights,
            "context": context,
        }
        tensors = {
            name: None if array is None else _tensor(name, array) for name, array in given.items()
        }
        single = tensors["positions"] is not None and tensors["positions"].ndim == 2
        if single:
            tensors = {k: None if t is None else t.unsqueeze(0) for k, t in tensors.items()}
        batch = self._batch(tensors, None if grid is None else tuple(grid))
        self._warn_outside(batch)
        with torch.no_grad():
            out = self.task.predict(self.surrogate, batch)
        out = out[0] if single else out
        return out if isinstance(positions, Tensor) else out.cpu().numpy()

    def _batch(self, tensors: dict[str, Tensor | None], grid: tuple[int, ...] | None) -> Batch:
        """The inputs as a batch, after a look at their shapes."""
        task, positions, values = self.task, tensors["positions"], tensors["values"]
        if positions is None or positions.ndim != 3 or positions.shape[-1] != task.space:
            got = None if positions is None else tuple(positions.shape)
            raise ValueError(f"positions: expected (b, n, {task.space}), got {got}")
        b, n = positions.shape[:2]
        if not b * n:
            raise ValueError(
                f"positions: expected at least one point, got {tuple(positions.shape)}"
            )
        wanted = (b, n, task.inputs) if task.inputs else None
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
        known = self.surrogate.position_range
        ready: dict[str, Any] = {
            name: None if tensor is None else tensor.to(known.device, known.dtype)
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
            target=known.new_zeros(b, n, *task.target_axes),
            grid=grid,
            mask=None if mask is None else mask.to(known.device),
        )

    def _warn_outside(self, batch: Batch) -> None:
        """Warn where an input leaves the training range by more than a tenth of its width."""
        for name, tensor, known in (
            ("positions", batch.positions, self.surrogate.position_range),
            ("values", batch.values, self.surrogate.value_range),
        ):
            if tensor is None:
                continue
            points = tensor if batch.mask is None else tensor[batch.mask]
            channels = points.reshape(-1, tensor.shape[-1])
            low, high = known
            slack = 0.1 * (high - low)
            below, above = channels.amin(0) < low - slack, channels.amax(0) > high + slack
            for channel in (below | above).nonzero().flatten().tolist():
                warnings.warn(
                    f"{name}, channel {channel}: the network was trained on "
                    f"{low[channel]:.4g} to {high[channel]:.4g} and is asked at "
                    f"{channels[:, channel].min():.4g} to {channels[:, channel].max():.4g}; "
                    "the prediction may be far off",
                    OutsideTrainingWarning,
                    stacklevel=3,
                )


def _tensor(name: str, array: object) -> Tensor:
    """A tensor of its own, whatever the array's strides, and whether or not it may be written."""
    if isinstance(array, Tensor):
        return array
    try:
        return torch.from_numpy(np.array(array))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: expected numbers, got {error}") from error


def load(run: str | Path) -> Predictor:
    """A trained run, from its folder: the weights that did best on validation data."""
    folder = Path(run)
    settings = read_settings(folder)
    task = TASKS[settings.task](settings)
    surrogate = build_surrogate(task)
    restore_model(surrogate, best_checkpoint(folder).tensors["model"])
    return Predictor(task, surrogate)
