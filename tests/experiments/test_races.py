"""Who is ahead at equal time, from lines of races."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from funcattn.experiments import EXPERIMENTS
from funcattn.experiments.engine.pages import write_results
from funcattn.experiments.engine.race_page import (
    by_race,
    figure,
    in_short,
    overview,
    section,
    table,
)
from funcattn.experiments.engine.races import standings
from funcattn.models import MODELS
from funcattn.training.race import RATE_FACTORS
from funcattn.training.race_records import Records
from funcattn.training.recipe import SHARED
from funcattn.training.settings import default_settings

SOME_RATES = {factor: 1.0 if factor == 0.5 else 2.0 for factor in RATE_FACTORS}


def write_race(
    folder: Path,
    model: str,
    errors: list[float],
    *,
    task: str = "darcy",
    network: dict[str, Any] | None = None,
    data: dict[str, Any] | None = None,
    rates: dict[float, float] = SOME_RATES,
    factor: float = 0.5,
    budget: float = 120.0,
    more: dict[str, Any] | None = None,
) -> None:
    """Lines as a race writes them, with given errors."""
    settings: dict[str, Any] = asdict(default_settings(task, "cpu", "modern", model))
    for unused in ("seed", "checkpoint_seconds"):
        settings.pop(unused, None)
    settings["optimisation"] = {k: v for k, v in asdict(SHARED).items() if k != "epochs"}
    if "surroundings" in settings["network"]:
        settings["network"]["surroundings"] = None  # lines have a number, or none
    settings["network"].update(network or {})
    settings["data"].update(data or {})
    known = {"task": task, "recipe": "shared", "settings": settings}
    records = Records(folder / f"{task}.jsonl")
    records.piece({"piece": "unit"}, lambda: {"seconds": 1.0})
    records.piece({"piece": "step", **known}, lambda: {"megabytes": 12.0, "parameters": 1000})
    known["budget"] = budget
    for each, error in rates.items():
        records.piece(
            {"piece": "rate", **known, "factor": each}, lambda error=error: {"validation": error}
        )
    for seed, error in enumerate(errors):
        line = {
            "test": error,
            "validation": error,
            "steps": 500,
            "parameters": 1000,
            "curve": [[budget / 2, 2 * error], [budget, error]],
            **(more or {}),
        }
        records.piece(
            {"piece": "run", **known, "factor": factor, "seed": seed}, lambda line=line: line
        )


def test_networks_stand_in_the_order_of_their_mean_errors(tmp_path: Path) -> None:
    write_race(tmp_path, "fno", [0.03, 0.01])
    write_race(tmp_path, "transolver", [0.05], network={"layers": 3})
    write_race(tmp_path, "functional_operator", [0.01, 0.012])
    names = [s.name for s in standings(tmp_path)]
    assert names == ["`functional_operator`", "`fno`", "`transolver` layers=3"]
    rows = table(standings(tmp_path)).splitlines()
    assert rows[2].startswith("| `functional_operator` | 1.1 ± 0.14 (2) | 1 | 1,000 | 12 | 500 |")
    assert rows[3].startswith("| `fno` | 2 ± 1.4 (2) | 1.82 |")


def test_memory_that_was_not_seen_to_rise_is_left_out(tmp_path: Path) -> None:
    write_race(tmp_path, "fno", [0.03])
    (standing,) = standings(tmp_path)
    assert "| 1,000 | 12 | 500 |" in table([standing])
    unseen = replace(standing, step={**standing.step, "megabytes": 0.0})
    assert "| 1,000 |  | 500 |" in table([unseen])


def test_what_is_not_as_today_does_not_count(tmp_path: Path) -> None:
    write_race(tmp_path, "fno", [0.01], factor=2.0)  # a rate that the search does not take
    write_race(tmp_path, "flare", [0.01], rates={0.5: 1.0})  # a search that was not finished
    write_race(tmp_path, "lno", [0.01], data={"train": 7})
    write_race(tmp_path, "lsm", [0.01], network={"gone": 3})
    write_race(tmp_path, "transolver", [0.01])
    assert [s.name for s in standings(tmp_path)] == ["`transolver`"]


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        ([0.010, 0.0101, 0.0102], [0.02, 0.0201, 0.0202], "ahead by 1.99"),
        ([0.010, 0.0101, 0.03], [0.02, 0.01, 0.0202], "ahead by 1, undecided: p = "),
        ([0.010], [0.02], "ahead by 2, undecided: one seed each"),
        ([0.010], [0.02, 0.0201], "ahead by 2"),
        ([0.04, 0.041], [0.02, 0.0201], "behind by 2.02"),
    ],
)
def test_a_verdict_needs_seeds_that_differ(
    tmp_path: Path, ours: list[float], theirs: list[float], words: str
) -> None:
    write_race(tmp_path, "fno", theirs)
    write_race(tmp_path, "functional_operator", ours)
    _, _, said, papers = overview(standings(tmp_path))
    assert said == words if "p = " not in words else said.startswith(words)
    assert papers == "not run"


def test_the_size_that_counts_is_chosen_on_validation_data(tmp_path: Path) -> None:
    write_race(tmp_path, "fno", [0.02])
    write_race(tmp_path, "functional_operator", [0.03], more={"validation": 0.01})
    wide = {"network": {"width": 48}, "more": {"validation": 0.02}}
    write_race(tmp_path, "functional_operator", [0.01], **wide)  # type: ignore[arg-type]
    each = standings(tmp_path)
    assert [s.mean for s in each] == [0.01, 0.02, 0.03]
    assert overview(each)[:2] == ["3 (1)", "`fno`: 2 (1)"]
    assert in_short([each]).startswith("Our network has the least error in 0 of 1 races")


def test_in_short_counts_who_has_the_least_error_where_there_were_rivals(tmp_path: Path) -> None:
    write_race(tmp_path, "functional_operator", [0.01, 0.0101])
    write_race(tmp_path, "fno", [0.02])
    write_race(tmp_path, "functional_operator", [0.01], task="pipe")
    write_race(tmp_path, "funcattn", [0.03], task="pipe")
    write_race(tmp_path, "functional_operator", [0.05], task="airfoil")
    write_race(tmp_path, "funcattn", [0.03], task="airfoil")
    write_race(tmp_path, "functional_operator", [0.05], task="elasticity")
    assert in_short([*by_race(standings(tmp_path)).values()]) == (
        "Our network has the least error in 2 of 3 races, and surely so in 1. Functional attention "
        "as in the paper has the least in 1 of 2. Elsewhere it has 3 to 3 times the least.\n"
    )


def test_the_section_has_a_table_for_each_race_and_a_picture(tmp_path: Path) -> None:
    races, page, pictures = tmp_path / "races", tmp_path / "docs" / "p.md", tmp_path / "pictures"
    assert section(standings(races), races, page, pictures) == ""
    for budget in (120.0, 480.0):
        write_race(races, "funcattn", [0.02], budget=budget)
        write_race(races, "fno", [0.03], budget=budget, task="pipe")
    text = section(standings(races), races, page, pictures)
    for heading in ("### Darcy, 2 min", "### Darcy, 8 min", "### Pipe, 2 min", "### Pipe, 8 min"):
        assert heading in text
    assert "](../pictures/races.png)" in text
    assert (pictures / "races.png").stat().st_size > 10_000
    assert "| Darcy, 2 min | not run | `funcattn`: 2 (1) |  | 2 (1) |" in text


def test_a_damaged_line_is_left_out(tmp_path: Path) -> None:
    write_race(tmp_path, "fno", [0.03, 0.01])
    path = tmp_path / "darcy.jsonl"
    lines = path.read_text().splitlines()
    changed = json.loads(lines[-1])
    changed["test"] = 1e-9
    path.write_text("\n".join([*lines[:-1], json.dumps(changed)]))
    assert [s.errors for s in standings(tmp_path)] == [[0.03]]


def test_races_decide_a_claim_that_runs_leave_open(made: Any, tmp_path: Path) -> None:
    experiment = EXPERIMENTS["darcy_notch"]
    write_race(tmp_path / "races", "funcattn", [0.0208, 0.021, 0.0212], task="darcy_notch")
    write_race(tmp_path / "races", "wno", [0.06], task="darcy_notch", network={"layers": 2})
    write_race(tmp_path / "races", "wno", [0.05], task="darcy_notch")
    page = tmp_path / "results.md"
    write_results([made.outcome(experiment)], page, tmp_path / "experiments")
    text = page.read_text()
    assert (
        "functional attention 30 % below WNO on Darcy with a notch: holds; the error of WNO is "
        "2.38 times that of Functional attention (at equal time, 2 min, 1 seed)"
    ) in text
    assert "At equal time, 2 min of CPU, as in the races above:" in text
    assert "| WNO | 0.92 | 5 (1) |" in text
    assert "- Not run: DeepONet, POD-DeepONet, MWT, " in text


def test_a_race_with_a_changed_network_is_an_entry_of_the_table_of_that_change(
    made: Any, tmp_path: Path
) -> None:
    experiment = EXPERIMENTS["bases"]
    shallow = {"layers": 3}
    races = tmp_path / "races"
    write_race(races, "funcattn", [0.02, 0.0202], network=shallow | {"bases": 64})
    write_race(races, "funcattn", [0.03], network=shallow | {"bases": 16})
    write_race(races, "funcattn", [0.025], network=shallow)  # 32 functions are the task's own
    found = standings(races)
    assert [s.name for each in by_race(found).values() for s in each] == ["`funcattn` layers=3"]
    page = tmp_path / "results.md"
    write_results([made.outcome(experiment)], page, tmp_path / "experiments")
    text = page.read_text()
    assert "| 16 functions | 0.49 | 3 (1) |" in text
    assert "| 32 functions | 0.45 | 2.5 (1) |" in text
    assert "| 64 functions | 0.42 | **2.01 ± 0.014 (2)** |" in text
    assert "64 functions better than 16 on Darcy: holds" in text


def test_races_decide_what_seeds_of_equal_epochs_do_not(made: Any, tmp_path: Path) -> None:
    experiment = EXPERIMENTS["darcy_notch"]
    for row in ("funcattn", "wno"):
        made.add(experiment.trials[row, "error"], {"test": {"relative_l2": 0.01}})
    page = tmp_path / "results.md"

    def said() -> str:
        write_results([made.outcome(experiment)], page, tmp_path / "experiments")
        claims = [x for x in page.read_text().splitlines() if x.startswith("| functional")]
        (line,) = (x for x in claims if "30 % below WNO" in x)
        return line.split("|")[2].strip()

    assert said() == "undecided"
    write_race(tmp_path / "races", "funcattn", [0.02, 0.021], task="darcy_notch")
    write_race(tmp_path / "races", "wno", [0.02, 0.022], task="darcy_notch")
    assert said() == "does not hold"


def test_another_set_of_a_task_is_a_race_of_its_own(made: Any, tmp_path: Path) -> None:
    races = tmp_path / "races"
    more = {"metrics": {"lift_error": 0.3}, "medians": {"lift_error": 0.1}}
    aoa: dict[str, Any] = {"task": "airfrans", "data": {"split": "aoa"}}
    write_race(races, "funcattn", [0.02], **aoa, more=more)
    write_race(races, "gno", [0.05], **aoa, more=more)
    write_race(races, "gno", [0.04], task="airfrans")
    assert [*by_race(standings(races))] == [("AirfRANS", 120.0), ("AirfRANS, split aoa", 120.0)]
    page = tmp_path / "results.md"
    write_results([made.outcome(EXPERIMENTS["airfrans"])], page, tmp_path / "experiments")
    text = page.read_text()
    assert "| Functional attention | 13.3 | 30 (1) | 10 (1) |" in text
    assert "functional attention first: Reynolds" in text.split("waiting for runs: ")[1]


def test_with_surroundings_a_race_is_one_of_its_own(made: Any, tmp_path: Path) -> None:
    races = tmp_path / "races"
    around = {"surroundings": 0.03125}
    for model, layers in (("transolver", {"layers": 3}), ("functional_operator", {})):
        write_race(races, model, [0.03], task="elasticity", network=layers)
        write_race(races, model, [0.02], task="elasticity", network={**layers, **around})
    write_race(races, "funcattn", [0.05, 0.05], task="elasticity")
    write_race(races, "funcattn", [0.04, 0.04], task="elasticity", network=around)
    # Another basis is another network, with them and without.
    write_race(races, "transolver", [0.01], task="elasticity", network={"bases": 7, **around})
    found = by_race(standings(races))
    assert [*found] == [("Elasticity", 120.0), ("Elasticity, surroundings 0.03125", 120.0)]
    with_them = found["Elasticity, surroundings 0.03125", 120.0]
    assert sorted(s.name for s in with_them) == [
        "`funcattn` surroundings=0.03125",
        "`functional_operator`",
        "`transolver` layers=3 surroundings=0.03125",
    ]
    page = tmp_path / "results.md"
    write_results([made.outcome(EXPERIMENTS["pde"])], page, tmp_path / "experiments")
    text = page.read_text()
    assert "### Elasticity, surroundings 0.03125, 2 min" in text
    assert "| `transolver` layers=3 surroundings=0.03125 | 2 (1) |" in text
    # The paper's network is the one without.
    assert "| 5 ± 0 (2) |" in text.split("At equal time, 2 min of CPU")[1]
    assert "| 4 ± 0 (2) |" not in text.split("At equal time, 2 min of CPU")[1]


def test_lines_mean_the_same_where_surroundings_are_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_race(tmp_path, "functional_operator", [0.03], task="elasticity")
    around = {"surroundings": 0.03125}
    write_race(tmp_path, "functional_operator", [0.02], task="elasticity", network=around)

    def names() -> list[tuple[str, str]]:
        races = by_race(standings(tmp_path))
        return [(title, s.name) for (title, _), each in races.items() for s in each]

    assert names() == [
        ("Elasticity", "`functional_operator` surroundings=None"),
        ("Elasticity, surroundings 0.03125", "`functional_operator`"),
    ]
    published = MODELS["functional_operator"].published
    monkeypatch.setitem(published, "surroundings", None)
    assert names() == [
        ("Elasticity", "`functional_operator`"),
        ("Elasticity, surroundings 0.03125", "`functional_operator` surroundings=0.03125"),
    ]


def test_where_a_task_counts_what_is_right_the_rest_is_the_error(made: Any, tmp_path: Path) -> None:
    races = tmp_path / "races"
    rates = {factor: 0.5 if factor == 0.5 else 0.2 for factor in RATE_FACTORS}
    write_race(races, "funcattn", [0.8, 0.81], task="rna", rates=rates)
    write_race(races, "transolver", [0.6], task="rna", rates=rates)
    best, other = standings(races)
    assert (best.model, other.model) == ("funcattn", "transolver")
    assert other.mean == pytest.approx(0.4)
    assert "| network | wrong labels, % |" in table([best, other])
    page = tmp_path / "results.md"
    write_results([made.outcome(EXPERIMENTS["rna"])], page, tmp_path / "experiments")
    assert "functional attention first on RNA: holds" in page.read_text()
    assert "| Functional attention | 89.0 | **80.5 ± 0.71 (2)** |" in page.read_text()


def test_the_figure_shows_the_budget_at_which_most_networks_ran(tmp_path: Path) -> None:
    write_race(tmp_path, "fno", [0.03])
    write_race(tmp_path, "functional_operator", [0.02])
    write_race(tmp_path, "functional_operator", [0.01], budget=480.0)
    races = by_race(standings(tmp_path))
    (axis,) = (each for each in figure(races).axes if each.get_title())
    assert len(axis.lines) == 2
    assert axis.lines[0].get_xdata()[-1] == 120.0  # type: ignore[index]
