import json
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn.base import clone

import funcattn
from funcattn.data.cases import Case, Cells
from funcattn.fitting import fitted as module
from funcattn.fitting.report import learning_curve
from funcattn.fitting.sizing import seconds_per_epoch
from funcattn.models import NormalisedNetwork
from funcattn.serve.finer import CoarserGridWarning
from funcattn.surrogate import OutsideTrainingWarning, Surrogate
from funcattn.tasks import Task
from funcattn.tasks.own import Own
from funcattn.training.checkpoint import CheckpointError
from funcattn.training.setup import build_network

Array = npt.NDArray[Any]
# Of a dozen cases, some lie outside of what the others show.
pytestmark = pytest.mark.filterwarnings("ignore::funcattn.surrogate.OutsideTrainingWarning")
SMALL = {"width": 8, "layers": 1, "heads": 2, "bases": 4}


def quick(**more: Any) -> Surrogate:
    """A surrogate that is fitted at once, and not well."""
    settings: dict[str, Any] = {"epochs": 2, "network": SMALL, "yardsticks": False}
    return Surrogate(**{**settings, **more})


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def waves(random: np.random.Generator, count: int, *grid: int) -> tuple[Array, Array]:
    """Fields and what should come out, (count *grid)."""
    fields = random.normal(size=(count, *grid)).cumsum(1)
    return fields, 3.0 * fields - fields.mean(tuple(range(1, fields.ndim)), keepdims=True)


def clouds(random: np.random.Generator, count: int, space: int = 2) -> list[Array]:
    return [random.random((int(random.integers(20, 30)), space)) for _ in range(count)]


def triangles(random: np.random.Generator, count: int) -> list[Case]:
    """Meshes of random size, with a parameter, a category and two outputs of other units."""
    made = []
    for number in range(count):
        n = int(random.integers(5, 8))
        x, y = np.meshgrid(np.linspace(0, 1, n), np.linspace(0, 1, n), indexing="ij")
        points = np.stack([x, y], -1).reshape(-1, 2)
        corner = (np.arange(n - 1)[:, None] * n + np.arange(n - 1)).ravel()
        cells = np.concatenate(
            [
                np.stack([corner, corner + 1, corner + n], 1),
                np.stack([corner + 1, corner + n + 1, corner + n], 1),
            ]
        )
        size = 0.5 / (n - 1) ** 2
        mesh = Cells(cells.ravel(), np.arange(0, cells.size + 1, 3), np.full(len(cells), 5))
        load = float(random.uniform(1, 2))
        rim = ((points == 0) | (points == 1)).any(1)
        made.append(
            Case(
                f"plate_{number}",
                points,
                {"stress": load * points[:, 0] * 1e6, "shift": load * points},
                {"load": load},
                {"rim": rim.astype(np.int64)},
                weights=mesh.shared_out(np.full(len(cells), size), len(points)),
                cells=mesh,
                units={"stress": "Pa", "shift": "m"},
            )
        )
    return made


@pytest.mark.parametrize(
    ("grid", "channels"), [((12,), 0), ((6, 5), 0), ((6, 5), 2), ((4, 3, 5), 1)], ids=str
)
def test_arrays_on_grids_come_back_as_arrays(
    random: np.random.Generator, grid: tuple[int, ...], channels: int
) -> None:
    shape = (*grid, channels) if channels else grid
    inputs, outputs = waves(random, 12, *shape)
    fitted = quick().fit(inputs, outputs, grid=grid)
    assert fitted.predict(inputs[:3]).shape == (3, *shape)
    assert fitted.data.space == len(grid)
    assert isinstance(fitted.score(inputs, outputs), float)


def test_inputs_without_and_outputs_with_channels_fit_together(random: np.random.Generator) -> None:
    inputs, outputs = waves(random, 12, 6, 5)
    fitted = quick().fit(inputs, np.stack([outputs, -outputs], -1))
    assert fitted.predict(inputs[:3]).shape == (3, 6, 5, 2)


