"""Bands of a run: within which distance of a prediction the truth lies, with a stated coverage.

They are calibrated by `funcattn.trust.calibrate` and kept with the run: the scores of samples that
no choice of the run has seen. Here they are read and put around predictions.

The band of a field at a point is prediction -+ factor * spread. The score of a calibration sample
is the largest |truth - prediction| / spread over its points, frames and channels, and the factor is
the k-th smallest of m scores, k = ceil((m + 1) coverage). A new sample from the same distribution
then lies inside the band *at all of its points together* with at least that probability, whatever
the network, and whatever the spread (split conformal prediction; Vovk et al. 2005, Lei et al.
2018). The spread only decides where the band is wide.

Axes: k network, b sample, n point, o channels and frames.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from funcattn.errors import FuncattnError
from funcattn.problem import Problem
from funcattn.training.checkpoint import restore_model, weights_digest
from funcattn.training.run import Run
from funcattn.training.setup import RunError, read_json

BANDS, SPREAD = "bands.json", "spread.safetensors"
SpreadKind = Literal["ensemble", "learned", "constant"]
_LEAST, _MOST = 0.1, 10.0
"""A learned spread lies between these multiples of the mean error."""
_NUMBERS = {...: [float]}
_SHAPE = {
    "coverage": float,
    "samples": int,
    "points": int,
    "source": str,
    "spread": str,
    "networks": int,
    "weights": str,
    "learned": str,
    "floors": {...: float},
    "worst": _NUMBERS,
    "worst_of_half": _NUMBERS,
    "errors": _NUMBERS,
    "quantities": _NUMBERS,
}


class TooFewSamplesError(FuncattnError, ValueError):
    """The coverage asked for needs more calibration samples."""


class Banded(NamedTuple):
    """A prediction with the ends of its band, all of one shape."""

    prediction: Any
    lower: Any
    upper: Any


def least_samples(coverage: float) -> int:
    """Calibration samples without which this coverage cannot be promised.

    >>> [least_samples(coverage) for coverage in (0.5, 0.8, 0.9, 0.95)]
    [1, 4, 9, 19]
    """
    return math.ceil(coverage / (1 - coverage) - 1e-9)


def conformal_quantile(scores: Sequence[float], coverage: float) -> float:
    """The k-th smallest of m scores, k = ceil((m + 1) coverage).

    Another score from the same distribution is at most that large with at least this probability.

    >>> conformal_quantile([1.0, 2.0, 3.0, 4.0], 0.8)
    4.0
    """
    if not 0 < coverage < 1:
        raise ValueError(
            f"coverage: expected a number between 0 and 1, such as 0.9, got {coverage}"
        )
    count = len(scores)
    rank = math.ceil((count + 1) * coverage - 1e-9)
    if rank > count:
        raise TooFewSamplesError(
            f"coverage {coverage:g}: expected at least {least_samples(coverage)} calibration "
            f"samples, got {count}, "
            f"which can promise at most {count / (count + 1):.3g}; calibrate with more samples, or "
            "ask for less"
        )
    return sorted(scores)[rank - 1]


def field_parts(problem: Problem, axes: Sequence[int]) -> dict[str, slice]:
    """Where in the last axis of a target (b n *axes) each output field stands, by name.

    >>> from funcattn.problem import Field
    >>> field_parts(Problem(2, (), (Field("velocity", 2), Field("pressure"))), (3,))
    {'velocity': slice(0, 2, None), 'pressure': slice(2, 3, None)}
    """
    if axes and axes[-1] == problem.output_channels:
        return problem.output_slices
    return {problem.outputs[0].name: slice(None)}  # frames of one channel, side by side


class SpreadNetwork(nn.Module):
    """A small network from what is known at a point to the size of the error there.

    It gets the position, the input values and the prediction, brought to mean 0 and deviation 1.
    """

    mean: Tensor
    deviation: Tensor
    scale: Tensor

    def __init__(self, features: int, outputs: int, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(features, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, outputs),
        )
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("deviation", torch.ones(features))
        self.register_buffer("scale", torch.ones(outputs))

    def forward(self, features: Float[Tensor, "*n f"]) -> Float[Tensor, "*n o"]:
        """The spread, positive."""
        scaled = ((features - self.mean) / self.deviation).clamp(-5, 5)
        size = self.layers(scaled).clamp(math.log(_LEAST), math.log(_MOST))
        return self.scale * size.exp()


@dataclass(frozen=True)
class Bands:
    """What calibration found, and what it makes of predictions."""

    coverage: float
    """Unless another one is asked for."""
    samples: int
    """Calibration samples that were scored."""
    points: int
    """Points of a calibration sample; their median."""
    source: str
    """Which samples these were, in words."""
    spread: SpreadKind
    networks: int
    """Networks of the run when it was calibrated."""
    weights: str
    """Fingerprint of the first network."""
    floors: Mapping[str, float]
    """The smallest spread of each field."""
    worst: Mapping[str, Sequence[float]]
    """By field, the score of each sample."""
    worst_of_half: Mapping[str, Sequence[float]]
    """The same over a random half of the points."""
    errors: Mapping[str, Sequence[float]]
    """Relative L2 error of each sample, of all fields together and of each."""
    quantities: Mapping[str, Sequence[float]]
    """By quantity of interest, the absolute error of each sample."""
    learned: str = ""
    """Fingerprint of a learned spread."""
    model: SpreadNetwork | None = field(default=None, repr=False)

    def factor(self, name: str, points: int, coverage: float | None = None) -> float:
        """How many spreads the band of a field reaches to either side, on so many points.

        With more points than in calibration the worst of them tends to be worse. How much is read
        off the calibration samples: what a doubling of their points, from a random half to all,
        adds to the quantile is added for each further doubling. That is an estimate, not a promise;
        with fewer points nothing is taken away.
        """
        wanted = self.coverage if coverage is None else coverage
        reached = conformal_quantile(self.worst[name], wanted)
        if points <= self.points:
            return reached
        growth = max(reached - conformal_quantile(self.worst_of_half[name], wanted), 0.0)
        return reached + growth * math.log2(points / self.points)

    def error_bound(self, name: str = "all", coverage: float | None = None) -> float:
        """The relative L2 error that a new sample stays below, of one field or of all together."""
        wanted = self.coverage if coverage is None else coverage
        return conformal_quantile(self.errors[name], wanted)

    def quantity_bound(self, name: str, coverage: float | None = None) -> float:
        """How far a quantity of interest of the truth is from that of the prediction, at most."""
        if name not in self.quantities:
            raise ValueError(
                f"quantity: expected one of {', '.join(self.quantities)}, got {name!r}; calibrate "
                "with it"
            )
        wanted = self.coverage if coverage is None else coverage
        return conformal_quantile(self.quantities[name], wanted)

    def spread_of(
        self,
        problem: Problem,
        predictions: Float[Tensor, "k b n *o"],
        positions: Float[Tensor, "b n s"],
        values: Float[Tensor, "b n i"] | None,
    ) -> Float[Tensor, "b n *o"]:
        """The spread at every point, from what each network of the run predicts there."""
        mean = predictions.mean(0)
        if self.model is not None:
            features = spread_features(mean, positions, values)
            return self.model(features).reshape(mean.shape)
        found = torch.zeros_like(mean)
        if self.spread == "ensemble":
            found = predictions.var(0, correction=0)
        for name, part in field_parts(problem, mean.shape[2:]).items():
            found[..., part] += self.floors[name] ** 2
        return found.sqrt()

    @torch.no_grad()
    def around(
        self,
        problem: Problem,
        predictions: Float[Tensor, "k b n *o"],
        positions: Float[Tensor, "b n s"],
        values: Float[Tensor, "b n i"] | None,
        *,
        points: int | None = None,
        coverage: float | None = None,
    ) -> Banded:
        """The mean of the networks' predictions, and its band.

        points: of the whole sample, where these are a part of it.
        """
        mean = predictions.mean(0)
        reach = self.spread_of(problem, predictions, positions, values)
        for name, part in field_parts(problem, mean.shape[2:]).items():
            reach[..., part] *= self.factor(name, points or positions.shape[1], coverage)
        return Banded(mean, mean - reach, mean + reach)

    def in_words(self) -> str:
        """One sentence on what they promise."""
        return (
            f"{100 * self.coverage:g} % of new samples like those of calibration lie inside the "
            f"band at all points; from {self.samples} samples: {self.source}"
        )


def spread_features(
    prediction: Float[Tensor, "b n *o"],
    positions: Float[Tensor, "b n s"],
    values: Float[Tensor, "b n i"] | None,
) -> Float[Tensor, "b n f"]:
    """What a learned spread is told of every point."""
    parts = [positions, prediction.flatten(2)]
    return torch.cat(parts if values is None else [*parts, values], dim=2).float()


def read_bands(run: Run) -> Bands | None:
    """The bands of a run, or None where it was not calibrated.

    Raises:
        RunError: they were changed, or are those of other weights.
    """
    if not (run.folder / BANDS).exists():
        return None
    document: dict[str, Any] = read_json(run.file(BANDS), _SHAPE)
    document = {name: document[name] for name in _SHAPE}
    if document["weights"] != weights_digest(run.network) or document["networks"] != len(
        run.networks
    ):
        raise RunError(
            f"{run.folder / BANDS}: expected bands of the networks of this run, got those of "
            f"others; calibrate again: funcattn calibrate {run.folder}"
        )
    if document["spread"] != "learned":
        return Bands(**document)
    try:
        tensors = load_file(run.file(SPREAD))
        features, outputs = len(tensors["mean"]), len(tensors["scale"])
        model = SpreadNetwork(features, outputs)
    except (OSError, SafetensorError, KeyError, TypeError) as error:
        raise RunError(
            f"{run.folder / SPREAD}: expected the spread of the bands, got {error}; calibrate again"
        ) from error
    restore_model(model, tensors)
    if weights_digest(model) != document["learned"]:
        raise RunError(
            f"{run.folder / SPREAD}: expected the spread that {BANDS} was made with, got another "
            f"one; calibrate again: funcattn calibrate {run.folder}"
        )
    return Bands(**document, model=model.eval())
