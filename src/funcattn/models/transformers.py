"""The transformer of blocks with each of the attentions, as networks with settings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from funcattn.models.few_shot import REGRESSORS
from funcattn.models.operator_transformer import OperatorTransformer
from funcattn.models.registry import MODELS, Form, ModelEntry
from funcattn.nn import (
    ConvexRidge,
    FourierBasis,
    FunctionalAttention,
    GridFourierBasis,
    LatticeDistances,
    LearnedBasis,
    OrthonormalBasis,
    Pointwise,
)
from funcattn.nn.attentions import ATTENTIONS, AttentionEntry, stencils
from funcattn.nn.baselines.transolver import GalerkinCoefficients, TransolverAttention
from funcattn.ops import ProjectionName
from funcattn.problem import Problem
from funcattn.settings import (
    AttentionSettings,
    FunctionalSettings,
    SizedAttentionSettings,
    TransformerSettings,
)


def transformer(
    settings: TransformerSettings,
    problem: Problem,
    attention: Callable[[int], nn.Module],
    *,
    share_basis: bool = False,
) -> OperatorTransformer:
    """The blocks with an attention, which is made from their width."""
    encoding = None
    if settings.lattice is not None:
        encoding = LatticeDistances(
            problem.space, per_axis=settings.lattice, lower=problem.lower, upper=problem.upper
        )
    return OperatorTransformer(
        problem.space,
        problem.input_channels,
        problem.output_channels,
        width=settings.width,
        layers=settings.layers,
        attention=attention,
        share_basis=share_basis,
        mlp_ratio=settings.mlp_ratio,
        encoding=encoding,
        time=problem.time,
        dropout=settings.dropout,
        checkpoint=settings.checkpoint,
    )


# Functional attention


def _functional(settings: FunctionalSettings, problem: Problem) -> OperatorTransformer:
    projection: ProjectionName = settings.projection
    if settings.basis != "learned" and projection == "average":
        projection = "inner_product"

    def attention(width: int) -> FunctionalAttention:
        return FunctionalAttention(
            width,
            settings.heads,
            settings.bases,
            basis=_BASES[settings.basis](settings, problem),
            features=stencils(settings, problem) or Pointwise,
            projection=projection,
            ridge=ConvexRidge(settings.ridge),
            dropout=settings.dropout,
        )

    return transformer(settings, problem, attention, share_basis=settings.share_basis)


def _orthonormal(settings: SizedAttentionSettings, problem: Problem) -> nn.Module:
    features = stencils(settings, problem) or Pointwise
    return OrthonormalBasis(
        LearnedBasis(settings.width, settings.heads, settings.bases, features=features)
    )


def _fourier(settings: SizedAttentionSettings, problem: Problem) -> nn.Module:
    # 2 m + 1 waves per axis, whose product comes near the number of bases.
    modes = max(round((settings.bases ** (1 / problem.space) - 1) / 2), 1)
    if problem.grid:
        return GridFourierBasis((modes,) * problem.space)
    return FourierBasis((modes,) * problem.space, lower=problem.lower, upper=problem.upper)


_BASES: dict[str, Callable[[SizedAttentionSettings, Problem], nn.Module | None]] = {
    "learned": lambda settings, problem: None,  # noqa: ARG005  # the layer's own
    "orthonormal": _orthonormal,
    "fourier": _fourier,
}

MODELS.register(
    "funcattn",
    ModelEntry(
        "Transformer with functional attention; ridge regression on averages of observations",
        "Xiao et al., Functional Attention, ICML 2026",
        when="The paper's network, on any points: linear in their number; public checkpoints load.",
        fields=Form(FunctionalSettings, _functional),
        observations=REGRESSORS["funcattn"],
        muon=True,
    ),
)

# The same blocks without attention


class NoAttention(nn.Module):
    """In place of attention: nothing travels between points."""

    def forward(self, x: Tensor, **points: object) -> Tensor:  # noqa: ARG002
        """Zero."""
        return torch.zeros_like(x)


def _without_attention(settings: TransformerSettings, problem: Problem) -> OperatorTransformer:
    return transformer(settings, problem, lambda width: NoAttention())  # noqa: ARG005


MODELS.register(
    "no_attention",
    ModelEntry(
        "Transformer without attention: each point by itself",
        when="A yardstick: what a network gains by looking at other points.",
        fields=Form(TransformerSettings, _without_attention),
        muon=True,
    ),
)

# Other mechanisms between the coefficients of the same bases


@dataclass(frozen=True)
class MechanismSettings(SizedAttentionSettings):
    """A transformer with attention between the coefficients of a basis."""

    basis: Literal["learned", "orthonormal", "fourier"] = "learned"
    """As of functional attention."""
    mechanism: Literal["softmax", "galerkin"] = "galerkin"
    """What moves coefficients in the place of the ridge solution."""


_MECHANISMS = {"softmax": TransolverAttention, "galerkin": GalerkinCoefficients}


def _between_coefficients(settings: MechanismSettings, problem: Problem) -> OperatorTransformer:
    def attention(width: int) -> TransolverAttention:
        return _MECHANISMS[settings.mechanism](
            width,
            settings.heads,
            settings.bases,
            basis=_BASES[settings.basis](settings, problem),
            features=stencils(settings, problem) or Pointwise,
            projection="average" if settings.basis == "learned" else "inner_product",
            dropout=settings.dropout,
        )

    return transformer(settings, problem, attention)


MODELS.register(
    "coefficient_attention",
    ModelEntry(
        "Transformer with softmax or Galerkin attention between the coefficients of a basis",
        "Xiao et al., Functional Attention, ICML 2026",
        when="A yardstick: what the ridge solution of functional attention adds to its basis.",
        fields=Form(MechanismSettings, _between_coefficients),
        muon=True,
    ),
)

# The same blocks with another attention


def _with(entry: AttentionEntry) -> Callable[[AttentionSettings, Problem], nn.Module]:
    """Every layer has a basis of its own: that layers share one is functional attention's idea."""

    def build(settings: AttentionSettings, problem: Problem) -> OperatorTransformer:
        return transformer(settings, problem, lambda width: entry.layer(settings, problem))  # noqa: ARG005

    return build


for _name, _entry in ATTENTIONS.items():
    _observed = REGRESSORS.get(_name)
    MODELS.register(
        _name,
        ModelEntry(
            _entry.title if _observed is None else f"{_entry.title}; the same on observations",
            _entry.paper,
            when=_entry.when,
            fields=Form(_entry.settings, _with(_entry)),
            observations=_observed,
            needs_size=_entry.needs_size,
            muon=True,
            cost="n²" if _entry.quadratic else "n",
        ),
    )
