"""Which matrices of a network Muon moves: the network itself declares them."""

from collections.abc import Iterable

from torch import nn


def matrices_for_muon(network: nn.Module) -> list[nn.Parameter]:
    """The matrices that a network, or the one inside a wrapper, declares for Muon; none else.

    A network declares them by a method of this name.
    """
    for module in network.modules():
        declared = getattr(module, "matrices_for_muon", None)
        if declared is not None:
            return list(declared())
    return []


def matrices(modules: Iterable[nn.Module]) -> list[nn.Parameter]:
    """All matrices of some modules, each once."""
    found = {id(p): p for module in modules for p in module.parameters() if p.ndim == 2}
    return list(found.values())
