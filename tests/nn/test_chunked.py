"""Functional attention in chunks of points gives the values and gradients of the plain form."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from funcattn.nn import FunctionalAttention, LearnedBasis, OrthonormalBasis, Pointwise, Stencil
from funcattn.nn import execution as layer_execution
from funcattn.nn import functional_attention as layer_module
from funcattn.nn.points import Points
from funcattn.ops import native
from funcattn.ops.attention import chunks, passes
from funcattn.ops.buffers import Buffers

pytestmark = pytest.mark.usefixtures("in_chunks")

GRID = (7, 11)
POINTS = 77


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four chunks of 19 or 20 points, so that their seams are looked at."""
    monkeypatch.setattr(chunks, "_CHUNK_VALUES", 16 * 32)
    monkeypatch.setattr(chunks, "_FEWEST_POINTS", 16)


@pytest.fixture(params=["stored", "streamed", "stored in part"])
def execution(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """An execution in chunks; in part: at some chunks, the others are computed again."""
    if request.param != "stored in part":
        return str(request.param)
    monkeypatch.setattr(layer_module, "points_to_store", lambda x, _maps: x.shape[1] * 3 // 4)
    return "auto"


def build(
    execution: str = "plain",
    heads: int = 4,
    make_basis: Callable[[], LearnedBasis] | None = None,
    **options: Any,
) -> FunctionalAttention:
    torch.manual_seed(0)
    if make_basis is not None:
        options["basis"] = make_basis()
    layer = FunctionalAttention(16, heads, 5, execution=execution, **options).double()
    for parameter in layer.parameters():
        if parameter.ndim > 0 and parameter.shape != (heads,):  # not the temperature, not the ridge
            torch.nn.init.normal_(parameter, std=0.4)
    return layer


def fields(points: int = POINTS) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, points, 16, generator=generator, dtype=torch.float64)


def marked(points: int = POINTS) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(2)
    mask = torch.rand(2, points, generator=generator) > 0.3
    weights = torch.rand(2, points, generator=generator, dtype=torch.float64)
    return {"mask": mask, "weights": weights}


def loss(out: Tensor) -> Tensor:
    """Uneven over the points, so that no error cancels."""
    return (out * torch.sin(torch.arange(out.numel(), dtype=out.dtype)).view(out.shape)).sum()


def value_and_gradients(layer: FunctionalAttention, x: Tensor, **call: Any) -> dict[str, Tensor]:
    x = x.clone().requires_grad_()
    layer.zero_grad()
    out = layer(x, **call)
    loss(out).backward()
    gradients = {name: p.grad.clone() for name, p in layer.named_parameters() if p.grad is not None}
    assert x.grad is not None
    return {"out": out.detach(), "x": x.grad, **gradients}


def assert_same(got: dict[str, Tensor], wanted: dict[str, Tensor], rtol: float = 1e-11) -> None:
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        scale = value.abs().max().item()
        torch.testing.assert_close(got[name], value, rtol=0, atol=rtol * scale, msg=name)


VARIANTS: dict[str, dict[str, Any]] = {
    "eight heads": {"heads": 8},
    "four heads, maps of width and heads in one": {},
    "maps at points, eight heads": {"maps": "points", "heads": 8},
    "one head": {"heads": 1},
    "maps at points, four heads": {"maps": "points"},
    "maps at points, one head": {"maps": "points", "heads": 1},
    "stencil": {"features": partial(Stencil, reach=0.2)},
    "stencil, one head": {"features": partial(Stencil, reach=0.2), "heads": 1},
    "transpose": {"projection": "transpose", "ridge": 0.3},
    "inner product": {"projection": "inner_product", "form": "primal"},
    "unbounded temperature": {
        "make_basis": partial(LearnedBasis, 16, 4, 5, temperature=7.0, bounds=None)
    },
}


@pytest.mark.parametrize("call", [{}, marked()], ids=["plain points", "weights and mask"])
@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
def test_value_and_every_gradient_are_those_of_the_plain_form(
    variant: dict[str, Any], execution: str, call: dict[str, Tensor]
) -> None:
    wanted = value_and_gradients(build(**variant), fields(), grid=GRID, **call)
    got = value_and_gradients(build(execution, **variant), fields(), grid=GRID, **call)
    assert_same(got, wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("call", [{}, marked()], ids=["plain points", "weights and mask"])
@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
def test_what_is_stored_changes_no_bit(
    variant: dict[str, Any],
    call: dict[str, Tensor],
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that numbers do not depend on the free memory of the moment."""
    found = []
    for share in (0, 0.3, 0.75, 1):
        monkeypatch.setattr(
            layer_module, "points_to_store", lambda x, _maps, share=share: int(share * x.shape[1])
        )
        layer = build("auto", **variant).to(dtype)
        found.append(value_and_gradients(layer, fields().to(dtype), grid=GRID, **call))
        with torch.no_grad():
            found[-1]["without gradient"] = layer(fields().to(dtype), grid=GRID, **call)
    streamed, *stored = found
    for others in stored:
        assert others.keys() == streamed.keys()
        for name, value in streamed.items():
            assert torch.equal(others[name], value), name


@pytest.mark.parametrize("heads", [1, 4, 8])
def test_gradient_is_that_of_finite_differences(execution: str, heads: int) -> None:
    layer = build(execution, heads)
    x = fields(19)[:1].requires_grad_()
    parameters = tuple(layer.parameters())
    names = [name for name, _ in layer.named_parameters()]

    def call(x: Tensor, *values: Tensor) -> Tensor:
        for name, value in zip(names, values, strict=True):
            owner, _, last = name.rpartition(".")
            module = layer.get_submodule(owner)
            module._parameters[last] = value  # type: ignore[assignment]
        return layer(x)

    # A second pass recomputes what the first had stored, to the bit.
    assert torch.autograd.gradcheck(call, (x, *parameters), atol=1e-7, fast_mode=True)


@pytest.mark.parametrize("values", [1, 16 * 77, 10**6], ids=["16 points", "two", "one chunk"])
def test_chunks_of_any_size_give_the_same(values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = value_and_gradients(build("streamed"), fields(), **marked())
    monkeypatch.setattr(chunks, "_CHUNK_VALUES", values)
    assert_same(value_and_gradients(build("streamed"), fields(), **marked()), wanted)


@pytest.mark.parametrize(
    ("points", "size", "lengths"),
    [(0, 4, []), (1, 4, [1]), (7, 4, [7]), (9, 4, [4, 5]), (14, 4, [4, 5, 5])],
)
def test_chunks_are_nearly_equal_and_cover_all(points: int, size: int, lengths: list[int]) -> None:
    slices = list(chunks.chunks(points, size))
    assert [s.stop - s.start for s in slices] == lengths
    assert [i for s in slices for i in range(s.start, s.stop)] == list(range(points))


def test_float32_is_as_close_to_float64_as_the_plain_form_is(execution: str) -> None:
    exact = build()(fields())
    scale = exact.abs().max()
    out = build(execution).float()(fields().float())
    assert (out - exact).abs().max() / scale < 2e-6


@pytest.mark.parametrize("heads", [4, 8])
def test_a_graph_can_be_gone_through_twice(execution: str, heads: int) -> None:
    layer, x = build(execution, heads), fields().requires_grad_()
    value = loss(layer(x))
    once = torch.autograd.grad(value, [x, *layer.parameters()], retain_graph=True)
    # What was stored is others' by now.
    value_and_gradients(build("stored", heads), 3 * fields())
    twice = torch.autograd.grad(value, [x, *layer.parameters()])
    for first, second in zip(once, twice, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-12, atol=1e-12)


def test_the_last_part_of_a_graph_can_be_gone_through_twice() -> None:
    layer = build("stored", 8)
    value = loss(layer(fields()))
    (once,) = torch.autograd.grad(value, layer.to_output.weight, retain_graph=True)
    value_and_gradients(build("stored", 8), 3 * fields())
    (twice,) = torch.autograd.grad(value, layer.to_output.weight)
    torch.testing.assert_close(once, twice, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("heads", [4, 8])
def test_graphs_side_by_side_do_not_share_what_they_store(heads: int) -> None:
    layer = build("stored", heads)
    first, second = fields().requires_grad_(), (2 * fields()).requires_grad_()
    losses = [loss(layer(first)), loss(layer(second))]
    with torch.no_grad():
        layer(5 * fields())
    (of_first,) = torch.autograd.grad(losses[0], first)
    (of_second,) = torch.autograd.grad(losses[1], second)
    plain = build(heads=heads)
    assert_same({"x": of_first}, {"x": value_and_gradients(plain, fields())["x"]})
    assert_same({"x": of_second}, {"x": value_and_gradients(plain, 2 * fields())["x"]})


@pytest.mark.parametrize("heads", [4, 8])
def test_checkpointing_goes_with_it(execution: str, heads: int) -> None:
    layer = build(execution, heads)
    wanted = value_and_gradients(layer, fields())
    x = fields().requires_grad_()
    layer.zero_grad()
    loss(checkpoint(layer, x, use_reentrant=False)).backward()
    assert x.grad is not None
    assert torch.equal(x.grad, wanted["x"])
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, wanted[name])


@pytest.mark.parametrize("heads", [4, 8])
def test_part_of_the_gradient_alone(heads: int) -> None:
    layer, x = build("stored", heads), fields()
    for parameter in layer.parameters():
        parameter.requires_grad_(False)
    layer.to_output.weight.requires_grad_()
    layer.ridge.get_parameter("logit").requires_grad_()
    wanted = value_and_gradients(build(heads=heads), x)
    loss(layer(x)).backward()
    for name in ("to_output.weight", "ridge.logit"):
        gradient = layer.get_parameter(name).grad
        assert gradient is not None
        assert_same({name: gradient}, {name: wanted[name]})


def saved_bytes(layer: FunctionalAttention, x: Tensor) -> int:
    """Of what is kept for the gradient, the same memory counted once."""
    seen: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        seen[tensor.data_ptr()] = max(tensor.nbytes, seen.get(tensor.data_ptr(), 0))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        layer(x.requires_grad_())
    return sum(seen.values())


def test_streamed_keeps_nothing_at_the_points_but_its_input() -> None:
    x = fields(2000)
    per_point = x.nbytes
    streamed, plain = saved_bytes(build("streamed"), x), saved_bytes(build(), x)
    assert streamed < 1.1 * per_point
    assert plain > 5 * per_point


def test_auto_stores_at_as_many_points_as_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    x = fields(512)
    # Of every point, with its gradient: 8 heads of 5 functions, and four times 16 channels.
    needed = x.nbytes // 16 * (8 * 5 + 4 * 16)
    monkeypatch.setattr(layer_execution, "_SMALL_STORE", 0)
    monkeypatch.setattr(layer_execution, "buffers", Buffers())
    kept: list[int] = []

    def counted(*given: Any, **options: Any) -> chunks.Store:
        store = store_for(*given, **options)
        kept.append(sum(part.nbytes for part in store.tensors if part is not None))
        return store

    store_for = passes.store_for
    monkeypatch.setattr(passes, "store_for", counted)
    for share in (0, 0.5, 1):
        free = int(16 * share * needed)
        monkeypatch.setattr(layer_execution, "available_bytes", lambda _device, free=free: free)
        build("auto", 8)(x)
    # Who computes everything again keeps nothing of it.
    checkpoint(build("auto", 8), x.requires_grad_(), use_reentrant=False)
    build("stored", 8)(x)
    nothing, half, everything, in_a_checkpoint, stored = kept
    assert nothing == in_a_checkpoint == 0
    assert everything == stored > 0
    assert half == pytest.approx(everything / 2, rel=1e-3)


def test_what_auto_stores_goes_by_the_gradient_and_by_the_buffers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = fields(500)
    basis = 2 * 8 * 8 * 5  # bytes of a point of both samples: 8 heads of 5 functions
    with_features = basis + 2 * 8 * 4 * 16
    monkeypatch.setattr(layer_execution, "_SMALL_STORE", 0)
    monkeypatch.setattr(layer_execution, "available_bytes", lambda _device: 16 * 8000)
    pool = Buffers(most=10**9)
    monkeypatch.setattr(layer_execution, "buffers", pool)

    def in_memory(layer: FunctionalAttention, x: Tensor) -> int:
        parts = layer._in_chunks(x, Points())
        assert parts is not None
        return layer_execution.points_to_store(x, parts.local_maps(x, Points()))

    def stored() -> int:
        return in_memory(build("auto", 8), x)

    assert stored() == 8000 // with_features
    # Four heads have half the basis, and their maps folded into it.
    assert in_memory(build("auto", 4), x) == 8000 // (basis // 2)
    with torch.no_grad():
        assert stored() == 16000 // basis
        pool.most = 12000
        assert stored() == 12000 // basis
    pool.give(torch.empty(1000, dtype=torch.float64))  # free, though the system does not know
    assert stored() == (8000 + 8000 // 16) // with_features


@pytest.mark.parametrize(
    ("points", "width", "is_few"),
    [(255, 128, True), (256, 128, False), (255, 512, True), (1023, 32, True), (1024, 32, False)],
)
def test_auto_does_few_points_plainly(
    monkeypatch: pytest.MonkeyPatch, points: int, width: int, is_few: bool
) -> None:
    monkeypatch.undo()
    layer = FunctionalAttention(width, 8, 4, projection="transpose")  # not done in C
    x = torch.randn(2, points, width)
    assert (layer._in_chunks(x, Points()) is None) is is_few


@pytest.mark.skipif(native.library() is None, reason=f"no C: {native.why_not()}")
def test_auto_does_few_points_in_chunks_where_c_does_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    x = torch.randn(2, 40, 32)
    for layer, in_chunks in (
        (FunctionalAttention(32, 4, 16), True),
        (FunctionalAttention(32, 4, 10), True),  # maps are folded
        (FunctionalAttention(32, 1, 64), True),
        (FunctionalAttention(32, 4, 16, maps="points"), False),
        (FunctionalAttention(32, 4, 16, projection="transpose"), False),
    ):
        assert (layer._in_chunks(x, Points()) is not None) is in_chunks
        assert layer.double()._in_chunks(x.double(), Points()) is None  # C has single precision


def second_derivatives(
    layer: FunctionalAttention, x: Tensor, **call: Any
) -> dict[str, Tensor | None]:
    """Of the loss: the gradient of an uneven sum of its gradients."""
    x = x.clone().requires_grad_()
    given = {"x": x, **dict(layer.named_parameters())}
    first = torch.autograd.grad(loss(layer(x, **call)), tuple(given.values()), create_graph=True)
    total = torch.stack([loss(each.reshape(1, -1)) for each in first]).sum()
    second = torch.autograd.grad(total, tuple(given.values()), allow_unused=True)
    return dict(zip(given, second, strict=True))


@pytest.mark.parametrize("call", [{}, marked()], ids=["plain points", "weights and mask"])
@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
def test_second_derivatives_are_those_of_the_plain_form(
    variant: dict[str, Any], execution: str, call: dict[str, Tensor]
) -> None:
    wanted = second_derivatives(build(**variant), fields(), grid=GRID, **call)
    got = second_derivatives(build(execution, **variant), fields(), grid=GRID, **call)
    # The plain form has none of a bias that enters linearly.
    assert_same(
        {name: got[name] for name, value in wanted.items() if value is not None},  # type: ignore[misc]
        {name: value for name, value in wanted.items() if value is not None},
    )
    assert all(
        not got[name].any() for name in got if wanted[name] is None and got[name] is not None
    )  # type: ignore[union-attr]
    assert len([value for value in wanted.values() if value is not None]) > len(wanted) // 2


def test_second_derivatives_in_single_precision(execution: str) -> None:
    """Where C does the first."""
    wanted = second_derivatives(build(heads=8), fields(), **marked())
    single = {
        name: tensor.float() if name == "weights" else tensor for name, tensor in marked().items()
    }
    got = second_derivatives(build(execution, heads=8).float(), fields().float(), **single)
    for name, value in wanted.items():
        if value is not None and got[name] is not None:
            assert (got[name] - value).norm() < 1e-4 * value.norm(), name  # type: ignore[operator]


OBSTACLES: dict[str, tuple[Callable[[str], FunctionalAttention], dict[str, Any], str]] = {
    "another basis": (
        lambda e: build(
            e,
            basis=OrthonormalBasis(LearnedBasis(16, 4, 5)).double(),
            projection="inner_product",
        ),
        {},
        "another basis than one LearnedBasis",
    ),
    "two bases": (
        lambda e: build(e, key_basis=LearnedBasis(16, 4, 5).double()),
        {},
        "another basis than one LearnedBasis",
    ),
    "pseudo-inverse": (
        lambda e: build(e, projection="pinv"),
        {},
        "more of the basis than the mass",
    ),
    "stencils at points": (
        lambda e: build(e, maps="points", features=partial(Stencil, reach=0.2)),
        {"grid": GRID},
        "not point-wise",
    ),
    "weights to learn": (
        build,
        {"weights": torch.rand(2, POINTS, dtype=torch.float64).add(0.1).requires_grad_()},
        "the point weights want a gradient",
    ),
}


@pytest.mark.parametrize(("make", "call", "words"), OBSTACLES.values(), ids=OBSTACLES.keys())
def test_what_cannot_be_chunked_is_done_plainly_or_refused(
    make: Callable[[str], FunctionalAttention], call: dict[str, Any], words: str
) -> None:
    torch.testing.assert_close(
        make("auto")(fields(), **call), make("plain")(fields(), **call), rtol=0, atol=0
    )
    with pytest.raises(ValueError, match=f"'streamed', got one that cannot: .*{words}"):
        make("streamed")(fields(), **call)


# By torch's own derivatives in forward mode.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_half_precision_and_transforms_are_done_plainly() -> None:
    layer, plain = build("auto"), build("plain")
    jacobian = torch.func.jacrev(lambda x: layer(x)[0, 0])(fields(9))
    wanted = torch.func.jacrev(lambda x: plain(x)[0, 0])(fields(9))
    torch.testing.assert_close(jacobian, wanted)
    _, tangent = torch.func.jvp(layer, (fields(9),), (fields(9),))
    _, wanted = torch.func.jvp(plain, (fields(9),), (fields(9),))
    torch.testing.assert_close(tangent, wanted)
    half = layer.bfloat16()(fields().bfloat16())
    assert half.dtype == torch.bfloat16


@pytest.mark.parametrize("part", ["basis", "basis.features.map", "to_output"])
def test_parts_that_somebody_watches_are_called(part: str) -> None:
    layer, seen = build("auto"), []
    hook = layer.get_submodule(part).register_forward_hook(lambda *call: seen.append(call[2].shape))
    layer(fields())
    hook.remove()
    layer(fields())
    assert len(seen) == 1
    layer.get_submodule(part).register_full_backward_hook(lambda *call: seen.append(call[0]))
    layer(fields().requires_grad_()).sum().backward()
    assert len(seen) == 2


@pytest.mark.usefixtures("as_a_user")
def test_unknown_execution_is_refused() -> None:
    with pytest.raises(
        ValueError, match="expected one of auto, plain, stored, streamed, got 'fast'"
    ):
        FunctionalAttention(16, 4, 5, execution="fast")  # type: ignore[arg-type]


def test_features_are_pointwise_by_default() -> None:
    # The variants above say "stencil" where they mean it.
    assert isinstance(build().features, Pointwise)
