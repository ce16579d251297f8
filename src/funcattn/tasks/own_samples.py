"""From people's cases to samples, as the settings of their task say, and the split of the cases."""

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from typing import overload

import numpy as np
import torch
from torch import Tensor

from funcattn.arrays import Array
from funcattn.data import Sample
from funcattn.data.cases import Case, grid_weights
from funcattn.data.cases.case import unknown
from funcattn.registry import did_you_mean
from funcattn.tasks.base import Splits
from funcattn.tasks.own import Given, OwnData
from funcattn.tasks.splitting import CALIBRATION, PARTS, split_cases

KEPT_BYTES = 2 * 2**30
"""Samples are kept in memory up to this size; more are made again at every visit."""


def where(case: Case) -> str:
    """Where a case is, for messages."""
    return str(case.source or case.name)


def sample_of(case: Case, data: OwnData, *, target: bool = True) -> Sample:
    """A case as the network gets it; without target, NaN in its place."""
    if case.positions.shape[1] != data.space:
        raise ValueError(
            f"{where(case)}: expected positions in {data.space} dimensions, as in training, got "
            f"{case.positions.shape[1]}"
        )
    if data.grid and case.grid is None:
        raise ValueError(
            f"{where(case)}: expected points on a grid, as in training, got a cloud of points"
        )
    columns = [_input(case, given) for given in data.inputs]
    truth = _target(case, data) if target else _nothing(case, data)
    if data.kind == "steps":
        columns.insert(0, _history(case, data))
        truth = truth[:, data.history :] if target else truth
    values = torch.cat(columns, dim=1) if columns else None
    times = None
    if data.kind == "times":
        if case.times is None:
            raise ValueError(
                f"{where(case)}: expected the times at which the fields are wanted, got none"
            )
        low, high = data.time_range
        times = _tensor((case.times - low) / ((high - low) or 1.0))
    return Sample(
        positions=_tensor(case.positions - np.asarray(data.origin)),
        values=values,
        target=truth,
        grid=case.grid,
        weights=_weights(case, data),
        times=times,
    )


def _input(case: Case, given: Given) -> Tensor:
    """One input as columns, (n width)."""
    if given.name not in case.names:
        what = "a number per case" if given.kind == "parameter" else "on its points"
        raise ValueError(
            f"{where(case)}: expected {given.name}, {what}, as in training, got "
            f"{', '.join(case.names) or 'nothing'}{did_you_mean(given.name, case.names)}"
            + (
                f"; give it by a table of parameters, or by --set {given.name}=..."
                if given.kind == "parameter"
                else ""
            )
        )
    if given.kind == "parameter":
        if given.name not in case.parameters:
            raise ValueError(
                f"{where(case)}: expected one number for {given.name}, got a field on the points"
            )
        return torch.full((len(case), 1), float(case.parameters[given.name]))
    if given.labels:
        if given.name not in case.categories:
            raise ValueError(
                f"{where(case)}: expected whole numbers in {given.name}, as in training, got a "
                "field of fractions"
            )
        labels = np.array([int(label) for label in given.labels])
        one_hot = case.categories[given.name][:, None] == labels
        if not one_hot.any(1).all():
            other = sorted(set(case.categories[given.name].tolist()) - set(labels.tolist()))
            raise ValueError(
                f"{where(case)}: expected {given.name} among {', '.join(given.labels)}, which "
                f"training had, got {other[:5]}"
            )
        return _tensor(one_hot)
    if given.name not in case.fields:
        raise ValueError(
            f"{where(case)}: expected a field {given.name} on the points, as in training, got "
            f"{'a number per case' if given.name in case.parameters else 'whole numbers'}"
        )
    values = _channels(case, given.name, given.channels)
    if case.times is not None:
        values = values[:, 0]  # what is given in a series is its first frame
    known = ~np.isnan(values)
    if not np.isfinite(values[known]).all() or not (known.all() or given.partial):
        raise ValueError(
            f"{where(case)}: expected finite numbers in {given.name}, got "
            f"{int((~np.isfinite(values)).sum())} that are not"
        )
    columns = _tensor(np.where(known, values, 0.0))
    if given.partial:
        columns = torch.cat([columns, _tensor(np.asarray(known.all(1, keepdims=True)))], dim=1)
    return columns


def _history(case: Case, data: OwnData) -> Tensor:
    """The frames before those to predict, oldest first, (n h*o)."""
    frames = [_channels(case, each.name, each.channels) for each in data.outputs]
    if case.times is None:
        frames = [frame[:, None] for frame in frames]
    before = np.concatenate(frames, axis=2)[:, : data.history]
    if before.shape[1] < data.history or np.isnan(before).any():
        raise ValueError(
            f"{where(case)}: expected {data.history} whole frames to start from, got "
            f"{before.shape[1]}{' with missing values' if np.isnan(before).any() else ''}"
        )
    return _tensor(before).flatten(1)


