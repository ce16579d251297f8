"""What is done in C beside what PyTorch does: numbers, every gradient, threads, and no compiler."""

import copy
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from funcattn.nn import FunctionalAttention, functional_attention
from funcattn.nn.linear import Linear, with_fast_products
from funcattn.nn.points import Points
from funcattn.ops import native
from funcattn.ops.attention import native_passes
from funcattn.ops.attention.chunks import Store
from funcattn.ops.attention.local_maps import AtPoints
from funcattn.ops.native import products
from funcattn.ops.native.library import NotCompiledError, cache_folder, compiled

needs_c = pytest.mark.skipif(native.library() is None, reason=f"no C: {native.why_not()}")


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def with_weights_of_order_one(layer: FunctionalAttention, generator: torch.Generator) -> None:
    with torch.no_grad():
        for parameter in layer.parameters():
            if parameter.ndim == 2:
                drawn = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(drawn * parameter.shape[1] ** -0.5)
            elif parameter.ndim == 1 and parameter.shape[0] > 1:
                parameter.add_(0.1 * torch.rand(parameter.shape, generator=generator))


def outcome(
    layer: nn.Module, x: Tensor, cotangent: Tensor, dtype: torch.dtype, **points: Tensor | None
) -> dict[str, Tensor]:
    """The output and the gradient of everything, by name."""
    x = x.to(dtype).requires_grad_()
    weights = points.get("weights")
    given = {**points, "weights": None if weights is None else weights.to(dtype)}
    out = layer(x, **given)
    sources = {"x": x, **dict(layer.named_parameters())}
    found = torch.autograd.grad(out, list(sources.values()), cotangent.to(dtype))
    return {"output": out.detach(), **dict(zip(sources, found, strict=True))}


@needs_c
@pytest.mark.parametrize(
    ("width", "heads", "bases", "batch", "points", "maps"),
    [
        (128, 8, 64, 1, 300, "coefficients"),  # no points but in whole vectors
        (64, 4, 32, 2, 97, "coefficients"),  # one more than a block
        (12, 4, 5, 3, 101, "coefficients"),  # nothing is a whole vector
        (20, 2, 33, 1, 200, "points"),  # three fields
        (32, 1, 16, 2, 190, "coefficients"),  # all maps in one
        (40, 8, 3, 2, 150, "coefficients"),  # several partitions in one head
        (208, 2, 17, 1, 100, "coefficients"),  # sums of more terms than are packed at once
    ],
)
@pytest.mark.parametrize("about_points", ["nothing", "weights", "mask", "both"])
def test_passes_in_c_agree_with_the_plain_form_in_double_precision(
    width: int,
    heads: int,
    bases: int,
    batch: int,
    points: int,
    maps: str,
    about_points: str,
    generator: torch.Generator,
) -> None:
    layer = FunctionalAttention(width, heads, bases, maps=maps, execution="stored")
    with_weights_of_order_one(layer, generator)
    plain, streamed = copy.deepcopy(layer).double(), copy.deepcopy(layer)
    plain.execution, streamed.execution = "plain", "streamed"
    x, cotangent = torch.randn(2, batch, points, width, generator=generator)
    assert native_passes.can_do(x)
    mask = torch.rand(batch, points, generator=generator) > 0.3
    weights = torch.rand(batch, points, generator=generator)
    given = {
        "mask": mask if about_points in ("mask", "both") else None,
        "weights": weights if about_points in ("weights", "both") else None,
    }
    truth = outcome(plain, x, cotangent, torch.float64, **given)
    stored = outcome(layer, x, cotangent, torch.float32, **given)
    again = outcome(streamed, x, cotangent, torch.float32, **given)
    for name, expected in truth.items():
        assert (stored[name] - expected).norm() <= 2e-5 * expected.norm(), name
        assert torch.equal(stored[name], again[name]), name
    with torch.no_grad():
        assert torch.equal(layer(x, **given), stored["output"])


