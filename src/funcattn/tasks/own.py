"""The task made from people's own data: cases in, named fields out.

Everything that prediction needs (names, channels, units and kinds of the fields, how weights are
made) is part of the settings, so that a run loads and predicts without the data and without code of
its user. `funcattn.tasks.own_data.describe` makes these settings from cases.

Three kinds: steady fields; steps, where the network gives the next frame from the last ones; and
times, where it is asked for the field at any time. Axes: b sample, n point, t frame, o channel.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from funcattn.data import Batch, Sample, Store
from funcattn.problem import Field, PictureKind, Problem
from funcattn.settings import DataSettings, Profile, RunSettings
from funcattn.tasks.base import BOTH, Changes, Network, Side, Splits, Task, register_task
from funcattn.tasks.fields import known_accuracy, known_cross_entropy, root_mean_square_error
from funcattn.tasks.subsets import Subset, coarser_grid, farthest_points, random_points

Kind = Literal["steady", "steps", "times"]
Weights = Literal["none", "grid", "mesh", "given"]


@dataclass(frozen=True)
class Given:
    """One input: a field at the points, a number per case, or labels of the points.

    >>> Given("pressure", partial=True).width
    2
    >>> Given("patch", labels=("wall", "inlet", "outlet")).width
    3
    """

    name: str
    kind: Literal["field", "parameter"] = "field"
    channels: int = 1
    unit: str = ""
    labels: tuple[str, ...] = ()
    """The values of a field or parameter of labels; each becomes a channel that is 0 or 1."""
    partial: bool = False
    """Known at some points only (NaN at the others): one channel more says where."""

    @property
    def width(self) -> int:
        """Channels that the network gets."""
        return (len(self.labels) or self.channels) + self.partial


@dataclass(frozen=True)
class OwnData(DataSettings):
    """What a user's cases look like, and how they are split."""

    train: int = 0
    """Cases that train; 0: all that are left."""
    validation: int = 0
    """Cases that choose the epoch; 0: by their share."""
    test: int = 0
    """Cases of the one test; 0: by their share."""
    calibration: int = 0
    """Cases put aside for the bands of predictions; 0: by their share."""
    calibration_share: float = 0.0
    validation_share: float = 0.15
    test_share: float = 0.15
    group_by: str = ""
    """Cases with the same value of this parameter go to the same part."""
    table: str | None = None
    """The table of parameters."""
    numbered: bool = False
    """Whether files that only differ in a number at the end are the times of one case."""
    part_by: str = ""
    """A parameter with the words train, validation, test, calibration, in place of drawing the
    parts."""
    space: int = 2
    origin: tuple[float, ...] = ()
    """What is taken from positions in double precision, as they may lie far from 0."""
    inputs: tuple[Given, ...] = ()
    outputs: tuple[Field, ...] = (Field("output"),)
    scalars: tuple[str, ...] = ()
    """Outputs that came without an axis of channels, and go back so."""
    classes: tuple[str, ...] = ()
    """The labels, where points are classified."""
    kind: Kind = "steady"
    frames: int = 1
    """Frames that are predicted; 1 for steady fields."""
    history: int = 1
    """Of steps: frames that the network sees."""
    unroll: int = 2
    """Of steps: frames in a row that one visit in training predicts."""
    time_range: tuple[float, ...] = (0.0, 1.0)
    """Of times: the first and the last one, in the data's unit."""
    grid: bool = False
    """Whether the points of every case form a grid."""
    axes: tuple[int, ...] = ()
    """The grid's axis lengths, where they are the same in all cases."""
    points: int | None = None
    """Points of every case; None where their number differs."""
    periodic: bool = False
    weights: Weights = "none"
    """Quadrature weights of the points: computed on grids, from cells of meshes, or given."""
    subset: int | None = None
    """Points of a case that a visit in training sees, drawn anew each time; None: all."""
    subset_by: Subset = "random"
    """How they are drawn."""

    @property
    def output_channels(self) -> int:
        """Channels of one frame."""
        return len(self.classes) or sum(each.channels for each in self.outputs)

    @property
    def input_channels(self) -> int:
        """Channels of the values that the network gets."""
        before = self.history * self.output_channels if self.kind == "steps" else 0
        return before + sum(each.width for each in self.inputs)


