"""A task of one's own is a short class: this one is the example of the documentation."""

from pathlib import Path

import pytest
import torch

from funcattn.data import Sample, Store
from funcattn.settings import RunSettings, changed
from funcattn.tasks import TASKS
from funcattn.tasks.own import Given, Own, OwnData
from funcattn.training.run import train
from funcattn.training.settings import default_settings, saved_settings

DOCUMENT = Path(__file__).parents[2] / "docs" / "howto" / "own_task.md"


def example() -> str:
    """The class in the documentation."""
    blocks = DOCUMENT.read_text().split("```python\n")[1:]
    (found,) = (b.partition("```")[0] for b in blocks if "@register_task" in b)
    return found


@pytest.fixture
def heat(monkeypatch: pytest.MonkeyPatch) -> type:
    assert list(TASKS)  # loads all, which would be lost with the copy
    monkeypatch.setattr(TASKS, "_entries", {**TASKS._entries})
    names: dict[str, type] = {}
    exec(example(), names)
    return names["Heat"]


def test_it_has_at_most_twenty_lines() -> None:
    text = example()
    assert len(text[text.index("@register_task") :].strip().splitlines()) <= 20


def test_it_is_known_by_its_name_and_refuses_data_of_others(heat: type) -> None:
    assert TASKS.named("heat") is heat
    assert list(TASKS)[-1] == "heat"
    with pytest.raises(ValueError, match=r"got 'heath'; did you mean heat\?"):
        TASKS.named("heath")
    with pytest.raises(ValueError, match="data: expected DarcyData for darcy, got DataSettings"):
        TASKS["darcy"](RunSettings("darcy"))


def test_its_defaults_can_be_changed_and_read_back(heat: type) -> None:  # noqa: ARG001
    settings = default_settings("heat", "smoke", "modern", "fno")
    assert saved_settings({"task": "heat", "model": "fno", "network": {"modes": 3}}).network == (
        changed(settings, {"network": {"width": 32, "layers": 4, "modes": 3}}).network
    )


@pytest.mark.parametrize("model", ["funcattn", "fno"])
def test_networks_train_on_it(heat: type, model: str, tmp_path: Path) -> None:
    settings = default_settings("heat", "smoke", "modern", model)
    settings = changed(settings, {"optimisation": {"epochs": 20}})
    task = heat(settings)
    assert (task.problem.grid, task.problem.points, task.picture) == (True, 64, "line")
    sample = task.splits(Store(tmp_path)).train[0]
    assert isinstance(sample, Sample)
    torch.testing.assert_close(sample.target[:, 0].mean(), sample.values[:, 0].mean())
    record = train(settings, tmp_path / "run", store=Store(tmp_path)).record
    assert 0 < record["test"]["relative_l2"] < 0.7  # 1 is the error of no prediction at all


@pytest.mark.parametrize(
    ("inputs", "coefficients"),
    [
        ((), False),
        ((Given("speed", "parameter"),), False),
        ((Given("speed", "parameter"), Given("stiffness")), None),
    ],
)
def test_numbers_of_a_case_are_no_coefficients_and_fields_may_be(
    inputs: tuple[Given, ...], coefficients: bool | None
) -> None:
    settings = RunSettings("own", data=OwnData(inputs=inputs, grid=True, points=9))
    assert Own(settings).problem.coefficients is coefficients
