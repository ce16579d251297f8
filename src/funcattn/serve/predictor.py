"""A trained run as an object that predicts."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from funcattn.arrays import Array
from funcattn.data import Batch
from funcattn.markup import table
from funcattn.models import Encoded, NormalisedNetwork, predict_streamed
from funcattn.models.encoded import POINTS_AT_ONCE
from funcattn.serve.bands import Banded, Bands, read_bands
from funcattn.serve.familiar import (
    Familiarity,
    OutsideTrainingWarning,
    Score,
    read_familiarity,
)
from funcattn.serve.finer import CoarserGridWarning, in_words, judged, said_alike
from funcattn.serve.inputs import (
    blaming_inputs,
    check_finite,
    grid_weights,
    outside_of_file,
    prepared_batch,
)
from funcattn.tasks import Task
from funcattn.training.bundled import run_folder
from funcattn.training.checkpoint import weights_digest
from funcattn.training.run import Run
from funcattn.training.setup import device_named

Field = TypeVar("Field", Tensor, npt.NDArray[Any])


@dataclass(frozen=True)
class Told:
    """All that a run says of a batch; without ends and scores where it was not calibrated."""

    fields: Tensor
    """(b n *o), shaped as the target."""
    lower: Tensor | None = None
    upper: Tensor | None = None
    scores: tuple[Score, ...] | None = None
    raised: tuple[bool, ...] | None = None
    """Whether a sample is said on the grid of training, and linear between its points."""

    def split(self, sizes: Sequence[int]) -> "list[Told]":
        """The parts of a batch that was joined from smaller ones."""
        ends = list(accumulate(sizes))
        return [self._part(slice(end - size, end)) for size, end in zip(sizes, ends, strict=True)]

    def _part(self, rows: slice) -> "Told":
        lower, upper = (None if end is None else end[rows] for end in (self.lower, self.upper))
        scores = None if self.scores is None else self.scores[rows]
        raised = None if self.raised is None else self.raised[rows]
        return Told(self.fields[rows], lower, upper, scores, raised)


class Predictor:
    """A network at its best epoch, with its normalisers; real units in, real units out."""

    def __init__(self, task: Task, surrogate: NormalisedNetwork, run: Run | None = None) -> None:
        self.task, self.surrogate, self.run = task, surrogate.eval(), run
        self.networks = [self.surrogate]
        if run is not None:
            where = surrogate.position_range.device
            self.networks += [member.network.to(where).eval() for member in run.members]

    def __repr__(self) -> str:
        return "Predictor\n" + "\n".join(f"  {name}: {is_}" for name, is_ in self._about().items())

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return table("Predictor", self._about())

    def _about(self) -> dict[str, str]:
        """What goes in, what comes out, and by which network."""

        def named(fields: Sequence[Any]) -> str:
            return ", ".join(f"{f.name} [{f.unit}]" if f.unit else f.name for f in fields)

        problem = self.task.problem
        return {
            "task": self.task.title,
            "inputs": named(problem.inputs) or "the geometry",
            "outputs": named(problem.outputs),
            "network": self.task.settings.model,
            "parameters": f"{sum(p.numel() for p in self.surrogate.network.parameters()):,}",
        }

    def predict(
        self,
        positions: Field,
        values: Field | None = None,
        *,
        grid: Sequence[int] | None = None,
        mask: Field | None = None,
        weights: Field | None = None,
        context: Field | None = None,
    ) -> Field:
        """The output fields at the points, (b n o); numpy in, numpy out, torch in, torch out.

        Tasks in time give all their frames: (b n t), or (b n t o) where the time is an input.

        positions (b n s), values (b n i) where the task has input values, both also without b for
        one sample; grid: axis lengths where the points form a grid, row-major; mask (b n), True at
        real points; weights (b n): a network that was trained with them needs them, and has those
        of the trapezoid rule where a grid is given and they are not; context: observations, where
        the task has them. Of an ensemble it is the mean of its networks.
        """
        batch = self._batch(
            positions, values, grid=grid, mask=mask, weights=weights, context=context
        )
        return _like(positions, self.fields(batch))

    def fields(self, batch: Batch) -> Tensor:
        """What the network says of a batch of `prepared`, shaped as its target."""
        return self._predictions(batch).mean(0)

    def told(self, batch: Batch) -> Told:
        """The fields of a batch of `prepared`, the ends of their band, and how unlike it is."""
        predictions, scores, raised = self._said(batch)
        told = Told(predictions.mean(0), scores=scores, raised=raised)
        if self.calibrated is None:
            return told
        _, lower, upper = self._around(batch, predictions)
        return replace(told, lower=lower, upper=upper)

    def bands(
        self,
        positions: Field,
        values: Field | None = None,
        *,
        coverage: float | None = None,
        grid: Sequence[int] | None = None,
        mask: Field | None = None,
        weights: Field | None = None,
        context: Field | None = None,
    ) -> Banded:
        """The output fields, and within which ends the truth lies at all points of a sample.

        coverage: how often, 0 to 1; None: as the run was calibrated. Otherwise as `predict`.
        """
        if self.calibrated is None:
            where = "RUN" if self.run is None else self.run.folder
            raise ValueError(
                "bands: expected a run that was calibrated, got one that was not; funcattn "
                f"calibrate {where}"
            )
        batch = self._batch(
            positions, values, grid=grid, mask=mask, weights=weights, context=context
        )
        found = self._around(batch, self._predictions(batch), coverage)
        return Banded(*(_like(positions, part) for part in found))

    def _around(self, batch: Batch, predictions: Tensor, coverage: float | None = None) -> Banded:
        """The band of each sample, which depends on how many points are real."""
        assert self.calibrated is not None
        problem, known = self.task.problem, predictions.cpu().float()
        places, values = (
            None if given is None else given.cpu().float()
            for given in (batch.positions, batch.values)
        )
        assert places is not None
        if batch.mask is None:
            return self.calibrated.around(problem, known, places, values, coverage=coverage)
        found = [
            self.calibrated.around(
                problem,
                known[:, b : b + 1],
                places[b : b + 1],
                None if values is None else values[b : b + 1],
                points=points,
                coverage=coverage,
            )
            for b, points in enumerate(batch.mask.sum(1).tolist())
        ]
        return Banded(*(torch.cat(part) for part in zip(*found, strict=True)))

    @cached_property
    def calibrated(self) -> Bands | None:
        """The bands of the run, None where it was not calibrated."""
        return None if self.run is None else read_bands(self.run)

    def familiarity(
        self,
        positions: Field,
        values: Field | None = None,
        *,
        grid: Sequence[int] | None = None,
        mask: Field | None = None,
        weights: Field | None = None,
        context: Field | None = None,
    ) -> list[Score]:
        """How unlike the training data each sample is; above 1 it is. Inputs as for `predict`."""
        if self.familiar is None:
            raise ValueError(
                "familiarity: expected a run that was calibrated, got one that was not; funcattn "
                "calibrate RUN"
            )
        batch = self._batch(
            positions, values, grid=grid, mask=mask, weights=weights, context=context
        )
        _, scores, _ = self._said(batch)
        assert scores is not None
        return list(scores)

    @cached_property
    def familiar(self) -> Familiarity | None:
        """What the run keeps of its training samples, None where it was not calibrated."""
        return None if self.run is None else read_familiarity(self.run)

    def _predictions(self, batch: Batch) -> Tensor:
        """What each network says, (k b n *o), after a warning about samples unlike training."""
        out, scores, raised = self._said(batch)
        if scores is not None and self.familiar is not None:
            worst = max(range(len(scores)), key=lambda b: scores[b].worst)
            if scores[worst].worst > 1:
                warnings.warn(
                    f"sample {worst}: {self.familiar.in_words(scores[worst].worst)}",
                    OutsideTrainingWarning,
                    stacklevel=3,
                )
        if any(raised):
            warnings.warn(
                f"sample {raised.index(True)}: {in_words(self.task, batch.grid)}",
                CoarserGridWarning,
                stacklevel=3,
            )
        return out

    def _said(self, batch: Batch) -> tuple[Tensor, tuple[Score, ...] | None, tuple[bool, ...]]:
        """What each network says, (k b n *o), how unlike the training data each sample is, and
        which are said on the grid of training."""
        usual = None if self.run is None else self.run.usual_error
        with torch.no_grad(), blaming_inputs(batch):
            first, scores, raised = judged(self.task, self.surrogate, batch, usual, self.familiar)
            others = [said_alike(self.task, each, batch, raised) for each in self.networks[1:]]
            out = torch.stack([first, *others])
            check_finite(out.mean(0), batch.mask)
        return out, None if scores is None else tuple(scores), tuple(raised)

    def _refuse_ensemble(self, what: str) -> None:
        if len(self.networks) > 1:
            raise ValueError(
                f"{what}: expected a run of one network, got an ensemble of {len(self.networks)}; "
                "use predict, or load one of its members"
            )

    def encode(
        self,
        positions: Field,
        values: Field | None = None,
        *,
        mask: Field | None = None,
        weights: Field | None = None,
        time: float | None = None,
    ) -> Encoded:
        """All that a mesh has to say to any point, in a few coefficients, for `query`.

        The arrays are those of `predict`; time, 0 to 1, where the network takes one. For networks
        whose layers are functional attention with point-wise features, and tasks whose fields are
        one call of the network.
        """
        self._refuse_ensemble("encode")
        batch = self._batch(positions, values, mask=mask, weights=weights)
        times = self._time(time)
        with torch.no_grad(), blaming_inputs(batch):
            encoded = self.surrogate.encode(
                batch.positions,
                batch.values,
                time=None if times is None else times.expand(len(batch)),
                mask=batch.mask,
                weights=batch.weights,
            )
        return replace(encoded, network=self._fingerprint)

    def query(
        self,
        encoded: Encoded,
        positions: Field,
        values: Field | None = None,
        *,
        mask: Field | None = None,
    ) -> Field:
        """The output fields of an encoded mesh at any points, (b n o), at the cost of these alone.

        At the points of the mesh it is what `predict` says. Without b for one sample.
        """
        if encoded.network != self._fingerprint:
            raise ValueError(
                "encoded: expected a mesh that this run has encoded, got one of other weights; "
                "encode it again"
            )
        # The weights of the mesh went into what was encoded.
        batch = self._batch(positions, values, mask=mask, needs_weights=False)
        known = self.surrogate.position_range
        with torch.no_grad(), blaming_inputs(batch):
            out = self.surrogate.query(
                encoded.to(known), batch.positions, batch.values, mask=batch.mask
            )
            check_finite(out, batch.mask)
        return _like(positions, out)

    def predict_streamed(
        self,
        positions: Array,
        values: Array | None = None,
        *,
        out: Array | str | Path | None,
        weights: Array | None = None,
        time: float | None = None,
        scratch: str | Path | None = None,
        chunk: int = POINTS_AT_ONCE,
        progress: Callable[[int, int], None] | None = None,
    ) -> Encoded:
        """`predict` for one mesh that is larger than memory, from and to files.

        positions (n s), values (n i), weights (n,), as memory maps; the rest, and what is returned,
        as with `funcattn.models.predict_streamed`.
        """
        self._refuse_ensemble("predict_streamed")
        times = self._time(time)
        if weights is None and self.task.weighted:
            grid_weights(self.task, self.surrogate.position_range, None)
        for name, array, known in (
            ("positions", positions, self.surrogate.position_range),
            ("values", values, self.surrogate.value_range),
        ):
            if array is not None:
                for words in outside_of_file(name, array, known):
                    warnings.warn(words, OutsideTrainingWarning, stacklevel=2)
        encoded = predict_streamed(
            self.surrogate,
            positions,
            values,
            out=out,
            weights=weights,
            time=None if times is None else float(times),
            scratch=scratch,
            chunk=chunk,
            progress=progress,
        )
        return replace(encoded, network=self._fingerprint)

    @cached_property
    def _fingerprint(self) -> str:
        """Of the weights."""
        return weights_digest(self.surrogate)

    def _time(self, time: float | None) -> Tensor | None:
        """The time as a tensor, where the task's fields are one call of the network."""
        if type(self.task).predict is not Task.predict and not self.task.problem.time:
            raise ValueError(
                f"encode: expected a task whose fields are one call of the network, got "
                f"{self.task.name}, where frame follows frame; use predict"
            )
        if (time is None) == self.task.problem.time:
            wanted = "a number from 0 to 1" if self.task.problem.time else "none"
            raise ValueError(f"time: expected {wanted} for {self.task.name}, got {time}")
        return None if time is None else self.surrogate.position_range.new_tensor(time)

    def _batch(
        self,
        positions: Field,
        values: Field | None,
        *,
        mask: Field | None = None,
        weights: Field | None = None,
        context: Field | None = None,
        grid: Sequence[int] | None = None,
        needs_weights: bool = True,
    ) -> Batch:
        """The inputs as a batch, after a look at their shapes, and a warning about their range."""
        batch, outside = self.prepared(
            positions,
            values,
            mask=mask,
            weights=weights,
            context=context,
            grid=None if grid is None else tuple(grid),
            needs_weights=needs_weights,
        )
        for words in outside:
            # Seen from the method that the user called.
            warnings.warn(words, OutsideTrainingWarning, stacklevel=3)
        return batch

    def prepared(
        self,
        positions: Field,
        values: Field | None = None,
        *,
        mask: Field | None = None,
        weights: Field | None = None,
        context: Field | None = None,
        grid: tuple[int, ...] | None = None,
        needs_weights: bool = True,
    ) -> tuple[Batch, list[str]]:
        """The inputs of `predict` as a batch, and where they leave the range of training.

        Raises:
            ValueError: they do not fit the task or each other, or are not of ordinary size.
        """
        given = {
            "positions": positions,
            "values": values,
            "mask": mask,
            "weights": weights,
            "context": context,
        }
        return prepared_batch(
            self.task, self.surrogate, given, grid=grid, needs_weights=needs_weights
        )


def _like(given: Field, out: Tensor) -> Field:
    """Numpy for numpy, torch for torch, and one sample for one."""
    array = given if isinstance(given, Tensor) else np.asarray(given)
    out = out[0] if array.ndim == 2 else out
    return out if isinstance(given, Tensor) else out.cpu().numpy()


def load(run: str | Path | Run, device: str = "cpu", *, accept_edited: bool = False) -> Predictor:
    """A trained run, from its folder or its name: the weights that did best on validation data.

    device: where it computes; auto, cpu, cuda, cuda:1, mps.
    accept_edited: take the run's settings.json as it is, though it was changed after training.
    """
    where = device_named(device)
    run = run if isinstance(run, Run) else Run(run_folder(run), accept_edited=accept_edited)
    return Predictor(run.task, run.network.to(where), run)
