"""Is an input like the training data? A score from what the network sees of it, layer by layer.

Of the inputs, of what every block gives, and of the output, mean and deviation over the points are
taken. The score of a sample is the larger of two distances, each over its limit: Mahalanobis'
distance from the mean of the training samples, and the distance to the nearest of them in the same
metric. The limits are such that 95 % of the validation samples have a score below 1: a sample above
it is unlike the training data.

Such means change with the grid alone: by the share of its points that lie at its ends, and by what
blocks do near them. So of a sample on a finer grid than that of training, the network is shown the
points of that, and there the output is looked at: an input is no less familiar on a finer grid, and
a network that fails on it is found out by what it says (`funcattn.serve.finer`).

Axes: b sample, m training sample, f feature of a layer, k feature of all layers.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from funcattn.data import Batch
from funcattn.data.grids import grid_rows
from funcattn.tasks import Task
from funcattn.training.run import Run
from funcattn.training.setup import RunError

FILE = "familiar.safetensors"
Pooled = Mapping[str, Tensor]
"""Tensors by layer: (b f), unless something else is said."""


class OutsideTrainingWarning(UserWarning):
    """An input lies outside of what the network was trained on."""


class Score(NamedTuple):
    """How unlike the training data a sample is: both over the limits of validation."""

    distance: float
    nearest: float

    @property
    def worst(self) -> float:
        """Above 1 where the sample is unlike the training data."""
        return max(self.distance, self.nearest)


@contextmanager
def watched(network: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Within this context, keep the first output of every block of a network, by its name."""
    seen: dict[str, Tensor] = {}

    def hook(name: str) -> Any:
        def keep(module: nn.Module, given: Any, out: Any) -> None:  # noqa: ARG001
            if isinstance(out, Tensor) and out.ndim == 3:
                seen.setdefault(name, out.detach())

        return keep

    handles = [
        block.register_forward_hook(hook(f"{name}.{place}"))
        for name, blocks in network.named_modules()
        if isinstance(blocks, nn.ModuleList)
        for place, block in enumerate(blocks)
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True)
class Look:
    """What a network says of a batch, and what it sees of it on the grid of training."""

    said: Tensor
    """(b n *o)."""
    known: Batch
    """The batch on the grid of training, itself where its grid is not finer."""
    known_said: Tensor
    """What it says of that."""
    blocks: Mapping[str, Tensor]
    """What its blocks give there."""
    met: Tensor
    """What it says of the batch, at the points of the known one."""

    @property
    def seen(self) -> Pooled:
        """What the batch looks like."""
        return pooled(self.known, self.blocks, self.met)

    @property
    def known_seen(self) -> Pooled:
        """What it looks like on the grid of training."""
        return pooled(self.known, self.blocks, self.known_said)


def looked_at(task: Task, network: nn.Module, batch: Batch) -> Look:
    """A batch through a network, which is shown the points of the grid of training, too."""
    periodic = task.problem.periodic
    known = thinned(batch, task.grid, periodic=periodic)
    with watched(network) as blocks:
        known_said = task.predict(network, known)
    if known is batch:
        return Look(known_said, known, known_said, blocks, known_said)
    said = task.predict(network, batch)
    met = thinned(replace(batch, target=said), task.grid, periodic=periodic).target
    return Look(said, known, known_said, blocks, met)


