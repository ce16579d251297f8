"""Symmetries of the benchmarks' equations: other samples that are solutions too.

Each maps a sample to another one whose target is as exact as that of the first. A run is audited
with both. A symmetry counts where the law of the samples has it too: Airfoil's flow may be turned
upside down, but one of the eight displacements of its shapes is always zero.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from funcattn.data import Sample

Symmetry = Callable[[Sample, float], Sample]
"""The sample, moved; how far a shift goes, as a share of the period (mirrors do not ask)."""


def mirrored(axis: int) -> Symmetry:
    """The fields of a grid, read along an axis from its other end."""
    return lambda sample, _: _on_grid(sample, lambda field: field.flip(axis))


def exchanged(sample: Sample, _: float) -> Sample:
    """The first two axes of a square grid change places."""
    return _on_grid(sample, lambda field: field.transpose(0, 1))


def shifted(signs: Mapping[int, int]) -> Symmetry:
    """Fields on a torus, moved along some axes: forward (1) or back (-1)."""

    def shift(sample: Sample, share: float) -> Sample:
        def rolled(field: Tensor) -> Tensor:
            steps = [sign * round(share * field.shape[axis]) for axis, sign in signs.items()]
            return torch.roll(field, steps, [*signs])

        return _on_grid(sample, rolled)

    return shift


def reversed_circle(sample: Sample, _: float) -> Sample:
    """x to -x and u to -u on a circle whose first point is 0."""
    return _on_grid(sample, lambda field: torch.roll(field.flip(0), 1, 0), -1.0)


def reversed_vorticity(sample: Sample, _: float) -> Sample:
    """x and y exchanged, half a period along x, and the other sign.

    A mirror turns every vortex the other way; half a period does so to a force of sines of x + y.
    """

    def change(field: Tensor) -> Tensor:
        return torch.roll(field.transpose(0, 1), field.shape[0] // 2, 0)

    return _on_grid(sample, change, -1.0)


def mirrored_points(axis: int, middle: float) -> Symmetry:
    """A cloud on the other side of a plane, with the same scalar fields."""

    def mirror(sample: Sample, _: float) -> Sample:
        positions = sample.positions.clone()
        positions[:, axis] = 2 * middle - positions[:, axis]
        return replace(sample, positions=positions)

    return mirror


def mirrored_channel(sample: Sample, _: float) -> Sample:
    """A winding channel turned upside down: its grid runs the other way across."""
    turned = _on_grid(sample, lambda field: field.flip(1))
    assert turned.values is not None
    return replace(turned, values=turned.values * turned.values.new_tensor([1.0, -1.0]))


def mirrored_block(length: float) -> Symmetry:
    """A block of a length and its die, turned round; the target is (n t place, displacement)."""

    def mirror(sample: Sample, _: float) -> Sample:
        turned = _on_grid(sample, lambda field: field.flip(0))
        signs, start = (
            turned.target.new_tensor(each)
            for each in ([-1.0, 1.0, -1.0, 1.0], [length, 0.0, 0.0, 0.0])
        )
        return replace(turned, target=start + signs * turned.target)

    return mirror


def _on_grid(sample: Sample, change: Callable[[Tensor], Tensor], sign: float = 1.0) -> Sample:
    """Move the fields of a grid, (*grid k); sign: of input and target, after the move."""
    grid = sample.grid
    assert grid is not None

    def move(field: Tensor) -> Tensor:
        return change(field.reshape(*grid, -1)).reshape(field.shape)

    return replace(
        sample,
        values=None if sample.values is None else sign * move(sample.values),
        target=sign * move(sample.target),
    )
