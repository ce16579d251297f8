"""How good predictions are, and whether they were asked for outside of what was seen."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from funcattn.arrays import Array
from funcattn.data import Sample
from funcattn.models import NormalisedNetwork
from funcattn.problem import Field, slices
from funcattn.tasks.fields import root_mean_square_error
from funcattn.tasks.own import OwnData

Pairs = Iterable[tuple[Tensor, Tensor]]
"""Truth and prediction of each case."""


def accuracy(pairs: Pairs) -> float:
    """The share of points with a known label whose largest score is the label's."""
    right, count = 0, 0
    for truth, scores in pairs:
        known = truth >= 0
        right += int((scores.argmax(-1) == truth)[known].sum())
        count += int(known.sum())
    return right / max(count, 1)


def r_squared(pairs: Pairs, fields: Sequence[Field]) -> float:
    """The coefficient of determination, the mean over the fields; NaN in the truth is left out."""
    parts = slices(fields)
    lost = dict.fromkeys(parts, 0.0)
    truths: dict[str, list[Array]] = {name: [] for name in parts}
    for truth, guess in pairs:
        for name, channels in parts.items():
            true, mine = (x[..., channels].double().numpy() for x in (truth, guess))
            lost[name] += float(np.nansum(np.square(mine - true)))
            truths[name].append(true.reshape(-1, true.shape[-1]))
    found = []
    for name, seen in truths.items():
        whole = np.concatenate(seen)
        spread = float(np.nansum(np.square(whole - np.nanmean(whole, 0))))
        found.append(1 - lost[name] / max(spread, np.finfo(float).tiny))
    return float(np.mean(found))


def errors_of(pairs: Iterable[tuple[Sample, Tensor]], fields: Sequence[Field]) -> dict[str, Array]:
    """The root mean square error of each field in its unit, one number per case."""
    found: dict[str, list[float]] = {each.name: [] for each in fields}
    for sample, guess in pairs:
        weights = None if sample.weights is None else sample.weights[None].double()
        for name, channels in slices(fields).items():
            error = root_mean_square_error(
                guess[None, ..., channels].double(),
                sample.target[None, ..., channels].double(),
                weights=weights,
            )
            found[name].append(float(error))
    return {name: np.array(values) for name, values in found.items()}


def outside(sample: Sample, own: OwnData, network: NormalisedNetwork) -> list[str]:
    """In which inputs a case leaves the range of training by more than a tenth, in words."""
    names = [f"position {axis + 1}" for axis in range(own.space)]
    if own.kind == "steps":
        names += ["frames before"] * (own.history * own.output_channels)
    for each in own.inputs:
        names += [each.name] * each.width
    columns = sample.positions
    if sample.values is not None:
        columns = torch.cat([columns, sample.values], dim=1)
    known = torch.cat([network.position_range, network.value_range], dim=1).cpu()
    origin = [*own.origin, *[0.0] * len(names)]
    found: dict[str, str] = {}
    for name, column, (low, high), by in zip(
        names, columns.T, known.T.tolist(), origin, strict=False
    ):
        slack = 0.1 * (high - low) + 1e-6 * max(abs(low), abs(high))
        lowest, highest = float(column.min()), float(column.max())
        if lowest < low - slack or highest > high + slack:
            now = f"{lowest + by:.4g}"
            if highest > lowest:
                now += f" to {highest + by:.4g}"
            before = f"{low + by:.4g} to {high + by:.4g}"
            found.setdefault(name, f"{name} is {now} and was {before} in training")
    return list(found.values())
