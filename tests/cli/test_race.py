"""The command of races."""

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from funcattn.cli import race as module
from funcattn.cli.race import Race, seconds_of, table_of
from funcattn.tasks import TASKS


@pytest.mark.parametrize(
    ("text", "seconds"), [("120s", 120), ("2m", 120), ("2 min", 120), ("1.5h", 5400), ("7", 7)]
)
def test_budgets_are_times(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "fast", "-3s", "0s", "2 days"])
def test_other_budgets_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="budget: expected a time such as 120s, 2m or 1h, got"):
        seconds_of(text)


def result(entrant: str, test: float) -> dict[str, Any]:
    return {"entrant": entrant, "parameters": 9, "megabytes": 1, "steps": 20, "test": test}


def test_the_table_has_the_best_mean_first_and_all_seeds() -> None:
    results = [result("b", 0.3), result("b", 0.1), result("a", 0.1), result("a", 0.15)]
    table = table_of(results, "title", TASKS["darcy"])
    assert list(table.columns[0].cells) == ["a", "b"]
    assert list(table.columns[-1].cells) == ["0.1, 0.15", "0.3, 0.1"]


def test_where_more_is_better_the_most_is_first() -> None:
    table = table_of([result("a", 0.1), result("b", 0.3)], "title", TASKS["rna"])
    assert list(table.columns[0].cells) == ["b", "a"]
    assert table.columns[-1].header == "test accuracy"


def test_the_data_of_a_task_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Any]] = []

    def remembered(task: str, entrants: Any, **options: Any) -> list[dict[str, Any]]:  # noqa: ARG001
        asked.append((task, options["data"]))
        return [result("gno", 0.1)]

    monkeypatch.setattr(module, "race", remembered)
    Race("airfrans:split=aoa", models=["gno"]).run([], Console(quiet=True))
    assert asked == [("airfrans", {"split": "aoa"})]
    with pytest.raises(ValueError, match="task: expected a name, or name:setting=value"):
        Race("airfrans:aoa").run([], Console(quiet=True))


def test_both_recipes_are_run_in_turn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    def remembered(task: str, entrants: Any, **options: Any) -> list[dict[str, Any]]:
        asked.append({"task": task, "models": [e.model for e in entrants], **options})
        return [result("fno", 0.1)]

    monkeypatch.setattr(module, "race", remembered)
    command = Race("darcy", models=["fno"], budget="2m", seeds=2, recipe="both", out=tmp_path)
    command.run([], Console(quiet=True))
    assert [call["recipe"] for call in asked] == ["shared", "task"]
    assert all(call["budget"] == 120 and list(call["seeds"]) == [0, 1] for call in asked)
    assert all(call["models"] == ["fno"] and call["folder"] == tmp_path for call in asked)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ValueError, match="--fast"):
        Race("darcy").run(["--fast"], Console(quiet=True))