def nearest_places(fine: int, length: int, *, periodic: bool) -> Tensor:
    """The points of an axis that are nearest to those of a coarser one."""
    # A circle has as many gaps as points; an interval has one less, and keeps both its ends.
    open_end = 0 if periodic else 1
    gaps = max(length - open_end, 1)
    return (torch.arange(length) * (fine - open_end) + gaps // 2) // gaps


def thinned(batch: Batch, grid: tuple[int, ...] | None, *, periodic: bool) -> Batch:
    """A batch on a finer grid, at those of its points that are nearest to the points of this one.

    Axes that are not finer stay as they are, and so do batches without a grid.
    """
    if grid is None or batch.grid is None:
        return batch
    lengths = tuple(map(min, batch.grid, grid))
    if lengths == batch.grid:
        return batch
    places = [
        nearest_places(fine, length, periodic=periodic)
        for fine, length in zip(batch.grid, lengths, strict=True)
    ]
    rows = grid_rows(batch.grid, places)
    of_points = ("positions", "values", "target", "weights", "mask", "surface")
    kept: dict[str, Any] = {
        name: None if (tensor := getattr(batch, name)) is None else tensor[:, rows]
        for name in of_points
    }
    coarse = replace(batch, **kept, grid=lengths)
    before, after = _mass(batch), _mass(coarse)
    if not bool(after.all()):
        return batch  # nothing real is left of a sample
    if coarse.weights is not None:
        coarse = replace(coarse, weights=coarse.weights * before / after)
    return coarse


def _mass(batch: Batch) -> Float[Tensor, "b 1"]:
    """The sum of the weights of the real points of each sample."""
    ones = batch.positions.new_ones(batch.positions.shape[:2])
    weights = ones if batch.weights is None else batch.weights
    real = weights if batch.mask is None else weights.masked_fill(~batch.mask, 0)
    return real.sum(1, keepdim=True)


def pooled(batch: Batch, seen: Mapping[str, Tensor], prediction: Tensor) -> Pooled:
    """Mean and deviation over the points of all that was seen of a batch."""
    points = batch.positions.shape[1]
    given = batch.positions if batch.values is None else batch.values
    fields = {"input": given, **seen, "output": prediction.flatten(2)}
    mask = (
        batch.mask
        if batch.mask is not None
        else batch.positions.new_ones(batch.positions.shape[:2])
    )
    share = (mask / mask.sum(1, keepdim=True)).unsqueeze(-1)
    found = {}
    for name, values in fields.items():
        if values.shape[1] != points or len(values) != len(batch):
            continue  # coefficients, or channels first
        values = values.float().nan_to_num()
        mean = (share * values).sum(1)
        spread = (share * (values - mean.unsqueeze(1)).square()).sum(1).sqrt()
        found[name] = torch.cat([mean, spread], dim=1).cpu()
    return found


@dataclass(frozen=True)
class Familiarity:
    """What the training samples look like to a network."""

    means: Pooled
    """By layer, (f)."""
    whitenings: Pooled
    """By layer, (f f)."""
    seen: Float[Tensor, "m k"]
    """The training samples, in the metric."""
    limits: Float[Tensor, " 2"]
    held: int
    """Validation samples that the limits are from."""

    def in_words(self, score: float) -> str:
        """For a warning."""
        share = "95 % of" if self.held >= 19 else "all of"
        return (
            f"unlike the training data, with a score of {score:.3g}, where {share} {self.held} "
            "validation samples are below 1; the prediction may be far off, and its band too narrow"
        )

    def placed(self, found: Pooled) -> Float[Tensor, "b k"]:
        """Samples in the metric in which the training samples have mean 0 and size 1."""
        # In an order of its own: a file gives the layers back in another one than they came in.
        parts = [
            (found[name].double() - self.means[name]) @ self.whitenings[name]
            for name in sorted(self.means)
        ]
        return torch.cat([part / (part.shape[1] * len(parts)) ** 0.5 for part in parts], dim=1)

    def distances(self, found: Pooled) -> Float[Tensor, "b 2"]:
        """From the mean of the training samples, and from the nearest of them."""
        places = self.placed(found)
        nearest = torch.cdist(places, self.seen).amin(1)
        return torch.stack([places.norm(dim=1), nearest], dim=1)

    def scores(self, found: Pooled) -> list[Score]:
        """Of each sample of a batch."""
        return [Score(*row) for row in (self.distances(found) / self.limits).tolist()]

    def tensors(self) -> dict[str, Tensor]:
        """For a file; what is large in single precision."""
        return {
            "seen": self.seen.float().contiguous(),
            "limits": self.limits,
            "held": torch.tensor(self.held),
            **{f"mean/{name}": tensor.contiguous() for name, tensor in self.means.items()},
            **{
                f"whitening/{name}": tensor.float().contiguous()
                for name, tensor in self.whitenings.items()
            },
        }


def read_familiarity(run: Run) -> Familiarity | None:
    """What the run keeps of its training samples; None where it was not calibrated."""
    if not (run.folder / FILE).exists():
        return None
    try:
        tensors = load_file(run.file(FILE))
        parts = {
            kind: {
                name.removeprefix(f"{kind}/"): tensor.double()
                for name, tensor in tensors.items()
                if name.startswith(f"{kind}/")
            }
            for kind in ("mean", "whitening")
        }
        return Familiarity(
            parts["mean"],
            parts["whitening"],
            tensors["seen"].double(),
            tensors["limits"],
            int(tensors["held"]),
        )
    except (SafetensorError, KeyError) as error:
        raise RunError(
            f"{run.folder / FILE}: expected what calibration wrote, got {error}; calibrate again: "
            f"funcattn calibrate {run.folder}"
        ) from error
