"""A case on a grid of straight lines."""

from collections.abc import Mapping, Sequence

import numpy as np

from funcattn.arrays import Array
from funcattn.data.cases.array_files import ArrayFile
from funcattn.data.cases.case import Case, grid_weights


def on_grid(
    file: ArrayFile,
    name: str,
    values: Mapping[str, Array],
    axes: Sequence[Array],
    time: Array | None,
    parameters: Mapping[str, float],
) -> Case:
    """A case of fields (*grid [c]) or (t *grid [c]) on a grid of straight lines."""
    grid = tuple(len(axis) for axis in axes)
    positions = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    positions = positions.reshape(-1, len(axes)).astype(np.float64)
    points, steps = len(positions), 0
    turned: dict[str, Array] = {}
    steady: dict[str, Array] = {}
    for label, each in values.items():
        if each.shape[: len(grid)] == grid and each.ndim <= len(grid) + 1:
            steady[label] = each.reshape(points, *each.shape[len(grid) :])
            continue
        if each.shape[1 : 1 + len(grid)] != grid or each.ndim > len(grid) + 2:
            raise ValueError(f"{label} of shape {each.shape} on a grid {grid}")
        steps = steps or each.shape[0]
        # (t *grid ...) -> (n t ...)
        turned[label] = np.moveaxis(
            each.reshape(len(each), points, *each.shape[1 + len(grid) :]), 0, 1
        )
    times = None
    if turned:
        # PDEBench has one time more than frames in some files: the ends of its intervals.
        times = np.arange(steps) if time is None or len(time) < steps else np.ravel(time)[:steps]
        for label, each in steady.items():
            turned[label] = np.broadcast_to(each[:, None], (points, steps, *each.shape[1:]))
    return Case(
        name=name,
        positions=positions,
        fields=turned or steady,
        parameters=parameters,
        grid=grid,
        times=None if times is None else times.astype(np.float64),
        weights=grid_weights(positions, grid),
        source=file.path,
    )
