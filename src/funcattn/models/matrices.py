"""Which parameters of a network Muon moves, and which AdamW: the network itself declares them.

A network declares matrices by a method `matrices_for_muon`. Its layers declare stacks of matrices,
which only batched Muon takes, by an attribute `stacks`; kernels of convolutions count as declared.
What AdamW is to move whatever the recipe (first layers, heads, embeddings) a network or a layer
names in `for_adamw`. A matrix that nobody declares is an error; the test of all networks finds it.
"""

from collections.abc import Iterable, Iterator, Mapping

from torch import nn
from torch.nn.modules.conv import _ConvNd

Axes = tuple[int, int | None, bool]
"""Of a stack of matrices: the axis of outputs; that of inputs, or None, if all the other axes are
inputs of one matrix; whether the last axis holds real and imaginary parts."""


def matrices_for_muon(network: nn.Module) -> list[nn.Parameter]:
    """The matrices that a network, or the one inside a wrapper, declares for Muon; none else."""
    for module in network.modules():
        declared = getattr(module, "matrices_for_muon", None)
        if declared is not None:
            return list(declared())
    return []


def stacks_for_muon(network: nn.Module) -> dict[nn.Parameter, Axes]:
    """Stacks of matrices, and kernels of convolutions, that batched Muon moves too."""
    kept = set(parameters_for_adamw(network))
    found: dict[nn.Parameter, Axes] = {}
    for module in network.modules():
        stacks: Mapping[str, Axes] = getattr(module, "stacks", {})
        found |= {module.get_parameter(name): axes for name, axes in stacks.items()}
        if isinstance(module, _ConvNd) and module.groups == 1:
            kernel = module.get_parameter("weight")
            found |= {kernel: (int(module.transposed), None, False)} if is_matrix(kernel) else {}
    return {parameter: axes for parameter, axes in found.items() if parameter not in kept}


def parameters_for_adamw(network: nn.Module) -> Iterator[nn.Parameter]:
    """What the network and its layers declare for AdamW."""
    for module in network.modules():
        for name in getattr(module, "for_adamw", ()):
            head, _, last = name.rpartition(".")
            part = getattr(module.get_submodule(head), last, None)
            if isinstance(part, nn.Parameter):
                yield part
            elif isinstance(part, nn.Module):
                yield from part.parameters()


def matrices(modules: Iterable[nn.Module]) -> list[nn.Parameter]:
    """All matrices of some modules, each once."""
    found = {id(p): p for module in modules for p in module.parameters() if p.ndim == 2}
    return list(found.values())


def is_matrix(parameter: nn.Parameter) -> bool:
    """Whether a parameter is a matrix or holds some: several outputs, each from several inputs."""
    return parameter.ndim >= 2 and min(parameter.shape[:2]) > 1
