"""Points in chunks: which come together, their features and their basis, and what is stored.

The edges of the chunks depend on the sizes of the problem alone. What is computed again is computed
by the same products as at first, in memory that is aligned alike, because alignment can change the
order of the sums in a product. So numbers are the same to the bit whatever is stored.

Axes: b batch, h head, n point, B point of a chunk, g basis function, k features of all heads'
bases, f field channels of a head.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from funcattn.ops.attention.local_maps import AtPoints
from funcattn.ops.buffers import buffers

_CHUNK_VALUES = 2**19
"""Values of the basis in a chunk on a CPU: 2 MiB in float32, a core's share of the cache."""
_FEWEST_POINTS = 32
_DEVICE_CHUNK = 2**16
"""Points in a chunk on an accelerator, which wants large products."""
_ALIGNED = 16
"""What is stored begins at multiples of so many values, 64 bytes in float32, as fresh memory does.
"""


def chunks(points: int, size: int) -> Iterator[slice]:
    """Slices of nearly equal lengths, at least the size and below twice that, or a single one."""
    count = max(points // size, 1)
    edges = [points * j // count for j in range(count + 1)] if points else [0]
    for start, stop in pairwise(edges):
        yield slice(start, stop)


def chunk_points(x: Tensor, values: int) -> int:
    """Points in a chunk, from the number of basis values at a point."""
    if x.device.type != "cpu":
        return _DEVICE_CHUNK
    return max(_CHUNK_VALUES // max(values, 2 * x.shape[-1]), _FEWEST_POINTS)


@dataclass(frozen=True)
class Store:
    """What is kept of the first `kept` points of each sample, whole chunks, for the passes to come.

    basis: hg values per point, features: k + hf, values: he. Each is (b, ...), within a sample a
    row of chunks, each laid out as the products want it; see `place`. The latter two are for the
    gradient.
    """

    kept: int = 0
    basis: Tensor | None = None
    features: Tensor | None = None
    values: Tensor | None = None

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """All of it."""
        return self.basis, self.features, self.values

    def place(
        self, stored: Tensor | None, sample: int, rows: slice, channels: int
    ) -> Tensor | None:
        """Where a chunk with so many channels stands in one of them, flat; None if it does not."""
        if stored is None or rows.stop > self.kept:
            return None
        start = rows.start * _padded(channels)
        return stored[sample, start : start + (rows.stop - rows.start) * channels]

    def give_back(self) -> None:
        """Nobody reads it any more."""
        for buffer in self.tensors:
            if buffer is not None:
                buffers.give(buffer)


def room(x: Tensor, points: int, channels: int) -> Tensor:
    """A buffer for so many points of each sample, (b, ...), from those that are used again."""
    count = points * _padded(channels)
    return buffers.take(len(x) * count, x).view(len(x), count)


def _padded(channels: int) -> int:
    """The values that a point takes up in a store."""
    return -(-channels // _ALIGNED) * _ALIGNED


class Pass:
    """Features and basis of one chunk after another, in buffers that are reused.

    store: of the first points; at the others both are computed. fill: this pass fills it.
    """

    def __init__(self, points: AtPoints, store: Store, *, fill: bool = False) -> None:
        self.points, self.store, self.fill = points, store, fill
        self.heads, self.head_features, self.bases = points.score_weight.shape
        self.size = chunk_points(points.x, self.heads * self.bases)
        self._buffers: dict[str, Tensor] = {}

    def __iter__(self) -> Iterator[tuple[int, slice]]:
        batch, count = self.points.x.shape[:2]
        for sample in range(batch):
            for rows in chunks(count, self.size):
                yield sample, rows
        for kept in self._buffers.values():
            buffers.give(kept)
        self._buffers.clear()

    def buffer(self, name: str, *shape: int) -> Tensor:
        """Memory for a chunk, the same for all chunks; a shorter one takes its beginning."""
        count = torch.Size(shape).numel()
        kept = self._buffers.get(name)
        if kept is None or kept.numel() < count:
            kept = self._buffers[name] = buffers.take(count, self.points.x)
        return kept[:count].view(shape)

    def heads_of(self, rows: Tensor) -> Tensor:
        """(B, h d) -> (h, B, d), a view."""
        return rows.unflatten(1, (self.heads, -1)).transpose(0, 1)

    def partitions(self, phi: Tensor) -> Tensor:
        """(h, B, g) -> (h, B, groups, g/groups), a view."""
        return phi.unflatten(2, (self.points.groups, -1))

    def features_at(self, sample: int, rows: slice) -> tuple[Tensor, Tensor]:
        """Features of the basis (B, k) and of the field (B, hf)."""
        points, x = self.points, self.points.x[sample, rows]
        if points.basis_weight is None or points.field_weight is None:
            return x, x if points.field is None else points.field[sample, rows]
        k, channels = len(points.basis_weight), len(points.field_weight)
        flat = self.store.place(self.store.features, sample, rows, k + channels)
        is_new = flat is None or self.fill
        if flat is None:
            flat = self.buffer("features", len(x) * (k + channels))
        basis, field = flat[: len(x) * k].view(-1, k), flat[len(x) * k :].view(-1, channels)
        if is_new:
            # Two products, as a pass that needs the basis alone makes the first of them.
            torch.mm(x, points.basis_weight.T, out=basis)
            torch.mm(x, points.field_weight.T, out=field)
        return basis, field

    def basis_at(self, sample: int, rows: slice, features: Tensor | None = None) -> Tensor:
        """Phi (h, B, g), from the store or from the features, which are made where not given."""
        shape = (self.heads, rows.stop - rows.start, self.bases)
        stored = self.store.place(self.store.basis, sample, rows, self.heads * self.bases)
        phi = self.buffer("basis", *shape) if stored is None else stored.view(shape)
        if self.fill or stored is None:
            if features is None:
                features = self._basis_features(sample, rows)
            torch.baddbmm(
                self.points.score_bias.unsqueeze(1),
                self.heads_of(features),
                self.points.score_weight,
                out=phi,
            )
            each = self.partitions(phi)
            torch.softmax(each, -1, out=each)
        return phi

    def _basis_features(self, sample: int, rows: slice) -> Tensor:
        x, weight = self.points.x[sample, rows], self.points.basis_weight
        if weight is None:
            return x
        return torch.mm(x, weight.T, out=self.buffer("features", len(x), len(weight)))
