"""Kernels that never store the basis, beside the obvious form, with every gradient.

Without a GPU they run in Triton's interpreter (`conftest.py`), on the CPU.
"""

import copy
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from funcattn.nn import FunctionalAttention, Stencil
from funcattn.nn.bases import split_heads
from funcattn.nn.points import Points
from funcattn.ops.attention import chunked, local_maps
from funcattn.ops.attention.reference import functional_attention_reference
from funcattn.ops.fused import blocks, passes
from funcattn.ops.fused.passes import FusedPasses, fused_passes
from funcattn.ops.fused.scored import Scored, Toward

by_triton = pytest.importorskip("funcattn.ops.fused.by_triton")

pytestmark = pytest.mark.usefixtures("in_chunks")
TABLE = blocks.TABLE
on_a_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason="Triton's interpreter multiplies bit patterns of bfloat16 as whole numbers",
)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few points and channels in a block, few programs, so that all of their seams are met."""
    table = ((10**6, 10**6, blocks.Blocks(points=16, channels=16, warps=4, stages=1)),)
    monkeypatch.setattr(blocks, "TABLE", table)
    monkeypatch.setattr(by_triton, "PROGRAMS", 6)


@pytest.fixture
def by_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chunked form takes them on this device too."""
    monkeypatch.setattr(chunked, "fused_passes", lambda _: FusedPasses(by_triton))
    monkeypatch.setattr(chunked.native_passes, "can_do", lambda _: False)


def build(width: int, heads: int, bases: int, **options: Any) -> FunctionalAttention:
    torch.manual_seed(0)
    layer = FunctionalAttention(width, heads, bases, **options).double()
    for parameter in layer.parameters():
        if parameter.ndim > 0 and parameter.shape != (heads,):  # not the temperature, not the ridge
            torch.nn.init.normal_(parameter, std=0.4)
    return layer.to(DEVICE)


def about_points(points: int, *names: str) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(2)
    given = {
        "mask": torch.rand(2, points, generator=generator) > 0.3,
        "weights": torch.rand(2, points, generator=generator, dtype=torch.float64),
    }
    return {name: given[name].to(DEVICE) for name in names}


def outcome(
    layer: FunctionalAttention, points: int, dtype: torch.dtype, **call: Any
) -> dict[str, Tensor]:
    """The output and the gradient of everything, by name."""
    layer = copy.deepcopy(layer).to(dtype)
    x, cotangent = torch.randn(
        2, 2, points, layer.to_output.weight.shape[1], generator=torch.Generator().manual_seed(1)
    ).to(DEVICE, dtype)
    if "weights" in call:
        call["weights"] = call["weights"].to(dtype)
    out = layer(x.requires_grad_(), **call)
    sources = {"x": x, **dict(layer.named_parameters())}
    found = torch.autograd.grad(out, list(sources.values()), cotangent.to(out.dtype))
    return {"output": out.detach(), **dict(zip(sources, found, strict=True))}


SHAPES: dict[str, tuple[int, int, int, dict[str, Any]]] = {
    "four heads": (16, 4, 5, {}),
    "one head, two blocks of channels": (20, 1, 5, {}),
    "functions that fill a block": (32, 2, 16, {}),
    "more functions than channels": (8, 2, 33, {}),
    "maps at points": (24, 2, 5, {"maps": "points"}),
    "stencil": (16, 2, 5, {"features": partial(Stencil, reach=0.2)}),
    "transpose": (16, 2, 5, {"projection": "transpose", "ridge": 0.3}),
    "inner product, primal": (16, 2, 5, {"projection": "inner_product", "form": "primal"}),
}


