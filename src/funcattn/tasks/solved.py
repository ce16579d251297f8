"""Tasks whose samples a solver of ours makes, or a public file holds."""

import hashlib
import math
import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from typing_extensions import TypeVar

from funcattn.arrays import Array
from funcattn.data import (
    Recipe,
    Sample,
    StackedSamples,
    Store,
    StoredSet,
    grid_positions,
    public_positions,
    trapezoid_weights,
)
from funcattn.data.matlab import Format
from funcattn.data.public_files import PublicLayout, measure_public, read_public, write_public
from funcattn.data.public_layouts import SPACE
from funcattn.settings import DataSettings
from funcattn.tasks.base import Data, Splits, Task
from funcattn.tasks.splitting import PARTS, Part

LINE, PLANE = ("x",), ("x", "y")
"""Axes of arrays."""


class Generated(Task[Data]):
    """A task with a recipe for its samples."""

    @abstractmethod
    def recipe(self) -> Recipe:
        """How samples are made."""

    @property
    def count(self) -> int:
        """Samples of all parts."""
        return self.data.train + self.data.validation + self.data.test

    @abstractmethod
    def write_public(self, made: StoredSet, folder: Path, format: Format) -> list[Path]:  # noqa: A002
        """A set of ours as the benchmark's public files."""


class Solved(Generated[Data]):
    """A task whose samples are fields of one size, made or read from public files."""

    arrays: ClassVar[Mapping[str, tuple[str, ...]]]
    """The arrays that samples are made of, by name, and their axes after that of the samples: x and
    y for the points of a grid, and others."""
    layout: ClassVar[PublicLayout]
    """How the same arrays stand in its public files."""
    public_samples: ClassVar[int] = sys.maxsize
    """How many of a public file's samples the benchmark uses; its test has the last of these."""

    @abstractmethod
    def cells(self, part: Part) -> int | None:
        """Cells along the first axis of the grid that is used, None where there is no grid.

        Of finer grids, in our sets or in public files, every second, third, ... point is taken.
        """

    @property
    def grid(self) -> tuple[int, ...] | None:
        """As many points along every axis, unless the task says otherwise."""
        cells = self.cells("train")
        problem = self.problem
        return None if cells is None else (cells + (not problem.periodic),) * problem.space

    @property
    def points(self) -> int | None:
        """Those of the grid, if the test has the same."""
        grid = self.grid
        if grid is None or self.cells("test") != self.cells("train"):
            return None
        return math.prod(grid)

    @abstractmethod
    def samples(self, fields: Mapping[str, Array]) -> Sequence[Sample]:
        """Samples from stacked fields, (samples, ...)."""

    def splits(self, store: Store) -> Splits:
        """Samples in their order: training, validation, test."""
        path = self.data.path
        parts = self._made(store) if path is None else self._public(Path(path))
        content = hashlib.sha256()
        for fields in parts:
            for values in fields.values():
                content.update(values.tobytes())
        train, validation, test = (self.samples(fields) for fields in parts)
        return Splits(train, validation, test, content.hexdigest())

    def _made(self, store: Store) -> list[dict[str, Array]]:
        made = store.made(self.recipe(), self.data.seed, self.count)
        parts, start = [], 0
        for part in PARTS:
            rows = range(start, start + getattr(self.data, part))
            stride = self._stride(part, self._points_stored(made), made.path)
            parts.append(
                {
                    name: made.read(
                        name, rows, tuple(stride if axis in SPACE else 1 for axis in axes)
                    )
                    for name, axes in self.arrays.items()
                }
            )
            start = rows.stop
        return parts

    def _public(self, path: Path) -> list[dict[str, Array]]:
        """The first samples train, those after them validate; the test part is the public one.

        The public splits have no validation part. Where a file has no samples to spare, the last of
        those that would train validate.
        """
        sizes = measure_public(self.layout, path)
        found = {part: lengths["samples"] for part, lengths in sizes.items()}
        tests = found["test"] if "test" in found else min(found["all"], self.public_samples)
        spare = found["train"] if "train" in found else tests - self.data.test
        train = min(self.data.train, spare - self.data.validation)
        chosen = slice(train, train + self.data.validation)
        if "all" in found and found["all"] - tests >= self.data.validation:
            # Samples that the benchmark leaves out are the best to choose by.
            train, chosen = min(self.data.train, spare), slice(tests, tests + self.data.validation)
        if train < 1 or tests < self.data.test:
            raise ValueError(
                f"{path}: expected samples for training, {self.data.validation} for validation and "
                f"{self.data.test} for the test, got {found}; ask for fewer by "
                "--data.validation and --data.test"
            )
        # Where one file holds all samples, its last ones are the test.
        start = 0 if "test" in found else tests - self.data.test
        rows = {
            "train": slice(0, train),
            "validation": chosen,
            "test": slice(start, start + self.data.test),
        }
        file = dict.fromkeys(PARTS, "all")
        if "test" in found:
            file = {"train": "train", "validation": "train", "test": "test"}
        read = []
        for part in PARTS:
            stride = self._stride(part, sizes[file[part]].get("x", 0), path)
            fields = read_public(self.layout, path, file[part], rows=rows[part], stride=stride)
            read.append({name: values.astype(np.float32) for name, values in fields.items()})
        return read

    def _points_stored(self, made: StoredSet) -> int:
        """Points along the first axis of space in a set of ours, 0 where there is no grid."""
        fields = made.provenance["fields"]
        for name, axes in self.arrays.items():
            if "x" in axes:
                return int(fields[name][axes.index("x")])
        return 0

    def _stride(self, part: Part, points: int, where: Path) -> int:
        """Which points of a grid with so many along its first axis are used."""
        wanted = self.cells(part)
        if wanted is None:
            return 1
        cells = points if self.problem.periodic else points - 1
        if cells % wanted or not cells:
            raise ValueError(
                f"{where}: expected a grid with {wanted} cells along x, or a multiple of that, got "
                f"{cells}: choose other settings of the grid (`funcattn info {self.name}`)"
            )
        return cells // wanted

    def write_public(self, made: StoredSet, folder: Path, format: Format) -> list[Path]:  # noqa: A002
        """A set of ours as the benchmark's public files, the test samples last or by themselves."""
        folder.mkdir(parents=True, exist_ok=True)
        count, tests = len(made), self.data.test
        rows = {"all": range(count), "train": range(count - tests)}
        rows["test"] = range(count - tests, count)
        stored = [name for name in self.layout.arrays if name in made.provenance["fields"]]
        return [
            path
            for part in self.layout.files
            for path in write_public(
                self.layout,
                folder,
                {name: made.read(name, rows[part]) for name in stored},
                part,
                format=format,
            )
        ]


