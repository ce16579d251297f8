from dataclasses import dataclass, field, replace

import pytest
import torch

from funcattn.data import Sample
from funcattn.models import NormalisedNetwork
from funcattn.tasks import TASKS, Splits
from funcattn.training.run import Run
from funcattn.training.setup import build_network
from funcattn.trust.subject import Subject


@dataclass(frozen=True)
class Untrained(Subject):
    """A run whose networks are as they were drawn: promises of coverage hold for any network."""

    drawn: list[NormalisedNetwork] = field(default_factory=list)

    @property
    def networks(self) -> list[NormalisedNetwork]:
        return self.drawn

    @property
    def known(self) -> bool:
        return hasattr(self.task, "splits")

    @property
    def splits(self) -> Splits:
        return self.task.splits(self.store)


@pytest.fixture
def untrained(store, tmp_path):
    """A subject of a task at profile smoke, with as many networks as wanted."""

    def made(name: str, networks: int = 1) -> Untrained:
        settings = TASKS[name].defaults("smoke", "modern")
        task = TASKS[name](settings)
        drawn = []
        for seed in range(networks):
            network = build_network(TASKS[name](replace(settings, seed=seed)))
            train = task.splits(store).train
            samples = [train[i] for i in range(len(train))]
            outputs = task.problem.output_channels
            network.fit(
                (s.positions for s in samples),
                (s.values for s in samples if s.values is not None),
                (s.target.reshape(-1, outputs) for s in samples),
            )
            drawn.append(network.eval())
        run = Run(tmp_path)
        vars(run).update(settings=settings, task=task, network=drawn[0], networks=drawn)
        return Untrained(run, task, store, drawn)

    return made


def noisy_samples(count: int, points: int, seed: int) -> list[Sample]:
    """sin plus noise whose deviation grows along the line: 1 at the left, 3 at the right."""
    random = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(count):
        x = torch.rand(points, 1, generator=random)
        noise = torch.randn(points, 1, generator=random) * (1 + 2 * x)
        made.append(Sample(x, None, torch.sin(6 * x) + noise))
    return made