@needs_c
@pytest.mark.parametrize("heads", [1, 8])
def test_what_is_stored_at_some_of_the_points_changes_no_bit(
    heads: int, monkeypatch: pytest.MonkeyPatch, generator: torch.Generator
) -> None:
    layer = FunctionalAttention(128, heads, 64)
    x, cotangent = torch.randn(2, 2, 300, 128, generator=generator)
    weights = torch.rand(2, 300, generator=generator)
    found = []
    for kept in (300, 200, 0):
        monkeypatch.setattr(functional_attention, "points_to_store", lambda *_, kept=kept: kept)
        found.append(outcome(layer, x, cotangent, torch.float32, weights=weights))
    for name, value in found[0].items():
        assert all(torch.equal(value, other[name]) for other in found[1:]), name


@needs_c
def test_two_threads_share_a_pass(generator: torch.Generator, two_threads: None) -> None:
    del two_threads
    layer = FunctionalAttention(32, 4, 8, execution="stored")
    plain = copy.deepcopy(layer).double()
    plain.execution = "plain"
    x, cotangent = torch.randn(2, 3, 700, 32, generator=generator)
    truth = outcome(plain, x, cotangent, torch.float64)
    found = outcome(layer, x, cotangent, torch.float32)
    for name, expected in truth.items():
        assert (found[name] - expected).norm() <= 1e-4 * expected.norm(), name


@needs_c
def test_a_value_that_is_not_a_number_is_not_hidden(generator: torch.Generator) -> None:
    layer = FunctionalAttention(32, 4, 8, execution="stored")
    x = torch.randn(2, 300, 32, generator=generator)
    x[1, 5, 3] = torch.nan
    with pytest.raises(torch.linalg.LinAlgError):
        layer(x)
    x[1, 5, 3] = 0
    assert layer(x).isfinite().all()


@needs_c
def test_scores_of_any_size_make_a_partition(generator: torch.Generator) -> None:
    layer = FunctionalAttention(16, 1, 24, execution="stored")
    with torch.no_grad():
        layer.basis.scores.weight.mul_(300)
        layer.basis.scores.bias.add_(1e4)
    x = torch.randn(1, 400, 16, generator=generator)
    plain = copy.deepcopy(layer).double()
    plain.execution = "plain"
    torch.testing.assert_close(layer(x), plain(x.double()).float(), rtol=1e-3, atol=1e-5)


@pytest.fixture
def on_any_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products are done in C where PyTorch's are faster, too."""
    monkeypatch.setattr(products, "_faster_in_c", lambda: True)


@needs_c
@pytest.mark.usefixtures("on_any_processor")
@pytest.mark.parametrize(
    ("shape", "inputs", "outputs"),
    [
        ((3, 400), 33, 65),
        ((7000,), 17, 5),
        ((2, 10, 100), 64, 96),
        ((900,), 800, 3),
        ((800,), 3, 300),
    ],
    ids=str,
)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_a_linear_map_in_c_has_the_numbers_and_gradients_of_pytorchs(
    shape: tuple[int, ...], inputs: int, outputs: int, bias: bool, generator: torch.Generator
) -> None:
    x = torch.randn(*shape, inputs, generator=generator).requires_grad_()
    weight = torch.randn(outputs, inputs, generator=generator).requires_grad_()
    b = torch.randn(outputs, generator=generator).requires_grad_() if bias else None
    cotangent = torch.randn(*shape, outputs, generator=generator)
    assert products._in_c(x, weight, b)
    given = [x, weight, *([b] if b is not None else [])]
    found = products.linear(x, weight, b)
    truth = F.linear(*(each.double() for each in given))
    assert (found - truth).norm() <= 1e-6 * truth.norm()
    for one, other in zip(
        torch.autograd.grad(found, given, cotangent),
        torch.autograd.grad(truth, given, cotangent.double()),
        strict=True,
    ):
        assert (one - other).norm() <= 3e-6 * other.norm()


