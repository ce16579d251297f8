r"""The sums over points and the way back, chunk by chunk: fast because a chunk stays in the cache.

For a learned partition of unity, self-attention is

    y     = x W^T, or given                             features of the basis and of the field
    Phi_h = softmax(y_h S_h + s_h)                      (n g), never in memory as a whole
    T_h   = [field_h, 1]^T w Phi_h                      (f + 1, g), the moments and the mass
    ...                                                 small: the map, its solve, all heads at once
    out   = [Phi_1 M_1, ..., Phi_h M_h] O^T + o         (n c)

with one pass over the points for T (:func:`gather`) and one for the result (:func:`scatter`). What
lies between is ordinary differentiable code on T and M, which do not know of points.

The gradient is written out here. It needs two passes as well: scatter's backward gives that of M,
gather's, once the small part has turned it into that of T, gives the rest of both at once, so that
Phi is met twice only. Phi is recomputed from x on every pass, or stored on the first, or stored at
some of the points and recomputed at the others.

Axes: b batch, h head, n point, g basis function, c width, k features of all heads' bases, f field
channels of a head, e value channels of a head.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from funcattn.ops.buffers import buffers
from funcattn.ops.checks import refuse_second_derivatives
from funcattn.ops.passes import Pass, chunk_points, chunks


@dataclass(frozen=True)
class LocalMaps:
    """What happens at each point alone, before the sums.

    weight (k + h f, c): one product for the features of the basis and of the field; None: x is the
        features of the basis, and the field is given.
    score_weight (h, k/h, g), score_bias (h, g): from features to scores, temperature included.
    groups: the functions of a head are so many partitions of unity side by side.
    """

    weight: Tensor | None
    score_weight: Tensor
    score_bias: Tensor
    groups: int = 1


@dataclass
class _Link:
    """What scatter's backward leaves for gather's."""

    gradient: Tensor | None = None
    of_values: Tensor | None = None
    """The gradient of the heads' values, where it was worth storing."""
    coefficients: Tensor | None = None
    out_weight: Tensor | None = None
    mask: Tensor | None = None

    store_is_gone: bool = False
    values_are_gone: bool = False
    """The buffers went on to others: after one backward pass a second one has to recompute."""

    def give_back(self, *stored: Tensor | None) -> None:
        """The stored basis and features are not needed any more."""
        if not self.store_is_gone:
            self.store_is_gone = True
            for buffer in stored:
                if buffer is not None:
                    buffers.give(buffer)

    def take(self) -> "_Link":
        """What was left, no longer held here."""
        left = replace(self)
        self.gradient = self.of_values = self.coefficients = self.out_weight = self.mask = None
        return left


@dataclass(frozen=True)
class Gathered:
    """What scatter needs of gather's pass."""

    x: Tensor
    maps: LocalMaps
    basis: Tensor | None
    features: Tensor | None
    backward: bool = False
    """Whether a gradient will be asked for."""
    link: _Link = field(default_factory=_Link)


def gather(
    x: Float[Tensor, "b n c"],
    field: Float[Tensor, "b n hf"] | None,
    maps: LocalMaps,
    *,
    point_weights: Float[Tensor, "b n"] | None,
    store: int,
) -> tuple[Float[Tensor, "b h f1 g"], Gathered]:
    """[field, 1]^T w Phi, one pass over the points.

    field: None where `maps.weight` makes it, or where it is x itself. The last row of the sums is
    the mass of the functions. Gradients go to all but the point weights.
    store: of how many points of a sample Phi is kept for the passes to come, at most.
    """
    x, field = x.contiguous(), None if field is None else field.contiguous()
    link = _Link()
    given = (x, field, maps.weight, maps.score_weight, maps.score_bias)
    backward = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in given)
    sums, basis, features = _Gather.apply(  # type: ignore[no-untyped-call]
        link, store, backward, maps.groups, *given, point_weights
    )
    return sums, Gathered(x, maps, basis, features, backward, link)


