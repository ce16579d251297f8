"""A trained run predicts what it was tested with, and says what it cannot."""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import funcattn
from funcattn.data import StackedSamples, Store, collate, grid_positions, trapezoid_weights
from funcattn.models import Encoded
from funcattn.serve import Predictor, load
from funcattn.serve import inputs as inputs_module
from funcattn.serve.familiar import OutsideTrainingWarning
from funcattn.settings import changed
from funcattn.tasks import Task
from funcattn.tasks.darcy import Darcy
from funcattn.tasks.navier_stokes import NavierStokes
from funcattn.tasks.plasticity import Plasticity
from funcattn.training.checkpoint import CheckpointError, restore_model
from funcattn.training.kept import best_checkpoint
from funcattn.training.run import train
from funcattn.training.setup import RunError, build_network

GRID = (9, 9)
N = 81


def trained(folder: Path, store: Store, **changes: Any) -> Path:
    settings = changed(Darcy.defaults("smoke", "modern"), {"optimisation": {"epochs": 2}} | changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        train(settings, folder, store=store)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "grid", store)


@pytest.fixture(scope="module")
def points_run(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Path:
    """A network that needs no grid: it takes points in any number and order."""
    return trained(tmp_path_factory.mktemp("runs") / "points", store, network={"reach": None})


@pytest.fixture
def predictor(run: Path) -> Predictor:
    return load(run)


@pytest.fixture
def free(points_run: Path) -> Predictor:
    return load(points_run)


@pytest.fixture
def samples(store: Store) -> StackedSamples:
    test = Darcy(Darcy.defaults("smoke", "modern")).splits(store).test
    assert isinstance(test, StackedSamples)
    return test


@pytest.fixture
def arrays(samples: StackedSamples) -> dict[str, Any]:
    """The test samples as numpy arrays."""
    batch = collate([samples[i] for i in range(4)])
    assert batch.values is not None
    assert batch.weights is not None
    return {
        "positions": batch.positions.numpy(),
        "values": batch.values.numpy(),
        "weights": batch.weights.numpy(),
    }


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_it_predicts_what_the_task_does_with_the_best_weights(
    run: Path, predictor: Predictor, samples: StackedSamples, arrays: dict[str, Any]
) -> None:
    task = Darcy(predictor.task.settings)
    surrogate = build_network(task).eval()
    restore_model(surrogate, best_checkpoint(run).tensors["model"])
    with torch.no_grad():
        expected = task.predict(surrogate, collate([samples[i] for i in range(4)]))
    assert torch.equal(torch.from_numpy(predictor.predict(**arrays, grid=GRID)), expected)
    assert expected.shape == (4, N, 1)


def test_numpy_in_numpy_out_torch_in_torch_out(
    predictor: Predictor, arrays: dict[str, Any]
) -> None:
    out = predictor.predict(**arrays, grid=GRID)
    assert isinstance(out, np.ndarray)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    same = predictor.predict(**tensors, grid=list(GRID))
    assert isinstance(same, torch.Tensor)
    assert not same.requires_grad
    np.testing.assert_array_equal(same.numpy(), out)


def test_one_sample_needs_no_batch_axis(predictor: Predictor, arrays: dict[str, Any]) -> None:
    together = predictor.predict(**arrays, grid=GRID)
    for i in range(4):
        alone = predictor.predict(**{name: array[i] for name, array in arrays.items()}, grid=GRID)
        assert alone.shape == (N, 1)
        np.testing.assert_allclose(alone, together[i], rtol=1e-5, atol=1e-7)


@pytest.mark.usefixtures("as_a_user")
def test_arrays_of_any_kind_are_taken(predictor: Predictor, arrays: dict[str, Any]) -> None:
    out = predictor.predict(**arrays, grid=GRID)
    kinds = {
        "float64": {name: array.astype(np.float64) for name, array in arrays.items()},
        "whole numbers": arrays | {"values": arrays["values"].astype(np.int64)},
        "read-only": arrays | {"positions": np.broadcast_to(arrays["positions"][:1], (4, N, 2))},
        "other strides": {name: array[::-1][::-1] for name, array in arrays.items()},
        "lists": {name: array.tolist() for name, array in arrays.items()},
    }
    for kind, given in kinds.items():
        np.testing.assert_allclose(
            predictor.predict(**given, grid=GRID), out, rtol=1e-6, err_msg=kind
        )


def test_the_arrays_of_the_caller_are_left_alone(
    predictor: Predictor, arrays: dict[str, Any]
) -> None:
    before = {name: array.copy() for name, array in arrays.items()}
    predictor.predict(**arrays, grid=GRID, mask=np.ones((4, N), dtype=bool))
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, before[name])


