"""The passes of `ops/attention/passes.py` by kernels that never store the basis.

The products of the width, which have no n x g either, are left to PyTorch; what is stored of the
first points of each sample are their results: features and values. All samples go together, in
chunks of points that bound the memory of the rest. Signatures are those of `passes.py`.

Axes: as there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from funcattn.ops.attention.chunks import Store, chunks
from funcattn.ops.attention.local_maps import AtPoints
from funcattn.ops.attention.passes import Lifted
from funcattn.ops.buffers import buffers
from funcattn.ops.fused.scored import Kernels, Scored, Toward
from funcattn.ops.native.products import plain_tensors_only

_CHUNK = 2**18
"""Points of all samples in a chunk: enough to fill a large GPU."""
_FAST = (torch.float32, torch.bfloat16, torch.float16)
"""Most GPUs have next to nothing for float64."""


def fused_passes(x: Tensor) -> "FusedPasses | None":
    """Those by Triton, where features are on a GPU and it is installed; None elsewhere."""
    if x.device.type != "cuda" or x.dtype not in _FAST or not plain_tensors_only():
        return None
    return _by_triton()


@cache
def _by_triton() -> "FusedPasses | None":
    try:
        from funcattn.ops.fused import by_triton
    except ImportError:  # PyTorch comes with it for most GPUs, but not for all systems
        return None
    return FusedPasses(by_triton)


@dataclass(frozen=True)
class FusedPasses:
    """Passes by some kernels; each head has programs of its own, so maps of heads stay apart."""

    kernels: Kernels

    def store_for(
        self, points: AtPoints, most: int, *, output: Tensor | None, gradient: bool
    ) -> Store:
        """Room for at most so many points of each sample, whole chunks."""
        kept = max((rows.stop for rows in _chunks(points) if rows.stop <= most), default=0)
        features = values = None
        if kept and points.basis_weight is not None and points.field_weight is not None:
            channels = len(points.basis_weight) + len(points.field_weight)
            features = _room(points.x, kept, channels)
        if kept and gradient and output is not None:
            values = _room(points.x, kept, output.shape[1])
        return Store(kept, None, features, values)

    def d_values_store(
        self, points: AtPoints, output: Tensor | None, store: Store
    ) -> Tensor | None:
        """Room for the gradient of the values at the points that are stored."""
        if not store.kept or output is None:
            return None
        return _room(points.x, store.kept, output.shape[1])

    def sum_forward(self, points: AtPoints, point_weights: Tensor | None, store: Store) -> Tensor:
        """[field, 1]^T w Phi, the first pass, which fills the store. The last row is the mass."""
        both = []
        for rows in _chunks(points):
            basis, field = _features(points, rows, store, fill=True)
            moments, mass = self.kernels.sums(
                basis, field, None if point_weights is None else point_weights[:, rows]
            )
            both.append(torch.cat([moments, mass.unsqueeze(2)], 2))
        return sum(both[1:], both[0]) if both else _no_sums(points)

    def lift_forward(
        self,
        points: AtPoints,
        coefficients: Tensor,
        output: Tensor | None,
        bias: Tensor | None,
        mask: Tensor | None,
        store: Store,
    ) -> Tensor:
        """[Phi_1 M_1, ...] O^T + o, the second pass; 0 O^T + o at masked points."""
        pieces = []
        for rows in _chunks(points):
            values = self._values(points, rows, coefficients, mask, store)
            if store.values is not None and rows.stop <= store.kept:
                _place(store.values, points, rows, values.shape[-1]).copy_(values)
            if output is not None:
                of_bias = None if bias is None else bias.to(values.dtype)
                values = F.linear(values, output.to(values.dtype), of_bias)
            elif bias is not None:
                values += bias
            pieces.append(values)
        return _joined(pieces, points.x, coefficients.shape[-1] if output is None else len(output))

    def lift_backward(
        self, points: AtPoints, lifted: Lifted, store: Store
    ) -> tuple[Tensor, Tensor | None]:
        """The gradients of the coefficients and of the output's map: the first pass back."""
        output = lifted.output
        d_coefficients = torch.zeros_like(lifted.coefficients.mT)
        d_output = None if output is None else torch.zeros_like(output)
        for rows in _chunks(points):
            basis = _basis(points, rows, store)
            d_values = _d_values(points, rows, lifted, store, fill=True)
            by_heads = _split(d_values, lifted.coefficients.shape[1])
            d_coefficients += self.kernels.sums(basis, by_heads, None)[0]
            if d_output is not None:
                if store.values is not None and rows.stop <= store.kept:
                    values = _place(store.values, points, rows, d_output.shape[1])
                else:
                    values = self._values(points, rows, lifted.coefficients, lifted.mask, store)
                d_out = lifted.d_out[:, rows].flatten(0, 1)
                d_output += d_out.T @ values.flatten(0, 1)
        return d_coefficients.mT, d_output

    def sum_backward(
        self,
        points: AtPoints,
        d_sums: Tensor,
        point_weights: Tensor | None,
        store: Store,
        lifted: Lifted | None,
    ) -> tuple[Tensor | None, ...]:
        """The gradients of the tensors of `points`, from the sums and from the lift."""
        d_moments, d_mass = d_sums[:, :, :-1], d_sums[:, :, -1]
        heads = d_sums.shape[1]
        of_x: list[Tensor] = []
        of_field: list[Tensor] = []
        d_weight = torch.zeros_like(points.score_weight)
        d_bias = torch.zeros_like(points.score_bias)
        maps = d_maps = None
        if points.basis_weight is not None and points.field_weight is not None:
            maps = torch.cat([points.basis_weight, points.field_weight])
            d_maps = torch.zeros_like(maps)
        for rows in _chunks(points):
            basis, field = _features(points, rows, store)
            w = None if point_weights is None else point_weights[:, rows]
            d_values = None
            if lifted is not None:
                d_values = _split(_d_values(points, rows, lifted, store), heads)
            toward = Toward(
                field,
                w,
                d_moments,
                d_mass,
                d_values,
                None if lifted is None else lifted.coefficients,
            )
            d_y, d_weight_here, d_bias_here = self.kernels.gradients(basis, toward)
            d_weight += d_weight_here
            d_bias += d_bias_here
            d_basis, d_field = d_y.flatten(2), self.kernels.lifted(basis, d_moments.mT).flatten(2)
            if w is not None:
                d_field *= w.unsqueeze(2)
            if maps is not None and d_maps is not None:
                d_both = torch.cat([d_basis, d_field], 2)
                of_x.append(d_both @ maps.to(d_both.dtype))
                d_maps += d_both.flatten(0, 1).T @ points.x[:, rows].flatten(0, 1)
            elif points.field is not None:
                of_x.append(d_basis)
                of_field.append(d_field)
            else:
                of_x.append(d_basis + d_field)
        d_each: tuple[Tensor | None, Tensor | None] = (None, None)
        if d_maps is not None and points.basis_weight is not None:
            k = len(points.basis_weight)
            d_each = d_maps[:k], d_maps[k:]
        d_x = _joined(of_x, points.x, points.x.shape[2])
        d_field_given = None
        if points.field is not None:
            d_field_given = _joined(of_field, points.x, points.field.shape[2])
        return d_x, d_field_given, *d_each, d_weight, d_bias

    def _values(
        self,
        points: AtPoints,
        rows: slice,
        coefficients: Tensor,
        mask: Tensor | None,
        store: Store,
    ) -> Tensor:
        """Phi M of all heads side by side, (b, B, he); 0 at masked points."""
        basis = _basis(points, rows, store)
        values = self.kernels.lifted(basis, coefficients).flatten(2)
        if mask is not None:
            values *= mask[:, rows].unsqueeze(2)
        return values


