"""The attentions that a transformer of blocks can have, by name; each registers in its own file.

A new one is a file in `funcattn.nn.baselines` that ends in `ATTENTIONS.register(...)`. With that it
is a network of `funcattn.models`, a candidate of `funcattn bench`, and under the tests of both.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from funcattn.nn.feature_maps import FeatureMap, Stencil
from funcattn.problem import Problem
from funcattn.registry import Registry
from funcattn.settings import AttentionSettings


@dataclass(frozen=True)
class AttentionEntry:
    """An attention that can be built from settings."""

    title: str
    paper: str
    """Authors, name of the method, venue, year."""
    when: str
    """When to choose it, in a sentence."""
    settings: type[AttentionSettings]
    """The settings of a transformer with it."""
    layer: Callable[[Any, Problem], nn.Module]
    """One layer, from such settings and the problem."""
    quadratic: bool = False
    """Whether its time grows with the square of the points."""
    needs_size: bool = False
    """Whether all samples must have one number of points, known when it is built."""


ATTENTIONS: Registry[AttentionEntry] = Registry(
    "attention",
    {
        name: f"funcattn.nn.baselines.{file}"
        for name, file in {
            "softmax": "softmax",
            "linear": "linear",
            "galerkin": "galerkin",
            "fourier": "galerkin",
            "performer": "performer",
            "linformer": "linformer",
            "nystromformer": "nystromformer",
            "intention": "intention",
            "transolver": "transolver",
            "perceiver": "perceiver",
            "flare": "flare",
            "linear_no": "linear_no",
            "transolver_plus": "transolver_plus",
            "lrsa": "lrsa",
            "lamo": "lamo",
        }.items()
    },
)


def layer_of(
    attention: Callable[..., nn.Module], **names: str
) -> Callable[[AttentionSettings, Problem], nn.Module]:
    """Builds a layer of an attention whose own arguments are settings, by the names of both.

    `layer_of(FlareAttention, latents="bases")` gives the setting `bases` as the argument `latents`.
    """

    def layer(settings: AttentionSettings, problem: Problem) -> nn.Module:
        own: dict[str, Any] = {name: getattr(settings, names[name]) for name in names}
        features = stencils(settings, problem)
        if features is not None:  # else the attention's own maps, with its own start
            own["features"] = features
        return attention(settings.width, settings.heads, **own, dropout=settings.dropout)

    return layer


def stencils(settings: AttentionSettings, problem: Problem) -> FeatureMap | None:
    """The maps to features that the settings ask for, None where they are point-wise."""
    if settings.reach is None:
        return None
    return partial(Stencil, reach=settings.reach, dims=problem.space, periodic=problem.periodic)
