"""Numbers that are not ordinary give right answers or words, in a layer, a network and a run."""

import os
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from funcattn import FunctionalAttention, OperatorTransformer
from funcattn.data import Store
from funcattn.errors import FuncattnError
from funcattn.nn import Pointwise
from funcattn.ops.linalg import NotPositiveError
from funcattn.serve import Predictor, load
from funcattn.settings import changed
from funcattn.tasks.darcy import Darcy
from funcattn.training.run import train

pytestmark = pytest.mark.usefixtures("as_a_user")

N = 7
FIELDS = {
    "zeros": torch.zeros(2, N, 8),
    "constant": torch.full((2, N, 8), 3.0),
    "denormal": torch.full((2, N, 8), 1e-42),
    "tiny": torch.full((2, N, 8), 1e-30),
    "ordinary": torch.linspace(-1, 1, 2 * N * 8).reshape(2, N, 8),
    "large": torch.linspace(-1, 1, 2 * N * 8).reshape(2, N, 8) * 1e9,
}


@pytest.fixture(params=["plain", "streamed"])
def layer(request: pytest.FixtureRequest) -> FunctionalAttention:
    torch.manual_seed(0)
    made = FunctionalAttention(8, 2, bases=16, features=Pointwise, execution=request.param)
    return made.eval()


@pytest.fixture
def network() -> OperatorTransformer:
    torch.manual_seed(0)
    attention = partial(FunctionalAttention, heads=2, bases=16, features=Pointwise)
    return OperatorTransformer(space=2, inputs=1, outputs=1, width=8, layers=2, attention=attention)


