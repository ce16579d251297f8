"""The networks by name."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from funcattn.models.operator_transformer import OperatorTransformer
from funcattn.nn import ConvexRidge, FunctionalAttention, LatticeDistances, Pointwise, Stencil
from funcattn.settings import NetworkSettings


@dataclass(frozen=True)
class ModelEntry:
    """A network that can be built from settings."""

    title: str
    paper: str
    build: Callable[[NetworkSettings, int, int, int], nn.Module]
    """Called with the settings and the task's space dimension, input and output channels."""


def _functional_attention(
    settings: NetworkSettings, space: int, inputs: int, outputs: int
) -> OperatorTransformer:
    features = (
        Pointwise if settings.reach is None else partial(Stencil, reach=settings.reach, dims=space)
    )

    def attention(width: int) -> FunctionalAttention:
        return FunctionalAttention(
            width,
            settings.heads,
            settings.bases,
            features=features,
            ridge=ConvexRidge(settings.ridge),
            dropout=settings.dropout,
        )

    return OperatorTransformer(
        space,
        inputs,
        outputs,
        width=settings.width,
        layers=settings.layers,
        attention=attention,
        share_basis=settings.share_basis,
        mlp_ratio=settings.mlp_ratio,
        encoding=None
        if settings.lattice is None
        else LatticeDistances(space, per_axis=settings.lattice),
        dropout=settings.dropout,
    )


MODELS = {
    "funcattn": ModelEntry(
        "Transformer with functional attention",
        "Xiao et al., Functional Attention, ICML 2026",
        _functional_attention,
    ),
}


def build_model(
    name: str, settings: NetworkSettings, *, space: int, inputs: int, outputs: int
) -> nn.Module:
    """The network of that name."""
    if name not in MODELS:
        raise ValueError(f"model: expected one of {', '.join(MODELS)}, got {name!r}")
    return MODELS[name].build(settings, space, inputs, outputs)
