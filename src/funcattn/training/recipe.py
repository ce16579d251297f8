"""What all networks of a race share.

"shared" is one recipe for all: start by fan-in, Fourier features of the positions, small batches,
Muon for all matrices, moving average of the weights, one cycle. On clouds it can also give any
network the `Surroundings` of the points. "task" is the optimisation that the task has for its own
network.
"""

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from funcattn.models import NormalisedNetwork, build_model
from funcattn.nn import Points
from funcattn.nn.operator import FourierFeatures, Surroundings, start_by_fan_in
from funcattn.problem import Field
from funcattn.settings import MUON_RECIPE, OptimisationSettings
from funcattn.tasks import Task

RecipeName = Literal["shared", "task"]

SHARED = OptimisationSettings(**MUON_RECIPE)
"""The recipe for all, before the search of its rate."""

OWN_FEATURES = "functional_operator"
"""The network that has the start and the features of the shared recipe itself."""


class Featured(nn.Module):
    """Another network, which also gets features of the points as input values.

    These are Fourier features of the positions and, where asked for, the surroundings.
    """

    def __init__(
        self,
        network: nn.Module,
        features: FourierFeatures,
        surroundings: Surroundings | None = None,
    ) -> None:
        super().__init__()
        self.network, self.features, self.surroundings = network, features, surroundings

    def forward(
        self,
        positions: Tensor,
        values: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        **points: Any,
    ) -> Tensor:
        """The other network's fields."""
        real = Points(positions, None, mask, weights).without_padding()
        assert real.positions is not None
        known = [] if values is None else [values]
        known.append(self.features(real.positions))
        if self.surroundings is not None:
            known.append(self.surroundings(real))
        return self.network(
            real.positions, torch.cat(known, dim=-1), mask=mask, weights=weights, **points
        )


def network_of(
    task: Task, recipe: RecipeName, surroundings: float | None = None
) -> NormalisedNetwork:
    """The task's network, with the recipe's start and features where it does not have them.

    `functional_operator` has both of its own. surroundings: the least reach of those that other
    networks get as well.
    """
    settings, problem = task.settings, task.problem
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(settings.seed)
        if recipe == "task" or settings.model == OWN_FEATURES:
            network = build_model(settings.model, settings.network, problem)
        else:
            lower, upper = problem.box
            features = FourierFeatures(
                problem.space,
                lower=lower,
                upper=upper,
                periodic=problem.periodic and problem.grid,
            )
            channels, around = features.channels, None
            if surroundings is not None:
                around = Surroundings.from_least(
                    surroundings, problem.space, lower=lower, upper=upper
                )
                channels += around.channels
            more = Field("features of the point", channels)
            wider = replace(problem, inputs=(*problem.inputs, more))
            network = build_model(settings.model, settings.network, wider)
            start_by_fan_in(network)
            network = Featured(network, features, around)
    return NormalisedNetwork(
        network,
        space=problem.space,
        inputs=problem.input_channels,
        outputs=problem.output_channels,
        normalise_inputs="input" in task.normalised,
        normalise_outputs="output" in task.normalised,
    )
