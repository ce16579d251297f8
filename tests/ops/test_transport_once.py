"""The small part as one operation gives what autograd makes of the plain one."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from funcattn.ops import Additive, Convex, Ridge, transport
from funcattn.ops.attention.transport_once import transport_once

RIDGES: dict[str, Callable[[Tensor], Ridge]] = {
    "a number": lambda _: 0.3,
    "learned": lambda value: value.mean(),
    "additive per head": lambda value: Additive(value),
    "convex": lambda value: Convex(value.mean()),
    "convex per head": lambda value: Convex(value),
}


def leaves(bases: int, channels: int) -> list[Tensor]:
    random = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 2, 3, bases, channels, generator=random, dtype=torch.float64)
    value = torch.randn(2, 3, bases, 4, generator=random, dtype=torch.float64)
    strength = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64)
    return [tensor.clone().requires_grad_() for tensor in (query, key, value, strength)]


@pytest.mark.parametrize("ridge", RIDGES.values(), ids=RIDGES.keys())
@pytest.mark.parametrize("form", ["auto", "primal", "dual"])
@pytest.mark.parametrize(("bases", "channels"), [(7, 5), (5, 7)], ids=["tall", "wide"])
def test_value_and_every_gradient_are_those_of_transport(
    bases: int, channels: int, form: str, ridge: Callable[[Tensor], Ridge]
) -> None:
    found = []
    for by in (transport, transport_once):
        *fields, strength = leaves(bases, channels)
        out = by(*fields, ridge=ridge(strength), form=form)
        out.sin().sum().backward()
        found.append([out.detach(), *(leaf.grad for leaf in (*fields, strength))])
    for plain, once in zip(*found, strict=True):
        assert (plain is None) == (once is None)
        if plain is not None:
            torch.testing.assert_close(once, plain, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("form", ["primal", "dual"])
def test_gradient_is_that_of_finite_differences(form: str) -> None:
    def call(*given: Tensor) -> Tensor:
        return transport_once(*given[:3], ridge=Convex(given[3]), form=form)

    assert torch.autograd.gradcheck(call, leaves(4, 3))
    assert torch.autograd.gradgradcheck(call, leaves(4, 3))


def test_the_system_is_shown_to_those_who_ask() -> None:
    *fields, _ = leaves(7, 5)
    seen: list[Tensor] = []
    wanted: list[Tensor] = []
    transport_once(*fields, ridge=0.3, show=seen.append)
    transport(*fields, ridge=0.3, show=wanted.append)
    assert len(seen) == 1
    torch.testing.assert_close(seen, wanted)


def test_a_system_that_is_not_positive_definite_is_refused() -> None:
    *fields, _ = leaves(7, 5)
    with torch.no_grad():
        fields[1].fill_(torch.nan)
    with pytest.raises(torch.linalg.LinAlgError, match="expected positive definite systems, got 6"):
        transport_once(*fields, ridge=0.3)


@pytest.mark.parametrize("by", [transport, transport_once], ids=["plain", "once"])
@pytest.mark.parametrize("form", ["primal", "dual"])
def test_a_ridge_lost_in_float32_is_found_in_float64(by: Callable[..., Tensor], form: str) -> None:
    """Keys that are alike: 1e8 + 0.3 is 1e8 in float32, and no longer positive definite."""
    *fields, strength = leaves(6, 6)
    with torch.no_grad():
        fields[1].copy_(fields[1][..., :1, :1].expand_as(fields[1]).sign() * 1e4)
    outs = []
    for dtype in (torch.float64, torch.float32):
        given = [leaf.detach().float().to(dtype).requires_grad_() for leaf in (*fields, strength)]
        seen: list[Tensor] = []
        out = by(*given[:3], ridge=Additive(given[3]), form=form, show=seen.append)
        assert out.dtype == dtype
        assert [system.dtype for system in seen] == [torch.float64]
        out.sum().backward()
        outs.append([out, *(leaf.grad for leaf in given)])
    for exact, found in zip(*outs, strict=True):
        error = (found.double() - exact).norm() / exact.norm()
        assert error < 1e-5
        assert exact.norm() > 0
