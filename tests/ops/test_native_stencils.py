"""Stencils on grid points in C beside convolutions: numbers, every gradient, and who does it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from funcattn.nn import Points, Stencil
from funcattn.ops import native
from funcattn.ops.native import stencils
from funcattn.ops.native.stencils import stencil_on_points

needs_c = pytest.mark.skipif(native.library() is None, reason=f"no C: {native.why_not()}")

CONVOLUTION = {1: F.conv1d, 2: F.conv2d}


@pytest.fixture
def at_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """C does it where it is slower, too."""
    monkeypatch.setattr(stencils, "_pays", lambda *_: True)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def drawn(
    shape: Sequence[int], inputs: int, outputs: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Field, weight, bias and a cotangent of the result."""
    u = torch.randn(*shape, inputs, generator=generator)
    axes = len(shape) - 1
    weight = torch.randn(outputs, inputs, *(3,) * axes, generator=generator)
    bias = torch.randn(outputs, generator=generator)
    return u, weight, bias, torch.randn(*shape, outputs, generator=generator)


def by_index(
    u: Tensor, weight: Tensor, bias: Tensor | None, steps: Sequence[int], *, periodic: bool
) -> Tensor:
    """Padded by indices, as PyTorch's circular padding ends at one period, and convolved."""
    for axis, step in enumerate(steps, start=1):
        length = u.shape[axis]
        place = torch.arange(-step, length + step)
        u = u.index_select(axis, place % length if periodic else place.clamp(0, length - 1))
    out = CONVOLUTION[len(steps)](u.movedim(-1, 1), weight, bias, dilation=tuple(steps))
    return out.movedim(1, -1)


def outcome(call: Callable[..., Tensor], given: Sequence[Tensor], d_out: Tensor) -> list[Tensor]:
    """The result and the gradient of everything given."""
    given = [each.detach().requires_grad_() for each in given]
    out = call(*given)
    return [out.detach(), *torch.autograd.grad(out, given, d_out)]


@needs_c
@pytest.mark.usefixtures("at_any_size")
@pytest.mark.parametrize("periodic", [False, True], ids=["box", "torus"])
@pytest.mark.parametrize(
    ("shape", "inputs", "outputs", "steps"),
    [
        ((2, 1, 9), 16, 32, (1, 1)),
        ((3, 2, 7), 32, 16, (1, 1)),
        ((1, 5, 1), 16, 16, (1, 1)),
        ((2, 13, 18), 64, 48, (1, 1)),
        ((1, 34, 35), 16, 80, (1, 1)),  # several groups of tiles, several tiles of columns
        ((2, 6, 7), 208, 16, (1, 1)),  # sums of more terms than are packed at once
        ((2, 11, 14), 16, 16, (3, 2)),
        ((1, 3, 4), 16, 16, (2, 5)),  # neighbours beyond both ends
        ((3, 1), 16, 16, (1,)),
        ((2, 30), 48, 32, (1,)),
        ((2, 203), 16, 16, (4,)),
    ],
    ids=str,
)
def test_numbers_and_gradients_are_those_of_a_convolution(
    shape: tuple[int, ...],
    inputs: int,
    outputs: int,
    steps: tuple[int, ...],
    periodic: bool,
    generator: torch.Generator,
) -> None:
    u, weight, bias, d_out = drawn(shape, inputs, outputs, generator)
    given = [u, weight, bias]
    assert stencils._in_c(u, weight, bias, steps)
    found = outcome(lambda *x: stencil_on_points(*x, steps=steps, periodic=periodic), given, d_out)
    truth = outcome(
        lambda u, weight, bias: by_index(u, weight, bias, steps, periodic=periodic),
        [each.double() for each in given],
        d_out.double(),
    )
    for name, one, other in zip(("result", "u", "weight", "bias"), found, truth, strict=True):
        assert (one - other).norm() <= 2e-6 * other.norm(), name
    with torch.no_grad():
        assert torch.equal(stencil_on_points(*given, steps=steps, periodic=periodic), found[0])


@needs_c
@pytest.mark.usefixtures("at_any_size")
@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2), (1, 2)], ids=str)
def test_each_gradient_is_the_same_without_the_others(
    wanted: tuple[int, ...], generator: torch.Generator
) -> None:
    *given, d_out = drawn((2, 9, 6), 16, 32, generator)
    every = outcome(lambda *x: stencil_on_points(*x, steps=(1, 1), periodic=False), given, d_out)

    def call(*some: Tensor) -> Tensor:
        everything = list(given)
        for place, each in zip(wanted, some, strict=True):
            everything[place] = each
        return stencil_on_points(*everything, steps=(1, 1), periodic=False)

    _, *found = outcome(call, [given[place] for place in wanted], d_out)
    for place, gradient in zip(wanted, found, strict=True):
        assert torch.equal(gradient, every[1 + place])


@needs_c
@pytest.mark.usefixtures("at_any_size")
def test_it_takes_any_strides_and_no_bias(generator: torch.Generator) -> None:
    u = torch.randn(2, 16, 8, 5, generator=generator).movedim(1, -1)  # channels first
    weight = torch.randn(16, 3, 3, 16, generator=generator).movedim(-1, 1)
    d_out = torch.randn(2, 16, 8, 5, generator=generator).movedim(1, -1)

    def call(u: Tensor, weight: Tensor) -> Tensor:
        return stencil_on_points(u, weight, None, steps=(1, 1), periodic=False)

    found = outcome(call, [u, weight], d_out)
    copies = [u.contiguous(), weight.contiguous()]
    for one, other in zip(found, outcome(call, copies, d_out.contiguous()), strict=True):
        assert torch.equal(one, other)


