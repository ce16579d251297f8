"""What a task is: samples and their split, how a network is called, loss, metric, settings.

A task is one file: a class that names its problem, gives `splits`, and says by `profiles` how large
its runs are. The three kinds of task differ in `predict` alone: steady fields call the network
once, tasks in time call it for each frame.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Literal

import torch
from torch import Tensor
from typing_extensions import TypeVar

from funcattn.data import Batch, Sample, Store
from funcattn.problem import PictureKind, Problem
from funcattn.registry import Registry
from funcattn.settings import (
    DataSettings,
    FunctionalSettings,
    NetworkSettings,
    Preset,
    Profile,
    RunSettings,
    changed,
)
from funcattn.tasks.losses import relative_l2
from funcattn.tasks.symmetries import Symmetry

Data = TypeVar("Data", bound=DataSettings, covariant=True, default=DataSettings)
AnyTask = TypeVar("AnyTask", bound="type[Task[Any]]")
Changes = Mapping[str, Any]
"""Of the settings of a run, nested as in TOML."""
Side = Literal["input", "output"]
BOTH: frozenset[Side] = frozenset({"input", "output"})

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
    calibration: Sequence[Sample] = ()
    """Samples put aside for the bands of predictions, seen by nothing else."""


@dataclass(frozen=True)
class Portrait:
    """What a picture of a sample shows: fields (n,) by name, at points (n s)."""

    positions: Tensor
    fields: Mapping[str, Tensor]
    surface: Tensor | None = None
    """(n,), positive at points on the surface of a body."""


TASKS: "Registry[type[Task[Any]]]" = Registry(
    "task",
    {
        name: f"funcattn.tasks.{name}"
        for name in (
            "few_shot",
            "burgers",
            "darcy",
            "darcy_notch",
            "navier_stokes",
            "elasticity",
            "plasticity",
            "airfoil",
            "pipe",
            "airfrans",
            "rna",
            "own",
        )
    },
    group="funcattn.tasks",
)
"""By name; other packages add theirs by the entry point `funcattn.tasks`."""


def register_task(task: AnyTask) -> AnyTask:
    """Make a class known under its name: to be written above it as a decorator."""
    TASKS.register(task.name, task)
    return task


class Task(ABC, Generic[Data]):
    """One benchmark: a name, a problem and `splits`; all else has defaults."""

    name: ClassVar[str]
    title: ClassVar[str]
    """One line for lists."""
    problem: Problem
    """Of the class: what all its runs share. Of an object: also its grid and its points."""
    data_settings: type[Data] = DataSettings  # type: ignore[assignment]
    """The class of `settings.data`."""
    network_settings: ClassVar[type[NetworkSettings]] = FunctionalSettings
    """The class of the settings of its own network, the paper's."""
    profiles: ClassVar[Mapping[Profile, Changes]] = {
        "cpu": {
            "network": {"width": 64, "layers": 4, "heads": 4, "bases": 32},
            "optimisation": {"epochs": 30},
        },
        "smoke": {
            "network": {"width": 16, "layers": 2, "heads": 2, "bases": 4},
            "optimisation": {"epochs": 3},
        },
    }
    """What the profiles change: the paper's (optimisation: for all profiles), those for two cores,
    and tiny ones for tests."""
    modern: ClassVar[Changes] = {
        "optimisation": {
            "optimiser": "muon",
            "clip": 1.0,
            "reduction": "mean",
            "start_divisor": 25.0,
            "end_divisor": 1e4,
        }
    }
    """What the preset `modern` changes: our optimisation in place of the paper's."""
    headline: ClassVar[str] = "relative_l2"
    """The metric by which the epoch is chosen."""
    larger_is_better: ClassVar[bool] = False
    symmetries: ClassVar[Mapping[str, Symmetry]] = {}
    """Of the equation, by what they do."""
    weighted: ClassVar[bool] = False
    """Whether samples come with quadrature weights of their grid, so that predictions need them."""
    normalised: ClassVar[frozenset[Side]] = frozenset()
    """Which sides are brought to mean 0 and deviation 1, by statistics of the training samples."""
    unit_free: ClassVar[bool] = False
    """Whether no unit matters, neither of positions nor of fields: see `NormalisedNetwork`."""

    def __init__(self, settings: RunSettings) -> None:
        if not isinstance(settings.data, self.data_settings):
            raise ValueError(
                f"data: expected {self.data_settings.__name__} for {self.name}, got "
                f"{type(settings.data).__name__}; start from {type(self).__name__}.defaults(...)"
            )
        self.settings = settings
        self.data: Data = settings.data
        """How the samples are made or read."""
        problem = type(self).problem
        self.problem = replace(
            problem, grid=problem.grid or self.grid is not None, points=self.points
        )

    @classmethod
    def defaults(cls, profile: Profile, preset: Preset) -> RunSettings:
        """The settings of a profile (how large) and a preset (how trained)."""
        settings = RunSettings(cls.name, data=cls.data_settings(), network=cls.network_settings())
        for_all = cls.profiles.get("paper", {}).get("optimisation", {})
        settings = changed(settings, {"optimisation": for_all})
        settings = changed(settings, cls.profiles.get(profile, {}))
        if preset == "modern":
            settings = changed(settings, cls.modern)
        return settings

    @abstractmethod
    def splits(self, store: Store) -> Splits:
        """The samples, made or read; what a solver makes is kept in the store."""

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """One number for each sample, (b,): the relative L2 error of all fields together."""
        return relative_l2(prediction, batch.target, batch.mask)

    def metrics(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """By name, one number for each sample, (b,); `headline` is among them.

        The relative L2 error of all fields together, and where there are several, of each.
        """
        errors = {"relative_l2": relative_l2(prediction, batch.target, batch.mask)}
        if len(self.problem.outputs) > 1:
            for name, channels in self.problem.output_slices.items():
                errors[f"relative_l2_{name.replace(' ', '_')}"] = relative_l2(
                    prediction[..., channels], batch.target[..., channels], batch.mask
                )
        return errors

    def as_target(self, prediction: Tensor) -> Tensor:
        """What a prediction says is true, for metrics of another one."""
        return prediction

    @property
    def picture(self) -> PictureKind:
        """How a sample is drawn."""
        if self.problem.space == 1:
            return "line"
        return "grid" if self.problem.grid and self.problem.space == 2 else "cloud"

    @property
    def grid(self) -> tuple[int, ...] | None:
        """The grid of the training samples, None where their points form none."""
        return None

    @property
    def points(self) -> int | None:
        """Points of every sample, in training and test; None where their number differs."""
        return type(self).problem.points

    @property
    def visits(self) -> int:
        """How often an epoch comes to each training sample."""
        return 1

    @property
    def target_axes(self) -> tuple[int, ...]:
        """The lengths of a target's axes after the points; (b n *target_axes) in a batch."""
        return (self.problem.output_channels,)

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
