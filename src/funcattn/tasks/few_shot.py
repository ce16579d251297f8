"""Few-shot regression of sinusoids (Finn et al. 2017): a function from a few of its values.

f(x) = a sin(x - c) on [-6, 6], a uniform in [0.1, 5], c uniform in [0, pi]. A sample is one such
function: observed at a few random points, asked for at others.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from funcattn.data import Batch, LazySamples, Sample, Store, collate
from funcattn.problem import Field, Problem
from funcattn.settings import (
    DataSettings,
    FunctionalRegressorSettings,
    Preset,
    Profile,
    RunSettings,
    changed,
)
from funcattn.tasks.base import Changes, Network, Splits, Task, register_task
from funcattn.tasks.losses import mean_squared_error

# One number per stream of samples, so that those of one are not those of another.
TRAIN, VALIDATION, TEST, CURVE = range(4)

BASELINES: Mapping[str, Changes] = {
    "intention": {
        "network": {"width": 1000, "layers": 4, "heads": 4, "ridge": 1e-4},
        "optimisation": {"rate": 3e-4},
    },
    "transolver": {
        "network": {"width": 256, "layers": 4, "bases": 8},
        "optimisation": {"rate": 1e-4},
    },
    "softmax": {
        "network": {"width": 256, "layers": 3, "heads": 4},
        "optimisation": {"rate": 1e-3},
    },
}
"""What the paper's public code changes for its baselines; Intention's 1000 channels cost about a
hundred times what the others do."""


@dataclass(frozen=True)
class FewShotData(DataSettings):
    """Sinusoids, made when they are asked for."""

    train: int = 8000
    """Samples of an epoch; each epoch sees new ones."""
    validation: int = 200
    test: int = 1000
    observations: int = 32
    queries: int = 200

    def __post_init__(self) -> None:
        for name in ("observations", "queries"):
            if (got := getattr(self, name)) < 1:
                raise ValueError(f"{name}: expected at least 1 point, got {got}")
        if self.seed < 0:
            raise ValueError(f"seed: expected a number that is not negative, got {self.seed}")


class Sinusoids(LazySamples):
    """A stream of samples; the one at an index depends on the seed, the stream and the index."""

    def __init__(
        self, seed: int, stream: int, length: int, *, observations: int, queries: int
    ) -> None:
        self.seed, self.stream, self.indices = seed, stream, range(length)
        self.observations, self.queries = observations, queries

    def __len__(self) -> int:
        return len(self.indices)

    def sample(self, index: int) -> Sample:
        """The one at an index."""
        mixed = np.random.SeedSequence((self.seed, self.stream, self.indices[index]))
        random = torch.Generator().manual_seed(int(mixed.generate_state(1)[0]))
        return sinusoid(random, self.observations, self.queries)


@register_task
class FewShot(Task[FewShotData]):
    """Observations of a sinusoid to its values elsewhere.

    The paper's 50,000 iterations of 8 functions; fewer for two cores, and for tests. The error
    curve is trained with 32 observations, the picture of predictions with 4.

    Relative to the paper: its text does not name a schedule; the public code has cosine decay.
    modern is one cycle with a higher peak, whose slow rise the small weights at the start need.
    """

    name: ClassVar = "few_shot"
    title: ClassVar = "Few-shot regression: a sinusoid from a few of its values"
    problem = Problem(1, (), (Field("value"),), context=True)
    data_settings = FewShotData
    network_settings: ClassVar = FunctionalRegressorSettings
    headline: ClassVar = "mse"
    profiles: ClassVar[Mapping[Profile, Changes]] = {
        "paper": {
            "optimisation": {
                "optimiser": "adam",
                "epochs": 50,
                "batch": 8,
                "rate": 1e-4,
                "weight_decay": 0.0,
                "schedule": "cosine",
            },
        },
        "cpu": {"optimisation": {"epochs": 14}},
        "smoke": {
            "data": {"train": 64, "validation": 8, "test": 8, "queries": 20},
            "network": {"width": 16},
            "optimisation": {"epochs": 2},
        },
    }
    modern: ClassVar[Changes] = {"optimisation": {"schedule": "one_cycle", "rate": 3e-4}}

    @classmethod
    def defaults(cls, profile: Profile, preset: Preset) -> RunSettings:
        """As in the profiles; the modern schedule needs fewer epochs on two cores."""
        settings = super().defaults(profile, preset)
        if (profile, preset) == ("cpu", "modern"):
            settings = changed(settings, {"optimisation": {"epochs": 10}})
        return settings

    def splits(self, store: Store) -> Splits:  # noqa: ARG002
        """Streams of functions; nothing is kept, as making one takes less than reading it."""
        data = self.data
        if data.path is not None:
            raise ValueError("data.path: sinusoids are made, not read; leave the path out")
        train, validation, test = (
            Sinusoids(
                data.seed, stream, length, observations=data.observations, queries=data.queries
            )
            for stream, length in (
                (TRAIN, data.train),
                (VALIDATION, data.validation),
                (TEST, data.test),
            )
        )
        # The functions follow from the numbers; the first test sample tells of changed formulas.
        content = hashlib.sha256(repr(data).encode())
        for sample in test[:1]:
            content.update(sample.target.numpy().tobytes())
        return Splits(train, validation, test, content.hexdigest())

    def augmented(self, sample: Sample, random: torch.Generator) -> Sample:  # noqa: ARG002
        """Another function in place of the sample's: as in the paper, every step has new ones."""
        return sinusoid(random, self.data.observations, self.data.queries)

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Mean squared error over the queries."""
        return mean_squared_error(prediction, batch.target, batch.mask)

    def metrics(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Mean squared error over the queries."""
        return {"mse": mean_squared_error(prediction, batch.target, batch.mask)}


def sinusoid(random: torch.Generator, observations: int, queries: int) -> Sample:
    """A random sinusoid: its values at random queries, in order, given random observations."""
    amplitude, phase = torch.rand(2, generator=random)
    amplitude, phase = 0.1 + 4.9 * amplitude, math.pi * phase
    positions = (12 * torch.rand(queries, 1, generator=random) - 6).sort(dim=0).values
    observed = 12 * torch.rand(observations, 1, generator=random) - 6
    return Sample(
        positions=positions,
        values=None,
        target=amplitude * torch.sin(positions - phase),
        context=torch.cat([observed, amplitude * torch.sin(observed - phase)], dim=-1),
    )


@torch.no_grad()
def error_by_observations(
    network: Network,
    sizes: Sequence[int] = (5, 10, 20, 40),
    tasks: int = 1000,
    seed: int = 0,
    *,
    queries: int = 200,
    batch: int = 100,
    device: torch.device | str = "cpu",
) -> dict[int, float]:
    """The mean squared error given so many observations, averaged over functions.

    The functions, and the points at which they are asked for, are the same for every size, and not
    those of a split.
    """
    errors: dict[int, float] = {}
    for size in sizes:
        functions = Sinusoids(seed, CURVE, tasks, observations=size, queries=queries)
        total = 0.0
        for start in range(0, tasks, batch):
            some = collate(functions[start : start + batch]).to(device)
            prediction = network(some.positions, context=some.context)
            total += float(mean_squared_error(prediction, some.target).double().sum())
        errors[size] = total / tasks
    return errors
