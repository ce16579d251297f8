r"""What a layer with a learned partition of unity does at each point alone, and its shortest form.

A layer offers its :class:`LocalMaps`. :func:`folded` multiplies linear maps that meet beforehand,
where that saves work, and makes biases part of small matrices. What it leaves is two things: the
:class:`AtPoints`, for passes over points, and the :class:`Remainder`, small matrices by which the
sums over points become moments of the layer's fields.

Axes: b batch, h head, n point, g basis function, c width, k features of all heads' bases, f field
channels of a head, e value channels of a head.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from funcattn.ops.moments import Moments
from funcattn.ops.projections import KnowsMass


@dataclass(frozen=True)
class Linear:
    """x weight^T + bias."""

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True)
class LocalMaps:
    """The maps of a self-attention at each point, head by head.

        y_h   = basis(x)_h                               (n d)    features of the basis
        Phi_h = softmax(y_h score_weight_h + score_bias_h)        (n g)
        f_h   = field(x)_h                               (n f)
        out   = output([Phi_1 M_1, ..., Phi_h M_h])      (n c)    M: coefficients of the result

    basis, field: linear maps of the features x, or their values (b n k) and (b n hf), where it
        takes more than one point to make them.
    score_weight (h d g), score_bias (h g): the temperature is part of them.
    fields: the f channels of a head are those of so many fields side by side.
    """

    basis: Linear | Tensor
    field: Linear | Tensor
    score_weight: Tensor
    score_bias: Tensor
    output: Linear
    fields: int = 1

    @property
    def heads(self) -> int:
        """The number of heads."""
        return self.score_weight.shape[0]

    @property
    def bases(self) -> int:
        """Basis functions of all heads together."""
        return self.score_bias.numel()

    @cached_property
    def folds(self) -> bool:
        """Whether maps of the width are multiplied with those of the heads beforehand.

        c x c and then, head by head, d x g are then c x hg at once, which is less work for one
        head, or few functions; the field's map is left to its few coefficients, and that of the
        output likewise.
        """
        others = self.bases // self.heads * (self.heads - 1)
        return others <= self.output.weight.shape[1] and isinstance(self.basis, Linear)


@dataclass(frozen=True)
class AtPoints:
    """The input of a pass over points, and the maps that are done there.

    x (b n c), or the features of the basis where basis_weight is None.
    field (b n hf): None where it is x, or where `field_weight` makes it.
    basis_weight (k c), field_weight (hf c): both or none.
    score_weight (h k/h g), score_bias (h g).
    groups: the functions of a head are so many partitions of unity side by side.
    half: factors of products are rounded to bfloat16, though x is in float32.
    """

    x: Tensor
    field: Tensor | None
    basis_weight: Tensor | None
    field_weight: Tensor | None
    score_weight: Tensor
    score_bias: Tensor
    groups: int = 1
    half: bool = False

    @cached_property
    def maps(self) -> Tensor | None:
        """Both maps of x as one, (k + hf, c), without a gradient."""
        if self.basis_weight is None or self.field_weight is None:
            return None
        return torch.cat([self.basis_weight.detach(), self.field_weight.detach()])

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """All that may want a gradient."""
        maps = (self.basis_weight, self.field_weight, self.score_weight, self.score_bias)
        return self.x, self.field, *maps

    @staticmethod
    def of(tensors: Sequence[Tensor | None], groups: int, half: bool) -> "AtPoints":
        """From its tensors and the rest."""
        x, field, basis_weight, field_weight, score_weight, score_bias = tensors
        assert x is not None
        assert score_weight is not None
        assert score_bias is not None
        return AtPoints(
            x, field, basis_weight, field_weight, score_weight, score_bias, groups, half
        )

    @property
    def rest(self) -> tuple[int, bool]:
        """What is not a tensor."""
        return self.groups, self.half

    @property
    def wants_gradient(self) -> bool:
        """Whether any of them does."""
        return any(tensor is not None and tensor.requires_grad for tensor in self.tensors)


@dataclass(frozen=True)
class Remainder:
    """Small maps: from sums over points to the moments of the layer's fields, and to its output.

    field_weight (hf c), field_bias (hf): applied to the moments. output_weight (c he): applied to
    the coefficients of the result. None: nothing is left to do.
    """

    heads: int
    fields: int
    field_weight: Tensor | None
    field_bias: Tensor | None
    output_weight: Tensor | None

    def moments(self, sums: Tensor, projection: KnowsMass) -> Moments:
        """From the sums [field, 1]^T w Phi, (b h f+1 g)."""
        moments, mass = sums[:, :, :-1].mT, sums[:, :, -1:].mT
        if self.field_weight is not None:
            # (b, 1, h g, c) -> (b, h, g, c)
            moments, mass = (
                total.unflatten(2, (self.heads, -1))[:, 0] for total in (moments, mass)
            )
            moments = moments @ self.field_weight.unflatten(0, (self.heads, -1)).mT
        if self.field_bias is not None:
            moments = moments + mass * self.field_bias.view(self.heads, 1, -1)
        # The functions of a head sum to one at each point, so their masses sum to the weight.
        weight = mass.detach()[:, 0].sum(1)
        fields = (moments,) if self.fields == 1 else moments.chunk(self.fields, -1)
        return Moments(fields, projection.statistic_of_mass(mass), weight)

    def lifted(self, coefficients: Tensor) -> Tensor:
        """Coefficients (b h g e) as the second pass wants them."""
        if self.output_weight is None:
            return coefficients
        by_heads = self.output_weight.unflatten(1, (self.heads, -1)).permute(1, 2, 0)  # (h, e, c)
        return (coefficients @ by_heads).flatten(1, 2).unsqueeze(1)  # (b, 1, h g, c)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All that may want a gradient."""
        return tuple(tensor for tensor in self._places() if tensor is not None)

    def with_tensors(self, tensors: tuple[Tensor, ...]) -> "Remainder":
        """The same with others in their places."""
        given = iter(tensors)
        places = (None if place is None else next(given) for place in self._places())
        return Remainder(self.heads, self.fields, *places)

    def _places(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        return self.field_weight, self.field_bias, self.output_weight


def folded(x: Tensor, maps: LocalMaps, *, heads: bool = True) -> tuple[AtPoints, Remainder]:
    """The maps of a layer, multiplied where they meet.

    heads: those of several heads too, where that saves work.
    """
    h, basis, field = maps.heads, maps.basis, maps.field
    scores = (maps.score_weight, maps.score_bias)
    folds = maps.folds and (heads or h == 1)
    # With one head, or all of them in one, the output's map goes to the coefficients.
    output = maps.output.weight if h == 1 or folds else None
    if not isinstance(basis, Linear) or not isinstance(field, Linear):
        if isinstance(basis, Linear) or isinstance(field, Linear):
            raise TypeError("maps: expected linear maps or values for both, basis and field")
        points = AtPoints(basis.contiguous(), field.contiguous(), None, None, *scores)
        return points, Remainder(h, maps.fields, None, None, output)
    score_bias = torch.baddbmm(
        maps.score_bias.unsqueeze(1), basis.bias.view(h, 1, -1), maps.score_weight
    ).squeeze(1)
    x = x.contiguous()
    if folds:
        by_heads = basis.weight.unflatten(0, (h, -1)).mT @ maps.score_weight  # (h, c, g)
        weight = by_heads.transpose(0, 1).flatten(1).unsqueeze(0)  # (1, c, h g)
        points = AtPoints(x, None, None, None, weight, score_bias.view(1, -1), groups=h)
        return points, Remainder(h, maps.fields, field.weight, field.bias, output)
    points = AtPoints(x, None, basis.weight, field.weight, maps.score_weight, score_bias)
    return points, Remainder(h, maps.fields, None, field.bias, output)
