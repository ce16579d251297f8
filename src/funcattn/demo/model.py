"""The demo's settings and networks."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from funcattn import FunctionalAttention, OperatorTransformer
from funcattn.data import grid_positions, trapezoid_weights
from funcattn.nn import Stencil


@dataclass(frozen=True)
class Config:
    """Everything that decides the numbers; chosen on validation data."""

    solver_nodes: int = 169
    fine_stride: int = 4  # from the solver's nodes to 43 x 43
    coarse_stride: int = 2  # from there to 22 x 22, where the network is trained
    train: int = 1000
    validation: int = 100
    test: int = 100
    width: int = 64
    layers: int = 4
    heads: int = 4
    bases: int = 32
    reach: float = 1 / 21  # of the stencil: the spacing of the training grid
    epochs: int = 10
    batch: int = 8
    adamw_rate: float = 1e-3
    muon_rate: float = 2e-2
    clip: float = 1.0
    seed: int = 0


class NoAttention(nn.Module):
    """In place of attention: nothing travels between points."""

    def forward(self, x: Tensor, **points: Any) -> Tensor:  # noqa: ARG002
        """Zero."""
        return torch.zeros_like(x)


NETWORKS: dict[str, Callable[[Config], Callable[[int], nn.Module]]] = {
    "functional attention": lambda config: partial(
        FunctionalAttention,
        heads=config.heads,
        bases=config.bases,
        features=partial(Stencil, reach=config.reach),
    ),
    "without attention": lambda config: lambda width: NoAttention(),  # noqa: ARG005
}


class Darcy(nn.Module):
    """A network with the normalisers of its training data: permeability in, pressure out."""

    input_mean: Tensor
    input_scale: Tensor
    output_mean: Tensor
    output_scale: Tensor

    def __init__(self, config: Config, attention: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.network = OperatorTransformer(
            space=2,
            inputs=1,
            outputs=1,
            width=config.width,
            layers=config.layers,
            attention=attention,
        )
        for name in ("input_mean", "input_scale", "output_mean", "output_scale"):
            self.register_buffer(name, torch.zeros(()))

    def fit_normalisers(self, permeability: Tensor, pressure: Tensor) -> None:
        """One mean and one deviation for each side, from training data only."""
        for side, field in (("input", permeability), ("output", pressure)):
            setattr(self, f"{side}_mean", field.mean())
            setattr(self, f"{side}_scale", field.std())

    def forward(self, permeability: Tensor) -> Tensor:
        """(b, x, y) -> (b, x, y), on any grid."""
        b, *grid = permeability.shape
        values = (permeability - self.input_mean) / self.input_scale
        out = self.network(
            grid_positions(grid).expand(b, -1, -1),
            values.reshape(b, -1, 1),
            grid=tuple(grid),
            weights=trapezoid_weights(grid).expand(b, -1),
        )
        return out.reshape(b, *grid) * self.output_scale + self.output_mean


def build(config: Config, name: str) -> Darcy:
    """The network of that name, its weights drawn from the seed."""
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        return Darcy(config, NETWORKS[name](config))
