"""Tasks whose samples a solver of ours makes, or a public file holds."""

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from funcattn.data import (
    GridSamples,
    Recipe,
    Sample,
    Store,
    StoredSet,
    grid_positions,
    public_positions,
    trapezoid_weights,
)
from funcattn.data.matlab import Format
from funcattn.data.public_files import PublicLayout, count_public, read_public, write_public
from funcattn.settings import DataSettings
from funcattn.tasks.base import Splits, Task

Array = npt.NDArray[Any]
Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")


class Solved(Task):
    """A task with a recipe for its samples, and public files that may stand in for them."""

    layout: ClassVar[PublicLayout]
    """Its public files, and with them the names and axes of its fields."""

    @abstractmethod
    def recipe(self) -> Recipe:
        """How samples are made."""

    @abstractmethod
    def stride(self, part: Part) -> int:
        """Of the solver's points, or of a public file's, every so-many-th is used."""

    @property
    def kept(self) -> int:
        """Of the solver's points, every so-many-th is stored."""
        return 1

    @abstractmethod
    def samples(self, fields: Mapping[str, Array]) -> Sequence[Sample]:
        """Samples from stacked fields, (samples, ...)."""

    @property
    def count(self) -> int:
        """Samples of all parts."""
        how = self.settings.data
        return how.train + how.validation + how.test

    def splits(self, store: Store) -> Splits:
        """Samples in their order: training, validation, test."""
        path = self.settings.data.path
        parts = self._made(store) if path is None else self._public(Path(path))
        content = hashlib.sha256()
        for fields in parts:
            for values in fields.values():
                content.update(values.tobytes())
        train, validation, test = (self.samples(fields) for fields in parts)
        return Splits(train, validation, test, content.hexdigest())

    def _made(self, store: Store) -> list[dict[str, Array]]:
        how = self.settings.data
        made = store.made(self.recipe(), how.seed, self.count)
        parts, start = [], 0
        for part in PARTS:
            rows = range(start, start + getattr(how, part))
            every = self.stride(part) // self.kept
            parts.append(
                {
                    name: made.read(name, rows, self.layout.every(name, every))
                    for name in self.layout.needed
                }
            )
            start = rows.stop
        return parts

    def _public(self, path: Path) -> list[dict[str, Array]]:
        """The first samples train, those after them validate; the test part is the public one.

        The public splits have no validation part. Where a file has no samples to spare, the last of
        those that would train validate.
        """
        how = self.settings.data
        found = count_public(self.layout, path)
        spare = found["train"] if "train" in found else found["all"] - how.test
        tests = found["test"] if "test" in found else found["all"]
        train = min(how.train, spare - how.validation)
        if train < 1 or tests < how.test:
            raise ValueError(
                f"{path}: expected samples for training, {how.validation} for validation and "
                f"{how.test} for the test, got {found}; ask for fewer by --data.validation and "
                "--data.test"
            )
        # Where one file holds all samples, its last ones are the test.
        start = 0 if "test" in found else tests - how.test
        rows = {
            "train": slice(0, train),
            "validation": slice(train, train + how.validation),
            "test": slice(start, start + how.test),
        }
        file = dict.fromkeys(PARTS, "all")
        if "test" in found:
            file = {"train": "train", "validation": "train", "test": "test"}
        return [
            {
                name: values.astype(np.float32)
                for name, values in read_public(
                    self.layout, path, file[part], rows=rows[part], stride=self.stride(part)
                ).items()
            }
            for part in PARTS
        ]

    def write_public(self, made: StoredSet, folder: Path, format: Format) -> list[Path]:  # noqa: A002
        """A set of ours as the benchmark's public files, the test samples last or by themselves."""
        folder.mkdir(parents=True, exist_ok=True)
        count, tests = len(made), self.settings.data.test
        rows = {"all": range(count), "train": range(count - tests)}
        rows["test"] = range(count - tests, count)
        return [
            write_public(
                self.layout,
                folder,
                {name: made.read(name, rows[part]) for name in self.layout.needed},
                part,
                format=format,
            )
            for part in self.layout.files
        ]


@dataclass(frozen=True)
class GridData(DataSettings):
    """Samples on a grid."""

    public_positions: bool = False
    """Give positions as public loaders do: listed in another order than the fields, and from 0 to 1
    on a periodic axis too. For comparison with them."""


def on_grid(task: Task, inputs: Array, targets: Array) -> GridSamples:
    """Samples on the grid of the task's unit box: (samples *grid i), (samples *grid *o)."""
    how = task.settings.data
    assert isinstance(how, GridData)
    grid = tuple(inputs.shape[1 : 1 + task.space])
    positions = (
        public_positions(grid)
        if how.public_positions
        else grid_positions(grid, periodic=task.periodic)
    )
    weights = trapezoid_weights(grid, periodic=task.periodic)
    return GridSamples(grid, inputs, targets, positions=positions, weights=weights)
