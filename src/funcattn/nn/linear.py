"""The linear map of all networks."""

from typing import cast

from torch import Tensor, nn

from funcattn.ops.native.products import linear


class Linear(nn.Linear):
    """`torch.nn.Linear` whose product is done by `funcattn.ops.native` where that is faster."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """The same numbers up to rounding."""
        return linear(input, self.weight, self.bias)


def with_fast_products(network: nn.Module) -> nn.Module:
    """The same network, each `torch.nn.Linear` in it a :class:`Linear` from now on.

    So that all networks, whoever wrote their layers, have products of the same speed.

    >>> type(with_fast_products(nn.Sequential(nn.Linear(2, 3)))[0]).__name__
    'Linear'
    """
    for module in network.modules():
        if type(module) is nn.Linear:
            module.__class__ = cast("type[nn.Linear]", Linear)
    return network
