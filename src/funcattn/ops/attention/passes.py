"""The passes over points of functional attention in chunks: two forward, two for the gradient.

    T   = [field, 1]^T w Phi                            `sum_forward`,  `sum_backward`
    out = [Phi_1 M_1, ..., Phi_h M_h] O^T + o           `lift_forward`, `lift_backward`

Gradients are called `d_name`. Axes: b batch, h head, n point, B point of a chunk, g basis function,
c width, k features of all heads' bases, f field channels of a head, e value channels of a head.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from funcattn.ops.attention.chunks import Pass, Store, chunk_points, chunks, room
from funcattn.ops.attention.local_maps import AtPoints


def store_for(points: AtPoints, most: int, *, output: Tensor | None, gradient: bool) -> Store:
    """Room for at most so many points of each sample.

    output: the map (c he) of the values of all heads, where there is one.
    """
    x, (h, _, g) = points.x, points.score_weight.shape
    ends = [rows.stop for rows in chunks(x.shape[1], chunk_points(x, h * g))]
    kept = max((end for end in ends if end <= most), default=0)
    if not kept:
        return Store()
    features = values = None
    if gradient and points.basis_weight is not None and points.field_weight is not None:
        features = room(x, kept, len(points.basis_weight) + len(points.field_weight))
    if gradient and output is not None:
        values = room(x, kept, output.shape[1])
    return Store(kept, room(x, kept, h * g), features, values)


def sum_forward(
    points: AtPoints, point_weights: Float[Tensor, "b n"] | None, store: Store
) -> Float[Tensor, "b h f1 g"]:
    """[field, 1]^T w Phi, the first pass, which fills the store. The last row is the mass."""
    chunk = Pass(points, store, fill=True)
    b, h, g = len(points.x), chunk.heads, chunk.bases
    if points.field_weight is not None:
        channels = len(points.field_weight)
    else:
        channels = (points.x if points.field is None else points.field).shape[-1]
    all_moments = points.x.new_zeros(b, h, channels // h, g)
    all_mass = points.x.new_zeros(b, h, 1, g)
    for sample, rows in chunk:
        basis_features, field = chunk.features_at(sample, rows)
        phi = chunk.basis_at(sample, rows, basis_features)
        moments, mass = all_moments[sample], all_mass[sample, :, 0]
        if point_weights is None:
            mass += phi.sum(1)
        else:
            w = point_weights[sample, rows]
            mass += torch.matmul(w, phi)
            field = torch.mul(field, w.unsqueeze(1), out=chunk.buffer("weighted", *field.shape))
        moments.baddbmm_(chunk.heads_of(field).mT, phi)
    return torch.cat([all_moments, all_mass], 2)


def lift_forward(
    points: AtPoints,
    coefficients: Float[Tensor, "b h g e"],
    output: Float[Tensor, "c he"] | None,
    bias: Float[Tensor, " c"] | None,
    mask: Bool[Tensor, "b n"] | None,
    store: Store,
) -> Float[Tensor, "b n c"]:
    """[Phi_1 M_1, ...] O^T + o, the second pass; 0 O^T + o at masked points.

    output: None for the identity, with one head only.
    """
    chunk = Pass(points, store)
    channels = coefficients.shape[-1] if output is None else len(output)
    out = points.x.new_empty(*points.x.shape[:2], channels)
    for sample, rows in chunk:
        phi, here = chunk.basis_at(sample, rows), out[sample, rows]
        if output is None:
            torch.mm(phi[0], coefficients[sample, 0], out=here)
            if mask is not None:
                here *= mask[sample, rows].unsqueeze(1)
            if bias is not None:
                here += bias
            continue
        values = store.place(store.values, sample, rows, output.shape[1])
        values = _values(chunk, phi, coefficients[sample], mask, sample, rows, values)
        if bias is None:
            torch.mm(values, output.T, out=here)
        else:
            torch.addmm(bias, values, output.T, out=here)
    return out


@dataclass(frozen=True)
class Lifted:
    """What reaches Phi by the lift, for both passes of the gradient.

    d_values: room for the gradient of the heads' values, he per point, at the points whose basis is
    stored; the first of the passes fills it.
    """

    d_out: Tensor
    coefficients: Tensor
    output: Tensor | None
    mask: Tensor | None
    d_values: Tensor | None

    def d_values_at(self, chunk: Pass, sample: int, rows: slice, *, fill: bool = False) -> Tensor:
        """The gradient of `_values`, (B, he)."""
        d_out = self.d_out[sample, rows]
        if self.output is None and self.mask is None:
            return d_out
        channels = d_out.shape[1] if self.output is None else self.output.shape[1]
        stored = chunk.store.place(self.d_values, sample, rows, channels)
        if stored is None:
            d_values = chunk.buffer("by_heads", len(d_out), channels)
        else:
            d_values = stored.view(-1, channels)
            if not fill:
                return d_values
        if self.output is None:
            d_values.copy_(d_out)
        else:
            torch.mm(d_out, self.output, out=d_values)
        if self.mask is not None:
            d_values *= self.mask[sample, rows].unsqueeze(1)
        return d_values


def d_values_store(points: AtPoints, output: Tensor | None, store: Store) -> Tensor | None:
    """Room for the gradient of the values at the points whose basis is stored."""
    if store.basis is None or output is None:
        return None
    return room(points.x, store.kept, output.shape[1])


def lift_backward(
    points: AtPoints, lifted: Lifted, store: Store
) -> tuple[Float[Tensor, "b h g e"], Float[Tensor, "c he"] | None]:
    """The gradients of the coefficients and of the output's map: the first pass back."""
    chunk = Pass(points, store)
    coefficients, output = lifted.coefficients, lifted.output
    d_coefficients = torch.zeros_like(coefficients.mT, memory_format=torch.contiguous_format)
    d_output = None if output is None else torch.zeros_like(output)
    for sample, rows in chunk:
        phi = chunk.basis_at(sample, rows)
        d_values = lifted.d_values_at(chunk, sample, rows, fill=True)
        d_coefficients[sample].baddbmm_(chunk.heads_of(d_values).mT, phi)
        if d_output is not None:
            stored = store.place(store.values, sample, rows, d_output.shape[1])
            if stored is None:
                values = _values(chunk, phi, coefficients[sample], lifted.mask, sample, rows)
            else:
                values = stored.view(-1, d_output.shape[1])
            d_output.addmm_(lifted.d_out[sample, rows].T, values)
    return d_coefficients.mT, d_output


