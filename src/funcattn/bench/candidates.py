"""What is measured: layers, and whole networks, by name.

The baselines are those of `funcattn.nn.attentions`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from funcattn.bench.reference_form import ReferenceForm
from funcattn.models import OperatorTransformer
from funcattn.nn import FunctionalAttention
from funcattn.nn.attentions import ATTENTIONS, AttentionEntry
from funcattn.nn.execution import Execution
from funcattn.problem import Field, Problem
from funcattn.settings import SizedAttentionSettings

Scope = Literal["layer", "model"]
OURS, PLAIN, STREAMED = "functional", "functional, plain", "functional, streamed"
COMPILED, CHECKPOINTED = "functional, compiled", "functional, checkpointed"
REFERENCE, HALF = "reference form", "functional, bfloat16"
NEAREST = "linear_no"
"""The baseline that ours is measured against with each alone: in most of the bench the fastest."""
LAYERS_OF_MODEL = 8
NOT_MEASURED = frozenset({"fourier", "intention", "perceiver", "transolver_plus", "lrsa", "lamo"})
"""Attentions that cost about what another does: galerkin, linear, flare, transolver, flare and
transolver."""


@dataclass(frozen=True)
class Shape:
    """Width c, basis functions g (or what a baseline has in their place) and heads h."""

    width: int
    bases: int
    heads: int

    def __str__(self) -> str:
        return f"{self.width}/{self.bases}/{self.heads}"


@dataclass(frozen=True)
class Candidate:
    """A module to measure."""

    build: Callable[[Shape, int], nn.Module]
    """From its shape and the number of points."""
    functional: bool = False
    """Whether it computes functional attention, and so must agree with the plain form."""
    compiled: bool = False
    quadratic: bool = False
    """Whether its time grows with the square of the points, which sets an end to them."""


def _ours(execution: Execution) -> Callable[[Shape, int], nn.Module]:
    def build(shape: Shape, points: int) -> nn.Module:  # noqa: ARG001
        return FunctionalAttention(shape.width, shape.heads, shape.bases, execution=execution)

    return build


def _compiled(build: Callable[[Shape, int], nn.Module]) -> Callable[[Shape, int], nn.Module]:
    def build_and_compile(shape: Shape, points: int) -> nn.Module:
        module = build(shape, points)
        module.compile(dynamic=False)  # in place, so that names of weights stay
        return module

    return build_and_compile


def _reference(shape: Shape, points: int) -> nn.Module:  # noqa: ARG001
    return ReferenceForm(shape.width, shape.heads, shape.bases)


def _baseline(entry: AttentionEntry) -> Callable[[Shape, int], nn.Module]:
    kind = entry.settings

    def build(shape: Shape, points: int) -> nn.Module:
        problem = Problem(2, (Field("input"),), (Field("output"),), points=points)
        if issubclass(kind, SizedAttentionSettings):
            settings = kind(width=shape.width, heads=shape.heads, bases=shape.bases)
            return entry.layer(settings, problem)
        return entry.layer(kind(width=shape.width, heads=shape.heads), problem)

    return build


def _network(
    layer: Callable[[Shape, int], nn.Module], *, checkpoint: bool = False
) -> Callable[[Shape, int], nn.Module]:
    def build(shape: Shape, points: int) -> nn.Module:
        return OperatorTransformer(
            2,
            1,
            1,
            width=shape.width,
            layers=LAYERS_OF_MODEL,
            attention=lambda width: layer(shape, points),  # noqa: ARG005
            checkpoint=checkpoint,
        )

    return build


LAYERS: dict[str, Candidate] = {
    OURS: Candidate(_ours("auto"), functional=True),
    PLAIN: Candidate(_ours("plain"), functional=True),
    "functional, stored": Candidate(_ours("stored"), functional=True),
    STREAMED: Candidate(_ours("streamed"), functional=True),
    COMPILED: Candidate(_compiled(_ours("plain")), functional=True, compiled=True),
    REFERENCE: Candidate(_reference, functional=True),
    **{
        name: Candidate(_baseline(entry), quadratic=entry.quadratic)
        for name, entry in ATTENTIONS.items()
        if name not in NOT_MEASURED
    },
}

NETWORKS: dict[str, Candidate] = {
    OURS: Candidate(_network(_ours("auto")), functional=True),
    PLAIN: Candidate(_network(_ours("plain")), functional=True),
    COMPILED: Candidate(_compiled(_network(_ours("plain"))), functional=True, compiled=True),
    CHECKPOINTED: Candidate(_network(_ours("auto"), checkpoint=True), functional=True),
    REFERENCE: Candidate(_network(_reference), functional=True),
    **{
        name: replace(layer, build=_network(layer.build))
        for name, layer in LAYERS.items()
        if not layer.functional
    },
}

CANDIDATES: Mapping[Scope, Mapping[str, Candidate]] = {"layer": LAYERS, "model": NETWORKS}


class _InHalf(nn.Module):
    """A module under autocast, whose result has the precision of its first input."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *fields: Tensor) -> Tensor:
        """Products in bfloat16, where autocast allows them."""
        with torch.autocast(fields[0].device.type, dtype=torch.bfloat16):
            out: Tensor = self.module(*fields)
        return out.to(fields[0])


def _in_half(candidate: Candidate) -> Candidate:
    return Candidate(lambda shape, points: _InHalf(candidate.build(shape, points)))


ALONE: Mapping[Scope, Mapping[str, Candidate]] = {
    part: {
        **{name: candidates[name] for name in (OURS, REFERENCE, NEAREST)},
        HALF: _in_half(candidates[OURS]),
    }
    for part, candidates in CANDIDATES.items()
}
"""Those that are measured with each alone in its process."""


def give_weights(module: nn.Module) -> None:
    """Weights of order one, the same in every module with the same names.

    As layers start, the basis is nearly flat, and an error in it would hardly show.
    """
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 2:
                deviation = parameter.shape[1] ** -0.5
                parameter.copy_(torch.randn(parameter.shape, generator=random) * deviation)
