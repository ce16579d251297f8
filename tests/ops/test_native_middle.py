"""The middle of functional attention in C beside the plain form: numbers, gradients, refusals."""

import copy
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from funcattn.nn import FunctionalAttention, Stencil
from funcattn.nn.ridges import AdditiveRidge, ConvexRidge
from funcattn.ops import Form, native
from funcattn.ops.attention import native_middle
from funcattn.ops.attention.native_middle import MiddleDone

pytestmark = pytest.mark.skipif(native.library() is None, reason=f"no C: {native.why_not()}")


def outcome(
    layer: FunctionalAttention, x: Tensor, weights: Tensor, grid: tuple[int, ...] | None = None
) -> dict[str, Tensor]:
    """The output and all gradients, by name."""
    x = x.clone().requires_grad_()
    out = layer(x, weights=weights.to(x.dtype), grid=grid)
    sources = {"x": x, **dict(layer.named_parameters())}
    found = torch.autograd.grad(out.square().sum(), list(sources.values()))
    return {"output": out.detach(), **dict(zip(sources, found, strict=True))}


def assert_agrees(
    layer: FunctionalAttention, x: Tensor, weights: Tensor, grid: tuple[int, ...] | None = None
) -> None:
    """With the plain form in double precision, in output and gradients, and that C did it."""
    layer.execution = "stored"
    plain = copy.deepcopy(layer).double()
    plain.execution = "plain"
    with mock.patch.object(native_middle, "MiddleDone", wraps=native_middle.MiddleDone) as done:
        ours = outcome(layer, x, weights, grid)
        with torch.no_grad():
            without = layer(x, weights=weights, grid=grid)
    assert done.call_count == 2
    wanted = outcome(plain, x.double(), weights, grid)
    for name, value in wanted.items():
        difference = (ours[name] - value).norm() / value.norm()
        assert difference < 2e-5, (name, difference)
    assert torch.equal(without, ours["output"])


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
    ("width", "bases"),
    [(72, 33), (64, 64), (12, 7), (60, 13)],
    ids=["odd", "whole vectors", "tiny", "folded"],
)
def test_the_middle_in_c_agrees_with_the_plain_form_in_double_precision(
    generator: torch.Generator, width: int, bases: int, ridge: torch.nn.Module | float
) -> None:
    layer = FunctionalAttention(width, 4, bases, ridge=copy.deepcopy(ridge))
    x = torch.randn(3, 301, width, generator=generator)
    assert_agrees(layer, x, torch.rand(3, 301, generator=generator))


@pytest.mark.parametrize("form", ["primal", "dual"])
@pytest.mark.parametrize(
    ("width", "heads", "bases"),
    [(72, 4, 33), (128, 1, 64), (41, 1, 17), (30, 1, 70), (64, 4, 16), (60, 4, 13)],
    ids=[
        "maps at the points",
        "one head",
        "one head, odd",
        "one head, many functions",
        "folded",
        "folded, odd",
    ],
)
def test_both_forms_of_the_transport_in_c_agree_with_the_plain_one(
    generator: torch.Generator, width: int, heads: int, bases: int, form: Form
) -> None:
    layer = FunctionalAttention(width, heads, bases, form=form, ridge=AdditiveRidge(0.1))
    x = torch.randn(2, 301, width, generator=generator)
    assert_agrees(layer, x, torch.rand(2, 301, generator=generator))


@pytest.mark.parametrize("form", ["primal", "dual"])
@pytest.mark.parametrize("heads", [1, 4])
def test_features_of_several_points_leave_the_field_to_no_map(
    generator: torch.Generator, heads: int, form: Form
) -> None:
    layer = FunctionalAttention(24, heads, 10, form=form, features=partial(Stencil, reach=0.2))
    x = torch.randn(2, 18 * 17, 24, generator=generator)
    assert_agrees(layer, x, torch.rand(2, 18 * 17, generator=generator), (18, 17))


def test_what_it_does_not_know_is_left_to_pytorch(generator: torch.Generator) -> None:
    x = torch.randn(1, 300, 32, generator=generator)
    known = {
        "layer": FunctionalAttention(32, 4, 20),
        "fewer functions than channels": FunctionalAttention(32, 2, 8),
        "one head": FunctionalAttention(32, 1, 20),
    }
    others = {
        "no averages": FunctionalAttention(32, 2, 8, projection="transpose"),
        "fields at the points": FunctionalAttention(32, 4, 20, maps="points"),
    }
    for name, layer in (known | others).items():
        layer.execution = "stored"
        with mock.patch.object(native_middle, "MiddleDone", wraps=native_middle.MiddleDone) as done:
            layer(x)
        assert done.called == (name in known), name


def test_a_system_that_single_precision_cannot_factor_is_solved_in_double(
    generator: torch.Generator,
) -> None:
    torch.manual_seed(6)  # how much is lost in the sums depends on the weights
    layer = FunctionalAttention(32, 4, 20, ridge=1e-9, execution="stored")
    plain = copy.deepcopy(layer).double()
    plain.execution = "plain"
    x = 1e3 * torch.ones(1, 300, 32) + 1e-2 * torch.randn(1, 300, 32, generator=generator)
    refused = []

    def middle_of(*given: Any) -> MiddleDone | None:
        refused.append(native_middle_of(*given) is None)
        return None

    native_middle_of = native_middle.middle_of
    with mock.patch.object(native_middle, "middle_of", middle_of):
        out = layer(x)
    assert refused == [True]
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
