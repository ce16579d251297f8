"""Cheap predictions that a surrogate has to beat: without them an error says little.

The mean of the training samples; the training sample whose input is nearest; ridge regression from
the principal components of the inputs to the outputs. Samples on one and the same point set are
compared point by point. Others are read at common reference points, where a sample's geometry shows
as the distance to its nearest point, and results are brought back by interpolation.

Axes: N sample, r reference point, n point, k channel.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from funcattn.data import Sample

Matrix = npt.NDArray[np.float64]

REFERENCE_POINTS = 1024
NUMBERS = 30_000_000
"""Largest size of all outputs together that are compared point by point."""
COMPONENTS = (2, 8, 32, 128, 512)
RIDGES = tuple(10.0**power for power in range(-8, 1))


@dataclass
class Yardsticks:
    """Fitted to training samples; what can be chosen is chosen on validation samples.

    classes: of a target of labels, which are then predicted as one score per class.
    """

    train: Sequence[Sample]
    validation: Sequence[Sample]
    classes: int = 0

    def __post_init__(self) -> None:
        first = self.train[0]
        shared = all(_same_points(sample, first) for sample in (*self.train, *self.validation))
        outputs = self._target(first).size
        self.shared = shared and outputs * len(self.train) <= NUMBERS
        self.points = _numpy(first.positions)
        if not self.shared:
            self.points = _reference_points(self.train)
        raw = [self._raw(sample) for sample in self.train]
        self._centre, self._scale = _block_scales(raw)
        self.features = self._scaled(raw)
        self.outputs = np.stack([self._at_reference(sample) for sample in self.train])
        self.mean = _nan_mean(self.outputs)
        self.outputs = np.where(np.isnan(self.outputs), self.mean, self.outputs)
        self._fit_ridge()

    def predictions(self, sample: Sample) -> dict[str, Tensor]:
        """By the name of the yardstick, shaped as a prediction of the sample's target."""
        row = self._scaled([self._raw(sample)])[0]
        nearest = int(np.square(self.features - row).sum(1).argmin())
        made = {
            "mean of training": self._back(self.mean, sample),
            "nearest training sample": self._copied(self.train[nearest], sample),
            "ridge regression": self._back(self._regressed(row[None])[0], sample),
        }
        return {name: torch.from_numpy(values).float() for name, values in made.items()}

    def distance(self, sample: Sample) -> float:
        """How far the sample's input lies from the nearest of training; see `typical_distance`."""
        row = self._scaled([self._raw(sample)])[0]
        return float(np.sqrt(np.square(self.features - row).sum(1).min()))

    @property
    def typical_distance(self) -> float:
        """The distance that 95 % of the training inputs keep to the nearest other one, at most."""
        squares = np.square(self.features).sum(1)
        pairs = squares[:, None] + squares[None] - 2 * self.features @ self.features.T
        np.fill_diagonal(pairs, np.inf)
        return float(np.quantile(np.sqrt(pairs.min(1).clip(min=0)), 0.95))

    # From samples to rows of numbers, and back

    def _raw(self, sample: Sample) -> list[Matrix]:
        """The input as blocks of numbers, one per channel."""
        values = None if sample.values is None else _numpy(sample.values)
        blocks: list[Matrix] = []
        if self.shared:
            if values is not None:
                blocks += list(values.T)
        else:
            place, distance = _nearest(self.points, _numpy(sample.positions))
            blocks.append(distance)
            if values is not None:
                blocks += list(values[place].T)
        return blocks or [np.zeros(1)]

    def _scaled(self, raw: list[list[Matrix]]) -> Matrix:
        """(N, ...): every block counts as one number, whatever its unit and its length."""
        return np.stack(
            [
                np.concatenate(
                    [
                        (block - centre) / scale
                        for block, centre, scale in zip(
                            blocks, self._centre, self._scale, strict=True
                        )
                    ]
                )
                for blocks in raw
            ]
        )

    def _target(self, sample: Sample) -> Matrix:
        """(n k): all axes after the points in one; of labels, one column per class."""
        if not self.classes:
            return _numpy(sample.target).reshape(len(sample.target), -1)
        scores = np.eye(self.classes)[sample.target.clamp(min=0).numpy()]
        scores[sample.target.numpy() < 0] = np.nan
        return scores

    def _at_reference(self, sample: Sample) -> Matrix:
        """(r k)."""
        target = self._target(sample)
        if self.shared:
            return target
        return target[_nearest(self.points, _numpy(sample.positions))[0]]

    def _back(self, outputs: Matrix, sample: Sample) -> Matrix:
        """From the reference points to those of a sample."""
        if not self.shared:
            outputs = _interpolated(outputs, self.points, _numpy(sample.positions))
        return self._shaped(outputs, sample)

    def _copied(self, source: Sample, sample: Sample) -> Matrix:
        """The output of another sample, at the nearest of its points."""
        target = self._target(source)
        if not self.shared:
            target = target[_nearest(_numpy(sample.positions), _numpy(source.positions))[0]]
        return self._shaped(np.nan_to_num(target), sample)

    def _shaped(self, outputs: Matrix, sample: Sample) -> Matrix:
        axes = (self.classes,) if self.classes else sample.target.shape[1:]
        return outputs.reshape(len(sample.positions), *axes)

    # Ridge regression in the space of principal components, by the samples' inner products

    def _fit_ridge(self) -> None:
        count = len(self.train)
        self._row_mean = self.features.mean(0)
        centred = self.features - self._row_mean
        values, vectors = np.linalg.eigh(centred @ centred.T)
        order = np.argsort(-values)
        values, vectors = values[order].clip(min=0), vectors[:, order]
        kept = int((values > 1e-12 * max(values[0], 1e-300)).sum())
        values, vectors = values[:kept], vectors[:, :kept]
        # Directions of the inputs: scores of a row are its products with these.
        self._directions = (centred.T @ vectors) / np.sqrt(values)
        flat = (self.outputs - self.mean).reshape(count, -1)
        self._loads = vectors.T @ flat
        self._values = values
        self._ridge = 0.0
        self._components = kept
        if not kept:
            return
        rows = self._scaled([self._raw(sample) for sample in self.validation])
        truth = np.stack([self._at_reference(sample) for sample in self.validation])
        best = np.inf
        for components in [c for c in COMPONENTS if c < kept] + [kept]:
            for ridge in RIDGES:
                guess = self._regressed(rows, components, ridge * values[0])
                error = float(np.nanmean(np.square(guess - truth)))
                if error < best:
                    best, self._components, self._ridge = error, components, ridge * values[0]

    def _regressed(
        self, rows: Matrix, components: int | None = None, ridge: float | None = None
    ) -> Matrix:
        """(N r k)."""
        components = self._components if components is None else components
        ridge = self._ridge if ridge is None else ridge
        values = self._values[:components]
        scores = (rows - self._row_mean) @ self._directions[:, :components]
        flat = (scores * np.sqrt(values) / (values + ridge)) @ self._loads[:components]
        return self.mean + flat.reshape(len(rows), *self.mean.shape)


