"""One simulation: points, fields on them, numbers that hold for all of them, and the mesh.

Axes: n point, s space dimension, c component of a field, t time, k cell.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from funcattn.arrays import Array, Floats, Indices
from funcattn.registry import did_you_mean

DIMENSIONS = {
    **dict.fromkeys((1, 2), 0),
    **dict.fromkeys((3, 4, 21, 35, 68), 1),
    **dict.fromkeys((5, 6, 7, 8, 9, 22, 23, 28, 30, 34, 36, 69, 70, 76, 77), 2),
}
"""The dimension of VTK's types of cells; those that are not here are volumes."""


@dataclass(frozen=True)
class Cells:
    """The cells of a mesh as VTK has them; the points of cell k go from offset k to k + 1."""

    connectivity: Indices
    offsets: Indices  # (k + 1)
    types: Array  # (k), VTK's numbers
    polyhedra: Mapping[str, Indices] = field(default_factory=dict)
    """The faces of polyhedra: face_connectivity, face_offsets, location_connectivity and
    location_offsets."""

    def __post_init__(self) -> None:
        k = len(self.types)
        steps = np.diff(self.offsets)
        if (
            len(self.offsets) != k + 1
            or self.offsets[0] != 0
            or self.offsets[-1] != len(self.connectivity)
            or (steps.size and steps.min() < 0)
        ):
            raise ValueError(
                f"cells: expected {k + 1} rising offsets from 0 to {len(self.connectivity)}, the "
                "length of the connectivity, got others"
            )

    def __len__(self) -> int:
        return len(self.types)

    @property
    def dimensions(self) -> Array:
        """The dimension of each cell, 0 to 3."""
        table = np.full(256, 3, np.int8)
        table[list(DIMENSIONS)] = list(DIMENSIONS.values())
        return table[self.types]

    @property
    def cell_of(self) -> Indices:
        """The cell of each entry of the connectivity."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def triangles(self) -> Indices | None:
        """(m 3): the triangles, quadrilaterals and polygons cut into triangles, for pictures.

        None where there are no such cells.
        """
        counts = np.diff(self.offsets)
        found = []
        for kind in (5, 7, 8, 9):
            for count in np.unique(counts[self.types == kind]).tolist():
                starts = self.offsets[:-1][(self.types == kind) & (counts == count)]
                corners = self.connectivity[starts[:, None] + np.arange(count)]
                if kind == 8:  # VTK's pixels go row by row, not around
                    corners = corners[:, [0, 1, 3, 2]]
                found += [corners[:, [0, i, i + 1]] for i in range(1, count - 1)]
        return np.concatenate(found) if found else None

    def shared_out(self, sizes: Floats, points: int) -> Floats:
        """What is known per cell, shared out equally to the points of each cell."""
        per_point = sizes / np.maximum(np.diff(self.offsets), 1)
        return np.bincount(self.connectivity, per_point[self.cell_of], points).astype(np.float64)

    def to_points(self, values: Array, points: int) -> Array:
        """Cell data at the points: the mean over the cells around, of whole numbers the largest.

        Points without a cell get NaN, or 0 where the numbers are whole.
        """
        flat = values.reshape(len(values), -1)
        if values.dtype.kind not in "f":
            flat = flat.astype(np.int64)
            result = np.full((points, flat.shape[1]), np.iinfo(np.int64).min)
            np.maximum.at(result, self.connectivity, flat[self.cell_of])
            result[result == np.iinfo(np.int64).min] = 0
            return result.reshape(points, *values.shape[1:])
        counts = np.bincount(self.connectivity, minlength=points)
        sums = [np.bincount(self.connectivity, each[self.cell_of], points) for each in flat.T]
        with np.errstate(invalid="ignore", divide="ignore"):
            means = np.stack(sums, axis=-1) / counts[:, None]
        return means.astype(values.dtype).reshape(points, *values.shape[1:])


@dataclass(frozen=True)
class Case:
    """One simulation."""

    name: str
    positions: Floats
    """(n s)"""
    fields: Mapping[str, Array] = field(default_factory=dict)
    """By name: (n) or (n c); in a series (n t) or (n t c). What is not known is NaN."""
    parameters: Mapping[str, float] = field(default_factory=dict)
    """Numbers that hold for the whole case."""
    categories: Mapping[str, Array] = field(default_factory=dict)
    """Types of points as whole numbers, (n): inlet, wall, material."""
    times: Floats | None = None
    """(t), in a series."""
    grid: tuple[int, ...] | None = None
    """Axis lengths where the points form a grid, in row-major order."""
    weights: Floats | None = None
    """(n): the length, area or volume that belongs to each point; None for a plain cloud."""
    surface: Floats | None = None
    """(n): the area of surface cells that belongs to each point, where there are volumes too."""
    units: Mapping[str, str] = field(default_factory=dict)
    cells: Cells | None = None
    cell_fields: Mapping[str, Array] = field(default_factory=dict)
    """Cell data as the file has it, (k) or (k c), to be written back."""
    file_positions: Array | None = None
    """(n 3) as in the file, where `positions` leaves out an axis."""
    source: Path | None = None

    def __post_init__(self) -> None:
        where = self.source or self.name
        n = len(self.positions)
        if self.positions.ndim != 2 or not n or not 1 <= self.positions.shape[1] <= 3:
            raise ValueError(
                f"{where}: expected positions (points, 1 to 3 axes) of one point or more, got "
                f"shape {self.positions.shape}"
            )
        if not np.isfinite(self.positions).all():
            raise ValueError(
                f"{where}: expected finite positions, got some that are NaN or infinite: repair "
                "the mesh"
            )
        if self.grid is not None and int(np.prod(self.grid)) != n:
            raise ValueError(f"{where}: expected a grid of {n} points, got {self.grid}")
        leading = (n,) if self.times is None else (n, len(self.times))
        checks = [(name, each, leading) for name, each in self.fields.items()]
        checks += [(name, each, (n,)) for name, each in self.categories.items()]
        for name in ("weights", "surface", "file_positions"):
            if getattr(self, name) is not None:
                checks.append((name, getattr(self, name), (n,)))
        for name, each, axes in checks:
            if each.shape[: len(axes)] != axes or each.ndim > len(axes) + 1:
                points = "points" if len(axes) == 1 else "points and times"
                raise ValueError(
                    f"{where}: expected {name} at {axes} {points}, with one more axis at most, got "
                    f"shape {each.shape}"
                )

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def names(self) -> list[str]:
        """Everything that can be an input or an output."""
        return [*self.fields, *self.categories, *self.parameters]

    def __getitem__(self, name: str) -> Array:
        """A field, a category, or a parameter (a number without axes), by name."""
        for kind in (self.fields, self.categories):
            if name in kind:
                return kind[name]
        if name in self.parameters:
            return np.asarray(self.parameters[name])
        raise KeyError(f"{self.source or self.name}: {unknown(name, self.names)}")

    def with_parameters(self, parameters: Mapping[str, float]) -> "Case":
        """The case with further parameters; those given here win."""
        return replace(self, parameters={**self.parameters, **parameters})


def unknown(name: str, known: Sequence[str]) -> str:
    """Words for a name that is not there, with the nearest one that is."""
    if not known:
        return f"expected {name!r} in it, got nothing of this kind"
    return f"expected one of {', '.join(known)}, got {name!r}{did_you_mean(name, known)}"


def mesh_weights(
    cells: Cells, sizes: Mapping[str, Array], points: int
) -> tuple[Floats | None, Floats | None]:
    """The weights and surface of points: the sizes of cells, shared out to their points.

    The cells of the highest dimension give the weights. Where these are volumes and there are
    surface cells too, the surface comes from them. Sizes: lengths, areas and volumes, each (k).
    """
    dimensions = cells.dimensions
    top = int(dimensions.max(initial=0))
    if top == 0:
        return None, None
    name = ("", "lengths", "areas", "volumes")[top]
    weights = cells.shared_out(np.where(dimensions == top, sizes[name], 0.0), points)
    surface = None
    if top == 3 and (dimensions == 2).any():
        surface = cells.shared_out(np.where(dimensions == 2, sizes["areas"], 0.0), points)
    return (weights if weights.sum() > 0 else None), surface


def grid_weights(positions: Floats, grid: tuple[int, ...]) -> Floats:
    """The weights of points on a grid, which may be bent: the trapezoid rule in its parameters.

    >>> grid_weights(np.array([[0.0], [1.0], [4.0]]), (3,))
    array([0.5, 2. , 1.5])
    """
    shaped = positions.reshape(*grid, -1)
    factor = np.ones(grid)
    tangents = []
    for axis, length in enumerate(grid):
        if length < 2:
            continue
        # One-sided at the ends and central between: half of both steps, by the factor.
        tangents.append(np.gradient(shaped, axis=axis))
        ends = [slice(None)] * len(grid)
        for end in (0, -1):
            ends[axis] = slice(end, None if end else 1)
            factor[tuple(ends)] *= 0.5
    if not tangents:
        return np.ones(len(positions))
    jacobian = np.stack(tangents, axis=-1)  # (*grid, s, axes)
    gram = np.einsum("...si,...sj->...ij", jacobian, jacobian)
    area: Floats = np.sqrt(np.maximum(np.linalg.det(gram), 0.0)) * factor
    return area.reshape(-1)
