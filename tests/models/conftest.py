"""Small networks, and random fields for them."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

# funcattn is imported in functions: not before the shape checks are in place.


class SoftmaxAttention(nn.Module):
    """A baseline with the same call: every point looks at every other one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.to_all, self.to_output = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, *, mask: Tensor | None, **points: object) -> Tensor:
        del points
        query, key, value = self.to_all(x).chunk(3, dim=-1)
        scores = query @ key.mT / math.sqrt(x.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], -torch.inf)
        return self.to_output(scores.softmax(-1) @ value)


def networks() -> dict[str, tuple[type[nn.Module], dict[str, Any]]]:
    """By name: the class, and the options that make it small."""
    from funcattn import FunctionalAttention, OperatorTransformer
    from funcattn.models.cno import CNO
    from funcattn.models.deeponet import DeepONet
    from funcattn.models.fno import FNO
    from funcattn.models.functional_operator import FunctionalOperator
    from funcattn.models.gaot import GAOT
    from funcattn.models.geo_fno import GeoFNO
    from funcattn.models.gino import GINO
    from funcattn.models.gnot import GNOT
    from funcattn.models.graph_unet import GraphUNet
    from funcattn.models.graphs import GNO, GraphSAGE, MeshGraphNet
    from funcattn.models.ht_net import HTNet
    from funcattn.models.lno import LNO
    from funcattn.models.mlp import MLP
    from funcattn.models.neuralop import TFNO, UNO
    from funcattn.models.oformer import OFormer
    from funcattn.models.ono import ONO
    from funcattn.models.pointnet import PointNet
    from funcattn.nn import FourierBasis, LatticeDistances, Stencil

    modes = {"width": 4, "modes": 3}
    graph = {"latent": 5, "radius": 0.3, "kernel": (6,)}
    grids = {"width": 8, "layers": 2, "modes": 3, "reach": 0.25, "grid": True}
    kinds: dict[str, tuple[type[nn.Module], dict[str, Any]]] = {
        "mlp": (MLP, {"width": 8, "layers": 2}),
        "deeponet": (DeepONet, {"sensors": 156, "width": 8, "layers": 2, "bases": 3}),
        "lno": (LNO, {"width": 8, "layers": 2, "latents": 5, "heads": 2, "projector": 1}),
        "gnot": (GNOT, {"width": 8, "layers": 2, "heads": 2, "experts": 2, "perceptron": 1}),
        "oformer": (OFormer, {"width": 8, "layers": 2, "heads": 2, "latent": 12}),
        "ono": (ONO, {"width": 8, "layers": 2, "heads": 2, "bases": 3}),
        "pointnet": (PointNet, {"width": 4, "hidden": 16, "code": 6}),
        "gaot": (GAOT, {"width": 8, "channels": 4, "layers": 2, "heads": 2, "latent": 4}),
        "cno": (CNO, {"width": 4, "levels": 2, "blocks": 1}),
        "ht_net": (HTNet, {"width": 4, "levels": 2, "window": 2, "modes": 2, "spectral": 2}),
        "graphsage": (GraphSAGE, {"width": 16, "layers": 2, "code": 4, "neighbours": 5}),
        "graph_unet": (GraphUNet, {"width": 8, "levels": 1, "hidden": 16, "neighbours": 5}),
        "meshgraphnet": (MeshGraphNet, {"width": 6, "layers": 2, "neighbours": 5}),
        "gno": (GNO, {"width": 4, "layers": 2, "kernel": 6, "neighbours": 5}),
        "geo_fno": (GeoFNO, {"width": 4, "layers": 1, "modes": 2, "latent": 4, "head": 6}),
        "gino": (GINO, {"width": 4, "layers": 2, "modes": 2, **graph}),
        "fno": (FNO, modes),
        "tfno": (TFNO, modes | {"rank": 0.5}),
        "uno": (UNO, modes),
        "cloud operator": (FunctionalOperator, {"width": 8, "layers": 2, "bases": 5}),
        "grid operator": (FunctionalOperator, grids),
    }
    small = partial(FunctionalAttention, heads=2, bases=5)
    stencils = partial(small, features=partial(Stencil, reach=0.25))
    # By what is special of them.
    transformers: dict[str, dict[str, Any]] = {
        "transformer": {},
        "maps at points": {"attention": partial(small, maps="points")},
        "stencils": {"attention": stencils},
        "shared basis": {"share_basis": True},
        "shared stencils": {"share_basis": True, "attention": stencils},
        "fourier": {
            "attention": lambda width: small(
                width, basis=FourierBasis([1, 1]), projection="inner_product"
            )
        },
        "lattice": {"encoding": LatticeDistances(2, per_axis=3)},
        "time": {"time": True},
        "wide mlp": {"mlp_ratio": 2.5},
        "softmax baseline": {"attention": SoftmaxAttention},
    }
    plain = {"width": 8, "layers": 2, "attention": small}
    return kinds | {
        "fno padded": (FNO, modes | {"padding": 0.2}),
        "fno time": (FNO, modes | {"time": True}),
        "tfno dense": (TFNO, modes | {"rank": None}),
        "tfno padded": (TFNO, modes | {"rank": 0.5, "padding": (0.2, 0.0)}),
        "torus operator": (FunctionalOperator, grids | {"periodic": True}),
        "cloud operator time": (FunctionalOperator, {"width": 8, "layers": 2, "time": True}),
        "cloud operator around": (
            FunctionalOperator,
            {"width": 8, "layers": 2, "bases": 5, "surroundings": 1 / 8},
        ),
        "uno padded": (UNO, modes | {"padding": 0.2}),
        "uno deep": (UNO, {"width": 4, "layers": 7, "modes": 4, "time": True, "padding": 0.3}),
        **{name: (OperatorTransformer, plain | options) for name, options in transformers.items()},
    }


def enlarge(model: Any) -> None:
    """Give a network weights of order one where it starts with smaller ones.

    So that nothing hides in small numbers, and attention is not nearly an average.
    """
    match type(model).__name__:
        case "LNO":
            nn.init.normal_(model.trunk.lift.weight, std=3.0)
            nn.init.normal_(model.attention.head.weight, std=3.0)
        case "FunctionalOperator":
            nn.init.normal_(model.lift.weight, std=model.lift.in_features**-0.5)
        case "DeepONet" | "OFormer" | "ONO" | "OperatorTransformer":
            for parameter in model.parameters():
                if parameter.ndim >= 2:
                    nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
                else:
                    parameter += 0.1 * torch.randn_like(parameter)


@pytest.fixture
def made() -> Callable[..., nn.Module]:
    """Makes small networks in float64, the same in every run; `as_built` is as users get them."""

    def make(
        name: str,
        space: int = 2,
        inputs: int = 1,
        outputs: int = 1,
        *,
        as_built: bool = False,
        **options: Any,
    ) -> nn.Module:
        kind, small = networks()[name]
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(0)
            model = kind(space, inputs, outputs, **(small | options)).double()
            if not as_built:
                enlarge(model)
        return model

    return make


@pytest.fixture
def draw(uniform: Callable[..., Tensor]) -> Callable[..., dict[str, Tensor]]:
    """Draws what a network takes: positions, values and times of some samples."""

    def fields(model: Any, points: int, samples: int = 3) -> dict[str, Tensor]:
        given = {"positions": uniform(samples, points, model.space)}
        if model.inputs:
            given["values"] = uniform(samples, points, model.inputs)
        if getattr(model, "timed", False) or getattr(model, "time", None) is not None:
            given["time"] = uniform(samples)
        return given

    return fields