def _same_points(sample: Sample, other: Sample) -> bool:
    mine, theirs = sample.positions, other.positions
    return mine is theirs or (mine.shape == theirs.shape and bool(torch.equal(mine, theirs)))


def _reference_points(samples: Sequence[Sample]) -> Matrix:
    """Some points of the samples, drawn by a fixed seed."""
    random = np.random.default_rng(0)
    each = -(-REFERENCE_POINTS // len(samples))
    chosen = []
    for sample in samples:
        points = _numpy(sample.positions)
        chosen.append(points[random.choice(len(points), min(each, len(points)), replace=False)])
    return np.concatenate(chosen)[:REFERENCE_POINTS]


def _nearest(points: Matrix, among: Matrix) -> tuple[npt.NDArray[np.intp], Matrix]:
    """Of each point, the place of the nearest one among others, and its distance."""
    places, distances = neighbours(points, among, 1)
    return places[:, 0], distances[:, 0]


def _interpolated(values: Matrix, points: Matrix, at: Matrix, count: int = 4) -> Matrix:
    """Values at points, averaged by inverse squared distance at others."""
    places, distances = neighbours(at, points, min(count, len(points)))
    shares = 1 / np.maximum(distances, 1e-9 * float(distances.max()) or 1.0) ** 2
    shares /= shares.sum(1, keepdims=True)
    result: Matrix = np.einsum("nj,njk->nk", shares, values[places])
    return result


def neighbours(points: Matrix, among: Matrix, count: int) -> tuple[npt.NDArray[np.intp], Matrix]:
    """Of each point, the places of the nearest ones among others, and their distances."""
    origin = among.mean(0)
    others = torch.from_numpy(among - origin)
    places, distances = [], []
    for part in torch.from_numpy(points - origin).split(max(2**24 // len(among), 1)):
        near, where = torch.cdist(part, others).topk(count, dim=1, largest=False)
        places.append(where)
        distances.append(near)
    return torch.cat(places).numpy(), torch.cat(distances).numpy()


def _block_scales(raw: list[list[Matrix]]) -> tuple[list[Any], list[float]]:
    """Of each block, its mean over the samples and its deviation times the root of its length."""
    centres, scales = [], []
    for blocks in zip(*raw, strict=True):
        stacked = np.stack(blocks)
        centre = stacked.mean(0)
        spread = float(np.sqrt(np.square(stacked - centre).mean()))
        still = spread <= 1e-12 * float(np.abs(stacked).max())
        centres.append(centre)
        scales.append(1.0 if still else spread * np.sqrt(stacked.shape[1]))
    return centres, scales


def _nan_mean(outputs: Matrix) -> Matrix:
    """The mean over the samples of what is known; where nothing is, the mean of the channel."""
    known = ~np.isnan(outputs)
    total = np.where(known, outputs, 0).sum(0)
    count = known.sum(0)
    overall = total.sum(0) / np.maximum(count.sum(0), 1)
    return np.where(count > 0, total / np.maximum(count, 1), overall)


def _numpy(tensor: Tensor) -> Matrix:
    result: Matrix = tensor.detach().double().numpy()
    return result
