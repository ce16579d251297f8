"""Trained networks from the folders of the queue, to draw what they predict."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from funcattn.data import Sample, Store, collate
from funcattn.models import NormalisedNetwork
from funcattn.nn import inspect
from funcattn.tasks import Task
from funcattn.training.run import Run
from funcattn.training.setup import build_network
from funcattn.viz.style import Reals


def restored(folder: Path) -> tuple[Task, NormalisedNetwork]:
    """The task of a run, and its network at the best epoch."""
    run = Run(folder)
    return run.task, run.network


def untrained(task: Task) -> NormalisedNetwork:
    """The network as it was before training, if its task has no normalisers."""
    assert not task.normalised
    return build_network(task)


def first_test_sample(task: Task, cache: Path) -> Sample:
    """The sample that all pictures show, whatever the results."""
    return task.splits(Store(cache, workers=1)).test[0]


@torch.no_grad()
def predicted(task: Task, surrogate: NormalisedNetwork, sample: Sample) -> Tensor:
    """The prediction for a sample, shaped as its target."""
    return task.predict(surrogate.eval(), collate([sample]))[0].float()


@torch.no_grad()
def last_basis(task: Task, surrogate: NormalisedNetwork, sample: Sample) -> Reals:
    """The functions (g n) of the first head of the last layer on a sample."""
    with inspect(surrogate) as layers:
        predicted(task, surrogate, sample)
    basis = [layer.basis for layer in layers if isinstance(layer.basis, Tensor)][-1]
    return np.asarray(basis[0, 0].T.double().numpy())
