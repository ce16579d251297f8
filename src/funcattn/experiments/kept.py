"""Networks from the runs that the queue kept, to draw what they predict."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from funcattn.data import Sample, Store, collate
from funcattn.models import Surrogate
from funcattn.nn import FunctionalAttention
from funcattn.nn.points import Points
from funcattn.nn.rivals import TransolverAttention
from funcattn.tasks import TASKS, Task
from funcattn.training.checkpoint import restore_model
from funcattn.training.loop import best_checkpoint
from funcattn.training.setup import build_surrogate, read_settings
from funcattn.viz.style import Array


def restored(folder: Path) -> tuple[Task, Surrogate]:
    """The task of a run, and its network at the best epoch."""
    settings = read_settings(folder)
    task = TASKS[settings.task](settings)
    surrogate = build_surrogate(task)
    restore_model(surrogate, best_checkpoint(folder).tensors["model"])
    return task, surrogate


def untrained(task: Task) -> Surrogate:
    """The network as it was before training, if its task has no normalisers."""
    assert not task.normalised
    return build_surrogate(task)


def first_test_sample(task: Task, cache: Path) -> Sample:
    """The same one whatever came out."""
    return task.splits(Store(cache, workers=1)).test[0]


@torch.no_grad()
def predicted(task: Task, surrogate: Surrogate, sample: Sample) -> Tensor:
    """What a network says of a sample, shaped as its target."""
    return task.predict(surrogate.eval(), collate([sample]))[0].float()


@torch.no_grad()
def last_basis(task: Task, surrogate: Surrogate, sample: Sample) -> Array:
    """The functions (g n) of the first head of the last layer on a sample."""
    kinds = (FunctionalAttention, TransolverAttention)
    layer = [module for module in surrogate.modules() if isinstance(module, kinds)][-1]
    seen: list[Tensor] = []

    def look(module: nn.Module, given: tuple[Any, ...], points: dict[str, Any]) -> None:  # noqa: ARG001
        names = ("positions", "grid", "mask", "weights")
        seen.append(layer.basis(given[0], Points(*(points[name] for name in names))))

    hook = layer.register_forward_pre_hook(look, with_kwargs=True)
    predicted(task, surrogate, sample)
    hook.remove()
    return np.asarray(seen[-1][0, 0].T.double().numpy())