@needs_c
@pytest.mark.usefixtures("on_any_processor")
def test_it_takes_any_strides_and_can_be_differentiated_twice(generator: torch.Generator) -> None:
    x = torch.randn(50, 300, 30, generator=generator)[:, ::2].transpose(0, 1).requires_grad_()
    weight = torch.randn(20, 40, generator=generator)[:, :30].requires_grad_()

    def twice(by: object) -> tuple[Tensor, ...]:
        out = by(x, weight)  # type: ignore[operator]
        first = torch.autograd.grad(out.square().sum(), (x, weight), create_graph=True)
        return torch.autograd.grad(first[0].square().sum() + first[1].square().sum(), (x, weight))

    assert products._in_c(x, weight, None)
    for one, other in zip(twice(products.linear), twice(F.linear), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4 * float(other.abs().max()))


@needs_c
@pytest.mark.usefixtures("on_any_processor")
def test_two_threads_share_a_product(generator: torch.Generator, two_threads: None) -> None:
    del two_threads
    x, weight = torch.randn(5000, 40, generator=generator), torch.randn(50, 40, generator=generator)
    torch.testing.assert_close(products.linear(x, weight), F.linear(x, weight))


@needs_c
@pytest.mark.parametrize(("intel", "mkl"), [(True, True), (True, False), (False, True)])
def test_products_are_mkls_on_the_processors_of_its_maker(
    intel: bool, mkl: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "is_intel", lambda: intel)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    monkeypatch.setattr(products, "_faster_in_c", products._faster_in_c.__wrapped__)
    x, weight = torch.ones(5000, 40), torch.ones(50, 40)
    assert products._in_c(x, weight, None) is not (intel and mkl)


@pytest.mark.usefixtures("on_any_processor")
def test_where_c_cannot_be_seen_pytorch_does_it(generator: torch.Generator) -> None:
    x, weight = torch.randn(5000, 40, generator=generator), torch.randn(50, 40, generator=generator)
    assert not products._in_c(x.double(), weight.double(), None)
    assert not products._in_c(x.to("meta"), weight.to("meta"), None)
    assert not products._in_c(x[:2], weight, None)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not products._in_c(x, weight, None)
        assert products.linear(x, weight).dtype == torch.bfloat16
    mapped = torch.func.vmap(lambda row: products.linear(row, weight))(x.view(50, 100, 40))
    torch.testing.assert_close(mapped.view(5000, 50), F.linear(x, weight))


def test_every_linear_map_of_a_network_is_ours_and_keeps_its_weights() -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 2, bias=False)))
    before = network.state_dict()
    assert with_fast_products(network) is network
    assert [type(each) for each in network.modules() if isinstance(each, nn.Linear)] == [Linear] * 2
    torch.testing.assert_close(network.state_dict(), before)


def test_a_compiler_that_fails_or_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = tmp_path / "failing"
    failing.write_text("#!/bin/sh\necho no such flag >&2\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setenv("CC", str(failing))
    with pytest.raises(NotCompiledError, match="failing failed and said: no such flag"):
        compiled(tmp_path / "kept")
    assert not list((tmp_path / "kept").iterdir())
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotCompiledError, match="no C compiler"):
        compiled(tmp_path / "kept")


needs_halves = pytest.mark.skipif(
    not native_passes.knows_halves(), reason="the processor has no products in bfloat16"
)
BFLOAT16 = 2.0**-8


