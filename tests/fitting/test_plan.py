from pathlib import Path

import numpy as np
import pytest

from funcattn.data.cases import Case, Cases, look
from funcattn.fitting.plan import FitPlan, proposed, read_plan, write_plan
from funcattn.fitting.predicting import settings_of


def plates(count: int = 12) -> Cases:
    def make(index: int) -> Case:
        points = np.random.default_rng(index).random((20, 2))
        return Case(
            f"plate_{index}",
            points,
            {"stress": points[:, 0] * index, "constant": np.ones(20)},
            {"load": float(index), "same": 2.0},
        )

    return Cases([f"plate_{i}" for i in range(count)], make)


def test_a_plan_proposes_what_varies_and_comes_back_from_its_file(tmp_path: Path) -> None:
    cases = plates()
    report = look(cases)
    plan = proposed(cases, report, "plates", "table.csv")
    assert plan.outputs == ("stress",)
    assert plan.inputs == ("load",)
    write_plan(tmp_path / "plates.toml", plan, report)
    read = read_plan(tmp_path / "plates.toml")
    assert read.cases == str(tmp_path / "plates")  # relative to the file
    assert read.parameters == str(tmp_path / "table.csv")
    assert (read.outputs, read.inputs, read.budget) == (plan.outputs, plan.inputs, plan.budget)
    assert read.folder == tmp_path / "runs" / "plates"


def test_settings_of_the_network_are_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text('cases = "a"\noutputs = ["u"]\nnetwork = { width = 16 }\n')
    assert read_plan(path).network == {"width": 16}
    assert read_plan(path).inputs is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("outputs = [", r"plan.toml: expected a TOML file, got"),
        ("outputs = 3", r"plan.toml.outputs: expected a list of words, got 3"),
        ('output = ["u"]', r"got 'output'; did you mean outputs"),
        ("network = 3", r"plan.toml: expected settings of the network by name, got 3"),
    ],
)
def test_what_is_no_plan_is_refused_by_the_name_of_its_file(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_plan(path)


def test_the_folder_of_the_run_is_named_after_the_cases() -> None:
    assert FitPlan(cases="data/plates").folder == Path("runs/plates")
    assert FitPlan(cases="x", out="here").folder == Path("here")


@pytest.mark.parametrize("word", ["angle", "=3", "angle=three", "angle="])
def test_numbers_are_set_by_name(word: str) -> None:
    assert settings_of(["a=1", "b=-2e3"]) == {"a": 1.0, "b": -2000.0}
    with pytest.raises(ValueError, match="--set: expected NAME=NUMBER, got"):
        settings_of([word])