def test_another_resolution_is_predicted(predictor: Predictor) -> None:
    finer = (17, 17)
    values = np.full((17 * 17, 1), 3.0)
    values[:140] = 12.0
    out = predictor.predict(
        grid_positions(finer).numpy(), values, grid=finer, weights=trapezoid_weights(finer).numpy()
    )
    assert out.shape == (17 * 17, 1)
    assert np.isfinite(out).all()


def test_what_stands_at_masked_points_does_not_matter(
    free: Predictor, arrays: dict[str, Any]
) -> None:
    alone = free.predict(**{name: array[:, :60] for name, array in arrays.items()})
    mask = np.arange(N) < 60
    for filling in (0.0, 1e30, np.nan):
        padded = {name: array.copy() for name, array in arrays.items()}
        for array in padded.values():
            array[:, 60:] = filling
        out = free.predict(**padded, mask=np.broadcast_to(mask, (4, N)))
        np.testing.assert_allclose(out[:, :60], alone, rtol=1e-5, atol=1e-7)
        assert (out[:, 60:] == 0).all()


def test_points_may_come_in_any_order(free: Predictor, arrays: dict[str, Any]) -> None:
    order = np.random.default_rng(0).permutation(N)
    out = free.predict(**arrays)
    shuffled = free.predict(**{name: array[:, order] for name, array in arrays.items()})
    np.testing.assert_allclose(shuffled, out[:, order], rtol=1e-4, atol=1e-6)


def test_weights_change_the_prediction(free: Predictor, arrays: dict[str, Any]) -> None:
    # A weight of two counts a point twice.
    values = np.random.default_rng(0).uniform(3, 12, (N, 1))
    weights = np.where(np.arange(N) < 10, 2.0, 1.0)
    weighted = free.predict(arrays["positions"][0], values, weights=weights)
    twice = [np.concatenate([array, array[:10]]) for array in (arrays["positions"][0], values)]
    expected = free.predict(*twice, weights=np.ones(N + 10))[:N]
    np.testing.assert_allclose(weighted, expected, rtol=1e-5)
    plain = free.predict(arrays["positions"][0], values, weights=np.ones(N))
    assert np.abs(weighted - plain).max() > 10 * np.abs(weighted - expected).max()


