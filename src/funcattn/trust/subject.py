"""A run under examination: its networks, its samples, and fresh samples where a solver makes them.

The same for benchmarks and for runs on people's own data.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from funcattn.data import Batch, Sample, Store, collate
from funcattn.models import NormalisedNetwork
from funcattn.tasks import Splits, Task
from funcattn.tasks.own import Own, OwnData
from funcattn.tasks.solved import Generated
from funcattn.training.kept import check_fingerprint
from funcattn.training.run import Run

FRESH = 1_000_000
"""Added to the seed of the data, so that fresh samples are those of no run."""


@dataclass(frozen=True)
class Subject:
    """A run, its task with the samples at hand, and the store of made data."""

    run: Run
    task: Task
    store: Store

    @cached_property
    def splits(self) -> Splits:
        """The samples of the run, if they are still those it was trained with."""
        splits = self.task.splits(self.store)
        check_fingerprint(self.run.best, splits)
        return splits

    @property
    def networks(self) -> list[NormalisedNetwork]:
        """Whose mean is the prediction."""
        return self.run.networks

    @property
    def known(self) -> bool:
        """Whether the samples of the run can be had."""
        return not isinstance(self.task, Own) or self.task.has_samples

    @property
    def labels(self) -> bool:
        """Whether points are classified."""
        return self.task.name == "rna" or bool(getattr(self.task.data, "classes", ()))

    @property
    def has_solver(self) -> bool:
        """Whether samples can be made anew."""
        return self.task.data.path is None and (
            isinstance(self.task, Generated) or self.task.name == "few_shot"
        )

    def fresh(self, count: int, shift: int = FRESH, **changes: Any) -> Sequence[Sample]:
        """Samples as the run is trained on, made by its solver from another seed.

        changes: of the settings of the data, such as another resolution.
        """
        data = replace(self.task.data, seed=self.task.data.seed + shift, **changes)
        inside = getattr(data, "split", "full")
        if inside == "full":
            data = replace(data, train=1, validation=count, test=1)
            return self._made(data).validation[:count]
        # Of the splits that train in the middle of a range, some samples are outside of it.
        wanted = count
        while True:
            made = self._made(replace(data, train=2 * wanted, validation=wanted, test=1))
            found = [*made.train, *made.validation]
            if len(found) >= count:
                return found[:count]
            wanted *= 2

    def _made(self, data: Any) -> Splits:
        settings = replace(self.run.settings, data=data)
        return type(self.task)(settings).splits(self.store)

    @torch.no_grad()
    def predictions(self, batch: Batch) -> Tensor:
        """What each network says of a batch, (k b n *o)."""
        dtype = self.run.network.position_range.dtype
        batch = batch.to("cpu", dtype)
        return torch.stack([self.task.predict(network, batch) for network in self.networks]).float()

    def predicted(self, sample: Sample) -> Tensor:
        """The prediction of one sample, shaped as its target."""
        return self.predictions(collate([sample])).mean(0)[0]

    def errors(self, samples: Sequence[Sample]) -> Tensor:
        """The headline metric of each sample, (m,)."""
        found = []
        for place in range(len(samples)):
            batch = collate([samples[place]])
            values = self.task.metrics(self.predictions(batch).mean(0), batch)
            found.append(values[self.task.headline].double())
        return torch.cat(found)


def open_subject(folder: str | Path, store: Store, *, accept_edited: bool = False) -> Subject:
    """The run in a folder; of own data, its cases are read from where they were."""
    run = Run(folder, accept_edited=accept_edited)
    if not isinstance(run.settings.data, OwnData):
        return Subject(run, run.task, store)
    from funcattn.surrogate import Surrogate

    surrogate = Surrogate.load(folder, accept_edited=accept_edited)
    surrogate.splits()
    return Subject(surrogate.run, surrogate.task, store)
