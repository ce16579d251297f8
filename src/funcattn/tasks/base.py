"""What a task is: samples and their split, how a network is called, loss, metric, settings.

A task is one file. The three kinds of task differ in `predict` alone: steady fields call the
network once, tasks in time call it for each frame.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeVar

import torch
from torch import Tensor

from funcattn.data import Batch, Sample, Store
from funcattn.settings import Preset, Profile, RunSettings

Settings = TypeVar("Settings", bound=RunSettings)

Network = Callable[..., Tensor]
"""Called as `network(positions, values, grid=..., mask=..., weights=...)`, in real units."""


@dataclass(frozen=True)
class Splits:
    """Samples for training, for choosing the epoch, and for the one test at the end."""

    train: Sequence[Sample]
    validation: Sequence[Sample]
    test: Sequence[Sample]
    fingerprint: str
    """Of the data's content: a resumed run refuses data that changed."""


@dataclass(frozen=True)
class Portrait:
    """What a picture of a sample shows: fields (n,) by name, at points (n s)."""

    positions: Tensor
    fields: Mapping[str, Tensor]
    surface: Tensor | None = None
    """(n,), positive at points on the surface of a body."""


class Task(ABC):
    """One benchmark."""

    name: ClassVar[str]
    title: ClassVar[str]
    """One line for lists."""
    space: ClassVar[int]
    inputs: ClassVar[int]
    """Channels of the input values; 0 where the geometry is the input."""
    outputs: ClassVar[int]
    timed: ClassVar[bool] = False
    """Whether the network takes a time."""
    periodic: ClassVar[bool] = False
    """Whether space is a torus."""
    lower: ClassVar[float | tuple[float, ...]] = 0.0
    upper: ClassVar[float | tuple[float, ...]] = 1.0
    """Corners of the box of space, for all axes or one number an axis."""
    observed: ClassVar[bool] = False
    """Whether the network takes observations at other points."""
    headline: ClassVar[str]
    """The metric by which the epoch is chosen."""
    larger_is_better: ClassVar[bool] = False
    normalised: ClassVar[frozenset[Literal["input", "output"]]] = frozenset()
    """Which sides are brought to mean 0 and deviation 1, by statistics of the training samples."""
    picture: ClassVar[Literal["grid", "line", "cloud", "frames"]]
    """How a sample is drawn."""

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings

    @classmethod
    @abstractmethod
    def defaults(cls, profile: Profile, preset: Preset) -> RunSettings:
        """The settings of a profile (how large) and a preset (how trained)."""

    @abstractmethod
    def splits(self, store: Store) -> Splits:
        """The samples, made or read; what a solver makes is kept in the store."""

    @abstractmethod
    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """One number for each sample, (b,)."""

    @abstractmethod
    def metrics(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """By name, one number for each sample, (b,); `headline` is among them."""

    @property
    def grid(self) -> tuple[int, ...] | None:
        """The grid of the training samples, None where their points form none."""
        return None

    @property
    def points(self) -> int | None:
        """Points of every sample, in training and test; None where their number differs."""
        return None

    @property
    def visits(self) -> int:
        """How often an epoch comes to each training sample."""
        return 1

    @property
    def target_axes(self) -> tuple[int, ...]:
        """The lengths of a target's axes after the points; (b n *target_axes) in a batch."""
        return (self.outputs,)

    def predict(self, network: Network, batch: Batch) -> Tensor:
        """What the network says of a batch, shaped as its target."""
        observed = {} if batch.context is None else {"context": batch.context}
        return network(
            batch.positions,
            batch.values,
            grid=batch.grid,
            mask=batch.mask,
            weights=batch.weights,
            **observed,
        )

    def summary(self, values: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """The metrics of a whole set from those of its samples: their means."""
        return {name: sum(numbers) / len(numbers) for name, numbers in values.items()}

    def drawn_at(self, sample: Sample) -> Tensor:
        """Where in space a picture shows the points, (n s)."""
        return sample.positions

    def portrait(self, sample: Sample) -> Portrait | None:  # noqa: ARG002
        """What a picture of a sample shows; None: some channels of its input and output."""
        return None

    def augmented(self, sample: Sample, random: torch.Generator) -> Sample:  # noqa: ARG002
        """A training sample, changed at random: a symmetry to teach, or a part of it."""
        return sample


def modern(settings: Settings) -> Settings:
    """The settings with our optimisation in place of the paper's, and nothing else changed."""
    how = replace(
        settings.optimisation, optimiser="muon", clip=1.0, reduction="mean", start_divisor=25.0
    )
    return replace(settings, optimisation=replace(how, end_divisor=1e4))