def test_weights_of_training_are_not_forgotten(
    free: Predictor, predictor: Predictor, arrays: dict[str, Any]
) -> None:
    expected = predictor.predict(**arrays, grid=GRID)
    del arrays["weights"]
    np.testing.assert_array_equal(predictor.predict(**arrays, grid=GRID), expected)
    for call in (free.predict, free.encode):
        with pytest.raises(ValueError, match="weights: expected the quadrature weights"):
            call(**arrays)
    with pytest.raises(ValueError, match="weights: expected the quadrature weights"):
        free.predict_streamed(arrays["positions"][0], arrays["values"][0], out=None)


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"positions": np.zeros((4, N, 3))}, r"positions: expected \(b, n, 2\), got \(4, 81, 3\)"),
        ({"positions": np.zeros(N)}, r"positions: expected \(b, n, 2\), got \(81,\)"),
        ({"positions": np.zeros((4, 0, 2))}, "positions: expected at least one point"),
        ({"values": None}, r"values: expected \(4, 81, 1\) for darcy, got None"),
        ({"values": np.zeros((4, N, 2))}, r"values: expected \(4, 81, 1\) for darcy, got \(4, 81,"),
        ({"values": np.zeros((4, 80, 1))}, r"values: expected \(4, 81, 1\) for darcy, got \(4, 80"),
        ({"weights": np.ones(N)}, r"weights: expected \(4, 81\), got \(81,\)"),
        ({"weights": -np.ones((4, N))}, "weights: expected finite numbers, none of them negative"),
        ({"mask": np.ones((4, 80), dtype=bool)}, r"mask: expected \(4, 81\), got \(4, 80\)"),
        ({"mask": np.ones((4, N))}, "mask: expected booleans, True at real points, got torch.flo"),
        ({"mask": np.zeros((4, N), dtype=bool)}, "mask: expected a real point in every sample"),
        ({"values": np.full((4, N, 1), np.nan)}, "values: expected finite numbers, got some that"),
        ({"positions": np.full((4, N, 2), np.inf)}, "positions: expected finite numbers"),
        ({"values": np.full((4, N, 1), 1e300)}, "values: expected finite numbers"),
        ({"values": np.full((4, N, 1), "12")}, "values: expected numbers"),
        ({"grid": (9, 8)}, "grid"),
        ({"grid": None}, "grid"),
    ],
)
def test_what_does_not_fit_is_refused_with_an_explanation(
    predictor: Predictor, arrays: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        predictor.predict(**(arrays | {"grid": GRID} | changes))


def test_it_warns_far_outside_the_training_range_and_not_inside(
    predictor: Predictor, arrays: dict[str, Any]
) -> None:
    # Inside, and less than a tenth of the width outside, nothing is said.
    predictor.predict(**arrays, grid=GRID)
    predictor.predict(**(arrays | {"values": arrays["values"] * 1.05}), grid=GRID)
    told = r"values, channel 0: the network was trained on 3 to 12 and is asked at 6 to 24"
    with pytest.warns(OutsideTrainingWarning, match=told):
        predictor.predict(**(arrays | {"values": arrays["values"] * 2}), grid=GRID)
    with pytest.warns(OutsideTrainingWarning, match="positions, channel 1") as caught:
        predictor.predict(**(arrays | {"positions": arrays["positions"] * [1, 1.2]}), grid=GRID)
    assert len(caught) == 1


def test_masked_points_are_not_warned_about(free: Predictor, arrays: dict[str, Any]) -> None:
    far = {name: array.copy() for name, array in arrays.items()}
    far["values"][:, 0] = 1e6
    mask = np.ones((4, N), dtype=bool)
    mask[:, 0] = False
    free.predict(**far, mask=mask)


def test_dropout_is_off(tmp_path: Path, store: Store, arrays: dict[str, Any]) -> None:
    folder = trained(tmp_path / "a", store, network={"dropout": 0.5}, precision="64-true")
    predictor = load(folder)
    first, second = (predictor.predict(**arrays, grid=GRID) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert first.dtype == np.float64


def test_a_run_is_loaded_by_the_package_itself(run: Path, arrays: dict[str, Any]) -> None:
    out = funcattn.load(str(run)).predict(**arrays, grid=GRID)
    np.testing.assert_array_equal(out, load(run).predict(**arrays, grid=GRID))


def test_what_is_no_run_or_has_no_weights_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="expected the folder of a run"):
        load(tmp_path / "nowhere")
    (tmp_path / "settings.json").write_text((run / "settings.json").read_text())
    with pytest.raises(CheckpointError, match="has no trained weights yet"):
        load(tmp_path)


def test_a_query_at_the_points_of_the_mesh_is_the_prediction(
    free: Predictor, arrays: dict[str, Any]
) -> None:
    expected = free.predict(**arrays)
    encoded = free.encode(**arrays)
    where = arrays["positions"], arrays["values"]
    out = free.query(encoded, *where)
    assert isinstance(out, np.ndarray)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-7)
    # Some of the points, in another order, are answered as they were.
    np.testing.assert_allclose(
        free.query(encoded, *(array[:, 50:2:-3] for array in where)),
        expected[:, 50:2:-3],
        rtol=1e-5,
        atol=1e-7,
    )


def test_one_mesh_is_encoded_and_queried_without_a_batch_axis(
    free: Predictor, arrays: dict[str, Any], tmp_path: Path
) -> None:
    one = {name: array[1] for name, array in arrays.items()}
    free.encode(**one).save(tmp_path / "mesh.safetensors")
    encoded = Encoded.load(tmp_path / "mesh.safetensors")
    where = torch.from_numpy(one["positions"][:7]), torch.from_numpy(one["values"][:7])
    out = free.query(encoded, *where)
    assert isinstance(out, torch.Tensor)
    np.testing.assert_allclose(out, free.predict(**one)[:7], rtol=1e-5, atol=1e-7)