def _chunks(points: AtPoints) -> Iterator[slice]:
    b, n = points.x.shape[:2]
    return chunks(n, max(_CHUNK // max(b, 1), 1))


def _basis(points: AtPoints, rows: slice, store: Store, *, fill: bool = False) -> Scored:
    """The basis at a chunk, by its features: stored, or made."""
    x, weight = points.x[:, rows], points.basis_weight
    features = x if weight is None else _mapped(points, rows, store, weight, 0, fill=fill)
    heads = len(points.score_weight)
    return Scored(_split(features, heads), points.score_weight, points.score_bias)


def _features(
    points: AtPoints, rows: slice, store: Store, *, fill: bool = False
) -> tuple[Scored, Tensor]:
    """The basis and the field (b h B f) at a chunk."""
    basis = _basis(points, rows, store, fill=fill)
    if points.basis_weight is not None and points.field_weight is not None:
        after = len(points.basis_weight)
        field = _mapped(points, rows, store, points.field_weight, after, fill=fill)
    else:
        field = (points.x if points.field is None else points.field)[:, rows]
    return basis, _split(field, len(points.score_weight))


def _mapped(
    points: AtPoints, rows: slice, store: Store, weight: Tensor, after: int, *, fill: bool
) -> Tensor:
    """x weight^T at a chunk; it is stored behind so many channels."""
    x = points.x[:, rows]
    is_stored = store.features is not None and rows.stop <= store.kept
    if not is_stored:
        return x @ weight.T.to(x.dtype)
    assert store.features is not None
    assert points.basis_weight is not None
    assert points.field_weight is not None
    both = len(points.basis_weight) + len(points.field_weight)
    start = len(x) * (rows.start * both + (rows.stop - rows.start) * after)
    shape = (*x.shape[:2], len(weight))
    place = store.features[start : start + shape[0] * shape[1] * shape[2]].view(shape)
    if fill:
        place.copy_(x @ weight.T.to(x.dtype))
    return place


def _d_values(
    points: AtPoints, rows: slice, lifted: Lifted, store: Store, *, fill: bool = False
) -> Tensor:
    """The gradient of the heads' values at a chunk, (b, B, he)."""
    d_values = lifted.d_out[:, rows]
    if lifted.output is None and lifted.mask is None:
        return d_values
    place = None
    if lifted.output is not None and lifted.d_values is not None and rows.stop <= store.kept:
        place = _place(lifted.d_values, points, rows, lifted.output.shape[1])
        if not fill:
            return place
    if lifted.output is not None:
        d_values = d_values @ lifted.output.to(d_values.dtype)
    if lifted.mask is not None:
        d_values = d_values * lifted.mask[:, rows].unsqueeze(2)
    return d_values if place is None else place.copy_(d_values)


def _joined(pieces: list[Tensor], like: Tensor, channels: int) -> Tensor:
    """Chunks (b, B, channels) behind each other; one needs no copy."""
    if not pieces:
        return like.new_empty(len(like), 0, channels)
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, 1)


def _place(stored: Tensor, points: AtPoints, rows: slice, channels: int) -> Tensor:
    """Where a chunk stands in what is stored, (b, B, channels)."""
    b, count = len(points.x), rows.stop - rows.start
    start = b * rows.start * channels
    return stored[start : start + b * count * channels].view(b, count, channels)


def _room(x: Tensor, points: int, channels: int) -> Tensor:
    return buffers.take(len(x) * points * channels, x)


def _split(rows: Tensor, heads: int) -> Tensor:
    """(b, B, h d) -> (b, h, B, d), a view."""
    return rows.unflatten(2, (heads, -1)).transpose(1, 2)


def _no_sums(points: AtPoints) -> Tensor:
    """The sums over no points."""
    h, _, g = points.score_weight.shape
    if points.field_weight is not None:
        channels = len(points.field_weight)
    else:
        channels = (points.x if points.field is None else points.field).shape[-1]
    return points.score_weight.new_zeros(len(points.x), h, channels // h + 1, g)
