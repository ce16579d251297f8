"""What is refused, and what is warned of."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.surrogate.conftest import quick, triangles, waves

from funcattn.data.cases import Case
from funcattn.serve.finer import CoarserGridWarning
from funcattn.surrogate import OutsideTrainingWarning, Surrogate

# Of a dozen cases, some lie outside of what the others show.
pytestmark = pytest.mark.filterwarnings("ignore::funcattn.surrogate.OutsideTrainingWarning")


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