def scatter(
    gathered: Gathered,
    coefficients: Float[Tensor, "b h g e"],
    out_weight: Float[Tensor, "c he"] | None,
    out_bias: Float[Tensor, " c"] | None,
    *,
    mask: Bool[Tensor, "b n"] | None,
) -> Float[Tensor, "b n c"]:
    """[Phi_1 M_1, ...] O^T + o, the second pass; 0 O^T + o at masked points.

    out_weight: None for the identity, with one head only.
    """
    g, weight = gathered, gathered.maps.weight
    if weight is not None:
        # Of the two products the basis has the first, and it alone is met again.
        weight = weight.detach()[: g.maps.score_weight.shape[:2].numel()]
    out: Tensor = _Scatter.apply(  # type: ignore[no-untyped-call]
        g.link, g.backward, g.maps.groups, g.x, weight, g.maps.score_weight, g.maps.score_bias,
        g.basis, coefficients, out_weight, out_bias, mask,
    )  # fmt: skip
    if not out.requires_grad:
        g.link.give_back(g.basis, g.features)
    return out


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        link: _Link,
        store: int,
        backward: bool,
        groups: int,
        x: Tensor,
        field: Tensor | None,
        weight: Tensor | None,
        score_weight: Tensor,
        score_bias: Tensor,
        point_weights: Tensor | None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        b, n, c = x.shape
        h, _, g = score_weight.shape
        basis = features = None
        # Whole chunks.
        ends = [rows.stop for rows in chunks(n, chunk_points(x, h * g, stored=True))]
        if kept := max((end for end in ends if end <= store), default=0):
            basis = _room(x, kept, h * g).view(b, -1)
            if backward and weight is not None:
                features = _room(x, kept, len(weight))
        maps = (weight, score_weight, score_bias)
        points = Pass(x, field, *maps, basis, features, groups=groups, fill=True)
        if weight is None:
            channels = c if field is None else field.shape[-1]
        else:
            channels = len(weight) - h * points.head_features
        all_moments, all_mass = x.new_zeros(b, h, channels // h, g), x.new_zeros(b, h, 1, g)
        for sample, rows in points:
            of_basis, of_field = points.features_at(sample, rows)
            phi = points.basis_at(sample, rows, of_basis)
            moments, mass = all_moments[sample], all_mass[sample, :, 0]
            if point_weights is None:
                mass += phi.sum(1)
            else:
                w = point_weights[sample, rows]
                mass += torch.matmul(w, phi)
                of_field = torch.mul(
                    of_field, w.unsqueeze(1), out=points.buffer("weighted", *of_field.shape)
                )
            moments.baddbmm_(points.heads_of(of_field).mT, phi)
        points.close()
        ctx.link, ctx.groups = link, groups
        ctx.save_for_backward(
            x, field, weight, score_weight, score_bias, point_weights, basis, features
        )
        ctx.mark_non_differentiable(*(t for t in (basis, features) if t is not None))
        ctx.set_materialize_grads(False)
        return torch.cat([all_moments, all_mass], 2), basis, features

    @staticmethod
    def backward(ctx: Any, of_sums: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        x, field, weight, score_weight, score_bias, w, basis, features = ctx.saved_tensors
        link, stored = ctx.link.take(), (basis, features)
        if link.store_is_gone:
            basis = features = None
        maps = (weight, score_weight, score_bias)
        points = Pass(x, field, *maps, basis, features, groups=ctx.groups)
        of_moments, of_mass = of_sums[:, :, :-1].contiguous(), of_sums[:, :, -1:]
        of_x = torch.empty_like(x)
        of_given = None if field is None else torch.empty_like(field)
        of_weight = None if weight is None else torch.zeros_like(weight)
        of_score_weight = torch.zeros_like(score_weight)
        of_score_bias = torch.zeros_like(score_bias)
        width = points.heads * points.head_features
        for sample, rows in points:
            from_basis, from_field = points.features_at(sample, rows)
            phi = points.basis_at(sample, rows, from_basis)
            of_phi = points.buffer("of_phi", *phi.shape)
            torch.baddbmm(
                of_mass[sample], points.heads_of(from_field), of_moments[sample], out=of_phi
            )
            if w is not None:
                of_phi *= w[sample, rows].view(1, -1, 1)
            if link.gradient is not None:
                of_values = _of_values(points, link, sample, rows)
                of_phi.baddbmm_(points.heads_of(of_values), link.coefficients[sample].mT)
            each, of_each = points.partitions(phi), points.partitions(of_phi)
            torch.ops.aten._softmax_backward_data.out(
                of_each, each, -1, phi.dtype, grad_input=of_each
            )
            of_scores = of_phi
            of_score_bias += of_scores.sum(1)
            of_score_weight.baddbmm_(points.heads_of(from_basis).mT, of_scores)

            # From here on both ways into x: by the basis, and by the field.
            length = rows.stop - rows.start
            here = of_x[sample, rows]
            if weight is not None:
                # In the place of the features, which have done their work, unless these are kept.
                name = "features" if features is None else "of_features"
                both = points.buffer(name, length, len(weight))
                of_basis, of_field = both[:, :width], both[:, width:]
            elif of_given is not None:
                of_basis, of_field = here, of_given[sample, rows]
            else:
                of_basis, of_field = here, points.buffer("of_features", length, width)
            points.heads_of(of_basis).copy_(
                torch.bmm(
                    of_scores, score_weight.mT,
                    out=points.buffer("by_heads", points.heads, length, points.head_features),
                )
            )  # fmt: skip
            channels = of_moments.shape[2]
            points.heads_of(of_field).copy_(
                torch.bmm(
                    phi, of_moments[sample].mT,
                    out=points.buffer("by_heads", points.heads, length, channels),
                )
            )  # fmt: skip
            if w is not None:
                of_field *= w[sample, rows].unsqueeze(1)
            if weight is not None and of_weight is not None:
                torch.mm(both, weight, out=here)
                of_weight.addmm_(both.T, x[sample, rows])
            elif of_given is None:
                here += of_field
        points.close()
        ctx.link.give_back(*stored)
        if link.of_values is not None:
            buffers.give(link.of_values)
        of_maps = (of_weight, of_score_weight, of_score_bias)
        return None, None, None, None, of_x, of_given, *of_maps, None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        link: _Link,
        backward: bool,
        groups: int,
        x: Tensor,
        weight: Tensor | None,
        score_weight: Tensor,
        score_bias: Tensor,
        basis: Tensor | None,
        coefficients: Tensor,
        out_weight: Tensor | None,
        out_bias: Tensor | None,
        mask: Tensor | None,
    ) -> Tensor:
        points = Pass(x, None, weight, score_weight, score_bias, basis, groups=groups)
        stored = None
        if backward and basis is not None and out_weight is not None:
            stored = _room(x, points.kept, out_weight.shape[1])
        outputs = coefficients.shape[-1] if out_weight is None else len(out_weight)
        out = x.new_empty(*x.shape[:2], outputs)
        for sample, rows in points:
            phi = points.basis_at(sample, rows)
            here = out[sample, rows]
            if out_weight is None:
                torch.mm(phi[0], coefficients[sample, 0], out=here)
                if mask is not None:
                    here *= mask[sample, rows].unsqueeze(1)
                if out_bias is not None:
                    here += out_bias
                continue
            values = _values(points, phi, coefficients[sample], mask, sample, rows, stored)
            if out_bias is None:
                torch.mm(values, out_weight.T, out=here)
            else:
                torch.addmm(out_bias, values, out_weight.T, out=here)
        points.close()
        ctx.link, ctx.groups = link, groups
        ctx.has_bias = out_bias is not None
        ctx.save_for_backward(
            x, weight, score_weight, score_bias, basis, stored, coefficients, out_weight, mask
        )
        return out

    @staticmethod
    def backward(ctx: Any, of_out: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        x, weight, score_weight, score_bias, basis, stored, *rest = ctx.saved_tensors
        coefficients, out_weight, mask = rest
        link = ctx.link
        if link.store_is_gone:
            basis = None
        points = Pass(x, None, weight, score_weight, score_bias, basis, groups=ctx.groups)
        link.gradient, link.coefficients = of_out.contiguous(), coefficients
        link.out_weight, link.mask = out_weight, mask
        if basis is not None and out_weight is not None:
            link.of_values = _room(x, points.kept, out_weight.shape[1])
        of_coefficients = torch.zeros_like(coefficients.mT, memory_format=torch.contiguous_format)
        of_out_weight = None if out_weight is None else torch.zeros_like(out_weight)
        lifted = None if link.values_are_gone else stored
        for sample, rows in points:
            phi = points.basis_at(sample, rows)
            of_values = _of_values(points, link, sample, rows, fill=True)
            of_coefficients[sample].baddbmm_(points.heads_of(of_values).mT, phi)
            if of_out_weight is not None:
                values = points.place(lifted, sample, rows)
                if values is None:
                    values = _values(points, phi, coefficients[sample], mask, sample, rows)
                of_out_weight.addmm_(link.gradient[sample, rows].T, values)
        points.close()
        of_bias = link.gradient.sum((0, 1)) if ctx.has_bias else None
        if stored is not None and not link.values_are_gone:
            link.values_are_gone = True
            buffers.give(stored)
        return (*(None,) * 8, of_coefficients.mT, of_out_weight, of_bias, None)


def _values(
    points: Pass,
    phi: Tensor,
    coefficients: Tensor,
    mask: Tensor | None,
    sample: int,
    rows: slice,
    stored: Tensor | None = None,
) -> Tensor:
    """Phi M of all heads side by side, (B, h e); 0 at masked points."""
    length, channels = phi.shape[1], coefficients.shape[-1]
    values = points.place(stored, sample, rows)
    if values is None:
        values = points.buffer("values", length, points.heads * channels)
    lifted = points.buffer("by_heads", points.heads, length, channels)
    points.heads_of(values).copy_(torch.bmm(phi, coefficients, out=lifted))
    if mask is not None:
        values *= mask[sample, rows].unsqueeze(1)
    return values


def _room(x: Tensor, points: int, channels: int) -> Tensor:
    """A buffer (b, points, channels), from those that are used again."""
    return buffers.take(len(x) * points * channels, x).view(len(x), points, channels)


def _of_values(
    points: Pass, link: _Link, sample: int, rows: slice, *, fill: bool = False
) -> Tensor:
    """The gradient of `_values`, (B, h e); fill: for the first time."""
    assert link.gradient is not None
    out = points.place(link.of_values, sample, rows)
    if out is not None and not fill:
        return out
    gradient = link.gradient[sample, rows]
    if link.out_weight is None and link.mask is None:
        return gradient
    if out is None:
        weight = link.out_weight
        channels = gradient.shape[1] if weight is None else weight.shape[1]
        out = points.buffer("by_heads", len(gradient), channels)
    if link.out_weight is None:
        out.copy_(gradient)
    else:
        torch.mm(gradient, link.out_weight, out=out)
    if link.mask is not None:
        out *= link.mask[sample, rows].unsqueeze(1)
    return out
