"""Arrays, point sets, cases and series in; fields of the same kind out."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.surrogate.conftest import clouds, quick, triangles, waves

from funcattn.data.cases import Case

# Of a dozen cases, some lie outside of what the others show.
pytestmark = pytest.mark.filterwarnings("ignore::funcattn.surrogate.OutsideTrainingWarning")


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
