"""The layer in halves: what a mesh says, and what any point reads of it."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from funcattn import FunctionalAttention
from funcattn.nn import (
    FourierBasis,
    GridConvolution,
    GridFourierBasis,
    LearnedBasis,
    OrthonormalBasis,
    Stencil,
)
from funcattn.ops import Moments

pytestmark = pytest.mark.usefixtures("in_chunks")

N, C = 23, 8
SMALL = partial(FunctionalAttention, C, heads=2, bases=5)

LAYERS: dict[str, Callable[[], FunctionalAttention]] = {
    "average": SMALL,
    "one head": partial(SMALL, heads=1),
    "maps at points": partial(SMALL, maps="points"),
    "transpose": partial(SMALL, projection="transpose"),
    "inner product": partial(SMALL, projection="inner_product"),
    "pseudo-inverse": partial(SMALL, projection="pinv"),
    "plain": partial(SMALL, execution="plain"),
    "plain, maps at points": partial(SMALL, execution="plain", maps="points"),
    "two bases": lambda: SMALL(key_basis=LearnedBasis(C, 2, 5)),
    "two bases, maps at points": lambda: SMALL(key_basis=LearnedBasis(C, 2, 5), maps="points"),
    "fourier": lambda: SMALL(basis=FourierBasis([1, 1]), projection="inner_product"),
    "fourier, pseudo-inverse": lambda: SMALL(basis=FourierBasis([1, 1]), projection="pinv"),
}


def made(name: str) -> FunctionalAttention:
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        layer = LAYERS[name]().double()
        for parameter in layer.parameters():
            if parameter.ndim >= 2:
                nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    return layer


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(2, N, C, dtype=torch.float64, generator=generator)


@pytest.fixture
def points(generator: torch.Generator) -> dict[str, Tensor]:
    return {
        "positions": torch.rand(2, N, 2, dtype=torch.float64, generator=generator),
        "weights": torch.rand(2, N, dtype=torch.float64, generator=generator) + 0.1,
    }


@pytest.mark.parametrize("name", LAYERS)
def test_reading_what_was_encoded_is_the_forward_with_all_gradients(
    name: str, x: Tensor, points: dict[str, Tensor], generator: torch.Generator
) -> None:
    layer = made(name)
    x.requires_grad_()
    mask = torch.rand(2, N, generator=generator) < 0.8
    along = torch.randn(2, N, C, dtype=torch.float64, generator=generator)

    def gradients(out: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad((out * along).sum(), [x, *layer.parameters()])

    forward = layer(x, mask=mask, **points)
    coefficients = layer.encode(x, mask=mask, **points)
    read = layer.read(x, coefficients, positions=points["positions"], mask=mask)
    torch.testing.assert_close(read, forward, rtol=0, atol=1e-12)
    for ours, theirs in zip(gradients(read), gradients(forward), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("weighted", [True, False], ids=["weights", "no weights"])
@pytest.mark.parametrize("name", LAYERS)
def test_moments_of_parts_add_up_to_what_the_mesh_says(
    name: str, weighted: bool, x: Tensor, points: dict[str, Tensor]
) -> None:
    layer = made(name)
    if not weighted:
        del points["weights"]
    totals: list[Moments] = []
    for rows in (slice(0, 1), slice(1, 9), slice(9, N)):
        here = {key: tensor[:, rows] for key, tensor in points.items()}
        moments = layer.moments(x[:, rows], **here)
        totals = [a + b for a, b in zip(totals, moments, strict=True)] if totals else list(moments)
    torch.testing.assert_close(layer.carried(totals), layer.encode(x, **points), rtol=0, atol=1e-11)
    weight = points["weights"].sum(1) if weighted else torch.full((2,), float(N)).double()
    for total in totals:
        found = torch.as_tensor(total.weight).double().flatten().expand(2)
        torch.testing.assert_close(found, weight)


@pytest.mark.parametrize("name", LAYERS)
def test_other_points_read_alone_what_they_would_read_together(
    name: str, x: Tensor, points: dict[str, Tensor], generator: torch.Generator
) -> None:
    layer = made(name)
    coefficients = layer.encode(x, **points)
    others = torch.randn(2, 7, C, dtype=torch.float64, generator=generator)
    where = torch.rand(2, 7, 2, dtype=torch.float64, generator=generator)
    together = layer.read(others, coefficients, positions=where)
    for i in range(7):
        alone = layer.read(others[:, i : i + 1], coefficients, positions=where[:, i : i + 1])
        torch.testing.assert_close(alone, together[:, i : i + 1], rtol=0, atol=1e-12)
    # Points that weigh nothing do not change what the mesh says, so they see it as queries do.
    both = torch.cat([x, others], 1)
    weights = torch.cat([points["weights"], torch.zeros(2, 7, dtype=torch.float64)], 1)
    positions = torch.cat([points["positions"], where], 1)
    if name != "transpose":  # a sum without weights of its own counts them as well
        seen = layer(both, positions=positions, weights=weights)[:, N:]
        torch.testing.assert_close(together, seen, rtol=0, atol=1e-11)


NOT_LOCAL: dict[str, Callable[[], FunctionalAttention]] = {
    "Stencil": partial(SMALL, features=partial(Stencil, reach=0.25)),
    "GridConvolution": partial(SMALL, features=GridConvolution),
    "OrthonormalBasis": lambda: SMALL(
        basis=OrthonormalBasis(LearnedBasis(C, 2, 5)), projection="inner_product"
    ),
    "GridFourierBasis": lambda: SMALL(basis=GridFourierBasis([2]), projection="inner_product"),
}


@pytest.mark.parametrize("half", ["encode", "moments", "read"])
@pytest.mark.parametrize("name", NOT_LOCAL)
def test_layers_that_look_at_neighbours_are_refused(name: str, half: str, x: Tensor) -> None:
    layer = NOT_LOCAL[name]().double()
    more = [torch.zeros(2, 2, 5, 4, dtype=torch.float64)] if half == "read" else []
    with pytest.raises(ValueError, match=f"depend on that point alone, got {name}"):
        getattr(layer, half)(x, *more)
