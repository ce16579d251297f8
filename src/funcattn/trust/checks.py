"""The checks of an audit: each tries to break a run in one way, and says whether it did.

A check is a function of what it examines that returns a `Check`: numbers, a verdict, and the
threshold behind it. It is "not applicable" where the run cannot be asked, with the reason.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from funcattn.bench.memory import peak_rise
from funcattn.data import Sample, collate, trapezoid_weights
from funcattn.tasks.own import rows_of_sample
from funcattn.trust.subject import Subject

Outcome = Literal["passes", "fails", "not applicable"]
THRESHOLDS: Mapping[str, float] = {
    "resolution, half": 3.0,
    "resolution, 2 x": 1.5,
    "resolution, 4 x": 2.0,
    "subset": 0.05,
    "order": 1e-4,
    "patch": 1e-3,
    "symmetry": 1.5,
    "tail": 3.0,
    "waves": 0.5,
    "noise": 5.0,
    "residual": 2.0,
    "cost": 1.3,
    "same": 1e-5,
}
_SHARE = 0.25
"""Of the period, how far samples are shifted."""
NOISE = 0.01
"""Deviation of the noise over that of the input."""


@dataclass(frozen=True)
class Check:
    """What a check found."""

    title: str
    asked: str
    """What was done and what has to hold, with the threshold."""
    outcome: Outcome
    said: str
    headings: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)
    """Curves to draw, with the names of the axes in `axes`."""
    axes: tuple[str, str] = ("", "")
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """For programs."""


@dataclass(frozen=True)
class Examined:
    """A run and the samples that it is examined with."""

    subject: Subject
    samples: Sequence[Sample]
    few: int = 4
    """Samples of checks that compare predictions with each other."""

    @cached_property
    def errors(self) -> Tensor:
        """Of every sample."""
        return self.subject.errors(self.samples)

    @property
    def base(self) -> float:
        """The mean error, with which others are compared."""
        return float(self.errors.mean())

    @cached_property
    def takes_clouds(self) -> bool:
        """Whether the network can be asked at points that form no grid."""
        sample = self.samples[0]
        try:
            self.subject.predicted(replace(sample, grid=None))
        except (ValueError, RuntimeError, TypeError, AssertionError):
            return False
        if sample.grid is None:
            return True
        # Stencils need the grid; a network that reads it differs without.
        return (
            _apart(
                self.subject.predicted(replace(sample, grid=None)), self.subject.predicted(sample)
            )
            < THRESHOLDS["order"]
        )


def outcome(passes: bool) -> Outcome:
    """In words."""
    return "passes" if passes else "fails"


def not_applicable(title: str, asked: str, why: str) -> Check:
    """A check that cannot be made."""
    return Check(title, asked, "not applicable", why)


def _apart(a: Tensor, b: Tensor) -> float:
    """||a - b|| / ||b||."""
    return float((a - b).double().norm() / b.double().norm().clamp(min=1e-300))


def resolution(examined: Examined) -> Check:
    """The error on coarser and finer grids of the same equation."""
    limits = {name: THRESHOLDS[f"resolution, {name}"] for name in ("half", "2 x", "4 x")}
    asked = (
        "Fresh samples of the solver on half, twice and four times as many points per axis. The "
        "error may grow by "
        + ", ".join(f"{limit:g} ({name})" for name, limit in limits.items())
        + "."
    )
    title, subject = "Other resolutions", examined.subject
    choices = _resolutions(subject)
    if not choices:
        return not_applicable(title, asked, "the data has one resolution only")
    rows, found, worst = [], {}, True
    points, errors = [], []
    for name, changes in choices.items():
        samples = subject.fresh(max(len(examined.samples) // 2, 2), **changes)
        error = float(subject.errors(samples).mean())
        found[name] = error
        base = found.get("as trained", examined.base)
        growth = error / base if base else math.inf
        if name in limits:
            worst = worst and growth <= limits[name]
        rows.append((name, f"{len(samples[0].positions):,}", f"{error:.4g}", f"{growth:.2f}"))
        points.append(float(len(samples[0].positions)))
        errors.append(error)
    order = sorted(zip(points, errors, strict=True))
    return Check(
        title,
        asked,
        outcome(worst),
        f"between {min(errors):.3g} and {max(errors):.3g}",
        ("grid", "points", "error", "over that as trained"),
        rows,
        {"error": ([p for p, _ in order], [e for _, e in order])},
        ("points", "error"),
        found,
    )


def _resolutions(subject: Subject) -> dict[str, dict[str, Any]]:
    """Settings of the data by name, the one of training first."""
    data: Any = subject.task.data
    if not subject.has_solver or not hasattr(data, "use_every") or not hasattr(data, "nodes"):
        return {}
    found: dict[str, dict[str, Any]] = {}
    for name, factor in (("as trained", 1.0), ("half", 2.0), ("2 x", 0.5), ("4 x", 0.25)):
        every = data.use_every * factor
        if every != int(every) or data.cells % int(every):
            continue
        changes: dict[str, Any] = {"use_every": int(every)}
        if hasattr(data, "store_every"):
            changes["store_every"] = int(every)
        found[name] = changes
    return found if len(found) > 1 else {}


def subsets(examined: Examined) -> Check:
    """Other orders of the points, and some of them only."""
    asked = (
        "The points in another order must give the same fields, up to "
        f"{THRESHOLDS['order']:g} of their size; a random half of them must give nearly what all "
        f"give there, up to {THRESHOLDS['subset']:g}."
    )
    title = "Order and subsets of the points"
    if not examined.takes_clouds:
        return not_applicable(title, asked, "the network reads a grid")
    random = torch.Generator().manual_seed(0)
    orders, halves = [], []
    for sample in examined.samples[: examined.few]:
        plain = replace(sample, grid=None)
        whole = examined.subject.predicted(plain)
        order = torch.randperm(len(whole), generator=random)
        half = order[: len(order) // 2]
        orders.append(
            _apart(examined.subject.predicted(rows_of_sample(plain, order)), whole[order])
        )
        halves.append(_apart(examined.subject.predicted(rows_of_sample(plain, half)), whole[half]))
    fine = max(orders) <= THRESHOLDS["order"] and max(halves) <= THRESHOLDS["subset"]
    rows = [
        ("another order", f"{max(orders):.2g}", f"{THRESHOLDS['order']:g}"),
        ("a random half", f"{max(halves):.2g}", f"{THRESHOLDS['subset']:g}"),
    ]
    return Check(
        title,
        asked,
        outcome(fine),
        f"at most {max(orders):.2g} and {max(halves):.2g} apart",
        ("points", "largest difference", "allowed"),
        rows,
        numbers={"order": max(orders), "half": max(halves)},
    )


def patches(examined: Examined) -> Check:
    """A part of the mesh refined, with and without weights."""
    limit = THRESHOLDS["patch"]
    asked = (
        "The points of a quarter of the domain are there four times. With quadrature weights, "
        f"which say so, the fields may change by {limit:g}; without them this shows how far a "
        "network leans on where the mesh is fine."
    )
    title = "A refined patch"
    if not examined.takes_clouds:
        return not_applicable(title, asked, "the network reads a grid")
    found: dict[str, list[float]] = {"with weights": [], "without": []}
    for sample in examined.samples[: examined.few]:
        count = len(sample.positions)
        low = sample.positions.amin(0)
        middle = (low + sample.positions.amax(0)) / 2
        patch = (sample.positions <= middle).all(1).nonzero().flatten()
        rows = torch.cat([torch.arange(count), *[patch] * 3])
        weights = torch.ones(count) if sample.weights is None else sample.weights
        shared = weights.clone()
        shared[patch] /= 4
        for name, each in (("with weights", shared[rows]), ("without", None)):
            plain = replace(sample, grid=None, weights=weights if each is not None else None)
            fine = replace(rows_of_sample(plain, rows), weights=each)
            try:
                a, b = examined.subject.predicted(fine)[:count], examined.subject.predicted(plain)
            except (ValueError, TypeError):
                continue
            found[name].append(_apart(a, b))
    if not found["with weights"]:
        return not_applicable(title, asked, "the network takes no weights")
    worst = {name: max(values) for name, values in found.items() if values}
    rows_ = [(name, f"{value:.2g}") for name, value in worst.items()]
    return Check(
        title,
        asked,
        outcome(worst["with weights"] <= limit),
        ", ".join(f"{value:.2g} {name}" for name, value in worst.items()),
        ("weights", "largest difference"),
        rows_,
        numbers=worst,
    )


def symmetries(examined: Examined) -> Check:
    """Mirrored and shifted samples, where the equation has the symmetry."""
    limit = THRESHOLDS["symmetry"]
    asked = (
        "Samples that a symmetry of the equation makes from others are as good. The mean error on "
        f"them may be {limit:g} times that on the others."
    )
    title, known = "Symmetries", examined.subject.task.symmetries
    if not known:
        return not_applicable(title, asked, "no symmetry of this task is known to the audit")
    rows, found = [("none", f"{examined.base:.4g}", "1.00")], {}
    for name, moved in known.items():
        error = float(examined.subject.errors([moved(s, _SHARE) for s in examined.samples]).mean())
        found[name] = error / examined.base
        rows.append((name, f"{error:.4g}", f"{found[name]:.2f}"))
    worst = max(found, key=lambda name: found[name])
    return Check(
        title,
        asked,
        outcome(found[worst] <= limit),
        f"worst when {worst}: {found[worst]:.2f} times the error",
        ("change", "error", "over that without"),
        rows,
        numbers=found,
    )


def tail(examined: Examined) -> Check:
    """The worst samples, not the mean."""
    limit = THRESHOLDS["tail"]
    asked = f"Of 20 samples the worst may have {limit:g} times the error of the one in the middle."
    errors = examined.errors.numpy()
    quantiles = {
        "mean": float(errors.mean()),
        "median": float(np.median(errors)),
        "90 %": float(np.quantile(errors, 0.9)),
        "95 %": float(np.quantile(errors, 0.95)),
        "maximum": float(errors.max()),
    }
    growth = quantiles["95 %"] / max(quantiles["median"], 1e-300)
    return Check(
        "The tail of the error",
        asked,
        outcome(growth <= limit),
        f"95 % is {growth:.2f} times the median, over {len(errors)} samples",
        ("of the error", "value"),
        [(name, f"{value:.4g}") for name, value in quantiles.items()],
        numbers=quantiles,
    )


def waves(examined: Examined) -> Check:
    """The error by wave number, on grids."""
    limit = THRESHOLDS["waves"]
    asked = (
        "The error of each octave of wave numbers over the size of the truth there, by cosine "
        "transforms (Fourier on periodic boxes). Octaves with more than a thousandth of the energy "
        f"must be known to {limit:g}."
    )
    title = "Wave numbers"
    if examined.samples[0].grid is None:
        return not_applicable(title, asked, "the points form no grid")
    periodic = examined.subject.task.problem.periodic
    lost: dict[int, float] = {}
    there: dict[int, float] = {}
    for sample in examined.samples:
        assert sample.grid is not None
        truth = sample.target.float().reshape(*sample.grid, -1).double().numpy()
        guess = examined.subject.predicted(sample).reshape(*sample.grid, -1).double().numpy()
        for store, what in ((lost, guess - truth), (there, truth)):
            for octave, energy in _octaves(what, periodic).items():
                store[octave] = store.get(octave, 0.0) + energy
    total = sum(there.values())
    rows, found, worst, edges, ratios = [], {}, 0.0, [], []
    for octave in sorted(there):
        share = there[octave] / total
        ratio = math.sqrt(lost[octave] / max(there[octave], 1e-300))
        name = "mean" if octave < 0 else f"{2**octave} to {2 ** (octave + 1)}"
        rows.append((name, f"{share:.2g}", f"{ratio:.3g}"))
        found[name] = ratio
        if octave >= 0:
            edges.append(float(2**octave))
            ratios.append(ratio)
        if share > 1e-3:
            worst = max(worst, ratio)
    return Check(
        title,
        asked,
        outcome(worst <= limit),
        f"at most {worst:.2g} where there is energy",
        ("wave number", "share of the energy", "relative error"),
        rows,
        {"relative error": (edges, ratios)},
        ("wave number", "relative error"),
        found,
    )


def _octaves(values: Any, periodic: bool) -> dict[int, float]:
    """Energy by octave of the wave number; -1: the mean. values (*grid k)."""
    from scipy import fft

    axes = tuple(range(values.ndim - 1))
    if periodic:
        energy = np.abs(np.fft.fftn(values, axes=axes, norm="ortho")) ** 2
        waves_ = [np.abs(np.fft.fftfreq(n, 1 / n)) for n in values.shape[:-1]]
    else:
        energy = fft.dctn(values, axes=axes, norm="ortho") ** 2
        waves_ = [np.arange(n) / 2 for n in values.shape[:-1]]
    size = np.sqrt(sum(np.square(w) for w in np.meshgrid(*waves_, indexing="ij")))
    octave = np.where(size < 0.5, -1, np.floor(np.log2(np.maximum(size, 1)))).astype(int)
    per_wave = energy.sum(-1)
    return {int(o): float(per_wave[octave == o].sum()) for o in np.unique(octave)}


def noise(examined: Examined) -> Check:
    """Noise in the input."""
    limit = THRESHOLDS["noise"]
    asked = (
        f"Normal noise of {100 * NOISE:g} % of the deviation of each input (of the extent, for "
        f"positions) may change the fields by {limit:g} times as much."
    )
    random = torch.Generator().manual_seed(0)
    found: dict[str, list[float]] = {}
    for sample in examined.samples[: examined.few]:
        plain = examined.subject.predicted(sample)
        spread = (plain - plain.mean(0)).double().norm().clamp(min=1e-300)
        names = ["positions"] if sample.values is None else ["values"]
        for name in names:
            given = getattr(sample, name)
            size = given.std(0) if name == "values" else given.amax(0) - given.amin(0)
            step = NOISE * (1.0 if name == "values" else 0.1)
            shaken = given + step * size * torch.randn(given.shape, generator=random)
            there = examined.subject.predicted(replace(sample, **{name: shaken}))
            change = float((there - plain).double().norm() / spread)
            found.setdefault(name, []).append(change / step)
    worst = {name: max(values) for name, values in found.items()}
    return Check(
        "Noise in the input",
        asked + (" Positions are shaken by a tenth of that." if "positions" in worst else ""),
        outcome(max(worst.values()) <= limit),
        ", ".join(f"{name}: enlarged {value:.2g} times" for name, value in worst.items()),
        ("input", "largest change over that of the input"),
        [(name, f"{value:.3g}") for name, value in worst.items()],
        numbers=worst,
    )


def residual(examined: Examined) -> Check:
    """The residual of the equation, beside that of the truth on the same grid."""
    limit = THRESHOLDS["residual"]
    asked = (
        "What the prediction leaves of -div(a grad u) = 1, by the finite differences of the solver "
        f"on the grid of the sample, may be {limit:g} times what the truth leaves, which is not 0 "
        "on a coarse grid."
    )
    title = "Residual of the equation"
    if examined.subject.task.name != "darcy":
        return not_applicable(
            title,
            asked,
            "the outputs of this task do not determine a residual, or no solver is here",
        )
    ratios = []
    for sample in examined.samples[: examined.few]:
        assert sample.grid is not None
        assert sample.values is not None
        a, truth, guess = (
            x.double().numpy().reshape(sample.grid)
            for x in (sample.values, sample.target, examined.subject.predicted(sample))
        )
        ratios.append(darcy_residual(a, guess) / darcy_residual(a, truth))
    worst = max(ratios)
    return Check(
        title,
        asked,
        outcome(worst <= limit),
        f"at most {worst:.2f} times that of the truth",
        numbers={"over that of the truth": worst},
    )


def darcy_residual(a: Any, u: Any) -> float:
    """The root mean square of div(a grad u) + 1 at inner nodes, by the scheme of the solver."""
    step = 1 / (len(u) - 1)
    flux_x = (a[1:] + a[:-1]) / 2 * np.diff(u, axis=0) / step
    flux_y = (a[:, 1:] + a[:, :-1]) / 2 * np.diff(u, axis=1) / step
    left = np.diff(flux_x, axis=0)[:, 1:-1] / step + np.diff(flux_y, axis=1)[1:-1] / step + 1
    return float(np.sqrt(np.mean(np.square(left))))


def cost(examined: Examined, sizes: Sequence[int] = (1, 4, 16)) -> Check:
    """Time and memory over the number of points."""
    limit = THRESHOLDS["cost"]
    asked = f"The CPU time of a prediction may grow like the number of points to the {limit:g}."
    sample = examined.samples[0]
    rows, points, seconds, numbers = [], [], [], {}
    for factor in sizes:
        larger = _enlarged(sample, factor, cloud=examined.takes_clouds)
        batch = collate([larger])
        call = partial(examined.subject.predictions, batch)
        times = []
        for _ in range(4):
            start = time.process_time()
            call()
            times.append(time.process_time() - start)
        rise = peak_rise(call) / 2**20
        count = len(larger.positions)
        points.append(float(count))
        seconds.append(min(times[1:]))
        rows.append((f"{count:,}", f"{1e3 * seconds[-1]:.3g}", f"{rise:.3g}"))
        numbers[str(count)] = {"milliseconds": 1e3 * seconds[-1], "megabytes": rise}
    slope = math.log(seconds[-1] / seconds[-2]) / math.log(points[-1] / points[-2])
    return Check(
        "Time and memory over the points",
        asked,
        outcome(slope <= limit),
        f"the last step grows like the points to the {slope:.2f}",
        ("points", "CPU milliseconds", "peak memory above the start, MB"),
        rows,
        {"CPU milliseconds": (points, [1e3 * s for s in seconds])},
        ("points", "CPU milliseconds"),
        {"exponent": slope, **numbers},
    )


def _enlarged(sample: Sample, factor: int, *, cloud: bool) -> Sample:
    """So many times the points, of a grid and of a cloud; only their number matters."""
    if cloud or sample.grid is None:
        many = torch.arange(len(sample.positions)).repeat(factor)
        return rows_of_sample(sample, many)
    axes = len(sample.grid)
    times = round(factor ** (1 / axes))
    grid = tuple(length * times for length in sample.grid)
    places = torch.arange(len(sample.positions)).reshape(sample.grid)
    for axis in range(axes):
        places = places.repeat_interleave(times, axis)
    larger = replace(rows_of_sample(sample, places.flatten()), grid=grid)
    if sample.weights is not None:
        larger = replace(larger, weights=trapezoid_weights(grid, periodic=False).float())
    return larger


def determinism(examined: Examined) -> Check:
    """The same again, and alone as in a batch."""
    limit = THRESHOLDS["same"]
    asked = (
        "A second call must give the same bits, and a sample in a batch what it gives alone, up "
        f"to {limit:g}."
    )
    samples = list(examined.samples[: examined.few])
    first, second = (examined.subject.predicted(samples[0]) for _ in range(2))
    again = bool(torch.equal(first, second))
    batch = examined.subject.predictions(collate(samples)).mean(0)
    apart = max(
        _apart(batch[b, : len(s.positions)], examined.subject.predicted(s))
        for b, s in enumerate(samples)
    )
    return Check(
        "Determinism",
        asked,
        outcome(again and apart <= limit),
        f"{'the same bits' if again else 'OTHER BITS'}; in a batch {apart:.2g} apart",
        numbers={"same bits": again, "batch": apart},
    )