@pytest.mark.usefixtures("by_kernels")
@pytest.mark.parametrize(
    ("given", "execution"), [((), "streamed"), (("mask", "weights"), "stored")], ids=str
)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_value_and_every_gradient_are_those_of_the_plain_form(
    shape: tuple[int, int, int, dict[str, Any]],
    given: tuple[str, ...],
    execution: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    width, heads, bases, options = shape
    if execution == "stored":  # two chunks of points
        monkeypatch.setattr(passes, "_CHUNK", 40)
    layer = build(width, heads, bases, execution="plain", **options)
    call = {"grid": (5, 9), **about_points(45, *given)}
    wanted = outcome(layer, 45, torch.float64, **call)
    layer.execution = execution  # type: ignore[assignment]
    got = outcome(layer, 45, torch.float64, **call)
    for name, value in wanted.items():
        assert (got[name] - value).norm() <= 1e-11 * value.norm(), name


@pytest.mark.usefixtures("by_kernels")
@pytest.mark.parametrize("heads", [1, 4])
def test_the_result_is_that_of_the_obvious_form(heads: int) -> None:
    layer = build(16, heads, 5, maps="points", execution="streamed")
    x = torch.randn(2, 40, 16, generator=torch.Generator().manual_seed(1)).to(DEVICE).double()
    call = about_points(40, "mask", "weights")
    here = Points(None, None, call["mask"], call["weights"])
    with torch.no_grad():
        maps = (layer.to_query, layer.to_key, layer.to_value)
        fields = [split_heads(make(x, here), heads).cpu() for make in maps]
        basis = layer.basis(x, here).cpu()
        wanted, _ = functional_attention_reference(
            *fields,
            basis,
            basis,
            ridge=layer.ridge().__class__(layer.ridge().weight.cpu()),
            mask=call["mask"].cpu(),
            weights=call["weights"].cpu(),
        )
        wanted = layer.to_output(wanted.transpose(1, 2).flatten(2).to(DEVICE))
        torch.testing.assert_close(layer(x, **call), wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("by_kernels")
def test_what_is_stored_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "_CHUNK", 40)
    layer, call = build(16, 4, 5, execution="stored"), about_points(45, "mask", "weights")
    stored = outcome(layer, 45, torch.float32, **call)
    layer.execution = "streamed"
    for name, value in outcome(layer, 45, torch.float32, **call).items():
        assert torch.equal(value, stored[name]), name


@pytest.mark.usefixtures("by_kernels")
def test_single_precision_is_as_exact_as_the_plain_form_has_it() -> None:
    layer, call = build(32, 4, 20, execution="stored"), about_points(45, "mask", "weights")
    got = outcome(layer, 45, torch.float32, **call)
    layer.execution = "plain"
    plain, exact = (outcome(layer, 45, dtype, **call) for dtype in (torch.float32, torch.float64))

    def error(of: dict[str, Tensor]) -> Tensor:
        """Of the output and all gradients together, as some are small differences."""
        return torch.cat([(of[name] - value).flatten() for name, value in exact.items()]).norm()

    assert error(got) <= 2 * error(plain)


@pytest.mark.usefixtures("by_kernels")
def test_under_autocast_products_are_in_half_precision_and_sums_are_not() -> None:
    layer, call = build(32, 4, 20), about_points(45, "mask", "weights")
    full = outcome(layer, 45, torch.float32, **call)
    # Not bfloat16, of which Triton's interpreter knows no products.
    with torch.autocast(DEVICE, torch.float16):
        half = outcome(layer, 45, torch.float32, **call)
        (moments,) = layer.float().moments(torch.randn(1, 45, 32).to(DEVICE))
    assert half["output"].dtype == torch.float16
    assert moments.fields[0].dtype == torch.float32
    error = (half["output"] - full["output"]).norm() / full["output"].norm()
    assert 0 < error <= 8 * 2**-11


@pytest.mark.usefixtures("by_kernels")
def test_moments_alone_and_the_lift_alone() -> None:
    layer = build(16, 4, 5, execution="streamed")
    x = torch.randn(2, 50, 16, generator=torch.Generator().manual_seed(1)).to(DEVICE).double()
    call = about_points(50, "mask", "weights")
    with torch.no_grad():
        wanted = layer(x, **call)
        kept = layer.encode(x, **call)
        torch.testing.assert_close(layer.read(x, kept, mask=call["mask"]), wanted)


@pytest.mark.usefixtures("by_kernels")
def test_no_points_at_all_have_sums_of_zero() -> None:
    layer = build(16, 4, 5, execution="streamed")
    (moments,) = layer.moments(torch.zeros(2, 0, 16, dtype=torch.float64, device=DEVICE))
    assert not moments.fields[0].any()


def given_to_kernels(dtype: torch.dtype) -> tuple[Scored, Toward]:
    generator = torch.Generator().manual_seed(0)
    random = partial(torch.randn, generator=generator, dtype=torch.float64)
    b, h, n, k, g, f, e = 2, 3, 50, 7, 9, 20, 6
    # As features of all heads side by side are seen by each.
    y, field, d_values = (random(b, n, h, c).to(DEVICE, dtype).transpose(1, 2) for c in (k, f, e))
    length = torch.float64 if dtype == torch.float64 else torch.float32
    rest = (random(h, k, g), random(h, g), random(b, n), random(b, h, f, g), random(b, h, g))
    weight, bias, w, d_moments, d_mass = (part.to(DEVICE, length) for part in rest)
    coefficients = random(b, h, g, e).to(DEVICE, length)
    return Scored(y, weight, bias), Toward(field, w, d_moments, d_mass, d_values, coefficients)


def by_ordinary_operations(basis: Scored, toward: Toward) -> dict[str, Tensor]:
    """All that kernels give, in float64, gradients by autograd."""
    y, weight, bias = (
        part.double().requires_grad_() for part in (basis.features, basis.weight, basis.bias)
    )
    assert toward.d_values is not None
    assert toward.coefficients is not None
    assert toward.weights is not None
    phi = (y @ weight + bias.unsqueeze(1)).softmax(-1)
    weighted = phi * toward.weights.double()[:, None, :, None]
    moments, mass = toward.field.double().mT @ weighted, weighted.sum(2)
    lifted = phi @ toward.coefficients.double()
    cotangents = [toward.d_moments.double(), toward.d_mass.double(), toward.d_values.double()]
    found = torch.autograd.grad([moments, mass, lifted], [y, weight, bias], cotangents)
    return {
        "moments": moments.detach(),
        "mass": mass.detach(),
        "lifted": lifted.detach().transpose(1, 2),
        "d_features": found[0].transpose(1, 2),
        "d_weight": found[1],
        "d_bias": found[2],
    }


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [
        (torch.float64, 1e-13),
        (torch.float32, 1e-6),
        (torch.float16, 4 * 2**-11),
        pytest.param(torch.bfloat16, 4 * 2**-8, marks=on_a_gpu),
    ],
    ids=str,
)
def test_each_kernel_by_itself_in_every_dtype(dtype: torch.dtype, tolerance: float) -> None:
    basis, toward = given_to_kernels(dtype)
    assert toward.coefficients is not None
    moments, mass = by_triton.sums(basis, toward.field, toward.weights)
    d_features, d_weight, d_bias = by_triton.gradients(basis, toward)
    lifted = by_triton.lifted(basis, toward.coefficients)
    got = {
        "moments": moments, "mass": mass, "lifted": lifted,
        "d_features": d_features, "d_weight": d_weight, "d_bias": d_bias,
    }  # fmt: skip
    for name, value in by_ordinary_operations(basis, toward).items():
        assert (got[name].double() - value).norm() <= tolerance * value.norm(), name
    assert lifted.dtype == d_features.dtype == dtype
    assert moments.dtype == mass.dtype == d_weight.dtype == d_bias.dtype == basis.weight.dtype