def test_lists_of_point_sets_come_back_as_lists(random: np.random.Generator) -> None:
    positions = clouds(random, 12, space=3)
    inputs = [points[:, :2] for points in positions]
    outputs = [points.sum(1) for points in positions]
    fitted = quick().fit(inputs, outputs, positions=positions)
    got = fitted.predict(inputs[:3], positions=positions[:3])
    assert [part.shape for part in got] == [(len(points),) for points in positions[:3]]


def test_the_geometry_alone_can_be_the_input(random: np.random.Generator) -> None:
    positions = clouds(random, 12)
    fitted = quick().fit(None, [p[:, :1] for p in positions], positions=positions)
    assert [p.shape[1] for p in fitted.predict(positions=positions[:2])] == [1, 1]


def test_named_fields_and_numbers_per_case_come_back_by_name(random: np.random.Generator) -> None:
    inputs, outputs = waves(random, 12, 6, 5)
    given = {"source": inputs, "speed": random.random(12)}
    fitted = quick().fit(given, {"u": outputs, "flux": np.stack([outputs, inputs], -1)})
    got = fitted.predict({"source": inputs[:4], "speed": np.ones(4)})
    assert {name: part.shape for name, part in got.items()} == {
        "u": (4, 6, 5),
        "flux": (4, 6, 5, 2),
    }
    assert [each.kind for each in fitted.data.inputs] == ["field", "parameter"]


def test_numbers_per_case_alone_give_fields(random: np.random.Generator) -> None:
    numbers = random.random((12, 2))
    outputs = numbers[:, :1, None] * np.ones((12, 6, 5))
    fitted = quick().fit({"a": numbers[:, 0], "b": numbers[:, 1]}, outputs)
    assert fitted.predict({"a": np.ones(3), "b": np.zeros(3)}).shape == (3, 6, 5)
    points = random.random((20, 2))
    fitted = quick().fit({"a": numbers[:, 0]}, numbers[:, :1] * points[:, 0], positions=points)
    assert fitted.predict({"a": np.ones(3)}).shape == (3, 20)  # on the points of training


def test_torch_tensors_are_taken(random: np.random.Generator) -> None:
    inputs, outputs = waves(random, 12, 6, 5)
    fitted = quick().fit(torch.from_numpy(inputs), torch.from_numpy(outputs))
    assert fitted.predict(torch.from_numpy(inputs[:2])).shape == (2, 6, 5)


def test_points_are_classified(random: np.random.Generator) -> None:
    positions = clouds(random, 12)
    labels = [(points[:, 0] > 0.5).astype(np.int64) + 3 for points in positions]
    fitted = quick(epochs=30, batch=1).fit(None, labels, positions=positions)
    assert fitted.data.classes == ("3", "4")
    got = fitted.predict(positions=positions[:2])
    assert set(np.unique(got[0])) <= {3, 4}
    assert fitted.score(None, labels, positions=positions) > 0.8
    assert fitted.run.record["test"]["accuracy"] == 1 - fitted.run.record["test"]["error"]


@pytest.mark.parametrize("time", ["steps", "times"])
def test_series_of_several_channels(random: np.random.Generator, time: Any) -> None:
    start = random.normal(size=(12, 6, 1, 2))
    series = start * np.exp(-np.linspace(0, 1, 5))[:, None]  # (N n t c)
    times = np.linspace(2, 4, 5)
    given = None if time == "steps" else {"begin": start[:, :, 0]}
    fitted = quick(time=time, history=2 if time == "steps" else 1).fit(
        given, {"state": series}, grid=(6,), times=times
    )
    if time == "times":
        got = fitted.predict({"begin": start[:3, :, 0]}, grid=(6,), times=[2.0, 2.5, 3.0])
        assert got["state"].shape == (3, 6, 3, 2)
    else:
        assert fitted.data.frames == 3
        cases = [
            Case(
                f"{i}",
                np.linspace(0, 1, 6)[:, None],
                {"state": series[i][:, :2]},
                times=times[:2],
                grid=(6,),
            )
            for i in range(2)
        ]
        got = fitted.predict(cases)
        assert [case["state"].shape for case in got] == [(6, 3, 2)] * 2


