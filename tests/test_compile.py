"""Compiled without graph breaks, for any number of points: op, layer and network.

Each in a process of its own, as the shape checks that only tests have cannot be compiled.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo import reset
from torch._dynamo.utils import counters

from funcattn import FunctionalAttention, OperatorTransformer, functional_attention

# No axis that may change has the length of one that may not: on the first call equal lengths are
# taken for the same axis.
SIZES = [(3, 33), (4, 57)]
HEADS, CHANNELS, BASES, SPACE = 2, 5, 7, 2
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}

Case = Callable[[int, int], tuple[Sequence[Tensor], dict[str, Tensor]]]


def attention(*fields: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
    query, key, value, query_basis, key_basis = fields
    return functional_attention(
        query, key, value, query_basis, key_basis, ridge=1e-2, mask=mask, weights=weights
    )


def built(what: str, dtype: torch.dtype) -> tuple[Callable[..., Tensor], list[Tensor], Case]:
    """What is compiled, its parameters, and its inputs for given numbers of samples and points."""
    generator = torch.Generator().manual_seed(0)
    random = partial(torch.rand, generator=generator, dtype=dtype)

    def points(b: int, n: int) -> dict[str, Tensor]:
        mask = torch.rand(b, n, generator=generator) > 0.2
        mask[:, 0] = True
        return {"mask": mask, "weights": random(b, n)}

    def of_op(b: int, n: int) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        fields = [random(b, HEADS, n, CHANNELS) - 0.5 for _ in range(3)]
        bases = [random(b, HEADS, n, BASES).softmax(-1) for _ in range(2)]
        return [*fields, *bases], points(b, n)

    def of_layer(b: int, n: int) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        return [random(b, n, HEADS * CHANNELS) - 0.5], points(b, n)

    def of_network(b: int, n: int) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        return [random(b, n, SPACE), random(b, n, 1) - 0.5], points(b, n)

    layer = partial(FunctionalAttention, heads=HEADS, bases=BASES)
    width = HEADS * CHANNELS
    torch.manual_seed(0)
    modules: dict[str, tuple[nn.Module | None, Case]] = {
        "op": (None, of_op),
        "layer": (layer(width), of_layer),
        "network": (
            OperatorTransformer(SPACE, 1, 1, width=width, layers=2, attention=layer),
            of_network,
        ),
    }
    module, case = modules[what]
    if module is None:
        return attention, [], case
    module = module.to(dtype)
    return module, list(module.parameters()), case


def check(what: str, dtype: torch.dtype, backend: str) -> None:
    reset()
    counters.clear()
    called, parameters, case = built(what, dtype)
    compiled = torch.compile(called, fullgraph=True, dynamic=True, backend=backend)
    for b, n in SIZES:
        given, points = case(b, n)
        leaves = [*(tensor.requires_grad_() for tensor in given), *parameters]
        results = []
        for call in (called, compiled):
            out = call(*given, **points)
            results.append((out.detach(), *torch.autograd.grad(out.square().sum(), leaves)))
        largest = max(float(gradient.abs().max()) for gradient in results[0][1:])
        for place, (eager, ours) in enumerate(zip(*results, strict=True)):
            scale = largest if place else float(eager.abs().max())
            assert float((ours - eager).abs().max()) <= TOLERANCE[dtype] * scale
    assert counters["stats"]["unique_graphs"] == 1


def run(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, __file__, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("what", "backend"),
    [
        ("op", "aot_eager"),
        ("network", "eager"),
        pytest.param("network", "aot_eager", marks=pytest.mark.full),
    ],
)
def test_one_graph_for_any_number_of_points(what: str, backend: str) -> None:
    run(what, "float64", backend)


@pytest.mark.full
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling for a CPU takes a C++ compiler")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("what", ["op", "layer", "network"])
def test_machine_code_for_any_number_of_points(what: str, dtype: str) -> None:
    run(what, dtype, "inductor")


if __name__ == "__main__":
    what, dtype, backend = sys.argv[1:]
    check(what, getattr(torch, dtype), backend)
