"""Calibrating the bands of a run; see `funcattn.serve.bands` for what they promise."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median

import torch
from safetensors.torch import save_file
from torch import Tensor

from funcattn.data import Sample, collate
from funcattn.provenance import facts
from funcattn.serve.bands import (
    BANDS,
    SPREAD,
    Bands,
    SpreadKind,
    SpreadNetwork,
    conformal_quantile,
    field_parts,
    spread_features,
)
from funcattn.training.checkpoint import weights_digest
from funcattn.training.signed import signed_file, write_signed
from funcattn.trust.familiar import learn_familiarity
from funcattn.trust.subject import Subject

Quantity = Callable[[Tensor, Sample], float]
"""A number of interest from a field (n *o), all its channels, and the sample it belongs to."""
LEARNED = 40
"""With fewer calibration samples than these, the spread is a constant."""
_FITTED = 1 / 3
"""Share of the calibration samples that a learned spread is fitted to, and that are not scored."""
_POINTS = 30_000
"""Points that it is fitted to."""
_STEPS = 400
_FLOOR = 0.1
"""The smallest spread of an ensemble, over its mean spread on training samples."""


@dataclass(frozen=True)
class Scored:
    """What one calibration sample says."""

    points: int
    worst: Mapping[str, float]
    worst_of_half: Mapping[str, float]
    errors: Mapping[str, float]
    quantities: Mapping[str, float]


def calibrate(
    subject: Subject,
    *,
    coverage: float = 0.9,
    count: int = 100,
    samples: Sequence[Sample] | None = None,
    source: str = "given by the caller",
    spread: SpreadKind | None = None,
    quantities: Mapping[str, Quantity] | None = None,
    command: str = "",
) -> Bands:
    """Score held-out samples, and keep the bands with the run.

    Where the training samples are at hand, what they look like is kept too: see `familiar`.

    count: fresh samples to make, where a solver makes them.
    samples: those to use instead, which no choice of the run has seen.
    spread: where the band is wide: as far apart as the networks of an ensemble are, as a small
        network learns from a third of the samples, or the same everywhere. None: the first of
        these that the run and the number of samples allow.
    quantities: numbers of interest besides the extremes and the mean of each field, and lift and
        drag where the task has them.

    Raises:
        TooFewSamplesError: the coverage needs more samples.
    """
    if subject.labels:
        raise ValueError(
            "bands: expected a run that predicts fields, got one that classifies points, whose "
            "scores have no band"
        )
    if subject.known:
        _ = subject.splits  # some tasks take scales of their metrics from there
    if samples is None:
        samples, source = calibration_samples(subject, count)
    kind = spread or _kind(subject, len(samples))
    fitted = round(_FITTED * len(samples)) if kind == "learned" else 0
    if kind == "ensemble" and len(subject.networks) < 2:
        raise ValueError("spread: expected an ensemble, got one network; train with --ensemble 4")
    # Refused before anything is computed.
    conformal_quantile([0.0] * (len(samples) - fitted), coverage)
    network = None
    if kind == "learned":
        network = fit_spread(subject, [samples[i] for i in range(fitted)])
    bands = Bands(
        coverage=coverage,
        samples=len(samples) - fitted,
        points=0,
        source=source + (f"; {fitted} more taught the spread" if fitted else ""),
        spread=kind,
        networks=len(subject.networks),
        weights=weights_digest(subject.run.network),
        floors=_floors(subject, kind, samples),
        worst={},
        worst_of_half={},
        errors={},
        quantities={},
        learned="" if network is None else weights_digest(network),
        model=network,
    )
    scored = list(
        scores(subject, bands, [samples[i] for i in range(fitted, len(samples))], quantities)
    )

    def column(name: str) -> dict[str, list[float]]:
        keys = getattr(scored[0], name)
        return {key: [getattr(each, name)[key] for each in scored] for key in keys}

    bands = replace(
        bands,
        points=int(median(each.points for each in scored)),
        worst=column("worst"),
        worst_of_half=column("worst_of_half"),
        errors=column("errors"),
        quantities=column("quantities"),
    )
    _write(subject, bands, command)
    if subject.known:
        learn_familiarity(subject)
    return bands


def calibration_samples(subject: Subject, count: int) -> tuple[Sequence[Sample], str]:
    """Samples for calibration, and in words which ones they are.

    The best there are: fresh ones of the solver; else those that a fit has put aside; else those
    of validation, which did choose the epoch.
    """
    if subject.has_solver:
        return subject.fresh(count), f"{count} fresh ones of the solver, seen by nothing before"
    aside = subject.splits.calibration
    if len(aside):
        return aside, f"{len(aside)} that the fit put aside, seen by nothing before"
    held = subject.splits.validation
    return held, (
        f"{len(held)} of validation, which also chose the epoch, so that the promise is not exact; "
        "fit with --bands, or calibrate with --cases, to have some of their own"
    )


def scores(
    subject: Subject,
    bands: Bands,
    samples: Sequence[Sample],
    quantities: Mapping[str, Quantity] | None = None,
) -> Iterator[Scored]:
    """The scores of samples, one by one."""
    asked = {**field_quantities(subject), **(quantities or {})}
    for place, sample in enumerate(samples):
        batch = collate([sample])
        predictions = subject.predictions(batch)
        mean, truth = predictions.mean(0)[0], sample.target.float()
        with torch.no_grad():
            spread = bands.spread_of(
                subject.task.problem, predictions, batch.positions, batch.values
            )
        ratio = ((truth - mean).abs() / spread[0]).nan_to_num(nan=0.0)  # unknown truth: no error
        random = torch.Generator().manual_seed(place)
        half = torch.randperm(len(mean), generator=random)[: max(len(mean) // 2, 1)]
        parts = field_parts(subject.task.problem, truth.shape[1:])
        yield Scored(
            points=len(mean),
            worst={name: float(ratio[..., part].max()) for name, part in parts.items()},
            worst_of_half={
                name: float(ratio[half][..., part].max()) for name, part in parts.items()
            },
            errors={
                "all": _relative(mean, truth),
                **{
                    name: _relative(mean[..., part], truth[..., part])
                    for name, part in parts.items()
                    if len(parts) > 1
                },
            },
            quantities={
                **{name: abs(of(truth, sample) - of(mean, sample)) for name, of in asked.items()},
                **_forces(subject, mean, sample),
            },
        )


def field_quantities(subject: Subject) -> dict[str, Quantity]:
    """The maximum, the minimum and the mean of each output field, by name."""
    parts = field_parts(subject.task.problem, subject.task.target_axes)

    def of(part: slice, reduce: Callable[[Tensor, Sample], Tensor]) -> Quantity:
        return lambda field, sample: float(reduce(field[..., part].double(), sample))

    found: dict[str, Quantity] = {}
    for name, part in parts.items():
        found[f"maximum of {name}"] = of(part, lambda f, _: f.nan_to_num(nan=-torch.inf).max())
        found[f"minimum of {name}"] = of(part, lambda f, _: f.nan_to_num(nan=torch.inf).min())
        found[f"mean of {name}"] = of(part, _mean)
    return found


def _mean(field: Tensor, sample: Sample) -> Tensor:
    """Over the points, by their quadrature weights where they have some."""
    weights = torch.ones(len(field)) if sample.weights is None else sample.weights
    weights = weights.double().reshape(-1, *(1,) * (field.ndim - 1)).expand_as(field)
    known = ~field.isnan()
    return (weights * field)[known].sum() / weights[known].sum()


def _forces(subject: Subject, prediction: Tensor, sample: Sample) -> dict[str, float]:
    """Errors of what the task itself measures in predictions and in the truth: lift and drag."""
    if sample.surface is None:
        return {}
    found = subject.task.metrics(prediction[None], collate([sample]))
    return {
        name: float((found[name] - found[f"true_{name}"]).abs())
        for name in found
        if f"true_{name}" in found
    }


def _relative(prediction: Tensor, truth: Tensor) -> float:
    known = ~truth.isnan()
    lost, size = ((x[known]).double().norm() for x in (prediction - truth, truth))
    return float(lost / size) if size > 0 else float(lost)


def _kind(subject: Subject, count: int) -> SpreadKind:
    if len(subject.networks) > 1:
        return "ensemble"
    return "learned" if count >= LEARNED else "constant"


def _floors(
    subject: Subject, kind: SpreadKind, samples: Sequence[Sample], most: int = 8
) -> dict[str, float]:
    """The smallest spread of each field, from training samples, which are not scored.

    Where these are not at hand, from the inputs of some that are: no truth enters.
    """
    parts = field_parts(subject.task.problem, subject.task.target_axes)
    if kind != "ensemble":
        return dict.fromkeys(parts, 1.0)
    train = subject.splits.train if subject.known else samples
    variances: dict[str, list[float]] = {name: [] for name in parts}
    for place in range(min(most, len(train))):
        variance = subject.predictions(collate([train[place]])).var(0, correction=0)
        for name, part in parts.items():
            variances[name].append(float(variance[..., part].mean()))
    tiny = torch.finfo(torch.float32).tiny
    return {
        name: max(_FLOOR * (sum(found) / len(found)) ** 0.5, tiny)
        for name, found in variances.items()
    }


def fit_spread(subject: Subject, samples: Sequence[Sample]) -> SpreadNetwork:
    """A network of the error's size at a point, fitted to samples that are not scored.

    It maximises the likelihood of the absolute errors under Laplace's distribution.
    """
    features, residuals = [], []
    random = torch.Generator().manual_seed(0)
    for sample in samples:
        batch = collate([sample])
        mean = subject.predictions(batch).mean(0)
        rows = torch.randperm(len(sample.positions), generator=random)
        rows = rows[: max(_POINTS // len(samples), 1)]
        known = spread_features(mean, batch.positions, batch.values)[0]
        features.append(known[rows])
        residuals.append((mean[0] - sample.target.float()).abs().flatten(1)[rows])
    x, r = torch.cat(features), torch.cat(residuals)
    outputs = r.shape[1]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        network = SpreadNetwork(x.shape[1], outputs)
    tiny = torch.finfo(torch.float32).tiny
    network.mean.copy_(x.mean(0))
    network.deviation.copy_(x.std(0, correction=0).clamp(min=tiny))
    network.deviation[network.deviation <= 1e-6 * network.mean.abs()] = 1.0
    network.scale.copy_(r.nanmean(0).clamp(min=tiny))
    known = ~r.isnan()
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, _STEPS)
    for _ in range(_STEPS):
        rows = torch.randint(len(x), (min(2048, len(x)),), generator=random)
        spread, some = network(x[rows]), known[rows]
        ratio = torch.where(some, r[rows].nan_to_num() / spread, 0.0)
        loss = (torch.where(some, spread.log(), 0.0) + ratio).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return network.eval().requires_grad_(False)


def _write(subject: Subject, bands: Bands, command: str) -> None:
    """Beside the weights, in the signed list; a spread without its scores is refused when read."""
    folder = subject.run.folder
    if bands.model is not None:
        tensors = dict(bands.model.named_parameters()) | dict(bands.model.named_buffers())
        with signed_file(folder / SPREAD) as aside:
            save_file({n: t.detach().contiguous() for n, t in tensors.items()}, aside)
    document = asdict(replace(bands, model=None))
    del document["model"]
    document |= {"command": command, **facts()}
    write_signed(folder / BANDS, json.dumps(document, indent=1) + "\n")