def test_cases_come_back_with_the_fields_predicted(random: np.random.Generator) -> None:
    cases = triangles(random, 12)
    fitted = quick().fit(cases, ["stress", "shift"], inputs=["load", "rim"])
    assert fitted.data.weights == "mesh"
    assert [each.width for each in fitted.data.inputs] == [1, 2]
    bare = replace(cases[0], fields={})
    got = fitted.predict(bare)
    assert got["stress"].shape == (len(bare),)
    assert got["shift"].shape == (len(bare), 2)
    assert got.cells is bare.cells
    assert fitted.predict(cases[:2])[1].name == "plate_1"


def test_missing_outputs_are_left_out_and_partial_inputs_are_marked(
    random: np.random.Generator,
) -> None:
    inputs, outputs = waves(random, 12, 6, 5)
    outputs[:, 2, 2] = np.nan
    inputs[:, 1:5, 1:4] = np.nan  # known on the boundary only
    fitted = quick().fit(inputs, outputs)
    assert fitted.data.inputs[0].partial
    assert np.isfinite(fitted.predict(inputs[:2])).all()
    assert np.isfinite(fitted.run.record["test"]["error"])
    assert np.isfinite(fitted.score(inputs, outputs))


# Units


@pytest.mark.parametrize("unit", [2.0**-40, 2.0**40], ids=["tiny", "huge"])
def test_units_of_positions_and_fields_change_nothing_but_the_unit(
    random: np.random.Generator, unit: float
) -> None:
    positions = clouds(random, 12)
    inputs = [points[:, 0] for points in positions]
    outputs = [points.sum(1) for points in positions]
    plain = quick().fit(inputs, outputs, positions=positions)
    # A power of two, so that products with it are exact, and then everything is.
    other = quick().fit(
        *([part * unit for part in parts] for parts in (inputs, outputs)),
        positions=[points * unit for points in positions],
    )
    assert other.run.record["test"]["error"] == plain.run.record["test"]["error"]
    expected = plain.predict(inputs[:1], positions=positions[:1])[0]
    got = other.predict([inputs[0] * unit], positions=[positions[0] * unit])[0]
    np.testing.assert_array_equal(got, expected * np.float32(unit))


def test_metres_and_millimetres_train_to_the_same_numbers(random: np.random.Generator) -> None:
    positions = clouds(random, 12)
    outputs = [points.sum(1) for points in positions]
    errors = [
        quick().fit(None, outputs, positions=[scale * p for p in positions]).run.record["test"]
        for scale in (1.0, 1000.0)
    ]
    assert errors[0]["error"] == pytest.approx(errors[1]["error"], rel=1e-3)


def test_every_field_counts_whatever_its_size(random: np.random.Generator) -> None:
    inputs, outputs = waves(random, 12, 6, 5)
    fitted = quick().fit(inputs, {"large": 1e6 * outputs, "small": 1e-6 * inputs})
    test = fitted.run.record["test"]
    assert test["error"] == pytest.approx((test["large normalised"] + test["small normalised"]) / 2)
    assert test["small"] == pytest.approx(
        test["small normalised"] * fitted.task.deviations["small"]
    )


# Weights


def test_a_run_with_weights_of_a_mesh_refuses_points_without_cells(
    random: np.random.Generator,
) -> None:
    cases = triangles(random, 12)
    fitted = quick().fit(cases, "stress")
    cloud = replace(cases[0], cells=None, weights=None)
    with pytest.raises(ValueError, match="expected quadrature weights, as the run was trained"):
        fitted.predict(cloud)
    without = quick(weights=False).fit(cases, "stress")
    assert without.data.weights == "none"
    assert without.predict(cloud)["stress"].shape == (len(cloud),)