def sum_backward(
    points: AtPoints,
    d_sums: Float[Tensor, "b h f1 g"],
    point_weights: Tensor | None,
    store: Store,
    lifted: Lifted | None,
) -> tuple[Tensor | None, ...]:
    """The gradients of the tensors of `points`, from the sums and from the lift: the second pass.

    lifted: None where there was no lift.
    """
    chunk = Pass(points, store)
    d_moments, d_mass = d_sums[:, :, :-1].contiguous(), d_sums[:, :, -1:]
    d_x = torch.empty_like(points.x)
    d_field_given = None if points.field is None else torch.empty_like(points.field)
    weight = d_weight = None
    if points.basis_weight is not None and points.field_weight is not None:
        weight = torch.cat([points.basis_weight, points.field_weight])
        d_weight = torch.zeros_like(weight)
    d_score_weight = torch.zeros_like(points.score_weight)
    d_score_bias = torch.zeros_like(points.score_bias)
    width = chunk.heads * chunk.head_features
    for sample, rows in chunk:
        length = rows.stop - rows.start
        basis_features, field = chunk.features_at(sample, rows)
        phi = chunk.basis_at(sample, rows, basis_features)
        w = None if point_weights is None else point_weights[sample, rows].unsqueeze(1)

        d_phi = chunk.buffer("d_phi", *phi.shape)
        torch.baddbmm(d_mass[sample], chunk.heads_of(field), d_moments[sample], out=d_phi)
        if w is not None:
            d_phi *= w
        if lifted is not None:
            d_values = lifted.d_values_at(chunk, sample, rows)
            d_phi.baddbmm_(chunk.heads_of(d_values), lifted.coefficients[sample].mT)
        each, d_each = chunk.partitions(phi), chunk.partitions(d_phi)
        torch.ops.aten._softmax_backward_data.out(d_each, each, -1, phi.dtype, grad_input=d_each)
        d_scores = d_phi
        d_score_bias += d_scores.sum(1)
        d_score_weight.baddbmm_(chunk.heads_of(basis_features).mT, d_scores)

        # From here on both ways into x: by the basis, and by the field.
        d_here = d_x[sample, rows]
        if weight is not None:
            # In the place of the features, which have done their work, unless these are kept.
            name = "features" if store.features is None else "d_features"
            d_both = chunk.buffer(name, length, len(weight))
            d_basis, d_field = d_both[:, :width], d_both[:, width:]
        elif d_field_given is not None:
            d_basis, d_field = d_here, d_field_given[sample, rows]
        else:
            d_basis, d_field = d_here, chunk.buffer("d_features", length, width)
        by_heads = chunk.buffer("by_heads", chunk.heads, length, chunk.head_features)
        torch.bmm(d_scores, points.score_weight.mT, out=by_heads)
        chunk.heads_of(d_basis).copy_(by_heads)
        by_heads = chunk.buffer("by_heads", chunk.heads, length, d_moments.shape[2])
        torch.bmm(phi, d_moments[sample].mT, out=by_heads)
        chunk.heads_of(d_field).copy_(by_heads)
        if w is not None:
            d_field *= w
        if weight is not None and d_weight is not None:
            torch.mm(d_both, weight, out=d_here)
            d_weight.addmm_(d_both.T, points.x[sample, rows])
        elif d_field_given is None:
            d_here += d_field
    d_maps = (None, None) if d_weight is None else (d_weight[:width], d_weight[width:])
    return d_x, d_field_given, *d_maps, d_score_weight, d_score_bias


def _values(
    chunk: Pass,
    phi: Tensor,
    coefficients: Tensor,
    mask: Tensor | None,
    sample: int,
    rows: slice,
    out: Tensor | None = None,
) -> Tensor:
    """Phi M of all heads side by side, (B, he); 0 at masked points. out: where to, flat."""
    length, channels = phi.shape[1], coefficients.shape[-1]
    shape = (length, chunk.heads * channels)
    values = chunk.buffer("values", *shape) if out is None else out.view(shape)
    by_heads = chunk.buffer("by_heads", chunk.heads, length, channels)
    chunk.heads_of(values).copy_(torch.bmm(phi, coefficients, out=by_heads))
    if mask is not None:
        values *= mask[sample, rows].unsqueeze(1)
    return values
