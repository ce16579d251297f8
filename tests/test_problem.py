import json
from typing import Any

import pytest

from funcattn.problem import Field, Problem

FLOW = Problem(
    2,
    (Field("shape"),),
    (Field("velocity", 2, "m/s"), Field("pressure", unit="Pa")),
    time=True,
    periodic=True,
    lower=(-1.0, 0.0),
    upper=2.0,
    grid=True,
    points=100,
)


def test_channels_are_those_of_all_fields() -> None:
    assert (FLOW.input_channels, FLOW.output_channels) == (1, 3)
    assert FLOW.output_slices == {"velocity": slice(0, 2), "pressure": slice(2, 3)}
    assert FLOW.box == ((-1.0, 0.0), (2.0, 2.0))
    assert Problem(3, (), (Field("stress"),)).input_channels == 0


def test_it_comes_back_from_json_as_it_was() -> None:
    assert Problem.from_dict(json.loads(json.dumps(FLOW.to_dict()))) == FLOW
    cloud = Problem(3, (), (Field("stress"),))
    assert Problem.from_dict(json.loads(json.dumps(cloud.to_dict()))) == cloud


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colour": 1}, r"problem: expected space, .*, points, got colour"),
        ({"outputs": [{"name": "u", "color": 1}]}, r"expected what `Problem.to_dict` gives"),
        ({"outputs": []}, r"outputs: expected at least one field, got none"),
        ({"space": 0}, r"space: expected at least one dimension, got 0"),
        ({"points": 0}, r"points: expected at least 1, or None, got 0"),
        ({"lower": [0.0] * 3}, r"lower: expected one number, or one for each of 2 axes"),
        ({"upper": -1.0}, r"upper: expected to be above lower"),
        ({"inputs": [{"name": "a"}, {"name": "a"}]}, r"inputs: expected fields with different"),
        ({"inputs": [{"name": "a", "channels": 0}]}, r"field 'a': expected at least one channel"),
        ({"inputs": [{"name": ""}]}, r"field: expected a name, got ''"),
    ],
)
def test_what_is_no_problem_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Problem.from_dict({**FLOW.to_dict(), **changes})


def test_a_missing_name_is_refused() -> None:
    values = FLOW.to_dict()
    del values["space"]
    with pytest.raises(ValueError, match="expected what"):
        Problem.from_dict(values)
