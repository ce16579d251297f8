"""The networks by name."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from funcattn.models.few_shot import (
    FewShotRegressor,
    IntentionRegressor,
    SoftmaxRegressor,
    TransolverRegressor,
)
from funcattn.models.operator_transformer import OperatorTransformer
from funcattn.nn import (
    ConvexRidge,
    FeatureMap,
    FunctionalAttention,
    LatticeDistances,
    Pointwise,
    Stencil,
)
from funcattn.settings import NetworkSettings


@dataclass(frozen=True)
class Shape:
    """What a task's fields look like."""

    space: int
    inputs: int
    outputs: int
    time: bool = False
    """Whether a time is an input."""
    context: bool = False
    """Whether observations at other points are an input."""
    periodic: bool = False
    """Whether space is a torus."""


@dataclass(frozen=True)
class ModelEntry:
    """A network that can be built from settings."""

    title: str
    paper: str
    fields: Callable[[NetworkSettings, Shape], nn.Module] | None = None
    """Builds the network for tasks from fields to fields."""
    regressor: Callable[[NetworkSettings], nn.Module] | None = None
    """Builds the one that regresses a function from a few observations."""


def _functional_attention(settings: NetworkSettings, shape: Shape) -> OperatorTransformer:
    reach = settings.reach
    features: FeatureMap = Pointwise
    if reach is not None:
        features = partial(Stencil, reach=reach, dims=shape.space, periodic=shape.periodic)

    def attention(width: int) -> FunctionalAttention:
        return FunctionalAttention(
            width,
            settings.heads,
            settings.bases,
            features=features,
            ridge=ConvexRidge(settings.ridge),
            dropout=settings.dropout,
        )

    return _transformer(settings, shape, attention, share_basis=settings.share_basis)


class NoAttention(nn.Module):
    """In place of attention: nothing travels between points."""

    def forward(self, x: Tensor, **points: object) -> Tensor:  # noqa: ARG002
        """Zero."""
        return torch.zeros_like(x)


def _no_attention(settings: NetworkSettings, shape: Shape) -> OperatorTransformer:
    return _transformer(settings, shape, lambda width: NoAttention())  # noqa: ARG005


def _transformer(
    settings: NetworkSettings,
    shape: Shape,
    attention: Callable[[int], nn.Module],
    *,
    share_basis: bool = False,
) -> OperatorTransformer:
    lattice = settings.lattice
    return OperatorTransformer(
        shape.space,
        shape.inputs,
        shape.outputs,
        width=settings.width,
        layers=settings.layers,
        attention=attention,
        share_basis=share_basis,
        mlp_ratio=settings.mlp_ratio,
        encoding=None if lattice is None else LatticeDistances(shape.space, per_axis=lattice),
        time=shape.time,
        dropout=settings.dropout,
    )


MODELS = {
    "funcattn": ModelEntry(
        "Transformer with functional attention; ridge regression on averages of observations",
        "Xiao et al., Functional Attention, ICML 2026",
        fields=_functional_attention,
        regressor=lambda s: FewShotRegressor(s.width, s.layers, s.bases, ridge=s.ridge),
    ),
    "no_attention": ModelEntry(
        "The same blocks without attention: each point by itself, a yardstick",
        "",
        fields=_no_attention,
    ),
    "intention": ModelEntry(
        "Ridge regression on the observations",
        "Garnelo and Czarnecki, 2023",
        regressor=lambda s: IntentionRegressor(s.width, s.layers, s.heads, ridge=s.ridge),
    ),
    "transolver": ModelEntry(
        "Softmax attention to averages of the observations",
        "Wu et al., Transolver, ICML 2024",
        regressor=lambda s: TransolverRegressor(s.width, s.layers, s.bases),
    ),
    "softmax": ModelEntry(
        "Softmax attention to the observations",
        "Vaswani et al., NeurIPS 2017",
        regressor=lambda s: SoftmaxRegressor(s.width, s.layers, s.heads),
    ),
}


def build_model(name: str, settings: NetworkSettings, shape: Shape) -> nn.Module:
    """The network of that name for a task of that shape."""
    if name not in MODELS:
        raise ValueError(f"model: expected one of {', '.join(MODELS)}, got {name!r}")
    entry = MODELS[name]
    if shape.context and entry.regressor is not None:
        return entry.regressor(settings)
    if not shape.context and entry.fields is not None:
        return entry.fields(settings, shape)
    able = [n for n, e in MODELS.items() if (e.regressor if shape.context else e.fields)]
    raise ValueError(
        f"model: expected one that takes {'observations' if shape.context else 'fields'}, which "
        f"{', '.join(able)} do, got {name!r}"
    )
