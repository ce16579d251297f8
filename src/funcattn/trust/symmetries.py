"""Symmetries of the benchmarks' equations: other samples that are solutions too.

Each maps a sample to another one whose target is as exact as that of the first.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from funcattn.data import Sample

Symmetry = Callable[[Sample], Sample]


def _on_grid(change: Callable[[Tensor], Tensor], sign: float = 1.0) -> Symmetry:
    """Move the fields of a grid (*grid k); sign: of the fields, after the move."""

    def moved(sample: Sample) -> Sample:
        grid = sample.grid
        assert grid is not None
        assert sample.values is not None
        values, target = (
            sign * change(field.reshape(*grid, -1)).reshape(field.shape)
            for field in (sample.values, sample.target)
        )
        return replace(sample, values=values, target=target)

    return moved


def _mirrored_points(axis: int, middle: float) -> Symmetry:
    def moved(sample: Sample) -> Sample:
        positions = sample.positions.clone()
        positions[:, axis] = 2 * middle - positions[:, axis]
        return replace(sample, positions=positions)

    return moved


def _mirrored_channel(sample: Sample) -> Sample:
    """A winding channel turned upside down: its grid runs the other way across."""
    assert sample.grid is not None
    assert sample.values is not None
    places = sample.values.reshape(*sample.grid, -1).flip(1)
    places = places * places.new_tensor([1.0, -1.0])
    target = sample.target.reshape(*sample.grid, -1).flip(1)
    return replace(
        sample,
        values=places.reshape(sample.values.shape),
        target=target.reshape(sample.target.shape),
    )


def _shifted(share: float, dims: tuple[int, ...], signs: tuple[int, ...]) -> Symmetry:
    def rolled(field: Tensor) -> Tensor:
        steps = [
            sign * round(share * field.shape[axis]) for axis, sign in zip(dims, signs, strict=True)
        ]
        return torch.roll(field, steps, dims)

    return _on_grid(rolled)


def _reflected_circle(field: Tensor) -> Tensor:
    """x to -x on a circle whose first point is 0."""
    return torch.roll(field.flip(0), 1, 0)


SYMMETRIES: Mapping[str, Mapping[str, Symmetry]] = {
    "darcy": {
        "mirrored along x": _on_grid(lambda f: f.flip(0)),
        "mirrored along y": _on_grid(lambda f: f.flip(1)),
        "x and y exchanged": _on_grid(lambda f: f.transpose(0, 1)),
    },
    "burgers": {
        "shifted by a quarter": _shifted(0.25, (0,), (1,)),
        "mirrored, with the other sign": _on_grid(_reflected_circle, -1.0),
    },
    # The force sin(2 pi (x + y)) + cos(2 pi (x + y)) stays where it is.
    "navier_stokes": {"shifted along the diagonal": _shifted(0.25, (0, 1), (1, -1))},
    "elasticity": {"mirrored along x": _mirrored_points(0, 0.5)},
    "pipe": {"upside down": _mirrored_channel},
}
"""By task and by what they do."""