def test_on_a_grid_the_weights_are_computed(random: np.random.Generator) -> None:
    inputs, outputs = waves(random, 12, 6, 5)
    fitted = quick().fit(inputs, outputs)
    assert fitted.data.weights == "grid"
    sample = fitted.splits().train[0]
    assert sample.weights is not None
    assert float(sample.weights[0]) == pytest.approx(float(sample.weights[1]) / 2)


# Keeping, resuming, starting from another


def test_a_saved_surrogate_predicts_without_its_data(
    random: np.random.Generator, tmp_path: Path
) -> None:
    inputs, outputs = waves(random, 12, 6, 5)
    fitted = quick().fit(inputs, outputs)
    expected = fitted.predict(inputs[:2])
    fitted.save(tmp_path / "mine")
    del fitted
    loaded = funcattn.load(tmp_path / "mine")
    np.testing.assert_array_equal(loaded.predict(inputs[:2]), expected)
    assert "test error" in repr(loaded)
    assert not list((tmp_path / "mine" / "checkpoints").glob("step-*"))
    with pytest.raises(ValueError, match="expected a folder that is not there yet"):
        loaded.save(tmp_path / "mine")
    with pytest.raises(ValueError, match="fitted to arrays"):
        loaded.report(tmp_path / "report.html")


class Killed(Exception):  # noqa: N818
    """In the place of a kill."""


def test_a_killed_fit_goes_on_as_if_nothing_had_happened(
    random: np.random.Generator, tmp_path: Path
) -> None:
    inputs, outputs = waves(random, 12, 6, 5)
    whole = quick(epochs=4, folder=tmp_path / "whole").fit(inputs, outputs)

    def kill(state: Any, steps: int) -> None:  # noqa: ARG001
        if state.epoch == 2 and state.step == 1:
            raise Killed

    with pytest.raises(Killed):
        quick(epochs=4, folder=tmp_path / "cut").fit(inputs, outputs, on_step=kill)
    resumed = quick(epochs=4, folder=tmp_path / "cut").fit(inputs, outputs)
    assert resumed.run.record["test"] == whole.run.record["test"]
    np.testing.assert_array_equal(resumed.predict(inputs), whole.predict(inputs))
    done = tmp_path / "cut" / "record.json"
    done.unlink()
    with pytest.raises(CheckpointError, match="the data changed since the run began"):
        quick(epochs=4, folder=tmp_path / "cut").fit(inputs, outputs[::-1].copy())


def test_other_cases_are_refused_in_the_folder_of_a_run(
    random: np.random.Generator, tmp_path: Path
) -> None:
    inputs, outputs = waves(random, 12, 6, 5)
    quick(folder=tmp_path / "run").fit(inputs, outputs)
    with pytest.raises(ValueError, match="expected the cases and fields of the run"):
        quick(folder=tmp_path / "run").fit(inputs[:10], outputs[:10])


def test_a_warm_start_begins_with_the_weights_of_another_run(
    random: np.random.Generator, tmp_path: Path
) -> None:
    inputs, outputs = waves(random, 12, 6, 5)
    first = quick(epochs=20, folder=tmp_path / "first").fit(inputs, outputs)
    cold = quick(epochs=1).fit(inputs, outputs)
    warm = quick(epochs=1, warm_start=tmp_path / "first").fit(inputs, outputs)
    assert warm.run.record["validation"] < cold.run.record["validation"]
    assert warm.run.record["validation"] < 1.5 * first.run.record["validation"]
    other = quick(model="funcattn", warm_start=tmp_path / "first")
    with pytest.raises(ValueError, match="expected a run of funcattn, got one of functional_op"):
        other.fit(inputs, outputs)


