"""A mesh is encoded once, and its fields are then asked for anywhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from funcattn.models import Encoded

pytestmark = pytest.mark.usefixtures("in_chunks")

NAN = float("nan")
TRANSFORMERS = (
    "transformer",
    "maps at points",
    "shared basis",
    "fourier",
    "lattice",
    "time",
    "wide mlp",
)
LOCAL = (*TRANSFORMERS, "cloud operator", "cloud operator time", "cloud operator around")


@pytest.fixture
def inputs_of(draw: Any, uniform: Any) -> Callable[[nn.Module], dict[str, Tensor]]:
    return lambda model: draw(model, 37, samples=2) | {"weights": uniform(2, 37)}


@pytest.mark.parametrize("chunk", [1000, 5])
@pytest.mark.parametrize("masked", [False, True], ids=["all points", "masked"])
@pytest.mark.parametrize("name", LOCAL)
def test_at_its_own_points_a_query_is_the_forward(
    name: str,
    masked: bool,
    chunk: int,
    made: Any,
    inputs_of: Any,
    uniform: Any,
    assert_equal_to_rounding: Any,
) -> None:
    model = made(name)
    inputs = inputs_of(model)
    where = {key: inputs[key] for key in ("positions", "values")}
    if masked:
        inputs["mask"] = where["mask"] = uniform(2, 37) < 0.7
        for key in ("positions", "values", "weights"):
            inputs[key][~inputs["mask"]] = NAN
    with torch.no_grad():
        encoded = model.encode(**inputs)
        assert_equal_to_rounding(model.query(encoded, **where, chunk=chunk), model(**inputs))


@pytest.mark.parametrize("name", LOCAL)
def test_further_points_cost_themselves_alone_and_change_nothing(
    name: str, made: Any, inputs_of: Any, uniform: Any
) -> None:
    """They see what points of no weight would see in the forward."""
    model = made(name)
    inputs = inputs_of(model)
    more = {"positions": uniform(2, 11, 2), "values": uniform(2, 11, 1)}
    more["weights"] = torch.zeros(2, 11, dtype=torch.float64)
    together = inputs | {key: torch.cat([inputs[key], more[key]], 1) for key in more}
    encoded = model.encode(**inputs)
    queried = model.query(encoded, more["positions"], more["values"])
    torch.testing.assert_close(queried, model(**together)[:, 37:], rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", ["transformer", "cloud operator around"])
def test_gradients_go_through_both_halves(
    name: str, made: Any, inputs_of: Any, uniform: Any
) -> None:
    model = made(name)
    inputs = inputs_of(model)
    along = uniform(2, 37, 1)
    wanted = [inputs["positions"].requires_grad_(), inputs["weights"].requires_grad_()]
    wanted += model.parameters()
    halves = model.query(model.encode(**inputs), inputs["positions"], inputs["values"])
    ours = torch.autograd.grad((halves * along).sum(), wanted)
    theirs = torch.autograd.grad((model(**inputs) * along).sum(), wanted)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", ["transformer", "cloud operator around"])
def test_no_points_get_no_fields(name: str, made: Any, inputs_of: Any) -> None:
    model = made(name)
    encoded = model.encode(**inputs_of(model))
    empty = torch.zeros(2, 0, 2).double(), torch.zeros(2, 0, 1).double()
    assert model.query(encoded, *empty).shape == (2, 0, 1)


def test_what_was_saved_answers_as_before(tmp_path: Path, made: Any, inputs_of: Any) -> None:
    # The second has complex coefficients, the third masses.
    for name in ("time", "fourier", "cloud operator around"):
        model = made(name)
        inputs = inputs_of(model)
        encoded = model.encode(**inputs)
        encoded.save(tmp_path / "mesh.safetensors")
        again = Encoded.load(str(tmp_path / "mesh.safetensors"))
        where = inputs["positions"], inputs["values"]
        assert torch.equal(model.query(again, *where), model.query(encoded, *where))
    assert [path.name for path in tmp_path.iterdir()] == ["mesh.safetensors"]


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no tensors")
    with pytest.raises(ValueError, match=r"text: expected a file of Encoded\.save"):
        Encoded.load(tmp_path / "text")
    save_file({"weight": torch.zeros(3)}, tmp_path / "weights")
    with pytest.raises(ValueError, match="got tensors of another kind: weight"):
        Encoded.load(tmp_path / "weights")
    with pytest.raises(FileNotFoundError):
        Encoded.load(tmp_path / "nowhere")


def test_what_does_not_fit_is_refused(made: Any, inputs_of: Any) -> None:
    model = made("transformer")
    inputs = inputs_of(model)
    encoded = model.encode(**inputs)
    where = inputs["positions"], inputs["values"]
    with pytest.raises(ValueError, match="expected the coefficients of 3 layers, got 2"):
        made("transformer", layers=3).query(encoded, *where)
    with pytest.raises(ValueError, match=r"each of the 2 samples that were encoded, got .* 1"):
        model.query(encoded, *(x[:1] for x in where))
    with pytest.raises(ValueError, match="time: expected"):
        made("time").query(encoded, *where)
    around = made("cloud operator around")
    with pytest.raises(ValueError, match=r"expected the masses at 106 nodes .* got those at none"):
        around.query(encoded, *where)
    with pytest.raises(ValueError, match=r"expected the masses at no nodes .* got those at 106"):
        made("cloud operator").query(around.encode(**inputs), *where)
    with pytest.raises(ValueError, match="chunk: expected a number of points, got 0"):
        model.query(encoded, *where, chunk=0)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("softmax baseline", "got SoftmaxAttention"),
        ("stencils", "that point alone, got Stencil"),
        ("grid operator", "got GridBlock, which needs the whole grid"),
    ],
)
def test_layers_that_cannot_be_encoded_are_named(
    name: str, said: str, made: Any, inputs_of: Any
) -> None:
    model = made(name)
    with pytest.raises(ValueError, match=said):
        model.encode(**inputs_of(model))
