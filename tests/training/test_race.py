"""Races: equal time, one search for all, one test, and nothing lost when they are stopped."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from funcattn.data import Store
from funcattn.training import race as module
from funcattn.training import unit
from funcattn.training.entrant import Entrant, Start
from funcattn.training.lap import Lap, error_of, goodness
from funcattn.training.race import RATE_FACTORS, race, searched
from funcattn.training.race_records import Records

STEP = 0.01
"""CPU seconds of a step, as the tests say it was measured."""
BUDGET = 0.2


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Races whose steps were measured already, so that their number is known."""

    def measure(function: Any) -> Any:
        del function
        return {"step_units": 5.0, "megabytes": 1.0, "parameters": 1}

    monkeypatch.setattr(module, "in_a_process", measure)
    monkeypatch.setattr(module, "unit_here", lambda: STEP / 5)


def test_a_race_is_not_continued_on_another_processor(
    quick: None, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del quick
    raced(store, tmp_path, "fno")
    path = tmp_path / "darcy.jsonl"
    before = path.read_bytes()
    monkeypatch.setattr(module, "unit_here", lambda: STEP / 5 * 1.2)
    raced(store, tmp_path, "fno", seeds=(0, 1, 2))  # one kind of processor, on another day
    assert path.read_bytes().startswith(before)
    assert path.read_bytes() != before
    before = path.read_bytes()
    for factor in (1.3, 1 / 1.3):
        monkeypatch.setattr(module, "unit_here", lambda factor=factor: STEP / 5 * factor)
        assert len(raced(store, tmp_path, "fno", seeds=(0, 1, 2))) == 3  # nothing is measured
        with pytest.raises(ValueError, match=r"expected the kind of processor .* got .*--out"):
            raced(store, tmp_path, "transolver")
    assert path.read_bytes() == before


def start(store: Store, model: str = "fno", recipe: Any = "shared", **network: Any) -> Start:
    return Start("darcy", Entrant(model, network), recipe, "smoke", store.folder)


def raced(store: Store, folder: Path, *models: str, **options: Any) -> list[dict[str, Any]]:
    given: dict[str, Any] = {"budget": BUDGET, "seeds": (0, 1), "profile": "smoke"} | options
    entrants = [Entrant(model) for model in models]
    return race("darcy", entrants, cache=store.folder, folder=folder, **given)


@pytest.mark.usefixtures("quick")
def test_a_race_searches_five_rates_for_each_and_trains_each_seed_once(
    store: Store, tmp_path: Path
) -> None:
    results = raced(store, tmp_path, "fno", "transolver")
    lines = [json.loads(line) for line in (tmp_path / "darcy.jsonl").read_text().splitlines()]
    keys = [line["key"] for line in lines]
    assert [key["piece"] for key in keys if key["piece"] != "rate"] == [
        "unit", "step", "run", "run", "step", "run", "run",
    ]  # fmt: skip
    for model in ("fno", "transolver"):
        of_model = [key for key in keys if key.get("settings", {}).get("model") == model]
        tried = [key["factor"] for key in of_model if key["piece"] == "rate"]
        assert tried[:5] == list(RATE_FACTORS)
    assert [(r["entrant"], r["key"]["seed"]) for r in results] == [
        ("fno", 0), ("fno", 1), ("transolver", 0), ("transolver", 1),
    ]  # fmt: skip
    for result in results:
        assert result["steps"] == round(BUDGET / STEP)
        assert len(result["curve"]) == 8
        assert result["curve"][-1][0] == pytest.approx(result["cpu_seconds"], abs=0.01)
        assert math.isfinite(result["test"])
        assert result["test_elsewhere"]["use_every"] == 1  # on the finer grid of the solver
        assert math.isfinite(result["test_elsewhere"]["test"])
        assert {"commit", "machine", "command", "versions", "data"} <= result.keys()


@pytest.mark.usefixtures("quick")
def test_the_rate_is_the_middle_of_those_as_good_as_the_best_on_validation_data(
    store: Store, tmp_path: Path
) -> None:
    results = raced(store, tmp_path, "fno")
    lines = [json.loads(line) for line in (tmp_path / "darcy.jsonl").read_text().splitlines()]
    tried = {x["key"]["factor"]: x["validation"] for x in lines if x["key"]["piece"] == "rate"}
    assert len(set(tried.values())) >= 5
    as_good = [f for f in tried if tried[f] <= 1.05 * min(tried.values())]
    assert {r["key"]["factor"] for r in results} == {sorted(as_good)[(len(as_good) - 1) // 2]}


@pytest.mark.usefixtures("quick")
def test_a_race_that_was_stopped_goes_on_after_its_last_whole_piece(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = raced(store, tmp_path / "whole", "fno")
    pieces = [x["key"]["piece"] for x in Records(tmp_path / "whole" / "darcy.jsonl").lines]
    count = 0
    run = Lap.run

    def counted(self: Lap, **options: Any) -> Lap:
        nonlocal count
        count += 1
        if count == 5:
            raise KeyboardInterrupt
        return run(self, **options)

    monkeypatch.setattr(Lap, "run", counted)
    with pytest.raises(KeyboardInterrupt):
        raced(store, tmp_path, "fno")
    path = tmp_path / "darcy.jsonl"
    # And killed in the middle of a line.
    path.write_text(path.read_text()[:-20])
    results = raced(store, tmp_path, "fno")
    # Three whole rates before, the fourth was cut; the others and two trainings were left.
    assert count == 5 + pieces.count("rate") - 3 + 2
    assert [r["test"] for r in results] == [r["test"] for r in whole]
    count = 0
    assert [r["test"] for r in raced(store, tmp_path, "fno")] == [r["test"] for r in whole]
    assert count == 0


@pytest.mark.usefixtures("quick")
def test_another_budget_or_other_settings_are_other_pieces(store: Store, tmp_path: Path) -> None:
    raced(store, tmp_path, "fno", seeds=(0,))

    def added(**options: Any) -> set[str]:
        before = len(Records(tmp_path / "darcy.jsonl").lines)
        raced(store, tmp_path, "fno", seeds=(0,), **options)
        return {x["key"]["piece"] for x in Records(tmp_path / "darcy.jsonl").lines[before:]}

    assert added(budget=2 * BUDGET) == {"rate", "run"}  # the step was measured already
    assert added(recipe="task") == {"step", "rate", "run"}
    assert added() == set()


@pytest.mark.usefixtures("quick")
def test_other_data_of_a_task_are_other_pieces_wherever_they_lie(
    store: Store, tmp_path: Path
) -> None:
    def pieces(**data: Any) -> list[dict[str, Any]]:
        before = len(Records(tmp_path / "darcy.jsonl").lines)
        raced(store, tmp_path, "fno", seeds=(0,), data=data)
        return Records(tmp_path / "darcy.jsonl").lines[before:]

    own, fewer = pieces()[-1], pieces(train=7)[-1]
    assert fewer["key"]["settings"]["data"]["train"] == 7
    assert fewer["data"] != own["data"]
    assert pieces(train=7, path=None) == []
    assert "path" not in fewer["key"]["settings"]["data"]
    assert own["metrics"]["relative_l2"] == own["test"]
    assert own["medians"]["relative_l2"] < 2 * own["test"]


def test_the_step_is_measured_in_a_process_of_its_own(store: Store) -> None:
    measurement = unit.in_a_process(start(store).measured)
    assert measurement["step_units"] > 0
    assert measurement["parameters"] > 100
    assert measurement["megabytes"] > 0


def test_memory_of_steps_is_seen_below_an_earlier_peak(store: Store) -> None:
    torch.ones(2**27)  # more than the steps need, and gone again
    assert start(store).measured()["megabytes"] > 1


def test_the_unit_is_the_least_time_of_a_fixed_piece_of_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert unit.unit_seconds(3) > 0
    clock = iter([0.0, 3.0, 10.0, 11.0, 20.0, 25.0])
    monkeypatch.setattr(unit.time, "process_time", lambda: next(clock))
    assert unit.unit_seconds(3) == 1.0


def test_a_lap_that_fails_is_the_worst_of_all(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lap = start(store).lap(steps=10)
    task = type(lap.task)
    loss = task.loss
    calls = 0

    def broken(self: Any, prediction: Tensor, batch: Any) -> Tensor:
        nonlocal calls
        calls += 1
        return loss(self, prediction, batch) * (math.nan if calls == 4 else 1.0)

    monkeypatch.setattr(task, "loss", broken)
    lap.run()
    assert lap.failed
    assert len(lap.spent) == 4
    assert lap.chosen() == (math.inf, False)
    assert goodness(math.inf, lap.task) < goodness(1e9, lap.task)


def test_weights_or_their_average_are_chosen_on_validation_data(store: Store) -> None:
    lap = start(store).lap(steps=12).run()
    errors = [error_of(lap.task, m, lap.splits.validation) for m in (lap.model, lap.averaged)]
    assert errors[0] != errors[1]
    assert lap.chosen() == (min(errors), errors[1] < errors[0])


def test_the_same_seed_gives_the_same_lap(store: Store) -> None:
    one, two = (start(store).lap(steps=8, seed=3).run(watch=False) for _ in range(2))
    for p, q in zip(one.model.parameters(), two.model.parameters(), strict=True):
        assert torch.equal(p, q)
    assert not one.curve


AROUND = {"surroundings": 0.125}


def cloud(
    store: Store, model: str, recipe: Any = "shared", task: str = "elasticity", **network: Any
) -> Start:
    return Start(task, Entrant(model, network), recipe, "smoke", store.folder)


@pytest.mark.usefixtures("quick")
def test_on_clouds_any_network_may_look_at_surroundings(store: Store, tmp_path: Path) -> None:
    entrants = [
        Entrant("transolver", {"layers": 1}),
        Entrant("transolver", {"layers": 1} | AROUND),
        Entrant("functional_operator", AROUND),
    ]

    def again() -> list[dict[str, Any]]:
        return race(
            "elasticity",
            entrants,
            budget=BUDGET,
            seeds=(0,),
            profile="smoke",
            cache=store.folder,
            folder=tmp_path,
        )

    results = again()
    assert [r["entrant"] for r in results] == [
        "transolver layers=1",
        "transolver layers=1 surroundings=0.125",
        "functional_operator surroundings=0.125",
    ]
    kept = [r["key"]["settings"]["network"].get("surroundings") for r in results]
    assert kept == [None, 0.125, 0.125]
    # Its lift takes twelve features more, and nothing else is larger.
    assert results[1]["parameters"] - results[0]["parameters"] == 12 * 2 * 32
    assert results[0]["test"] != results[1]["test"]
    count = len(Records(tmp_path / "elasticity.jsonl").lines)
    assert [r["test"] for r in again()] == [r["test"] for r in results]
    assert len(Records(tmp_path / "elasticity.jsonl").lines) == count


def test_a_line_has_the_reach_as_a_number(store: Store) -> None:
    for model, default in (("functional_operator", 1 / 32), ("transolver", None)):
        for asked, reach in (("auto", 1 / 32), (1 / 8, 1 / 8), (None, None)):
            kept = cloud(store, model, surroundings=asked).settings["network"]
            assert kept.get("surroundings") == reach
        assert cloud(store, model).settings["network"].get("surroundings") == default


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"task": "darcy", **AROUND}, "got darcy, a grid, and recipe shared; leave surroundings"),
        ({"recipe": "task", **AROUND}, "got elasticity, a cloud, and recipe task"),
        ({"surroundings": "near"}, r"models.surroundings: expected float, auto, .* got 'near'"),
        ({"surroundings": -1.0}, "models.surroundings: expected a number from 0"),
        ({"surroundings": 0.7}, "reaches: expected fractions of the longest side of the box"),
    ],
)
def test_surroundings_without_a_place_are_refused(
    store: Store, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        cloud(store, "transolver", **options).lap(steps=1)


def test_a_race_without_time_or_entrants_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a positive budget, entrants and seeds"):
        raced(store, tmp_path, "fno", budget=0.0)
    with pytest.raises(ValueError, match="expected a positive budget, entrants and seeds"):
        raced(store, tmp_path)


def test_data_is_made_before_the_process_that_measures_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of a pool may not start the workers that make data."""
    empty = Store(tmp_path / "data")

    def measure(*_: Any) -> Any:
        assert [len(each) for each in empty.sets()] == [20]
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "in_a_process", measure)
    monkeypatch.setattr(module, "unit_here", lambda: STEP)
    with pytest.raises(KeyboardInterrupt):
        raced(empty, tmp_path, "fno")


def test_a_number_that_was_changed_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    Records(path).piece({"n": 1}, lambda: {"value": 0.25})
    path.write_text(path.read_text().replace("0.25", "0.26") + "[1]\n" + "[" * 100_000 + "\n")
    assert Records(path).piece({"n": 1}, lambda: {"value": 0.25})["value"] == 0.25


def test_a_line_that_was_cut_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    Records(path).piece({"n": 1}, lambda: {"value": 1})
    path.write_text(path.read_text() + '{"key": {"n": 2}, "val')
    records = Records(path)
    assert records.piece({"n": 2}, lambda: {"value": 2})["value"] == 2
    assert records.piece({"n": 1}, lambda: {"value": -1})["value"] == 1
    assert [line["value"] for line in Records(path).lines] == [1, 2]


def test_a_network_that_cannot_race_is_refused_here_and_not_in_another_process(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*_: Any) -> Any:
        raise AssertionError("a process was started")

    monkeypatch.setattr(module, "in_a_process", measure)
    monkeypatch.setattr(module, "unit_here", lambda: STEP)
    with pytest.raises(ValueError, match="model: expected one that takes this task"):
        race(
            "elasticity",
            [Entrant("fno")],
            budget=BUDGET,
            profile="smoke",
            cache=store.folder,
            folder=tmp_path,
        )


@pytest.mark.parametrize(
    ("errors", "taken"),
    [
        ({}, 1.0),  # nothing was learned: all tie
        ({0.5: 0.5, 1.0: 0.51}, 0.5),  # of two the smaller
        ({1.0: 0.5, 2.0: 0.5, 4.0: 0.5}, 2.0),
        ({0.25: 0.5, 0.125: 0.4, 0.0625: 0.39}, 0.0625),  # past the end, as far as it goes
        ({4.0: 0.5, 8.0: 0.4, 16.0: 0.6}, 8.0),
        ({4.0: math.inf, 2.0: math.nan, 1.0: 0.5}, 1.0),
    ],
)
def test_where_rates_tie_the_middle_one_is_taken(errors: dict[float, float], taken: float) -> None:
    assert searched(lambda factor: errors.get(factor, 1.0)) == taken
