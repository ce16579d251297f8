"""How weights start."""

from torch import nn


def start_by_fan_in(network: nn.Module) -> None:
    """Start all linear maps at deviation 1 / sqrt(inputs), and their biases at 0.

    Then a field keeps its size on the way through. Also maps that are written as convolutions of
    one point.

    >>> import torch
    >>> network = nn.Sequential(nn.Linear(400, 300), nn.GELU(), nn.Linear(300, 1))
    >>> start_by_fan_in(network)
    >>> round(20 * network[0].weight.std().item(), 1)
    1.0
    """
    for module in network.modules():
        kernel = getattr(module, "kernel_size", (1,))
        if isinstance(module, nn.Linear | nn.Conv1d) and set(kernel) == {1}:
            nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