def test_training_ends_when_patience_does(random: np.random.Generator) -> None:
    inputs, _ = waves(random, 12, 6, 5)
    noise = random.normal(size=inputs.shape)  # nothing to learn
    fitted = quick(epochs=60, patience=3, batch=1).fit(inputs, noise)
    record = fitted.run.record
    assert record["epochs"] < 60
    assert record["epochs"] == record["best_epoch"] + 3


def test_measuring_a_step_trains_nothing(
    random: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Full rates at once could drive the network that is measured beyond all numbers."""
    inputs, outputs = waves(random, 12, 6, 5)
    fitted = quick(epochs=1).fit(inputs, outputs)
    built: list[torch.nn.Module] = []

    def kept(task: Task) -> NormalisedNetwork:
        built.append(build_network(task))
        return built[-1]

    monkeypatch.setattr("funcattn.fitting.sizing.build_network", kept)
    settings = fitted.run.settings
    assert seconds_per_epoch(settings, fitted.splits()) > 0
    (measured,) = built
    again = build_network(Own(settings, fitted.splits()))
    for one, other in zip(measured.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


# Habits


def test_settings_are_got_set_and_cloned() -> None:
    made = Surrogate(budget="3 min", seed=4, network=SMALL)
    assert made.get_params()["seed"] == 4
    copied = clone(made)
    assert copied is not made
    assert copied.get_params() == made.get_params()
    assert made.set_params(seed=5) is made
    assert made.seed == 5
    with pytest.raises(ValueError, match=r"expected one of model, .*, got 'sed'"):
        made.set_params(sed=1)
    assert repr(Surrogate(seed=2)) == "Surrogate(seed=2)"


def test_scikit_learn_clones_it_without_what_it_learned(random: np.random.Generator) -> None:
    inputs, outputs = waves(random, 16, 6)
    fitted = quick(yardsticks=False).fit(inputs, outputs)
    with pytest.raises(ValueError, match="expected one that was fitted"):
        clone(fitted).predict(inputs)


def test_what_is_not_fitted_says_so() -> None:
    with pytest.raises(ValueError, match="expected one that was fitted or loaded"):
        Surrogate().predict(np.zeros((1, 4)))


def test_the_budget_decides_size_and_epochs(
    random: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, outputs = waves(random, 12, 6, 5)
    monkeypatch.setattr(
        "funcattn.fitting.sizing.seconds_per_epoch",
        lambda settings, splits: settings.network.width / 100,  # noqa: ARG005
    )
    short = Surrogate(budget="1 s", yardsticks=False).fit(inputs, outputs)
    assert short.run.settings.network.width == 32
    assert 1 <= short.run.record["epochs"] <= 3


def test_yardsticks_stand_beside_the_error(random: np.random.Generator) -> None:
    inputs, outputs = waves(random, 14, 6, 5)
    fitted = quick(epochs=3, yardsticks=True).fit(inputs, outputs)
    names = list(fitted.comparison)
    assert names[:3] == ["mean of training", "nearest training sample", "ridge regression"]
    assert names[3].startswith("without attention (")
    assert fitted.comparison["ridge regression"]["error"] < 0.7  # the map is linear
    assert "Not better than" in " ".join(fitted.remarks())
    assert "ridge regression: " in repr(fitted)


def test_the_learning_curve_says_what_more_cases_would_give(random: np.random.Generator) -> None:
    inputs, outputs = waves(random, 14, 6, 5)
    fitted = quick().fit(inputs, outputs)
    curve = fitted.learning_curve((0.5,))
    assert list(curve) == [5, 10]
    assert "With 5 cases the validation error was" in fitted.remarks()[-1]


def test_the_report_shows_yardsticks_and_worst_cases(
    random: np.random.Generator, tmp_path: Path
) -> None:
    fitted = quick(yardsticks=True).fit(triangles(random, 14), ["stress", "shift"])
    page = fitted.report(tmp_path / "report.html").read_text()
    for words in ("Beside yardsticks", "stress [Pa]", "Worst cases", "plate_", "Near the boundary"):
        assert words in page
    drawn = set(re.findall(r"Worst, (plate_\d+), load 1\.\d+", page))
    assert len(drawn) == len(fitted.splits().test) == 2
    assert "with --learning-curve also trains" in page
    (fitted.run.folder / "learning_curve.json").write_text('{"20": 0.4, "40": 0.2}')
    (section,) = learning_curve(fitted)
    assert "twice the cases would give about 10 %" in section.text
    assert section.tables[0].rows == [("20", "40 %"), ("40", "20 %")]


# Large cases


@pytest.mark.parametrize("by", ["random", "farthest"])
def test_steps_see_some_points_and_predictions_all(
    random: np.random.Generator, by: Literal["random", "farthest"]
) -> None:
    positions = clouds(random, 12)
    outputs = [p[:, 0] for p in positions]
    fitted = quick(points=7, points_by=by).fit(None, outputs, positions=positions)
    sample = fitted.splits().train[0]
    seen = fitted.task.augmented(sample, torch.Generator().manual_seed(0))
    assert len(seen.positions) == 7
    assert len(fitted.predict(positions=positions[:1])[0]) == len(positions[0])


@pytest.mark.parametrize(("by", "looks"), [("random", "auto"), ("farthest", None)])
def test_the_density_of_points_that_keep_apart_is_not_looked_at(
    random: np.random.Generator, by: Literal["random", "farthest"], looks: str | None
) -> None:
    positions = clouds(random, 12)
    asked = quick(model="functional_operator", points=7, points_by=by)
    fitted = asked.fit(None, [p[:, 0] for p in positions], positions=positions)
    assert fitted.run.settings.network.surroundings == looks  # type: ignore[attr-defined]


@pytest.mark.parametrize("model", ["funcattn", "functional_operator"])
@pytest.mark.parametrize("shape", [(12,), (6, 5), (4, 3, 5)], ids=str)
def test_both_networks_take_grids_of_which_steps_see_a_part(
    random: np.random.Generator, model: str, shape: tuple[int, ...]
) -> None:
    fields = random.normal(size=(12, *shape))
    fitted = quick(model=model, points=15).fit(fields, fields, grid=shape)
    sample = fitted.splits().train[0]
    seen = fitted.task.augmented(sample, torch.Generator().manual_seed(0))
    assert seen.grid is not None
    assert len(seen.positions) == np.prod(seen.grid) <= 15
    assert fitted.predict(fields[:2], grid=shape).shape == (2, *shape)


@pytest.mark.parametrize("time", ["steps", "times"])
def test_the_other_network_takes_clouds_and_series(
    random: np.random.Generator, time: Literal["steps", "times"]
) -> None:
    positions = clouds(random, 12)
    series = [random.normal(size=(len(p), 4)) for p in positions]
    fitted = quick(model="functional_operator", time=time)
    fitted.fit(None, series, positions=positions, times=np.arange(4.0))
    assert fitted.run.finished


def test_streamed_predictions_are_the_same(
    random: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = triangles(random, 12)
    fitted = quick().fit(cases, "stress", inputs=["load", "rim"])
    expected = fitted.predict(cases[0])["stress"]
    monkeypatch.setattr(module, "STREAMED", 10)
    np.testing.assert_allclose(fitted.predict(cases[0])["stress"], expected, rtol=1e-3)


# What is refused, and what is warned of


@pytest.mark.parametrize("kind", ["fields", "labels"])
def test_where_a_network_fails_on_a_finer_grid_the_answer_is_that_on_the_grid_of_training(
    random: np.random.Generator, tmp_path: Path, kind: str
) -> None:
    inputs, outputs = waves(random, 12, 9, 9)
    if kind == "labels":
        outputs = (outputs > np.median(outputs)).astype(np.int64)
    quick(folder=tmp_path / "run").fit(inputs, outputs)
    fitted = Surrogate.load(tmp_path / "run")
    fine = np.repeat(np.repeat(inputs[:1], 2, 1), 2, 2)[:, :17, :17]
    coarse = fitted.predict(inputs[:1])
    for usual, warned in ((1e-9, True), (1e9, False)):
        vars(fitted.run)["usual_error"] = usual
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = fitted.predict(fine, grid=(17, 17))
        assert any(issubclass(w.category, CoarserGridWarning) for w in caught) is warned
        assert np.allclose(found[:, ::2, ::2], coarse, atol=1e-5) is warned


def test_inputs_outside_of_what_was_seen_are_told_by_name(random: np.random.Generator) -> None:
    cases = triangles(random, 12)
    fitted = quick().fit(cases, "stress")
    far = cases[0].with_parameters({"load": 70.0})
    with pytest.warns(OutsideTrainingWarning, match=r"plate_0: load is 70 and was 1\."):
        fitted.predict(far)
    assert fitted.outside([cases[0], far])[0] == []
    assert "load is 70" in fitted.outside(far)[0][0]


@pytest.fixture(scope="module")
def fitted() -> tuple[Surrogate, Case]:
    cases = triangles(np.random.default_rng(0), 12)
    return quick().fit(cases, "stress", inputs=["load", "rim"]), cases[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"parameters": {}},
            "plate_0: expected load, a number per case, as in training, got stress, shift, rim; "
            "give it by a table of parameters, or by --set load=",
        ),
        ({"categories": {}}, "expected rim, on its points, as in training, got stress"),
        ({"categories": {"rim": np.full(25, 7)}}, r"expected rim among 0, 1, .*, got \[7\]"),
        ({"positions": np.zeros((25, 3))}, "expected positions in 2 dimensions, .*, got 3"),
    ],
    ids=["no parameter", "no category", "a new label", "another space"],
)
def test_cases_unlike_those_of_training_are_refused(
    fitted: tuple[Surrogate, Case], change: dict[str, Any], message: str
) -> None:
    made, case = fitted
    points = len(case)
    if change.get("categories"):
        change = {"categories": {"rim": np.full(points, 7)}}
    if "positions" in change:
        change = {"positions": np.zeros((points, 3))}
    with pytest.raises(ValueError, match=message):
        made.predict(replace(case, **change))


def test_what_cannot_be_fitted_is_refused_before_anything_is_written(
    random: np.random.Generator, tmp_path: Path
) -> None:
    cases = triangles(random, 12)
    for outputs, more, message in (
        ("stres", {}, "got 'stres'; did you mean stress"),
        ((), {}, "expected the names of fields to predict, got none"),
        ("load", {}, "expected fields on points, got 'load', a number per case"),
        (["stress", "rim"], {}, "expected one category alone, or fields"),
        ("stress", {"inputs": ["lod"]}, "got 'lod'; did you mean load"),
    ):
        with pytest.raises(ValueError, match=message):
            quick(folder=tmp_path / "run").fit(cases, outputs, **more)
    broken = [*cases[:5], replace(cases[5], fields={"stress": cases[5]["shift"]}), *cases[6:]]
    with pytest.raises(ValueError, match=r"plate_5: expected stress to be a field of 1 channels"):
        quick(folder=tmp_path / "run").fit(broken, "stress")
    assert not (tmp_path / "run").exists()


def test_cases_are_split_by_group_and_the_names_kept(random: np.random.Generator) -> None:
    cases = [
        case.with_parameters({"geometry": float(i // 4)})
        for i, case in enumerate(triangles(random, 16))
    ]
    fitted = quick(group_by="geometry").fit(cases, "stress", inputs=["load"])
    kept = json.loads((fitted.run.folder / "surrogate.json").read_text())["cases"]
    groups = {
        part: {int(name.split("_")[1]) // 4 for name in names} for part, names in kept.items()
    }
    assert not groups["train"] & groups["test"]
    assert sum(len(names) for names in kept.values()) == 16