@register_task
class Own(Task[OwnData]):
    """Fields, parameters and geometry to fields.

    samples: those of each part, where the data is at hand; a task without can predict.
    deviations: of the output fields, by which errors are divided; default: those of training.
    """

    name: ClassVar = "own"
    title: ClassVar = "Own data"
    headline: ClassVar = "error"
    problem = Problem(2, (), (Field("output"),))
    data_settings = OwnData
    unit_free: ClassVar = True
    profiles: ClassVar[Mapping[Profile, Changes]] = {
        "paper": {"optimisation": {"epochs": 100, "batch": 4, "clip": 1.0, "warm_up": 0.1}}
    }

    def __init__(
        self,
        settings: RunSettings,
        samples: Splits | None = None,
        *,
        deviations: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(settings)
        self._splits = samples
        self._deviations = dict(deviations or {})
        self.problem = self._problem()

    @property
    def normalised(self) -> frozenset[Side]:  # type: ignore[override]
        """Inputs, and outputs that are fields."""
        return frozenset({"input"}) if self.data.classes else BOTH

    @property
    def picture(self) -> PictureKind:
        """As the points and the frames have it."""
        return super().picture if self.data.kind == "steady" else "frames"

    def _problem(self) -> Problem:
        """As described by the settings of the data; positions are scaled to -1 to 1."""
        data = self.data
        given = [Field(each.name, each.width, each.unit) for each in data.inputs]
        if data.kind == "steps":
            given.insert(0, Field("frames before", data.history * data.output_channels))
        outputs = data.outputs
        if data.classes:
            outputs = (Field(outputs[0].name, len(data.classes)),)
        return Problem(
            data.space,
            tuple(given),
            outputs,
            time=data.kind == "times",
            periodic=data.periodic,
            coefficients=None if any(each.kind == "field" for each in data.inputs) else False,
            lower=-1.0,
            upper=1.0,
            grid=data.grid,
            points=data.points,
        )

    @property
    def grid(self) -> tuple[int, ...] | None:
        """That of all cases, where they have one."""
        return self.data.axes or None

    @property
    def target_axes(self) -> tuple[int, ...]:
        """Frames, where there are some, and channels; none for labels."""
        if self.data.classes:
            return ()
        frames = () if self.data.kind == "steady" else (self.data.frames,)
        return (*frames, self.data.output_channels)

    @property
    def has_samples(self) -> bool:
        """Whether the samples are at hand."""
        return self._splits is not None

    @property
    def has_metrics(self) -> bool:
        """Whether it is known by what the errors of fields are divided."""
        return bool(self.data.classes or self._deviations or self.has_samples)

    def splits(self, store: Store) -> Splits:  # noqa: ARG002
        """The samples that the task was made with."""
        if self._splits is None:
            raise ValueError(
                "data: expected the cases of the run, got none; a run on own data is trained and "
                "evaluated by `funcattn fit` or `funcattn.Surrogate`, which read them"
            )
        return self._splits

    # How the network is called

    def predict(self, network: Network, batch: Batch) -> Tensor:
        """Shaped as the target; of labels, one score per class."""
        if self.data.kind == "steps":
            return self._stepped(network, batch)
        if self.data.kind == "times":
            return self._at_times(network, batch)
        return super().predict(network, batch)

    def _stepped(self, network: Network, batch: Batch) -> Tensor:
        """Frame after frame, (b n t o), each from the network's own frames before it."""
        assert batch.values is not None
        before = self.data.history * self.data.output_channels
        window, still = batch.values[..., :before], batch.values[..., before:]
        frames = []
        for _ in range(batch.target.shape[2]):
            frame = network(
                batch.positions,
                torch.cat([window, still], dim=-1),
                grid=batch.grid,
                mask=batch.mask,
                weights=batch.weights,
            )
            frames.append(frame)
            window = torch.cat([window[..., frame.shape[-1] :], frame], dim=-1)
        return torch.stack(frames, dim=2)

    def _at_times(self, network: Network, batch: Batch) -> Tensor:
        """One call per time, (b n t o)."""
        assert batch.times is not None
        return torch.stack(
            [
                network(
                    batch.positions,
                    batch.values,
                    time=time,
                    grid=batch.grid,
                    mask=batch.mask,
                    weights=batch.weights,
                )
                for time in batch.times.to(batch.positions).unbind(1)
            ],
            dim=2,
        )

    # Training

    @property
    def visits(self) -> int:
        """A case in time is visited more often, as a visit sees some of its frames only."""
        if self.data.kind == "steady":
            return 1
        seen = min(self.data.unroll, self.data.frames) if self.data.kind == "steps" else 1
        return max(min(self.data.frames // seen, 16), 1)

    def augmented(self, sample: Sample, random: torch.Generator) -> Sample:
        """Some points, and of a case in time some frames."""
        if self.data.kind == "steps":
            sample = self._some_steps(sample, random)
        elif self.data.kind == "times":
            assert sample.times is not None
            frame = int(torch.randint(sample.target.shape[1], (1,), generator=random))
            sample = replace(
                sample,
                target=sample.target[:, frame : frame + 1],
                times=sample.times[frame : frame + 1],
            )
        if self.data.subset is None or len(sample.positions) <= self.data.subset:
            return sample
        if sample.grid is not None:
            rows, grid = coarser_grid(sample.grid, self.data.subset, random)
            return replace(rows_of_sample(sample, rows), grid=grid)
        if self.data.subset_by == "random":
            count = len(sample.positions)
            return rows_of_sample(sample, random_points(count, self.data.subset, random))
        rows, weights = farthest_points(sample.positions, self.data.subset, random, sample.weights)
        sample = rows_of_sample(sample, rows)
        return sample if sample.weights is None else replace(sample, weights=weights)

    def _some_steps(self, sample: Sample, random: torch.Generator) -> Sample:
        """The same case from a frame of its own on."""
        assert sample.values is not None
        data, frames = self.data, sample.target.shape[1]
        length = min(data.unroll, frames)
        start = int(torch.randint(frames - length + 1, (1,), generator=random))
        before = data.history * data.output_channels
        known = sample.values[:, :before].unflatten(1, (data.history, -1))  # (n h o)
        known = torch.cat([known, sample.target], dim=1)[:, start : start + data.history]
        if bool(known.isnan().any()):
            return replace(sample, target=sample.target[:, :length])
        values = torch.cat([known.flatten(1), sample.values[:, before:]], dim=1)
        return replace(sample, values=values, target=sample.target[:, start : start + length])

    # Loss and metrics

    def as_target(self, prediction: Tensor) -> Tensor:
        """Of labels, the likeliest."""
        return prediction.argmax(-1) if self.data.classes else prediction

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """The mean over the fields of each field's error over its deviation in training."""
        if self.data.classes:
            return known_cross_entropy(prediction, batch.target, batch.mask, batch.weights)
        return self.metrics(prediction, batch)["error"]

    def metrics(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Of each field the root mean square error in its unit, and over its deviation."""
        if self.data.classes:
            right = known_accuracy(prediction, batch.target, batch.mask, batch.weights)
            lost = known_cross_entropy(prediction, batch.target, batch.mask, batch.weights)
            return {"error": 1 - right, "accuracy": right, "cross entropy": lost}
        found: dict[str, Tensor] = {}
        start = 0
        for each in self.data.outputs:
            channels = slice(start, start + each.channels)
            start += each.channels
            deviation = self.deviations[each.name]
            error = root_mean_square_error(
                prediction[..., channels],
                batch.target[..., channels],
                deviation=deviation,
                mask=batch.mask,
                weights=batch.weights,
            )
            found[each.name] = error * deviation
            found[f"{each.name} normalised"] = error
        relative = [found[f"{each.name} normalised"] for each in self.data.outputs]
        return {"error": torch.stack(relative).mean(0), **found}

    @property
    def deviations(self) -> Mapping[str, float]:
        """Of each output field over the training samples; the root mean square of its channels."""
        if not self._deviations:
            assert self._splits is not None, "metrics want the samples"
            self._deviations = deviations(self._splits.train, self.data.outputs)
        return self._deviations


def rows_of_sample(sample: Sample, rows: Tensor) -> Sample:
    """Some points of a sample; they form no grid."""
    chosen: dict[str, Any] = {
        name: None if tensor is None else tensor[rows]
        for name, tensor in (
            (name, getattr(sample, name))
            for name in ("positions", "values", "target", "weights", "surface")
        )
    }
    return replace(sample, **chosen, grid=None)


def deviations(samples: Sequence[Sample], fields: Sequence[Field]) -> dict[str, float]:
    """The standard deviation of each field over all points, frames and samples; 1 if constant."""
    found, start = {}, 0
    for each in fields:
        count, mean, spread = np.zeros(each.channels), np.zeros(each.channels), 0.0
        for place in range(len(samples)):
            target = samples[place].target
            values = target[..., start : start + each.channels].double().numpy()
            values = values.reshape(-1, each.channels)
            n = (~np.isnan(values)).sum(0)
            total = np.maximum(count + n, 1)
            its_mean = np.nansum(values, 0) / np.maximum(n, 1)
            shift = its_mean - mean
            spread += float(np.nansum(np.square(values - its_mean)))
            spread += float((shift**2 * count * n / total).sum())
            mean, count = mean + shift * n / total, count + n
        deviation = float(np.sqrt(spread / max(count.sum(), 1)))
        constant = deviation <= 1e-12 * float(np.abs(mean).max())
        found[each.name] = 1.0 if constant else deviation
        start += each.channels
    return found