@dataclass(frozen=True)
class GridData(DataSettings):
    """Samples on a grid."""

    public_positions: bool = False
    """Give positions as public loaders do: listed in another order than the fields, and from 0 to 1
    on a periodic axis too. For comparison with them."""


@dataclass(frozen=True)
class NestedGridData(GridData):
    """Samples solved on a fine grid and used on a coarser one that is nested in it."""

    nodes: int = 65
    """Points per axis on which a sample is solved."""
    use_every: int = 1
    """Stride along each axis: 2 uses every second node."""

    periodic: ClassVar[bool] = False
    """Whether the grid leaves out its last end."""
    old_names: ClassVar[Mapping[str, str]] = {"stride": "use_every"}

    def __post_init__(self) -> None:
        super().__post_init__()
        words = "nodes" if self.periodic else "nodes - 1"
        for name in ("use_every", "test_every"):
            got = getattr(self, name, 1)
            if got < 1 or self.cells % got:
                raise ValueError(
                    f"{name}: expected a divisor of {words} = {self.cells}, so that the grid is "
                    f"nested in that of the solver, got {got}"
                )
        stored = getattr(self, "store_every", 1)
        if stored < 1 or self.use_every % stored:
            raise ValueError(
                f"store_every: expected a divisor of use_every = {self.use_every}, so that all "
                f"points that are used are stored, got {stored}"
            )

    @property
    def cells(self) -> int:
        """Cells per axis of the solver's grid."""
        return self.nodes if self.periodic else self.nodes - 1


Grid = TypeVar("Grid", bound=GridData, covariant=True, default=GridData)


class OnGrid(Solved[Grid]):
    """A task whose positions are the grid of the unit box."""

    weighted: ClassVar = True

    def on_grid(self, inputs: Array, targets: Array) -> StackedSamples:
        """Samples from (samples *grid i) and (samples *grid *o)."""
        grid = tuple(inputs.shape[1 : 1 + self.problem.space])
        positions = (
            public_positions(grid)
            if self.data.public_positions
            else grid_positions(grid, periodic=self.problem.periodic)
        )
        weights = trapezoid_weights(grid, periodic=self.problem.periodic)
        return StackedSamples(positions, inputs, targets, grid=grid, weights=weights)
