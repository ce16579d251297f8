"""Learning what the training samples of a run look like; see `funcattn.serve.familiar`."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from safetensors.torch import save_file
from torch import Tensor

from funcattn.data import Sample, collate
from funcattn.serve.familiar import FILE, Familiarity, Pooled, Score, looked_at
from funcattn.training.signed import signed_file
from funcattn.trust.subject import Subject

MOST = 300
"""Training samples that are looked at, evenly spread."""
SHRINKAGE = 0.1
"""Of the covariance towards its mean variance: there are more features than one can estimate."""
SHARE = 0.95
"""Of new samples like those of validation are below the limit."""


@torch.no_grad()
def seen_of(subject: Subject, samples: Sequence[Sample]) -> Pooled:
    """What the first network sees of samples, (m f) by layer."""
    rows: list[Pooled] = []
    network = subject.run.network
    for sample in samples:
        batch = collate([sample]).to("cpu", network.position_range.dtype)
        rows.append(looked_at(subject.task, network, batch).seen)
    return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}


def learn_familiarity(subject: Subject) -> Familiarity:
    """From the training samples, with limits from validation; kept with the run."""
    train, validation = subject.splits.train, subject.splits.validation
    chosen = torch.linspace(0, len(train) - 1, min(MOST, len(train))).round().int().tolist()
    made = learned(
        seen_of(subject, [train[i] for i in chosen]),
        seen_of(subject, [validation[i] for i in range(min(MOST, len(validation)))]),
    )
    with signed_file(subject.run.folder / FILE) as aside:
        save_file(made.tensors(), aside)
    return made


def learned(train: Pooled, held: Pooled) -> Familiarity:
    """What training samples look like, with limits that a new sample passes as seldom as promised.

    One threshold is for both distances together: that of the larger of the two, each over its scale
    on training samples. It is the conformal quantile of samples that nothing here has seen, so that
    a sample of the same distribution is beyond it with a probability of at most 1 - SHARE.
    """
    scales = _scales(train)
    made = _placed(train)
    largest = (made.distances(held) / scales).amax(1)
    limits = scales * _quantile(largest)
    return replace(made, limits=limits, held=len(largest))


def _placed(train: Pooled) -> Familiarity:
    """Without limits yet; in the precision of the file that keeps it."""
    means, whitenings = {}, {}
    for name, features in train.items():
        features = features.double()
        means[name] = features.mean(0)
        whitenings[name] = _whitening(features - means[name]).float().double()
    made = Familiarity(means, whitenings, torch.zeros(1, 1), torch.ones(2), 0)
    return replace(made, seen=made.placed(train).float().double())


def _scales(train: Pooled) -> Tensor:
    """Of both distances, (2): what SHARE of one half of the training samples has to the other."""
    halves = [{name: rows[start::2] for name, rows in train.items()} for start in (0, 1)]
    if not len(next(iter(halves[1].values()))):
        return torch.ones(2).double()
    found = [_placed(a).distances(b) for a, b in (halves, halves[::-1])]
    return torch.cat(found).quantile(SHARE, dim=0).clamp(min=1e-300)


def familiarity_of(subject: Subject, known: Familiarity, samples: Sequence[Sample]) -> list[Score]:
    """The scores of samples."""
    return known.scores(seen_of(subject, samples))


def area_under_curve(inside: Sequence[float], outside: Sequence[float]) -> float:
    """The probability that a score from outside is above one from inside; ties count a half.

    >>> area_under_curve([1.0, 2.0], [2.0, 3.0])
    0.875
    """
    a, b = torch.tensor(inside).double(), torch.tensor(outside).double()
    above = (b[:, None] > a).double() + 0.5 * (b[:, None] == a).double()
    return float(above.mean())


def _whitening(centred: Tensor) -> Tensor:
    """(f f): brings features to unit covariance, which is shrunk towards the mean variance."""
    covariance = centred.T @ centred / len(centred)
    size = covariance.diagonal().mean().clamp(min=1e-300)
    shrunk = (1 - SHRINKAGE) * covariance + SHRINKAGE * size * torch.eye(len(covariance)).double()
    values, vectors = torch.linalg.eigh(shrunk)
    return (vectors * values.rsqrt()).contiguous()


def _quantile(scores: Tensor) -> Tensor:
    """The conformal quantile, or the largest where there are too few samples for it."""
    rank = min(math.ceil((len(scores) + 1) * SHARE - 1e-9), len(scores))
    return scores.sort().values[rank - 1].clamp(min=1e-300)
