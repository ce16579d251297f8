"""How exact every form is: float32 against the reference in float64, bfloat16 against float32."""

import shutil
import subprocess
import sys
from functools import cache, partial
from pathlib import Path

import pytest
import torch
from onnxruntime import InferenceSession
from torch import Tensor, nn
from torch.export import Dim

from funcattn import FunctionalAttention, OperatorTransformer, functional_attention
from funcattn.export import to_onnx
from funcattn.nn.bases import split_heads
from funcattn.nn.points import Points
from funcattn.ops import Solution
from funcattn.ops.attention.reference import functional_attention_reference

WIDTH, BASES = 64, 16
BFLOAT16 = 2.0**-8
"""Unit roundoff: bfloat16 has eight bits of significand, the hidden one included."""


def layer(heads: int) -> FunctionalAttention:
    torch.manual_seed(0)
    return FunctionalAttention(WIDTH, heads=heads, bases=BASES, maps="points").eval()


def inputs(n: int) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(n)
    mask = torch.rand(2, n, generator=random) > 0.2
    weights = torch.rand(2, n, generator=random)
    return {"x": torch.randn(2, n, WIDTH, generator=random), "mask": mask, "weights": weights}


@cache
def reference(heads: int, n: int) -> Tensor:
    """The layer in float64, from the most obvious form of the operator."""
    exact, given = layer(heads).double(), inputs(n)
    x, mask, weights = given["x"].double(), given["mask"], given["weights"].double()
    here = Points(None, None, mask, weights)
    with torch.no_grad():
        fields = [split_heads(make(x, here), heads) for make in (exact.to_query, exact.to_key)]
        value = split_heads(exact.to_value(x, here), heads)
        basis = exact.basis(x, here)
        out, _ = functional_attention_reference(
            *fields,
            value,
            basis,
            basis,
            ridge=exact.ridge(),
            weights=weights,
            mask=mask,
        )
        return exact.to_output(out.transpose(1, 2).flatten(2))  # (b, h, n, d) -> (b, n, h d)


def by_execution(heads: int, given: dict[str, Tensor], execution: str) -> Tensor:
    chosen = layer(heads)
    chosen.execution = execution  # type: ignore[assignment]
    return chosen(**given)


def compiled(heads: int, given: dict[str, Tensor], folder: Path) -> Tensor:
    """In a process of its own, as the shape checks that only tests have cannot be compiled."""
    if shutil.which("g++") is None:
        pytest.skip("compiling for a CPU takes a C++ compiler")
    torch.save(given, folder / "given.pt")
    done = subprocess.run(
        [sys.executable, __file__, str(heads), str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return torch.load(folder / "out.pt", weights_only=True)


def exported(heads: int, given: dict[str, Tensor], folder: Path) -> Tensor:
    shapes = {name: {0: Dim("b"), 1: Dim("n")} for name in given}
    program = torch.export.export(layer(heads), (), inputs(50), dynamic_shapes=shapes)
    torch.export.save(program, folder / "layer.pt2")
    return torch.export.load(folder / "layer.pt2").module()(**given)


def onnx(heads: int, given: dict[str, Tensor], folder: Path) -> Tensor:
    to_onnx(layer(heads), folder / "layer.onnx", inputs(50))
    session = InferenceSession(folder / "layer.onnx", providers=["CPUExecutionProvider"])
    (out,) = session.run(None, {name: tensor.numpy() for name, tensor in given.items()})
    return torch.from_numpy(out)


FORMS = {
    **{
        execution: lambda heads, given, _, execution=execution: by_execution(
            heads, given, execution
        )
        for execution in ("plain", "stored", "streamed")
    },
    "compiled": compiled,
    "exported": exported,
    "onnx": onnx,
}


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize("heads", [1, 8], ids=lambda h: f"h{h}")
@pytest.mark.parametrize(
    "n", [1000, pytest.param(10007, marks=pytest.mark.full)], ids=lambda n: f"n{n}"
)
@pytest.mark.parametrize(
    "form",
    [
        "plain",
        "stored",
        "streamed",
        *(pytest.param(form, marks=pytest.mark.full) for form in ("compiled", "exported", "onnx")),
    ],
)
def test_float32_is_within_1e_5_of_the_reference(
    form: str, n: int, heads: int, tmp_path: Path
) -> None:
    expected = reference(heads, n)
    with torch.no_grad():
        got = FORMS[form](heads, inputs(n), tmp_path).double()
    assert (got - expected).abs().max() <= 1e-5 * expected.abs().max()


def autocast_error(what: str, execution: str) -> tuple[Tensor, Tensor]:
    """Of the output and of all gradients together: |bfloat16 - float32| / |float32|."""
    torch.manual_seed(0)
    attention = partial(FunctionalAttention, heads=8, bases=BASES, execution=execution)
    module: nn.Module = attention(WIDTH)
    given: tuple[Tensor, ...] = (inputs(500)["x"],)
    if what == "network":
        module = OperatorTransformer(2, 1, 1, width=WIDTH, layers=4, attention=attention)
        given = (given[0][..., :2], given[0][..., 2:3])
    found = []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            out = module(*given).float()
        gradients = torch.autograd.grad(out.square().mean(), list(module.parameters()))
        found.append((out.detach(), torch.cat([gradient.flatten() for gradient in gradients])))
    (out, gradient), (short_out, short_gradient) = found
    return (short_out - out).norm() / out.norm(), (short_gradient - gradient).norm() / (
        gradient.norm()
    )


@pytest.mark.parametrize("execution", ["plain", "stored", "streamed"])
@pytest.mark.parametrize(("what", "roundings"), [("layer", 4), ("network", 16)])
def test_under_autocast_errors_are_a_few_roundings(
    what: str, roundings: int, execution: str
) -> None:
    """A layer rounds its features, the fields it projects, its basis and its output: four times.

    Of four layers these are sixteen, and the residual stream keeps them from multiplying. Backward
    goes the same way once more. A value that is not finite fails too.
    """
    of_output, of_gradients = autocast_error(what, execution)
    assert of_output <= roundings * BFLOAT16
    assert of_gradients <= 2 * roundings * BFLOAT16


def test_of_bfloat16_fields_sums_and_solves_are_in_float32(generator: torch.Generator) -> None:
    query, key, value = torch.randn(3, 2, 2, 500, 5, generator=generator).bfloat16()
    basis = torch.randn(2, 2, 500, 7, generator=generator).softmax(-1).bfloat16()
    given = (query, key, value, basis, basis)
    seen: list[Solution] = []
    with torch.autocast("cpu", torch.bfloat16):
        short = functional_attention(*given, ridge=1e-2, show=seen.append)
    full = functional_attention(*(tensor.float() for tensor in given), ridge=1e-2)
    assert [solution.system.dtype for solution in seen] == [torch.float32]
    # Nothing is rounded to bfloat16 but the result.
    torch.testing.assert_close(short, full.bfloat16(), rtol=0, atol=0)


if __name__ == "__main__":
    folder = Path(sys.argv[2])
    module = torch.compile(layer(int(sys.argv[1])), fullgraph=True, dynamic=True)
    with torch.no_grad():
        out = module(**torch.load(folder / "given.pt", weights_only=True))
    torch.save(out, folder / "out.pt")