@pytest.mark.parametrize("field", FIELDS)
def test_a_layer_takes_every_finite_field(layer: nn.Module, field: str) -> None:
    """Also with more bases than points, as here."""
    x = FIELDS[field].clone().requires_grad_()
    out = layer(x)
    assert out.isfinite().all()
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("field", ["zeros", "constant", "denormal", "ordinary"])
def test_a_layer_gives_the_same_in_double_precision(layer: nn.Module, field: str) -> None:
    out = layer(FIELDS[field])
    twice = layer.double()(FIELDS[field].double())
    torch.testing.assert_close(out.double(), twice, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("number", [1e30, torch.inf, torch.nan])
def test_a_layer_never_gives_finite_numbers_for_what_it_cannot_compute(
    layer: nn.Module, number: float
) -> None:
    """It says so, or what comes out is no number either."""
    x = FIELDS["ordinary"].clone()
    x[0, 2] = number
    try:
        out = layer(x)
    except NotPositiveError as error:
        assert "check the units of the input" in str(error)  # noqa: PT017
    else:
        exact = layer.double()(x.double())
        torch.testing.assert_close(out.double(), exact, rtol=1e-3, atol=1e-3, equal_nan=True)


def test_a_layer_takes_one_point(layer: nn.Module) -> None:
    assert layer(FIELDS["ordinary"][:, :1]).isfinite().all()


def test_a_layer_refuses_all_masked_rows_and_no_points(layer: nn.Module) -> None:
    mask = torch.ones(2, N, dtype=torch.bool)
    mask[1] = False
    with pytest.raises(ValueError, match="every point is masked in row"):
        layer(FIELDS["ordinary"], mask=mask)
    with pytest.raises(FuncattnError, match="expected positive definite systems"):
        layer(FIELDS["ordinary"][:, :0])


def test_strides_do_not_matter(layer: nn.Module, network: nn.Module) -> None:
    x = FIELDS["ordinary"]
    strided = x.transpose(1, 2).contiguous().transpose(1, 2)
    assert not strided.is_contiguous()
    torch.testing.assert_close(layer(strided), layer(x))
    backwards = x.flip(1).contiguous()
    torch.testing.assert_close(layer(backwards).flip(1), layer(x))
    every = torch.rand(2, 2 * N, 3)
    positions, values = every[:, ::2, :2], every[:, ::2, 2:]
    torch.testing.assert_close(
        network(positions, values), network(positions.clone(), values.clone())
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_inputs_agree_with_whole_ones_to_their_digits(
    network: OperatorTransformer, dtype: torch.dtype
) -> None:
    positions, values = torch.rand(2, N, 2), torch.rand(2, N, 1)
    half = network.to(dtype)(positions.to(dtype), values.to(dtype))
    whole = network.float()(positions, values)
    assert half.dtype == dtype
    torch.testing.assert_close(half.float(), whole, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("number", [0.0, 1e-42, 1e-30, 1.0, 1e6])
def test_a_network_takes_constant_fields_and_one_point(network: nn.Module, number: float) -> None:
    for points in (1, N):
        out = network(torch.full((2, points, 2), 0.5), torch.full((2, points, 1), number))
        assert out.isfinite().all()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Path:
    settings = changed(
        Darcy.defaults("smoke", "modern"),
        {"optimisation": {"epochs": 1}, "network": {"reach": None, "bases": 32}},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        return train(settings, tmp_path_factory.mktemp("runs") / "run", store=store).folder


@pytest.fixture
def predictor(run: Path) -> Predictor:
    return load(run)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def given(number: float = 7.0, points: int = N) -> dict[str, Tensor]:
    positions = torch.linspace(0, 1, 2 * points).reshape(points, 2)
    values = torch.full((points, 1), number)
    return {"positions": positions, "values": values, "weights": torch.ones(points)}


@pytest.mark.parametrize("name", ["positions", "values"])
@pytest.mark.parametrize("number", [1e30, -1e30, 3e38, 1e300, 10**40])
def test_numbers_without_measure_are_refused_with_words_about_units(
    predictor: Predictor, name: str, number: float
) -> None:
    arrays = {key: tensor.double().numpy() for key, tensor in given().items()}
    arrays[name][3] = number
    with pytest.raises(ValueError, match=r"expected (numbers of ordinary size|finite numbers)"):
        predictor.predict(**arrays)


def test_the_words_name_channel_range_and_remedy(predictor: Predictor) -> None:
    with pytest.raises(
        ValueError,
        match=r"values, channel 0: expected numbers of ordinary size, near the 3 to 12 of the "
        r"training data, got 1e\+30 to 1e\+30; check the units",
    ):
        predictor.predict(**given(1e30))


@pytest.mark.parametrize("number", [0.0, 1e-42, 1e-30, 1e6, 1e9])
def test_a_run_predicts_finite_numbers_for_finite_ones(predictor: Predictor, number: float) -> None:
    for points in (1, N):
        assert predictor.predict(**given(number, points)).isfinite().all()


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", ["positions", "values"])
def test_a_run_refuses_numbers_that_are_none(
    predictor: Predictor, name: str, number: float
) -> None:
    arrays = given()
    arrays[name][2] = number
    with pytest.raises(ValueError, match=f"{name}: expected finite numbers"):
        predictor.predict(**arrays)


def test_a_run_refuses_no_points_and_all_masked_samples(predictor: Predictor) -> None:
    with pytest.raises(ValueError, match="expected at least one point"):
        predictor.predict(**given(points=0))
    with pytest.raises(ValueError, match="expected a real point in every sample"):
        predictor.predict(**given(), mask=torch.zeros(N, dtype=torch.bool))


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.uint8, np.float16, np.float64, ">f4"])
def test_a_run_takes_numbers_of_any_kind(predictor: Predictor, kind: Any) -> None:
    arrays = {key: tensor.numpy() for key, tensor in given().items()}
    wanted = predictor.predict(**arrays)
    out = predictor.predict(**arrays | {"values": arrays["values"].astype(kind)})
    np.testing.assert_array_equal(out, wanted)


def test_a_run_takes_strided_and_reversed_arrays(predictor: Predictor) -> None:
    arrays = {key: tensor.numpy() for key, tensor in given().items()}
    wanted = predictor.predict(**arrays)
    out = predictor.predict(**arrays | {"positions": np.asfortranarray(arrays["positions"])})
    np.testing.assert_array_equal(out, wanted)
    backwards = predictor.predict(**{key: array[::-1] for key, array in arrays.items()})
    np.testing.assert_allclose(backwards[::-1], wanted, rtol=1e-4, atol=1e-6)


def test_a_network_that_overflows_is_reported_as_such(predictor: Predictor) -> None:
    with torch.no_grad():
        for parameter in predictor.surrogate.parameters():
            parameter.mul_(1e30)
    with pytest.raises((ValueError, FuncattnError), match="check their units"):
        predictor.predict(**given())
