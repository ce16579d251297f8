"""What networks say of samples that they are judged by."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from funcattn.data import Batch, Sample, collate
from funcattn.nn import Inspection, inspect
from funcattn.settings import RunSettings
from funcattn.tasks.base import Task

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def on_device(samples: Sequence[Sample], settings: RunSettings, fabric: "Fabric") -> Batch:
    """Samples as a batch, where and in the precision in which the network computes."""
    dtype = torch.float64 if settings.precision == "64-true" else torch.float32
    return collate(samples).to(fabric.device, dtype)


@torch.no_grad()
def evaluate(
    task: Task,
    surrogate: nn.Module,
    samples: Sequence[Sample],
    fabric: "Fabric",
) -> tuple[dict[str, list[float]], list[float]]:
    """Metrics of each sample, and condition numbers of the layers' systems on the first batch.

    Of a task that calls its network for each frame, the systems are those of the first one.
    """
    surrogate.eval()
    metrics: dict[str, list[float]] = {}
    conditions: list[float] = []
    size = task.settings.optimisation.batch
    for start in range(0, len(samples), size):
        places = range(start, min(start + size, len(samples)))
        batch = on_device([samples[i] for i in places], task.settings, fabric)
        with fabric.autocast(), inspect(surrogate, basis=False) as calls:
            prediction = predicted(task, surrogate, batch)
        for name, values in task.metrics(prediction, batch).items():
            metrics.setdefault(name, []).extend(values.double().tolist())
        if start == 0:
            conditions = [float(call.condition.mean()) for call in first_calls(calls)]
    return metrics, conditions


def predicted(task: Task, surrogate: nn.Module, batch: Batch) -> Tensor:
    """What a network says of a batch; of a list of networks, the mean of what they say."""
    if isinstance(surrogate, nn.ModuleList):
        return torch.stack([task.predict(member, batch) for member in surrogate]).mean(0)
    return task.predict(surrogate, batch)


def first_calls(calls: Sequence[Inspection]) -> list[Inspection]:
    """The first call of each layer that solved a system, of all calls that were seen.

    A task may call its network several times for one prediction.
    """
    first: dict[int, Inspection] = {}
    for call in calls:
        if call.system is not None:  # some baselines show coefficients, and solve nothing
            first.setdefault(id(call.layer), call)
    return list(first.values())
