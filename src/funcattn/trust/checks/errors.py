"""Checks of the error: its tail, by wave number, after symmetries, and with noise in the input."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from funcattn.trust.checks.check import THRESHOLDS, Examined, Found, NotApplicableError, check

SHARE = 0.25
"""Of the period, how far samples are shifted."""
NOISE = {"values": 0.01, "positions": 0.001}
"""Deviation of the noise over that of an input, and over the extent of the points."""


@check(
    "The tail of the error",
    f"Of 20 samples the worst may have {THRESHOLDS['tail']:g} times the error of the one in the "
    "middle.",
)
def tail(examined: Examined) -> Found:
    """The worst samples, not the mean."""
    errors = examined.errors.numpy()
    quantiles = {
        "mean": float(errors.mean()),
        "median": float(np.median(errors)),
        "90 %": float(np.quantile(errors, 0.9)),
        "95 %": float(np.quantile(errors, 0.95)),
        "maximum": float(errors.max()),
    }
    growth = quantiles["95 %"] / max(quantiles["median"], 1e-300)
    return Found(
        growth <= THRESHOLDS["tail"],
        f"the 95 % quantile is {growth:.2f} times the median, over {len(errors)} samples",
        ("of the error", "value"),
        [(name, f"{value:.4g}") for name, value in quantiles.items()],
        values=errors.tolist(),
        numbers=quantiles,
    )


@check(
    "Symmetries",
    "Samples that a symmetry of the equation makes from others are as good. The mean error on them "
    f"may be {THRESHOLDS['symmetry']:g} times that on the others.",
)
def symmetries(examined: Examined) -> Found:
    """Mirrored and shifted samples, where the equation has the symmetry."""
    known = examined.subject.task.symmetries
    if not known:
        raise NotApplicableError("no symmetry of this task is known to the audit")
    rows, found = [("none", f"{examined.base:.4g}", "1.00")], {}
    for name, moved in known.items():
        error = float(examined.subject.errors([moved(s, SHARE) for s in examined.samples]).mean())
        found[name] = error / examined.base
        rows.append((name, f"{error:.4g}", f"{found[name]:.2f}"))
    worst = max(found, key=lambda name: found[name])
    return Found(
        found[worst] <= THRESHOLDS["symmetry"],
        f"worst when {worst}: {found[worst]:.2f} times the error",
        ("change", "error", "over that without"),
        rows,
        numbers=found,
    )


@check(
    "Wave numbers",
    "The error of each octave of wave numbers over the size of the truth there, by cosine "
    "transforms (Fourier on periodic boxes). Octaves with more than a thousandth of the energy "
    f"must be known to {THRESHOLDS['waves']:g}.",
)
def waves(examined: Examined) -> Found:
    """The error by wave number, on grids."""
    if examined.samples[0].grid is None:
        raise NotApplicableError("the points form no grid")
    periodic = examined.subject.task.problem.periodic
    lost: dict[int, float] = {}
    there: dict[int, float] = {}
    for sample in examined.samples:
        assert sample.grid is not None
        truth = sample.target.float().reshape(*sample.grid, -1).double().numpy()
        guess = examined.subject.predicted(sample).reshape(*sample.grid, -1).double().numpy()
        for store, what in ((lost, guess - truth), (there, truth)):
            for octave, energy in octaves(what, periodic).items():
                store[octave] = store.get(octave, 0.0) + energy
    total = sum(there.values())
    ratios = {o: math.sqrt(lost[o] / max(there[o], 1e-300)) for o in sorted(there)}
    names = {o: "mean" if o < 0 else f"{2**o} to {2 ** (o + 1)}" for o in ratios}
    worst = max(ratio for o, ratio in ratios.items() if there[o] > 1e-3 * total)
    shown = {float(2**o): ratio for o, ratio in ratios.items() if o >= 0}
    return Found(
        worst <= THRESHOLDS["waves"],
        f"at most {worst:.2g} where there is energy",
        ("wave number", "share of the energy", "relative error"),
        [(names[o], f"{there[o] / total:.2g}", f"{ratio:.3g}") for o, ratio in ratios.items()],
        {"relative error": (list(shown), list(shown.values()))},
        ("wave number", "relative error"),
        numbers={names[o]: ratio for o, ratio in ratios.items()},
    )


def octaves(values: Any, periodic: bool) -> dict[int, float]:
    """Energy by octave of the wave number; -1: the mean. values (*grid k)."""
    from scipy import fft

    axes = tuple(range(values.ndim - 1))
    if periodic:
        energy = np.abs(np.fft.fftn(values, axes=axes, norm="ortho")) ** 2
        numbers = [np.abs(np.fft.fftfreq(n, 1 / n)) for n in values.shape[:-1]]
    else:
        energy = fft.dctn(values, axes=axes, norm="ortho") ** 2
        numbers = [np.arange(n) / 2 for n in values.shape[:-1]]
    size = np.sqrt(sum(np.square(w) for w in np.meshgrid(*numbers, indexing="ij")))
    octave = np.where(size < 0.5, -1, np.floor(np.log2(np.maximum(size, 1)))).astype(int)
    per_wave = energy.sum(-1)
    return {int(o): float(per_wave[octave == o].sum()) for o in np.unique(octave)}


@check(
    "Noise in the input",
    f"Normal noise of {100 * NOISE['values']:g} % of the deviation of the inputs (where positions "
    f"are the only input, of {100 * NOISE['positions']:g} % of their extent) may change the fields "
    f"by {THRESHOLDS['noise']:g} times as much, of their own deviation.",
)
def noise(examined: Examined) -> Found:
    """Noise in the input."""
    random = torch.Generator().manual_seed(0)
    changes = []
    for sample in examined.samples[: examined.few]:
        name = "positions" if sample.values is None else "values"
        plain, given = examined.subject.predicted(sample), getattr(sample, name)
        size = given.std(0) if name == "values" else given.amax(0) - given.amin(0)
        shaken = given + NOISE[name] * size * torch.randn(given.shape, generator=random)
        there = examined.subject.predicted(replace(sample, **{name: shaken}))
        spread = (plain - plain.mean(0)).double().norm().clamp(min=1e-300)
        changes.append(float((there - plain).double().norm() / spread) / NOISE[name])
    return Found(
        max(changes) <= THRESHOLDS["noise"],
        f"noise in the {name} is enlarged {max(changes):.2g} times at most",
        ("input", "largest change over that of the input"),
        [(name, f"{max(changes):.3g}")],
        numbers={name: max(changes)},
    )