@needs_halves
@pytest.mark.parametrize(
    ("width", "heads", "bases", "batch", "points", "maps"),
    [
        (128, 8, 64, 1, 300, "coefficients"),
        (12, 4, 5, 3, 101, "coefficients"),  # nothing is a whole vector, nor an even number
        (20, 2, 33, 1, 200, "points"),
        (32, 1, 16, 2, 190, "coefficients"),
        (40, 8, 24, 2, 150, "coefficients"),  # the basis' features end within a tile
        (208, 2, 17, 1, 100, "coefficients"),  # sums of more terms than are packed at once
        (32, 2, 80, 1, 150, "coefficients"),  # rows of more functions than fit in registers
    ],
)
@pytest.mark.parametrize("about_points", [False, True], ids=["points", "masked and weighted"])
def test_passes_in_c_with_products_in_half_precision(
    width: int,
    heads: int,
    bases: int,
    batch: int,
    points: int,
    maps: str,
    about_points: bool,
    generator: torch.Generator,
) -> None:
    layer = FunctionalAttention(width, heads, bases, maps=maps, execution="stored")
    with_weights_of_order_one(layer, generator)
    streamed = copy.deepcopy(layer)
    streamed.execution = "streamed"
    x, cotangent = torch.randn(2, batch, points, width, generator=generator)
    given: dict[str, Tensor | None] = {}
    if about_points:
        given["mask"] = torch.rand(batch, points, generator=generator) > 0.3
        given["weights"] = torch.rand(batch, points, generator=generator)
    obvious = copy.deepcopy(layer).double()
    obvious.execution = "plain"
    truth = outcome(obvious, x, cotangent, torch.float64, **given)
    with torch.autocast("cpu", torch.bfloat16):
        stored = outcome(layer, x, cotangent.bfloat16(), torch.float32, **given)
        again = outcome(streamed, x, cotangent.bfloat16(), torch.float32, **given)
    assert stored["output"].dtype == torch.bfloat16
    numbers = {"basis.temperature", "ridge.logit"}  # small differences of large numbers
    for names in (*([name] for name in truth.keys() - numbers), truth.keys() - {"output"}):
        one, other = (torch.cat([of[name].flatten() for name in names]) for of in (stored, truth))
        assert 0 < (one - other).norm() <= 8 * BFLOAT16 * other.norm(), names
    for name, value in stored.items():
        assert torch.equal(value, again[name]), name


@needs_halves
@pytest.mark.parametrize("bases", [64, 40, 16, 5, 80])
def test_softmax_of_half_precision_is_far_closer_than_its_rounding(
    bases: int, generator: torch.Generator
) -> None:
    h, n, k = 2, 7, 3  # four rows at once, and some that are left
    # Numbers that bfloat16 has, so that scores are exact.
    x = torch.randint(-8, 9, (1, n, h * k), generator=generator).float()
    weight = torch.randint(-8, 9, (h, k, bases), generator=generator) / 2
    bias = torch.randint(-8, 9, (h, bases), generator=generator) / 2
    points = AtPoints(x.repeat(n, 1, 1), None, None, None, weight, bias, half=True)
    # Each sample counts one of the points, so that its masses are the basis there.
    mass = native_passes.sum_forward(points, torch.eye(n), Store())[:, :, -1]
    features = x[0].double().view(n, h, k)
    scores = torch.einsum("nhk,hkg->nhg", features, weight.double()) + bias.double()
    torch.testing.assert_close(mass.double(), scores.softmax(-1), rtol=1e-5, atol=1e-30)


@needs_halves
def test_in_half_precision_a_point_without_numbers_stays_alone(generator: torch.Generator) -> None:
    x = torch.randn(1, 7, 6, generator=generator)
    x[0, 2, 1] = torch.nan
    weight, bias = torch.randn(1, 6, 20, generator=generator), torch.zeros(1, 20)
    points = AtPoints(x, None, None, None, weight, bias, half=True)
    out = native_passes.lift_forward(points, torch.ones(1, 1, 20, 3), None, None, None, Store())
    assert out[0, 2].isnan().all()
    others = torch.arange(7) != 2
    torch.testing.assert_close(out[0, others], torch.ones(6, 3), rtol=BFLOAT16, atol=0)


@needs_halves
def test_under_autocast_sums_over_points_are_not_rounded(generator: torch.Generator) -> None:
    layer = FunctionalAttention(32, 2, 8, execution="streamed")
    block = torch.randn(1, 96, 32, generator=generator)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        (one,) = layer.moments(block)
        (many,) = layer.moments(block.repeat(1, 43, 1))
    # All blocks are alike, so that what was rounded in them is the same, and sums are multiples.
    for of_one, of_many in zip(one.fields, many.fields, strict=True):
        assert of_many.dtype == torch.float32
        # Some thousand roundings of single precision; one of bfloat16 would be 4e-3.
        assert (of_many - 43 * of_one).norm() <= 1e-5 * of_many.norm()


