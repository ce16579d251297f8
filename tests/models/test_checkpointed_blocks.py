"""Blocks that are computed again for the gradient give the same one."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from funcattn import FunctionalAttention
from funcattn.nn import execution

pytestmark = pytest.mark.usefixtures("in_chunks")

TRANSFORMERS = (
    *("transformer", "maps at points", "stencils", "shared basis", "shared stencils"),
    *("fourier", "lattice", "time", "wide mlp", "softmax baseline"),
)


@pytest.fixture
def trained(
    draw: Any, uniform: Any, generator: torch.Generator
) -> Callable[[nn.Module], list[Tensor]]:
    """The output and the gradients of a model in training, with the same draws of dropout."""

    def of(model: nn.Module) -> list[Tensor]:
        model.train()
        generator.manual_seed(1)
        inputs = draw(model, 20)
        wanted = [inputs["positions"].requires_grad_(), *model.parameters()]
        with torch.random.fork_rng():
            torch.manual_seed(3)
            out = model(**inputs, grid=(4, 5), mask=uniform(3, 20) < 0.8)
            return [out, *torch.autograd.grad((out * uniform(3, 20, 1)).sum(), wanted)]

    return of


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_gradients_are_the_same(name: str, made: Any, trained: Any) -> None:
    ours, theirs = (trained(made(name, checkpoint=checkpoint)) for checkpoint in (True, False))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_dropout_draws_the_same_masks_again(made: Any, trained: Any) -> None:
    attention = partial(FunctionalAttention, heads=2, bases=5, dropout=0.5)
    ours, theirs = (
        trained(made("transformer", dropout=0.5, attention=attention, checkpoint=checkpoint))
        for checkpoint in (True, False)
    )
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert not torch.equal(ours[0], trained(made("transformer"))[0])


def test_the_choice_of_execution_does_not_depend_on_the_memory_that_is_left(
    made: Any, trained: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the repeated call would keep other tensors than the first one said it would."""
    monkeypatch.setattr(execution, "_SMALL_STORE", 0)
    free = itertools.cycle([2**50, 0])
    monkeypatch.setattr(execution, "available_bytes", lambda _: next(free))
    ours, theirs = (
        trained(made("transformer", checkpoint=checkpoint)) for checkpoint in (True, False)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_blocks_run_twice_in_training_and_once_otherwise(made: Any, draw: Any) -> None:
    model = made("transformer", checkpoint=True)
    calls: list[int] = []
    model.blocks[0].register_forward_pre_hook(lambda *_: calls.append(1))
    inputs = draw(model, 20)
    model(**inputs).sum().backward()
    assert len(calls) == 2
    model.eval()(**inputs).sum().backward()
    assert len(calls) == 3
    with torch.no_grad():
        model.train()(**inputs)
    assert len(calls) == 4


def test_only_the_inputs_of_blocks_are_kept(made: Any, draw: Any) -> None:
    """Saved for the gradient of each block more: its input, n c numbers."""

    def saved(layers: int) -> int:
        model = made("transformer", layers=layers, checkpoint=True)
        inputs = draw(model, 20)
        kept: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            if tensor.numel() >= 20 and not isinstance(tensor, nn.Parameter):
                kept[tensor.data_ptr()] = tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model(**inputs)
        return sum(kept.values())

    assert saved(5) - saved(3) <= 2 * 3 * 20 * 8
