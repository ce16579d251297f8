"""One pass over points in chunks: which points come together, their features and their basis.

Axes: b batch, h head, n point, B point of a chunk, g basis function, k features of all heads'
bases, f field channels of a head.
"""

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from funcattn.ops.buffers import buffers

_CHUNK_VALUES = 2**18
"""Values of the basis in a chunk on a CPU: 1 MiB in float32, the share of a core in its cache."""
_DEVICE_CHUNK = 2**16
"""Points in a chunk on an accelerator, which wants large products."""


def chunks(points: int, size: int) -> Iterator[slice]:
    """Slices of nearly equal lengths, at least the size and below twice that, or a single one."""
    count = max(points // size, 1)
    edges = [points * j // count for j in range(count + 1)] if points else [0]
    for start, stop in pairwise(edges):
        yield slice(start, stop)


class Pass:
    """Features and basis of one chunk after another, in buffers that are reused.

    basis, features: stores of whole chunks, of the first `kept` points of each sample; fill: this
    pass is the one that fills them. At other points both are computed.
    groups: as in `LocalMaps`.
    """

    def __init__(
        self,
        x: Tensor,
        field: Tensor | None,
        weight: Tensor | None,
        score_weight: Tensor,
        score_bias: Tensor,
        basis: Tensor | None = None,
        features: Tensor | None = None,
        *,
        groups: int,
        fill: bool = False,
    ) -> None:
        self.x, self.field, self.weight = x, field, weight
        self.score_weight, self.score_bias = score_weight, score_bias
        self.basis, self.features, self.fill, self.groups = basis, features, fill, groups
        self.heads, self.head_features, self.bases = score_weight.shape
        self.size = chunk_points(x, self.heads * self.bases, stored=basis is not None)
        self.kept = 0 if basis is None else basis.shape[1] // (self.heads * self.bases)
        self._buffers: dict[str, Tensor] = {}

    def __iter__(self) -> Iterator[tuple[int, slice]]:
        for sample in range(len(self.x)):
            for rows in chunks(self.x.shape[1], self.size):
                yield sample, rows

    def buffer(self, name: str, *shape: int) -> Tensor:
        """Memory for a chunk, the same for all chunks; a shorter one takes its beginning."""
        count = torch.Size(shape).numel()
        kept = self._buffers.get(name)
        if kept is None or kept.numel() < count:
            kept = self._buffers[name] = buffers.take(count, self.x)
        return kept[:count].view(shape)

    def close(self) -> None:
        """The memory is for others now."""
        for kept in self._buffers.values():
            buffers.give(kept)
        self._buffers.clear()

    def place(self, store: Tensor | None, sample: int, rows: slice) -> Tensor | None:
        """Of a chunk in a store (b, kept points, ...), or None where it has none."""
        return store[sample, rows] if store is not None and rows.stop <= self.kept else None

    def heads_of(self, rows: Tensor) -> Tensor:
        """(B, h d) -> (h, B, d), a view."""
        return rows.unflatten(1, (self.heads, -1)).transpose(0, 1)

    def features_at(self, sample: int, rows: slice) -> tuple[Tensor, Tensor]:
        """Features of the basis (B, k) and of the field (B, h f)."""
        x = self.x[sample, rows]
        if self.weight is None:
            return x, x if self.field is None else self.field[sample, rows]
        width = self.heads * self.head_features
        both = self.place(self.features, sample, rows)
        is_new = both is None or self.fill
        if both is None:
            both = self.buffer("features", len(x), len(self.weight))
        if is_new:
            torch.mm(x, self.weight.T, out=both)
        return both[:, :width], both[:, width:]

    def basis_at(self, sample: int, rows: slice, features: Tensor | None = None) -> Tensor:
        """Phi (h, B, g), from the store or from the features."""
        shape = (self.heads, rows.stop - rows.start, self.bases)
        if self.basis is None or rows.stop > self.kept:
            phi = self.buffer("basis", *shape)
        else:
            # Within a sample the store is a row of chunks, each laid out as the products want it.
            values = self.heads * self.bases
            phi = self.basis[sample, rows.start * values : rows.stop * values].view(shape)
        if self.fill or rows.stop > self.kept:
            if features is None:
                features, _ = self.features_at(sample, rows)
            torch.baddbmm(
                self.score_bias.unsqueeze(1), self.heads_of(features), self.score_weight, out=phi
            )
            each = self.partitions(phi)
            torch.softmax(each, -1, out=each)
        return phi

    def partitions(self, phi: Tensor) -> Tensor:
        """(h, B, g) -> (h, B, groups, g/groups), a view."""
        return phi.unflatten(2, (self.groups, -1))


def chunk_points(x: Tensor, values: int, *, stored: bool) -> int:
    """Points in a chunk, from the number of basis values at a point."""
    if x.device.type != "cpu":
        return _DEVICE_CHUNK
    # Where memory is spent anyway, half as many steps.
    return max(_CHUNK_VALUES // max(values, 2 * x.shape[-1]), 16) * (2 if stored else 1)