@needs_halves
def test_autocast_does_not_leave_the_chunks_where_they_gain(
    monkeypatch: pytest.MonkeyPatch, generator: torch.Generator
) -> None:
    layer, x = FunctionalAttention(128, 8, 16), torch.randn(1, 400, 128, generator=generator)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer._in_chunks(x, Points()) is not None
        assert layer._in_chunks(x.bfloat16(), Points()) is not None
        assert layer(x.bfloat16()).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.float16):
        assert layer._in_chunks(x, Points()) is None
    monkeypatch.setattr(native_passes, "knows_halves", lambda: False)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer._in_chunks(x, Points()) is None


class ATerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_first_compilation_is_announced_and_its_state_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working = tmp_path / "working"
    working.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho done > "$2"\n')
    working.chmod(0o755)
    monkeypatch.setenv("CC", str(working))
    monkeypatch.setenv("FUNCATTN_CACHE", str(tmp_path))
    monkeypatch.delenv("FUNCATTN_NATIVE", raising=False)
    said = ATerminal()
    monkeypatch.setattr(sys, "stderr", said)
    assert native.state().startswith("not compiled yet")
    path = compiled(cache_folder())
    assert "compiling passes in C, once for this machine" in said.getvalue()
    assert native.state() == f"compiled: {path}"
    said.truncate(0)
    assert compiled(cache_folder()) == path
    assert said.getvalue() == ""
    monkeypatch.setenv("FUNCATTN_NATIVE", "0")
    assert native.state() == "switched off by FUNCATTN_NATIVE=0"
    monkeypatch.delenv("FUNCATTN_NATIVE")
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert native.state().startswith("not available: there is no C compiler")


def test_nothing_is_said_where_nobody_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    failing = tmp_path / "failing"
    failing.write_text("#!/bin/sh\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setenv("CC", str(failing))
    with pytest.raises(NotCompiledError):
        compiled(tmp_path / "kept")
    assert capfd.readouterr().err == ""


def test_without_c_the_numbers_are_the_same_to_rounding(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\n"
        "from funcattn.nn import FunctionalAttention\n"
        "from funcattn.ops import native\n"
        "torch.manual_seed(0)\n"
        "layer, x = FunctionalAttention(32, 4, 8), torch.randn(1, 1500, 32, requires_grad=True)\n"
        "for parameter in layer.parameters(): parameter.data *= 10\n"
        "layer(x).square().sum().backward()\n"
        "of_map = layer.features.map.weight.grad\n"
        "print(native.why_not(), x.grad.norm().item(), of_map.norm().item())\n"
    )
    said = []
    for switch in ("0", "1"):
        environment = {**os.environ, "FUNCATTN_NATIVE": switch}
        done = subprocess.run(
            [sys.executable, str(script)],
            env=environment, check=True, capture_output=True, text=True,
        )  # fmt: skip
        said.append(done.stdout.strip())
    assert said[0].startswith("it is switched off by FUNCATTN_NATIVE=0")
    without, within = ([float(n) for n in line.split()[-2:]] for line in said)
    assert without == pytest.approx(within, rel=1e-5)


@needs_c
def test_moments_and_what_is_read_of_them_have_gradients_too(generator: torch.Generator) -> None:
    layer = FunctionalAttention(24, 2, 5, execution="streamed")
    with_weights_of_order_one(layer, generator)
    x = torch.randn(2, 150, 24, generator=generator)
    weights = torch.rand(2, 150, generator=generator)

    def gradients(by: FunctionalAttention, dtype: torch.dtype) -> list[Tensor]:
        here = x.to(dtype).requires_grad_()
        encoded = by.encode(here, weights=weights.to(dtype))
        given = [here, by.features.map.weight, by.basis.scores.weight]
        return list(torch.autograd.grad(encoded.square().sum(), given))

    plain = copy.deepcopy(layer).double()
    plain.execution = "plain"
    found, truth = gradients(layer, torch.float32), gradients(plain, torch.float64)
    for one, other in zip(found, truth, strict=True):
        assert (one - other).norm() <= 1e-5 * other.norm()
