"""The networks by name: what each can take, and how it is built from settings.

A new attention goes to `funcattn.nn.rivals`, a new network to a file of its own beside this one;
either then gets an entry in `MODELS`, and with it the command line, the comparison and the tests
over all networks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from funcattn.models.deeponet import DeepONet
from funcattn.models.few_shot import (
    FewShotRegressor,
    IntentionRegressor,
    SoftmaxRegressor,
    TransolverRegressor,
)
from funcattn.models.fno import FNO, TFNO, UNO
from funcattn.models.gino import GINO
from funcattn.models.lno import LNO
from funcattn.models.mlp import MLP
from funcattn.models.operator_transformer import OperatorTransformer
from funcattn.nn import (
    ConvexRidge,
    FeatureMap,
    FourierBasis,
    FunctionalAttention,
    GridFourierBasis,
    LatticeDistances,
    LearnedBasis,
    OrthonormalBasis,
    Pointwise,
    Stencil,
)
from funcattn.nn.rivals import (
    FlareAttention,
    FourierAttention,
    GalerkinAttention,
    Intention,
    LinearAttention,
    LinearNOAttention,
    LinformerAttention,
    NystromAttention,
    PerceiverAttention,
    PerformerAttention,
    SoftmaxAttention,
    TransolverAttention,
)
from funcattn.ops import ProjectionName
from funcattn.settings import NetworkSettings, Profile


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
    lower: float | tuple[float, ...] = 0.0
    upper: float | tuple[float, ...] = 1.0
    """Corners of the box of space, for all axes or one number an axis."""
    grid: bool = False
    """Whether the points form a grid."""
    points: int | None = None
    """Of every sample, None where their number differs."""


Build = Callable[[NetworkSettings, Shape], nn.Module]
Changes = Mapping[str, Any]
"""Of network settings."""


@dataclass(frozen=True)
class ModelEntry:
    """A network that can be built from settings."""

    title: str
    paper: str = ""
    """Authors, name of the method, venue, year."""
    fields: Build | None = None
    """Builds the network for tasks from fields to fields."""
    regressor: Callable[[NetworkSettings], nn.Module] | None = None
    """Builds the one that regresses a function from a few observations."""
    needs_grid: bool = False
    needs_size: bool = False
    """Whether all samples must have one number of points, known when it is built."""
    has_blocks: bool = True
    """Whether its matrices sit in `blocks`, as Muon wants them."""
    published: Changes = field(default_factory=dict)
    """Settings of its own paper or public code, where they are not those of the task."""
    of_task: Mapping[str, Changes] = field(default_factory=dict)
    """Those that its paper has for some tasks, by their names."""
    small: Changes = field(default_factory=dict)
    """Settings on two cores."""
    tiny: Changes = field(default_factory=dict)
    """Settings in tests."""

    @property
    def takes(self) -> str:
        """What data it can take, in words."""
        if self.fields is None:
            return "observations"
        fields = "grids" if self.needs_grid else "points, grids"
        if self.needs_size:
            fields += ", all of one size"
        return fields + (", observations" if self.regressor else "")

    def settings(self, task: str, profile: Profile, network: NetworkSettings) -> NetworkSettings:
        """The network's settings for a task, from those that the task has for functional attention.

        What decides the size of an attention is the same for all of them. Networks of other kinds
        come with settings of their own.
        """
        if profile == "paper":
            return replace(network, **{**self.published, **self.of_task.get(task, {})})
        return replace(
            network, **{**self.published, **(self.small if profile == "cpu" else self.tiny)}
        )

    def refusal(self, shape: Shape) -> str | None:
        """Why it cannot take a task of that shape, None if it can."""
        if (self.regressor if shape.context else self.fields) is None:
            return f"it does not take {'observations' if shape.context else 'fields'}"
        if self.needs_grid and not shape.grid:
            return "it needs points on a grid"
        if self.needs_size and shape.points is None:
            return "it needs the same number of points in all samples, in training and test"
        return None


def _features(settings: NetworkSettings, shape: Shape) -> FeatureMap:
    if settings.reach is None:
        return Pointwise
    return partial(Stencil, reach=settings.reach, dims=shape.space, periodic=shape.periodic)


def _orthonormal(settings: NetworkSettings, shape: Shape) -> nn.Module:
    features = _features(settings, shape)
    return OrthonormalBasis(
        LearnedBasis(settings.width, settings.heads, settings.bases, features=features)
    )


def _fourier(settings: NetworkSettings, shape: Shape) -> nn.Module:
    # 2 m + 1 waves an axis, whose product comes near the number of bases.
    modes = max(round((settings.bases ** (1 / shape.space) - 1) / 2), 1)
    if shape.grid:
        return GridFourierBasis((modes,) * shape.space)
    return FourierBasis((modes,) * shape.space, lower=shape.lower, upper=shape.upper)


_BASES: dict[str, Callable[[NetworkSettings, Shape], nn.Module | None]] = {
    "learned": lambda settings, shape: None,  # noqa: ARG005  # the layer's own
    "orthonormal": _orthonormal,
    "fourier": _fourier,
}


def _functional_attention(settings: NetworkSettings, shape: Shape) -> OperatorTransformer:
    projection: ProjectionName = settings.projection
    if settings.basis != "learned" and projection == "average":
        projection = "inner_product"

    def attention(width: int) -> FunctionalAttention:
        return FunctionalAttention(
            width,
            settings.heads,
            settings.bases,
            basis=_BASES[settings.basis](settings, shape),
            features=_features(settings, shape),
            projection=projection,
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


def _rival(attention: Callable[..., nn.Module], size: str | None = None) -> Build:
    """The transformer with another attention, whose argument `size` is the number of bases.

    Every layer has a basis of its own: that layers share one is functional attention's idea.
    """

    def build(settings: NetworkSettings, shape: Shape) -> OperatorTransformer:
        more: dict[str, Any] = {} if size is None else {size: settings.bases}
        if settings.reach is not None:  # else the attention's own maps, with its own start
            more["features"] = _features(settings, shape)

        def layer(width: int) -> nn.Module:
            return attention(width, settings.heads, **more, dropout=settings.dropout)

        return _transformer(settings, shape, layer)

    return build


def _linformer(settings: NetworkSettings, shape: Shape) -> nn.Module:
    assert shape.points is not None
    return _rival(partial(LinformerAttention, points=shape.points), "projected")(settings, shape)


def _transformer(
    settings: NetworkSettings,
    shape: Shape,
    attention: Callable[[int], nn.Module],
    *,
    share_basis: bool = False,
) -> OperatorTransformer:
    lattice = settings.lattice
    encoding = None
    if lattice is not None:
        encoding = LatticeDistances(
            shape.space, per_axis=lattice, lower=shape.lower, upper=shape.upper
        )
    return OperatorTransformer(
        shape.space,
        shape.inputs,
        shape.outputs,
        width=settings.width,
        layers=settings.layers,
        attention=attention,
        share_basis=share_basis,
        mlp_ratio=settings.mlp_ratio,
        encoding=encoding,
        time=shape.time,
        dropout=settings.dropout,
        checkpoint=settings.checkpoint,
    )


def _whole(
    network: Callable[..., nn.Module], **more: Callable[[NetworkSettings, Shape], Any]
) -> Build:
    """A network of another kind, with arguments of its own from settings and shape."""

    def build(settings: NetworkSettings, shape: Shape) -> nn.Module:
        return network(
            shape.space,
            shape.inputs,
            shape.outputs,
            width=settings.width,
            layers=settings.layers,
            time=shape.time,
            **{name: value(settings, shape) for name, value in more.items()},
        )

    return build


def _modes(settings: NetworkSettings, shape: Shape) -> int:  # noqa: ARG001
    return settings.modes


def _padding(settings: NetworkSettings, shape: Shape) -> float:  # noqa: ARG001
    """Where space is not a torus, a tenth of each axis keeps its ends apart."""
    return 0.0 if shape.periodic else 0.1


MODELS = {
    "funcattn": ModelEntry(
        "Transformer with functional attention; ridge regression on averages of observations",
        "Xiao et al., Functional Attention, ICML 2026",
        fields=_functional_attention,
        regressor=lambda s: FewShotRegressor(s.width, s.layers, s.bases, ridge=s.ridge),
    ),
    "no_attention": ModelEntry(
        "The same blocks without attention: each point by itself, a yardstick",
        fields=_no_attention,
    ),
    "softmax": ModelEntry(
        "The same with softmax attention; softmax attention to the observations",
        "Vaswani et al., Attention Is All You Need, NeurIPS 2017",
        fields=_rival(SoftmaxAttention),
        regressor=lambda s: SoftmaxRegressor(s.width, s.layers, s.heads),
    ),
    "linear": ModelEntry(
        "The same with linear attention",
        "Katharopoulos et al., Transformers are RNNs, ICML 2020",
        fields=_rival(LinearAttention),
    ),
    "galerkin": ModelEntry(
        "The same with attention without softmax, keys and values normalised",
        "Cao, Choose a Transformer: Fourier or Galerkin, NeurIPS 2021",
        fields=_rival(GalerkinAttention),
    ),
    "fourier": ModelEntry(
        "The same with attention without softmax, queries and keys normalised",
        "Cao, Choose a Transformer: Fourier or Galerkin, NeurIPS 2021",
        fields=_rival(FourierAttention),
    ),
    "performer": ModelEntry(
        "The same with softmax attention by random features",
        "Choromanski et al., Rethinking Attention with Performers, ICLR 2021",
        fields=_rival(PerformerAttention, "random_features"),
    ),
    "linformer": ModelEntry(
        "The same with attention to learned mixtures of the points",
        "Wang et al., Linformer, 2020",
        fields=_linformer,
        needs_size=True,
    ),
    "nystromformer": ModelEntry(
        "The same with softmax attention by way of landmarks",
        "Xiong et al., Nystromformer, AAAI 2021",
        fields=_rival(NystromAttention, "landmarks"),
    ),
    "intention": ModelEntry(
        "The same with ridge regression of values on keys; the same on the observations",
        "Garnelo and Czarnecki, Exploring the Space of Key-Value-Query Models, 2023",
        fields=_rival(Intention),
        regressor=lambda s: IntentionRegressor(s.width, s.layers, s.heads, ridge=s.ridge),
    ),
    "transolver": ModelEntry(
        "The same with softmax attention between averages; to averages of the observations",
        "Wu et al., Transolver, ICML 2024",
        fields=_rival(TransolverAttention, "bases"),
        regressor=lambda s: TransolverRegressor(s.width, s.layers, s.bases),
    ),
    "perceiver": ModelEntry(
        "The same with attention to learned latents and back",
        "Jaegle et al., Perceiver, ICML 2021",
        fields=_rival(PerceiverAttention, "latents"),
    ),
    "flare": ModelEntry(
        "The same with two attentions by way of learned latents, the same keys both ways",
        "Puri et al., FLARE, 2025",
        fields=_rival(FlareAttention, "latents"),
    ),
    "linear_no": ModelEntry(
        "The same with linear attention by two softmaxes along different axes",
        "Hu et al., Transolver Is a Linear Transformer, AAAI 2026",
        fields=_rival(LinearNOAttention, "bases"),
    ),
    "fno": ModelEntry(
        "Fourier neural operator",
        "Li et al., Fourier Neural Operator, ICLR 2021",
        fields=_whole(FNO, modes=_modes, padding=_padding),
        needs_grid=True,
        has_blocks=False,
        published={"width": 32, "layers": 4, "modes": 12},
        of_task={
            "burgers": {"width": 64, "modes": 16},
            "navier_stokes": {"width": 20},
        },
        small={"width": 32, "modes": 8},
        tiny={"width": 8, "layers": 2, "modes": 2},
    ),
    "tfno": ModelEntry(
        "Fourier neural operator with factorised weights (neuraloperator)",
        "Kossaifi et al., Multi-Grid Tensorized FNO, TMLR 2024",
        fields=_whole(TFNO, modes=_modes, padding=_padding),
        needs_grid=True,
        has_blocks=False,
        published={"width": 32, "layers": 4, "modes": 12},
        small={"width": 32, "modes": 8},
        tiny={"width": 8, "layers": 2, "modes": 2},
    ),
    "uno": ModelEntry(
        "Fourier neural operator shaped as a U (neuraloperator)",
        "Rahman et al., U-NO, TMLR 2023",
        fields=_whole(UNO, modes=_modes, padding=_padding),
        needs_grid=True,
        has_blocks=False,
        published={"width": 32, "layers": 5, "modes": 12},
        small={"width": 24, "modes": 8},
        tiny={"width": 8, "modes": 2},
    ),
    "gino": ModelEntry(
        "Kernels to a grid, a Fourier neural operator there, and back (neuraloperator)",
        "Li et al., Geometry-Informed Neural Operator, NeurIPS 2023",
        fields=_whole(GINO, modes=_modes, lower=lambda _, s: s.lower, upper=lambda _, s: s.upper),
        has_blocks=False,
        published={"width": 32, "layers": 4, "modes": 12},
        small={"width": 24, "modes": 8},
        tiny={"width": 8, "layers": 2, "modes": 2},
    ),
    "lno": ModelEntry(
        "Latent neural operator: to a few latent points, attention there, and back",
        "Wang and Wang, Latent Neural Operator, NeurIPS 2024",
        fields=_whole(
            LNO,
            heads=lambda s, _: s.heads,
            latents=lambda s, _: s.bases,
            unit_box=lambda _, shape: (shape.lower, shape.upper) == (0.0, 1.0),
        ),
        published={"width": 128, "layers": 8, "heads": 8, "bases": 256},
        of_task={"darcy": {"layers": 4}, "navier_stokes": {"width": 256}},
        small={"width": 64, "layers": 4, "heads": 4, "bases": 64},
        tiny={"width": 16, "layers": 2, "heads": 2, "bases": 8},
    ),
    "deeponet": ModelEntry(
        "Deep operator network with the points as sensors",
        "Lu et al., DeepONet, Nature Machine Intelligence 2021",
        fields=_whole(DeepONet, sensors=lambda _, shape: shape.points, bases=lambda s, _: s.bases),
        needs_size=True,
        has_blocks=False,
        published={"width": 128, "layers": 3, "bases": 128},
        small={"width": 128, "layers": 3, "bases": 128},
        tiny={"width": 16, "layers": 2, "bases": 8},
    ),
    "mlp": ModelEntry(
        "A plain network at each point by itself",
        fields=_whole(MLP),
        has_blocks=False,
        published={"width": 128, "layers": 4},
        small={"width": 64, "layers": 4},
        tiny={"width": 16, "layers": 2},
    ),
}


def model_entry(name: str) -> ModelEntry:
    """The network of that name."""
    if name not in MODELS:
        raise ValueError(f"model: expected one of {', '.join(MODELS)}, got {name!r}")
    return MODELS[name]


def build_model(name: str, settings: NetworkSettings, shape: Shape) -> nn.Module:
    """The network of that name for a task of that shape."""
    entry = model_entry(name)
    if (why := entry.refusal(shape)) is not None:
        able = [other for other, e in MODELS.items() if e.refusal(shape) is None]
        raise ValueError(
            f"model: expected one that takes this task, which {', '.join(able)} do, got {name!r}: "
            f"{why}"
        )
    if shape.context:
        assert entry.regressor is not None
        return entry.regressor(settings)
    assert entry.fields is not None
    return entry.fields(settings, shape)
