"""How networks start whose authors do not start them as PyTorch does.

Axes: i, o channels in and out, m modes of an axis.
"""

import math

import torch
from torch import Tensor, nn


def uniform_modes(inputs: int, outputs: int, *modes: int) -> Tensor:
    """Complex matrices for Fourier modes, (i o *m 2): both parts uniform from 0 to 1 / (i o).

    So do the first public code of the Fourier neural operator and the codes made from it.
    """
    return torch.rand(inputs, outputs, *modes, 2) / (inputs * outputs)


def glorot_by_shape(*shape: int) -> Tensor:
    """Uniform by Glorot's rule, as TensorFlow and Keras read a shape.

    They take the last two axes for inputs and outputs and those before for the places of a kernel,
    whatever the authors mean by them.
    """
    *places, inputs, outputs = shape
    bound = math.sqrt(6 / (math.prod(places) * (inputs + outputs)))
    return torch.empty(shape).uniform_(-bound, bound)


@torch.no_grad()
def glorot(network: nn.Module) -> None:
    """Linear maps normal, of variance 2 / (i + o), biases 0."""
    for layer in _maps(network):
        nn.init.xavier_normal_(layer.weight)
        nn.init.zeros_(layer.bias)


@torch.no_grad()
def truncated_by_inputs(network: nn.Module) -> None:
    """Linear maps normal of variance 1 / i, cut at two deviations, biases 0: Sonnet's start."""
    for layer in _maps(network):
        deviation = layer.in_features**-0.5
        nn.init.trunc_normal_(layer.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
        nn.init.zeros_(layer.bias)


def _maps(network: nn.Module) -> list[nn.Linear]:
    return [module for module in network.modules() if isinstance(module, nn.Linear)]