def _target(case: Case, data: OwnData) -> Tensor:
    """(n o), (n t o), or labels (n)."""
    for each in data.outputs:
        if each.name not in case.names:
            raise ValueError(f"{where(case)}: {unknown(each.name, case.names)}")
    if data.classes:
        numbers = case.categories[data.outputs[0].name]
        places = {int(label): place for place, label in enumerate(data.classes)}
        return torch.tensor([places.get(number, -1) for number in numbers.tolist()])
    fields = [_channels(case, each.name, each.channels) for each in data.outputs]
    return _tensor(np.concatenate(fields, axis=-1))


def _nothing(case: Case, data: OwnData) -> Tensor:
    if data.classes:
        return torch.full((len(case),), -1)
    if data.kind == "times" and case.times is not None:
        return torch.full((len(case), len(case.times), data.output_channels), torch.nan)
    frames = () if data.kind == "steady" else (data.frames,)
    return torch.full((len(case), *frames, data.output_channels), torch.nan)


def _channels(case: Case, name: str, channels: int) -> Array:
    """A field with its channel axis: (n c), or (n t c) in a series."""
    values = case.fields[name]
    axes = 1 if case.times is None else 2
    values = values[..., None] if values.ndim == axes else values
    if values.shape[-1] != channels:
        raise ValueError(
            f"{where(case)}: expected {channels} channels in {name}, as in training, got "
            f"{values.shape[-1]}"
        )
    return values


def _weights(case: Case, data: OwnData) -> Tensor | None:
    """The quadrature weights that the run was trained with, of mean 1."""
    if data.weights == "none":
        return None
    weights = case.weights
    if data.weights == "grid" and case.grid is not None:
        weights = grid_weights(case.positions, case.grid)
    if weights is None:
        raise ValueError(
            f"{where(case)}: expected quadrature weights, as the run was trained with them, got "
            "points without cells; give a mesh, or the weights of its points"
        )
    if not (weights >= 0).all() or not 0 < weights.sum() < np.inf:
        raise ValueError(
            f"{where(case)}: expected weights above 0, got {weights.min():g} to "
            f"{weights.max():g}; repair the cells, or fit without weights"
        )
    return _tensor(weights / weights.mean())


def _tensor(values: Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


class CaseSamples(Sequence[Sample]):
    """The samples of some cases, made when they are asked for and kept while there is room."""

    def __init__(self, cases: Sequence[Case], places: Sequence[int], data: OwnData) -> None:
        self.cases, self.places, self.data = cases, list(places), data
        self._kept: dict[int, Sample] = {}
        self._room = KEPT_BYTES

    def __len__(self) -> int:
        return len(self.places)

    def case(self, index: int) -> Case:
        """The case of a sample."""
        return self.cases[self.places[index]]

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...
    def __getitem__(self, index: int | slice) -> Sample | list[Sample]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index not in self._kept:
            sample = sample_of(self.case(index), self.data)
            size = sum(t.nbytes for t in vars(sample).values() if isinstance(t, Tensor))
            if size > self._room:
                return sample
            self._room -= size
            self._kept[index] = sample
        return self._kept[index]


def split_of(
    cases: Sequence[Case],
    data: OwnData,
    words: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, list[int]]:
    """Which cases belong to which part, by the settings.

    words: columns of a table of parameters that are no numbers, by name, one word per case.
    """
    names = [case.name for case in cases]

    def column(name: str) -> Sequence[Hashable]:
        if words and name in words:
            return words[name]
        for case in cases:
            if name not in case.parameters:
                raise ValueError(f"{where(case)}: {unknown(name, list(case.parameters))}")
        return [case.parameters[name] for case in cases]

    return split_cases(
        names,
        validation=data.validation or data.validation_share,
        test=data.test or data.test_share,
        calibration=data.calibration or data.calibration_share,
        seed=data.seed,
        groups=column(data.group_by) if data.group_by else None,
        parts=[str(part) for part in column(data.part_by)] if data.part_by else None,
    )


def splits_of(cases: Sequence[Case], data: OwnData, places: Mapping[str, Sequence[int]]) -> Splits:
    """The samples of the parts, with a fingerprint of names, parts and numbers."""
    parts = {part: CaseSamples(cases, places.get(part, ()), data) for part in (*PARTS, CALIBRATION)}
    content = hashlib.sha256()
    for part, samples in parts.items():
        for place, sample in zip(samples.places, samples, strict=True):
            content.update(f"{part} {cases[place].name}".encode())
            for tensor in (sample.positions, sample.values, sample.target, sample.weights):
                if tensor is not None:
                    content.update(tensor.contiguous().numpy().tobytes())
    return Splits(
        train=parts["train"],
        validation=parts["validation"],
        test=parts["test"],
        fingerprint=content.hexdigest(),
        calibration=parts[CALIBRATION],
    )
