import tomllib
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest

from funcattn.settings import (
    DataSettings,
    FunctionalSettings,
    OptimisationSettings,
    RunSettings,
    changed,
)
from funcattn.tasks.darcy import Darcy

SETTINGS = RunSettings(task="darcy")


def test_values_are_changed_where_they_are_named_and_nowhere_else() -> None:
    text = """
    seed = 3
    precision = "64-true"
    [network]
    width = 64
    reach = 1
    [optimisation]
    clip = 0.5
    """
    new = changed(SETTINGS, tomllib.loads(text))
    assert new == replace(
        SETTINGS,
        seed=3,
        precision="64-true",
        network=FunctionalSettings(width=64, reach=1.0),
        optimisation=OptimisationSettings(clip=0.5),
    )
    assert isinstance(new.network.reach, float)  # 1 in TOML is a whole number
    assert RunSettings(task="darcy") == SETTINGS
    assert changed(SETTINGS, {}) == SETTINGS


def test_a_setting_may_be_taken_away_again() -> None:
    settings = changed(SETTINGS, {"optimisation": {"clip": 0.5}})
    assert changed(settings, {"optimisation": {"clip": None}}) == SETTINGS


def test_the_settings_of_a_task_keep_their_kind() -> None:
    settings = Darcy.defaults("smoke", "paper")
    new = changed(settings, {"data": {"use_every": 4, "train": 2}})
    assert type(new) is type(settings)
    assert type(new.data) is type(settings.data)
    assert (new.data.use_every, new.data.nodes) == (4, 17)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sed": 1}, r"settings: .* one of task, model, .*, got 'sed'; did you mean seed\?"),
        (
            {"network": {"widht": 1}},
            r"\.network: expected one of width, .*; did you mean width\?",
        ),
        (
            {"data": {"old_names": {}}},
            r"settings\.data: expected one of train, .*, got 'old_names'",
        ),
        ({"seed": 1.5}, r"settings\.seed: expected int, got 1\.5"),
        ({"seed": "1"}, r"settings\.seed: expected int, got '1'"),
        ({"seed": True}, r"settings\.seed: expected int, got True"),
        ({"seed": None}, r"settings\.seed: expected int, got None"),
        (
            {"network": {"reach": "far"}},
            r"settings\.network\.reach: expected float, a list of numbers, NoneType, got",
        ),
        ({"network": {"share_basis": 1}}, r"settings\.network\.share_basis: expected bool, got 1"),
        ({"precision": "16"}, r"precision: expected 32-true, 64-true, bf16-mixed, got '16'"),
        (
            {"optimisation": {"optimiser": []}},
            r"optimiser: expected adam, adamw, muon, muon_batched, lion, soap, got \[\]",
        ),
        ({"network": 3}, r"settings\.network: expected NetworkSettings, got 3"),
        ({"network": {"width": {"a": 1}}}, r"settings\.network\.width: expected int, got {'a': 1}"),
    ],
)
def test_what_is_not_a_setting_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        changed(SETTINGS, changes)


@pytest.mark.usefixtures("as_a_user")
def test_a_document_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match=r"file: expected names with values, got \[1\]"):
        changed(SETTINGS, [1], where="file")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("batch", 0),
        ("batch", -4),
        ("accumulate", 0),
        ("step_epochs", 0),
        ("rate", 0.0),
        ("rate", float("nan")),
        ("muon_rate", -1.0),
        ("start_divisor", 0.0),
        ("end_divisor", 0.0),
        ("clip", 0.0),
        ("warm_up", 1.0),
        ("warm_up", -0.1),
        ("ema", 0.0),
        ("ema", 1.0),
    ],
)
def test_numbers_without_a_meaning_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected a .*, got {value}"):
        changed(SETTINGS, {"optimisation": {name: value}})


@pytest.mark.parametrize("name", ["train", "validation", "test"])
def test_fewer_than_no_samples_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected a number of samples, got -1"):
        DataSettings(**{name: -1})


@pytest.mark.parametrize(
    ("given", "kept"),
    [(0.25, 0.25), (1, 1.0), ([0.5, 1], (0.5, 1.0)), ((0.5, 0.25), (0.5, 0.25)), (None, None)],
)
def test_a_reach_is_a_number_or_one_per_axis(given: Any, kept: Any) -> None:
    assert changed(SETTINGS, {"network": {"reach": given}}).network.reach == kept


@pytest.mark.parametrize("given", [["a"], [True], [[0.1]]])
def test_a_list_of_something_else_is_refused(given: list[Any]) -> None:
    with pytest.raises(
        ValueError, match=r"reach: expected float, a list of numbers, NoneType, got"
    ):
        changed(SETTINGS, {"network": {"reach": given}})


def test_samples_of_a_timed_task_are_visited_as_often_as_it_says() -> None:
    from funcattn.tasks import TASKS

    for name, task in TASKS.items():
        settings = task.defaults("smoke", "modern")
        assert task(settings).visits == getattr(settings.data, "visits", 1), name


@dataclass(frozen=True)
class Lists:
    names: tuple[str, ...] = ()
    sizes: tuple[int, ...] | None = None
    kind: Literal["a", "b"] | None = None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"names": ["u", "p"]}, Lists(names=("u", "p"))),
        ({"names": ()}, Lists()),
        ({"sizes": [1, 2]}, Lists(sizes=(1, 2))),
        ({"sizes": None, "kind": "b"}, Lists(kind="b")),
    ],
)
def test_lists_of_words_and_of_whole_numbers_become_tuples(
    changes: dict[str, Any], expected: Lists
) -> None:
    assert changed(Lists(), changes) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"names": "u"}, r"settings\.names: expected a list of words, got 'u'"),
        ({"names": ["u", 1]}, r"settings\.names: expected a list of words, got \['u', 1\]"),
        ({"sizes": [1.5]}, r"expected a list of whole numbers, NoneType, got \[1\.5\]"),
        ({"kind": "c"}, r"settings\.kind: expected a, b, NoneType, got 'c'"),
    ],
)
def test_lists_of_other_things_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        changed(Lists(), changes)