@needs_c
@pytest.mark.usefixtures("at_any_size")
def test_it_can_be_differentiated_twice(generator: torch.Generator) -> None:
    *given, _ = drawn((2, 5, 6), 16, 16, generator)
    given = [each.requires_grad_() for each in given]

    def twice(call: Callable[..., Tensor]) -> tuple[Tensor, ...]:
        out = call(*given)
        first = torch.autograd.grad(out.square().sum(), given, create_graph=True)
        squares = torch.stack([each.square().sum() for each in first])
        return torch.autograd.grad(squares.sum(), given)

    ours = twice(lambda *x: stencil_on_points(*x, steps=(1, 1), periodic=True))
    theirs = twice(lambda u, weight, bias: by_index(u, weight, bias, (1, 1), periodic=True))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4 * float(other.abs().max()))


def test_in_double_precision_its_gradients_are_right(generator: torch.Generator) -> None:
    *given, _ = drawn((1, 3, 4), 2, 2, generator)
    given = [each.double().requires_grad_() for each in given]

    def call(*x: Tensor) -> Tensor:
        return stencil_on_points(*x, steps=(1, 2), periodic=False)

    assert torch.autograd.gradcheck(call, given)
    assert torch.autograd.gradgradcheck(call, given)


@needs_c
@pytest.mark.usefixtures("two_threads")
def test_two_threads_share_the_samples(generator: torch.Generator) -> None:
    u, weight, bias, d_out = drawn((3, 20, 20), 32, 16, generator)
    assert stencils._in_c(u, weight, bias, (1, 1))

    def call(*x: Tensor) -> Tensor:
        return stencil_on_points(*x, steps=(1, 1), periodic=False)

    out, d_u, d_weight, _ = outcome(call, [u, weight, bias], d_out)
    torch.set_num_threads(1)
    alone, alone_d_u, alone_d_weight, _ = outcome(call, [u, weight, bias], d_out)
    assert torch.equal(out, alone)
    assert torch.equal(d_u, alone_d_u)
    assert (d_weight - alone_d_weight).norm() <= 1e-6 * alone_d_weight.norm()


def test_where_c_cannot_be_seen_or_does_not_pay_pytorch_does_it(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    u, weight, bias, _ = drawn((4, 20, 20), 16, 32, generator)

    def in_c(u: Tensor = u, weight: Tensor = weight, bias: Tensor | None = bias) -> bool:
        return stencils._in_c(u, weight, bias, [1] * (u.ndim - 2))

    assert in_c() is (native.library() is not None)
    assert in_c(bias=None) is in_c()
    assert not in_c(u.double(), weight.double(), bias.double())
    assert not in_c(u.to("meta"), weight.to("meta"), bias.to("meta"))
    assert not in_c(u[..., :10], weight[:, :10])  # no whole vectors
    assert not in_c(weight=weight[:10], bias=bias[:10])
    assert not in_c(u[:1, :4, :4])  # fewer points than it takes to prepare the taps
    assert not in_c(u[:, :1])  # most of each tile is not there
    assert not in_c(u[:0])
    assert not in_c(u, weight[:, :1])  # a stencil per channel
    assert not in_c(u, weight[..., :1])
    assert not in_c(u[:, :, :, None].expand(-1, -1, -1, 3, -1))  # three axes
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not in_c()
    # PyTorch's threads share points, ours samples.
    monkeypatch.setattr(torch, "get_num_threads", lambda: 9)
    assert not in_c()


def test_it_can_be_mapped(generator: torch.Generator) -> None:
    u, weight, bias, _ = drawn((4, 20, 20), 16, 16, generator)

    def call(u: Tensor) -> Tensor:
        return stencil_on_points(u, weight, bias, steps=(1, 1), periodic=False)

    mapped = torch.func.vmap(call)(u.view(2, 2, 20, 20, 16))
    torch.testing.assert_close(mapped.flatten(0, 1), call(u), rtol=1e-4, atol=1e-4)


def test_without_c_a_layer_has_the_same_numbers_to_rounding(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\n"
        "from funcattn.nn import Points, Stencil\n"
        "torch.manual_seed(0)\n"
        "for reach in (1 / 24, 1 / 12, 0.06, 1 / 25):\n"
        "    layer = Stencil(16, 32, reach=reach, periodic=reach == 1 / 25)\n"
        "    x = torch.randn(2, 625, 16, requires_grad=True)\n"
        "    layer(x, Points(grid=(25, 25))).pow(3).sum().backward()\n"
        "    print(*(p.grad.norm().item() for p in (x, layer.weight, layer.bias)))\n"
    )
    said = []
    for switch in ("0", "1"):
        done = subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, "FUNCATTN_NATIVE": switch},
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        said.append([float(number) for number in done.stdout.split()])
    assert len(said[0]) == 12
    assert said[0] == pytest.approx(said[1], rel=1e-5)


@needs_c
@pytest.mark.parametrize(
    ("reach", "periodic", "in_c"),
    [(1 / 24, False, True), (1 / 12, False, True), (1 / 25, True, True), (0.06, False, False)],
)
def test_a_layer_whose_neighbours_are_grid_points_is_done_in_c(
    reach: float,
    periodic: bool,
    in_c: bool,
    monkeypatch: pytest.MonkeyPatch,
    generator: torch.Generator,
) -> None:
    calls = []
    forward = stencils._forward

    def counted(*given: object, **more: object) -> Tensor:
        calls.append(given)
        return forward(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(stencils, "_forward", counted)
    layer = Stencil(16, 16, reach=reach, periodic=periodic)
    layer(torch.randn(2, 625, 16, generator=generator), Points(grid=(25, 25)))
    assert bool(calls) is in_c
