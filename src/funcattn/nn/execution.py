"""Which form of functional attention a call takes, and how much of its basis is stored.

The form depends on the layer and on the call. What is stored depends on the free memory too, and
changes no bit of the result.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from funcattn.nn.bases import LearnedBasis
from funcattn.nn.feature_maps import Pointwise
from funcattn.nn.linear import Linear as PackageLinear
from funcattn.nn.points import Points
from funcattn.ops import Projection, ProjectionName
from funcattn.ops.attention import native_passes
from funcattn.ops.attention.local_maps import Linear, LocalMaps
from funcattn.ops.buffers import buffers
from funcattn.ops.linalg import autocast_is_on, full_precision
from funcattn.ops.memory import available_bytes, saved_tensors_are_taken
from funcattn.ops.projections import Average, KnowsMass, chosen_projection

Execution = Literal["auto", "plain", "stored", "streamed"]

_FEW_VALUES = 2**15
"""Values of a sample's features below which the plain form is faster: chunks have small products of
their own, and more Python. Channels beyond `_MANY_CHANNELS` do not make it so any sooner."""
_MANY_CHANNELS = 128
_SMALL_STORE = 2**26
"""Bytes of a stored basis that nobody minds."""
_SHARE_OF_MEMORY = 1 / 16
"""The part of the free memory that one layer's stored basis may take: of a network's layers all are
kept for the gradient. Each layer leaves less to the next, so that many do not fill the memory."""
_SHARE_WITHOUT_GRADIENT = 1 / 8
"""The same where there will be no gradient: it is kept from the layer's first pass to its second,
and one layer comes after the other."""


@dataclass(frozen=True)
class Parts:
    """The modules of a layer that decide whether its self-attention can be done in chunks.

    fields: one for the field of which queries, keys and values are maps, or one for each of them.
    """

    basis: nn.Module
    key_basis: nn.Module
    fields: tuple[nn.Module, ...]
    output: nn.Module
    projection: Projection | ProjectionName
    heads: int

    @cached_property
    def dtype(self) -> torch.dtype:
        """That of its weights."""
        return _linear(self.output).weight.dtype

    def why_not_in_chunks(self, x: Tensor, points: Points) -> str | None:
        """What keeps a call from being done in chunks, in words, or None."""
        basis, output = self.basis, self.output
        if type(basis) is not LearnedBasis or self.key_basis is not basis:
            return "it has another basis than one LearnedBasis"
        if not _knows_mass(type(chosen_projection(self.projection))):
            return "its projection needs more of the basis than the mass"
        if len(self.fields) > 1 and not all(
            isinstance(features, Pointwise) for features in (basis.features, *self.fields)
        ):
            return "its maps at the points are not point-wise"
        if type(output) not in (nn.Linear, PackageLinear):
            return "its output map is not linear"
        if torch.compiler.is_compiling():
            return "it is compiled or exported"
        if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
            return "a transform of functions is at work"
        if self.dtype not in (torch.float32, torch.float64) or not (
            x.dtype == self.dtype or autocast_is_on(x.device)
        ):
            return "its features are not in float32 or float64 as its weights are"
        if points.weights is not None and points.weights.requires_grad:
            return "the point weights want a gradient"
        return None

    def all_in_c(self, x: Tensor) -> bool:
        """Whether C does the passes, and all that lies between them (`native_middle.py`)."""
        return (
            len(self.fields) == 1
            and type(chosen_projection(self.projection)) is Average
            and native_passes.can_do(x)
        )

    def local_maps(self, x: Tensor, points: Points) -> LocalMaps:
        """What the layer does at each point alone: all that the chunked form knows of it."""
        assert isinstance(self.basis, LearnedBasis)
        with full_precision(x.device):
            # A factor has a shorter gradient than a divisor.
            sharpness = self.basis.bounded_temperature().reciprocal()
            of_basis, of_field = self._features(x, points, self.basis.features)
            return LocalMaps(
                of_basis,
                of_field,
                self.basis.scores.weight.mT * sharpness.view(-1, 1, 1),  # (h, d, g)
                self.basis.scores.bias * sharpness.view(-1, 1),
                _linear(self.output),
                len(self.fields),
            )

    def _features(
        self, x: Tensor, points: Points, of_basis: nn.Module
    ) -> tuple[Linear, Linear] | tuple[Tensor, Tensor]:
        """The maps to the features of the basis and of the fields; their values where these are not
        point-wise."""
        pointwise = [part.map for part in self.fields if isinstance(part, Pointwise)]
        if not pointwise or not isinstance(of_basis, Pointwise):
            return of_basis(x, points), self.fields[0](x, points)
        maps = [_linear(part) for part in pointwise]
        if len(maps) == 1:
            return _linear(of_basis.map), maps[0]
        # (h, d, c) for each field -> (h, fields, d, c): the channels of a head side by side
        weight, bias = (
            torch.stack([part.unflatten(0, (self.heads, -1)) for part in parts], 1).flatten(0, 2)
            for parts in ([by.weight for by in maps], [by.bias for by in maps])
        )
        return _linear(of_basis.map), Linear(weight, bias)


def is_few(x: Tensor, parts: Parts) -> bool:
    """Whether the plain form is faster for so few points, which it never is where C does it all."""
    few = x.shape[1] * min(x.shape[2], _MANY_CHANNELS) < _FEW_VALUES
    return few and not parts.all_in_c(x)


def is_watched(module: nn.Module) -> bool:
    """Whether a hook waits for a call of this module or of one in it: chunks make none."""
    # At every call of a layer, so without `module.modules()`, which takes ten times as long.
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    ) or any(is_watched(part) for part in module._modules.values() if part is not None)


@cache
def _knows_mass(projection: type) -> bool:
    # Remembered: to look at a class for the methods of a protocol takes its time.
    return issubclass(projection, KnowsMass)


def points_to_store(x: Tensor, maps: LocalMaps) -> int:
    """At how many points of a sample there is memory to store the basis; at the others it is
    computed again."""
    per_value = x.shape[0] * x.element_size()
    basis = per_value * maps.bases
    # Features, values and the gradient of these; where maps are folded there are none.
    with_features = basis if maps.folds else basis + per_value * 4 * x.shape[2]
    if with_features * x.shape[1] <= _SMALL_STORE:
        return x.shape[1]
    if torch.is_grad_enabled() and saved_tensors_are_taken():
        # A checkpoint repeats the call and must find the same tensors saved, so the free memory,
        # which is different by then, has no say. It would not keep them anyway.
        return 0
    free = available_bytes(x.device) + (buffers.idle if x.device.type == "cpu" else 0)
    if torch.is_grad_enabled():
        return int(_SHARE_OF_MEMORY * free / with_features)
    # Beyond the buffers that are used again, fresh memory costs as much as the basis once more.
    return int(min(buffers.most, _SHARE_WITHOUT_GRADIENT * free) / basis)


def _linear(layer: nn.Module) -> Linear:
    assert isinstance(layer.weight, Tensor)
    assert isinstance(layer.bias, Tensor)
    return Linear(layer.weight, layer.bias)
