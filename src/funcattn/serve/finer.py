"""Predictions on a grid finer than that of training, also where the network does not carry over.

Between its points, training says nothing. On a stretched grid these can lie so far apart that a
network says anything there, and by its integrals also elsewhere. It is found out by being asked
twice: at the points of training it then says something else than on the grid of training. What it
says on that is taken instead, linear between its points.

Axes: b sample, n point, o output channel.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from funcattn.data import Batch
from funcattn.nn.feature_maps import at_places
from funcattn.serve.familiar import Familiarity, Look, Score, looked_at, nearest_places, thinned
from funcattn.tasks import Task


class CoarserGridWarning(UserWarning):
    """A prediction was made on the grid of training, as the network fails on the finer one."""


_DOUBT = 4.0
"""Times the usual error by which a network may differ from itself on the grid of training.

Where it differs by more, it is wrong on the finer grid by over twice the usual error, unless it is
so on the grid of training. Of the bundled networks those that carry over differ by 1.3 times at
most, the one that does not by 17 at least (results/finer_grids.json).
"""
_LEAST = 1e-3
"""What an error counts as at least: labels may all be right in validation."""


class Judged(NamedTuple):
    """What a network says of a batch, and how unlike the training data that is."""

    said: Float[Tensor, "b n *o"]
    scores: list[Score] | None
    """None where the run was not calibrated."""
    raised: list[bool]
    """Of each sample, whether it is said on the grid of training, and linear between its points."""


def judged(
    task: Task, network: nn.Module, batch: Batch, usual: float | None, familiar: Familiarity | None
) -> Judged:
    """What a network says of a batch, on the grid of training where it fails on a finer one.

    usual: its error on validation samples; None: it is not known, and the network is believed.
    Not with a mask, as there is nothing to say between points that are none.
    """
    raised = [False] * len(batch)
    finer = thinned(batch, task.grid, periodic=task.problem.periodic) is not batch
    if familiar is None and (usual is None or not finer):
        return Judged(task.predict(network, batch), None, raised)
    look = looked_at(task, network, batch)
    if usual is not None and finer and batch.mask is None:
        limit = _DOUBT * max(usual, _LEAST)
        raised = [not error <= limit for error in _doubts(task, look)]  # no number is no answer
    scores = None
    if familiar is not None:
        pairs = zip(familiar.scores(look.seen), familiar.scores(look.known_seen), strict=True)
        scores = [pair[fails] for pair, fails in zip(pairs, raised, strict=True)]
    said = _mixed(task, look.said, look.known_said, raised, batch, look.known)
    return Judged(said, scores, raised)


def _doubts(task: Task, look: Look) -> list[float]:
    """The error of what is said on the finer grid, if what is said on that of training is true."""
    on_training_grid = replace(look.known, target=task.as_target(look.known_said))
    found: list[float] = task.metrics(look.met, on_training_grid)[task.headline].tolist()
    return found


def said_alike(
    task: Task, network: nn.Module, batch: Batch, raised: Sequence[bool]
) -> Float[Tensor, "b n *o"]:
    """What another network of an ensemble says, on the same grids as the one that was judged."""
    said = task.predict(network, batch)
    if not any(raised):
        return said
    known = thinned(batch, task.grid, periodic=task.problem.periodic)
    return _mixed(task, said, task.predict(network, known), raised, batch, known)


def in_words(task: Task, grid: Sequence[int] | None) -> str:
    """Of a sample that is raised, for a warning."""
    fine, coarse = (" x ".join(map(str, lengths or ())) for lengths in (grid, task.grid))
    return (
        f"the network does not carry over from {coarse} points, the grid of its training, to "
        f"{fine}; the prediction is that on the grid of training, linear between its points"
    )


def raised_to(
    field: Float[Tensor, "b m *o"], coarse: Sequence[int], fine: Sequence[int], *, periodic: bool
) -> Float[Tensor, "b n *o"]:
    """A field on the nearest points of a finer grid, linear along the axes between them.

    >>> raised_to(torch.tensor([[[0.0], [2.0], [3.0]]]), (3,), (5,), periodic=False).flatten()
    tensor([0.0000, 1.0000, 2.0000, 2.5000, 3.0000])
    """
    field = field.unflatten(1, tuple(coarse))
    for axis, (length, points) in enumerate(zip(coarse, fine, strict=True), start=1):
        places = nearest_places(points, length, periodic=periodic).numpy()
        if periodic:
            places = np.append(places, points)  # the first one again
        at = np.interp(np.arange(points), places, np.arange(len(places)))
        field = at_places(field, torch.from_numpy(at).to(field.device), axis)
    return field.flatten(1, len(fine))


def _mixed(
    task: Task, said: Tensor, known_said: Tensor, raised: Sequence[bool], batch: Batch, known: Batch
) -> Tensor:
    """What is said on the finer grid, but of some samples what is said on that of training."""
    if not any(raised) or batch.grid is None or known.grid is None:
        return said
    lifted = raised_to(known_said, known.grid, batch.grid, periodic=task.problem.periodic)
    chosen = torch.tensor(raised, device=said.device).view(-1, *(1,) * (said.ndim - 1))
    return torch.where(chosen, lifted, said)
