"""The habits of scikit-learn, the budget, and what stands beside the error."""

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from tests.surrogate.conftest import SMALL, quick, triangles, waves

from funcattn.fitting import budget
from funcattn.fitting.report import learning_curve
from funcattn.surrogate import Surrogate

# Of a dozen cases, some lie outside of what the others show.
pytestmark = pytest.mark.filterwarnings("ignore::funcattn.surrogate.OutsideTrainingWarning")


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


@pytest.mark.parametrize(
    ("model", "on_a_grid", "ladder"),
    [
        ("functional_operator", True, budget.SIZES_ON_GRIDS),
        ("functional_operator", False, budget.SIZES),
        ("funcattn", True, budget.SIZES),
    ],
)
def test_only_our_network_on_grids_has_sizes_of_its_own(
    model: str,
    on_a_grid: bool,
    ladder: budget.Ladder,
    random: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def smallest(left: object, each: object, steps: int, of: budget.Ladder) -> budget.Plan:  # noqa: ARG001
        asked.append(of)
        return budget.Plan({"width": 8, "layers": 1, "heads": 2, "bases": 4}, 1, 1.0)

    monkeypatch.setattr(budget, "plan", smallest)
    fields = random.normal(size=(12, 6, 5))
    surrogate = Surrogate(model=model, yardsticks=False)
    if on_a_grid:
        surrogate.fit(fields, 2 * fields)
    else:
        values = fields.reshape(12, 30, 1)
        surrogate.fit(values, 2 * values, positions=random.random((12, 30, 2)))
    assert asked == [ladder]


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