def test_a_field_whose_channels_are_apart_is_refused() -> None:
    basis, toward = given_to_kernels(torch.float32)
    with pytest.raises(ValueError, match="channels side by side"):
        by_triton.sums(basis, toward.field.mT.contiguous().mT, None)


class OnAGpu(Tensor):
    """Says of itself that it is on one."""

    device = torch.device("cuda")  # type: ignore[assignment]


def test_they_are_chosen_on_a_gpu_by_themselves() -> None:
    single = torch.zeros(2).as_subclass(OnAGpu)
    assert fused_passes(single) == FusedPasses(by_triton)
    assert fused_passes(single.double()) is None
    assert fused_passes(torch.zeros(2)) is None
    assert chunked._passes(single) == FusedPasses(by_triton)


def test_heads_stay_apart_where_they_would_be_folded() -> None:
    layer = build(40, 8, 3)
    x = torch.zeros(1, 5, 40, dtype=torch.float64)
    parts = layer._in_chunks(x, Points())
    assert parts is not None
    maps = parts.local_maps(x, Points())
    assert maps.folds
    assert local_maps.folded(x, maps)[0].groups == 8
    assert local_maps.folded(x, maps, heads=False)[0].groups == 1


def test_blocks_of_the_table_are_what_triton_takes() -> None:
    for _, _, chosen in (*TABLE, (0, 0, blocks.OTHERS)):
        for count in (chosen.points, chosen.channels):
            assert count == blocks.power_of_two(count)
    # A row that stands behind one that fits more would never be taken.
    for before, after in pairwise(TABLE):
        assert not (before[0] >= after[0] and before[1] >= after[1])