def test_a_mesh_that_another_network_has_encoded_is_refused(
    free: Predictor, arrays: dict[str, Any], points_run: Path
) -> None:
    encoded = free.encode(**arrays)
    where = arrays["positions"], arrays["values"]
    load(points_run).query(encoded, *where)  # the same weights
    other = load(points_run)
    with torch.no_grad():
        next(other.surrogate.parameters()).add_(1e-6)
    with pytest.raises(ValueError, match="got one of other weights; encode it again"):
        other.query(encoded, *where)


@pytest.mark.parametrize("disk", [True, False], ids=["scratch file", "recomputed"])
def test_a_streamed_mesh_is_predicted_as_ever(
    free: Predictor, arrays: dict[str, Any], tmp_path: Path, disk: bool
) -> None:
    one = {name: array[2] for name, array in arrays.items()}
    encoded = free.predict_streamed(
        **one, out=tmp_path / "out.npy", scratch=tmp_path if disk else None, chunk=10
    )
    expected = free.predict(**one)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, rtol=1e-5, atol=1e-7)
    out = free.query(encoded, one["positions"][:3], one["values"][:3])
    np.testing.assert_allclose(out, expected[:3], rtol=1e-5, atol=1e-7)


def test_a_streamed_mesh_is_warned_about_as_ever(
    free: Predictor, arrays: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs_module, "_SCANNED", 10)
    one = {name: array[2] for name, array in arrays.items()}
    free.predict_streamed(**one, out=None)
    one["values"] = np.where(np.arange(N)[:, None] == 35, 24, one["values"])
    told = r"values, channel 0: the network was trained on 3 to 12 and is asked at 3 to 24"
    with pytest.warns(OutsideTrainingWarning, match=told):
        free.predict_streamed(**one, out=None)


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"positions": np.zeros((N, 3))}, r"positions: expected numbers \(n, 2\), got \(81, 3\)"),
        ({"values": np.full((N, 1), "12")}, "values: expected numbers"),
        ({"values": np.where(np.arange(N)[:, None] == 5, np.nan, 3)}, "values: expected finite"),
        ({"values": np.full((N, 1), 1e300)}, "values: expected finite numbers"),
        ({"values": None}, r"values: expected \(1, 81, 1\), got None"),
        ({"positions": np.zeros((0, 2))}, "positions: expected at least one point"),
        ({"time": 0.5}, "time: expected none for darcy, got 0.5"),
    ],
)
def test_a_stream_that_does_not_fit_is_refused_with_an_explanation(
    free: Predictor, arrays: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    one = {name: array[0] for name, array in arrays.items()}
    with pytest.raises(ValueError, match=said):
        free.predict_streamed(**(one | {"out": None} | changes))


def test_networks_that_cannot_be_encoded_say_so(
    predictor: Predictor, arrays: dict[str, Any], free: Predictor
) -> None:
    with pytest.raises(ValueError, match="depend on that point alone, got Stencil"):
        predictor.encode(**arrays)
    free.surrogate.network = torch.nn.Identity()
    with pytest.raises(
        ValueError, match=r"expected a network whose blocks read a mesh .* got Identity"
    ):
        free.encode(**arrays)


def test_tasks_in_time_are_encoded_at_a_time_or_not_at_all() -> None:
    rng = np.random.default_rng(0)

    def untrained(task: type[Task]) -> Predictor:
        settings = changed(task.defaults("smoke", "modern"), {"network": {"reach": None}})
        made = Predictor(task(settings), build_network(task(settings)))
        made.surrogate.position_range[1] = made.surrogate.value_range[1] = 1
        return made

    plasticity = untrained(Plasticity)
    mesh = rng.random((1, 30, 2)), rng.random((1, 30, Plasticity.problem.input_channels))
    weights = rng.random((1, 30))
    frames = plasticity.predict(*mesh, weights=weights)
    last = plasticity.query(plasticity.encode(*mesh, time=1.0, weights=weights), *mesh)
    np.testing.assert_allclose(last, frames[:, :, -1], rtol=1e-5, atol=1e-7)
    with pytest.raises(ValueError, match="time: expected a number from 0 to 1 for plasticity"):
        plasticity.encode(*mesh, weights=weights)
    flow = untrained(NavierStokes)
    channels = NavierStokes.problem.input_channels
    with pytest.raises(ValueError, match="got navier_stokes, where frame follows frame"):
        flow.encode(rng.random((1, 30, 2)), rng.random((1, 30, channels)), weights=weights)
