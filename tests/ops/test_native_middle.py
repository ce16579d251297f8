"""The middle of functional attention in C beside the plain form: numbers, gradients, refusals."""

import copy
from unittest import mock

import pytest
import torch
from torch import Tensor

from funcattn.nn import FunctionalAttention
from funcattn.nn.ridges import AdditiveRidge, ConvexRidge
from funcattn.ops import native
from funcattn.ops.attention import native_middle

pytestmark = pytest.mark.skipif(native.library() is None, reason=f"no C: {native.why_not()}")


def outcome(layer: FunctionalAttention, x: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """The output and all gradients, by name."""
    x = x.clone().requires_grad_()
    out = layer(x, weights=weights.to(x.dtype))
    sources = {"x": x, **dict(layer.named_parameters())}
    found = torch.autograd.grad(out.square().sum(), list(sources.values()))
    return {"output": out.detach(), **dict(zip(sources, found, strict=True))}


@pytest.mark.parametrize(
    "ridge",
    [
        ConvexRidge(0.2),
        ConvexRidge(0.2, heads=4),
        AdditiveRidge(1e-2),
        AdditiveRidge(1e-2, heads=4),
        0.05,
    ],
    ids=["convex", "convex per head", "additive", "additive per head", "a number"],
)
@pytest.mark.parametrize(
    ("width", "bases"), [(72, 33), (64, 64), (12, 7)], ids=["odd", "whole vectors", "tiny"]
)
def test_the_middle_in_c_agrees_with_the_plain_form_in_double_precision(
    generator: torch.Generator, width: int, bases: int, ridge: torch.nn.Module | float
) -> None:
    ridge = copy.deepcopy(ridge)
    layer = FunctionalAttention(width, 4, bases, ridge=ridge, execution="stored")
    plain = copy.deepcopy(layer).double()
    plain.execution = "plain"
    x = torch.randn(3, 301, width, generator=generator)
    weights = torch.rand(3, 301, generator=generator)
    with mock.patch.object(native_middle, "middle_of", wraps=native_middle.middle_of) as seen:
        ours = outcome(layer, x, weights)
        with torch.no_grad():
            without = layer(x, weights=weights)
    assert seen.call_count == 2
    wanted = outcome(plain, x.double(), weights)
    for name, value in wanted.items():
        difference = (ours[name] - value).norm() / value.norm()
        assert difference < 2e-5, (name, difference)
    assert torch.equal(without, ours["output"])


def test_what_it_does_not_know_is_left_to_pytorch(generator: torch.Generator) -> None:
    x = torch.randn(1, 300, 32, generator=generator)
    known = {"layer": FunctionalAttention(32, 4, 20)}
    others = {
        "primal": FunctionalAttention(32, 4, 20, form="primal"),
        "fewer functions than channels": FunctionalAttention(32, 2, 8, projection="transpose"),
        "fields at the points": FunctionalAttention(32, 4, 20, maps="points"),
        "one head": FunctionalAttention(32, 1, 20),
    }
    for name, layer in (known | others).items():
        layer.execution = "stored"
        with mock.patch.object(native_middle, "MiddleDone", wraps=native_middle.MiddleDone) as done:
            layer(x)
        assert done.called == (name in known), name


def test_a_system_that_single_precision_cannot_factor_is_solved_in_double(
    generator: torch.Generator,
) -> None:
    layer = FunctionalAttention(32, 4, 20, ridge=1e-9, execution="stored")
    plain = copy.deepcopy(layer).double()
    plain.execution = "plain"
    x = 1e3 * torch.ones(1, 300, 32) + 1e-2 * torch.randn(1, 300, 32, generator=generator)
    with mock.patch.object(native_middle, "MiddleDone", wraps=native_middle.MiddleDone) as done:
        out = layer(x)
    assert done.called
    wanted = plain(x.double())
    assert out.isfinite().all()
    assert (out - wanted).norm() < 1e-2 * wanted.norm()


@pytest.mark.parametrize("ridge", [0.0, -1.0, float("nan"), float("inf")])
def test_a_ridge_that_is_none_is_refused_as_elsewhere(
    generator: torch.Generator, ridge: float
) -> None:
    layer = FunctionalAttention(32, 4, 20, ridge=ridge, execution="stored")
    with pytest.raises(ValueError, match="ridge: expected every value finite and greater than 0"):
        layer(torch.randn(1, 300, 32, generator=generator))
