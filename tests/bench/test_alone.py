"""Candidates alone in their processes: what is asked, what is kept, which targets it decides."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from funcattn.bench import alone, runner, targets
from funcattn.bench.alone import CASES, COSTLY_UP_TO, Alone, merged
from funcattn.bench.candidates import ALONE, HALF, NEAREST, OURS, REFERENCE, Shape
from funcattn.bench.child import done
from funcattn.bench.found import Found
from funcattn.bench.measure import KINDS, calls, inputs
from funcattn.bench.runner import Measurements, Work, run

SMALL = Alone("layer", Shape(16, 4, 2), 40, batch=2)
EIGHT = Shape(128, 64, 8)


def nothing(text: str) -> None:
    """Nobody listens."""


def test_every_candidate_is_timed_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone, "SECONDS", 0.0)
    for part in ("layer", "model"):
        case = replace(SMALL, part=part)
        for name in ALONE[part]:
            asked = {"what": "alone", "case": json.loads(json.dumps(asdict(case)))}
            found = done({**asked, "candidate": name}, nothing)
            assert list(found) == list(KINDS[part])
            assert all(0 < seconds < 10 for seconds in found.values())


def test_bfloat16_is_ours_with_rounded_products() -> None:
    given = inputs("layer", SMALL.shape, SMALL.points, SMALL.batch)
    made = {}
    for name in (OURS, HALF):
        module = ALONE["layer"][name].build(SMALL.shape, SMALL.points)
        alone.give_weights(module)
        made[name] = module(given[0]).detach()
        calls("layer", module, given)["forward + backward"]()
        assert all(p.grad is not None for p in module.parameters())
    assert made[HALF].dtype == torch.float32
    error = float((made[HALF] - made[OURS]).norm() / made[OURS].norm())
    assert 1e-5 < error < 5e-2


def test_processes_take_turns_and_the_middle_one_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def child(job: dict[str, Any], allocator: str, threads: int, say: object) -> dict[str, float]:  # noqa: ARG001
        asked.append(job["candidate"])
        return dict.fromkeys(KINDS["layer"], float(len(asked)))

    monkeypatch.setattr(runner, "in_a_child", child)
    work = runner.work_of_alone(SMALL, threads=1)
    found = work.measure(nothing)
    names = [OURS, REFERENCE, NEAREST, HALF]
    assert asked == 3 * names
    assert work.key == "alone layer 16/4/2, 2 times 40 points, 1 thread"
    assert found["candidates"][NEAREST]["forward"] == {"median": 7.0, "processes": [3.0, 7.0, 11.0]}
    large = Alone("layer", EIGHT, 2 * COSTLY_UP_TO)
    assert large.candidates == (OURS, NEAREST)


def found_of(of: Callable[[Alone, str], float]) -> Found:
    """All cases, with the seconds of each candidate."""
    records = {
        case.key: merged(
            case,
            1,
            [{n: dict.fromkeys(KINDS[case.part], of(case, n)) for n in case.candidates}],
        )
        for case in CASES
    }
    return Found(records)


def test_a_target_is_decided_by_its_worst_case() -> None:
    def seconds(case: Alone, name: str) -> float:
        if name != NEAREST or case.shape != EIGHT or case.part == "model":
            return {HALF: 0.5}.get(name, 1.0)
        return 0.9 if case.points == 4096 else 2.0

    found = found_of(seconds)
    rows = {row[0]: row[1:] for row in targets.table(found).rows if row[0].startswith("alone: ")}
    assert len(rows) == 13
    title = "alone: 8 heads, 512 points to a million, forward: faster than LinearNO"
    assert rows[title] == ["at least 1x", "0.9x", "not reached"]
    assert rows["alone: 8 heads, 8 times 972 points, forward: faster than LinearNO"][1] == "2x"
    assert rows["alone: 1 head, 2,048 points to a million, forward: faster than LinearNO"] == [
        "at least 2x",
        "1x",
        "not reached",
    ]
    halves = [row for name, row in rows.items() if "bfloat16" in name]
    assert halves == 3 * [["at least 1.4x", "2x", "reached"]]
    table = alone.table(found)
    shown = {row[0]: row[1:] for row in table.rows}
    assert shown["layer, 8 heads, 4,096 points, forward"] == [
        *("1,000", "1,000", "900"),
        *("1.00x", "0.90x", "2.00x"),
    ]
    assert shown["layer, 1 head, 65,536 points, forward"][3:] == ["-", "1.00x", "-"]


def test_a_target_needs_all_its_cases() -> None:
    found = found_of(lambda case, name: 1.0)  # noqa: ARG005
    found.records = [r for r in found.records if r["points"] != 2**20]
    rows = {row[0]: row[3] for row in targets.table(found).rows}
    title = "alone: 8 heads, {}, forward: faster than LinearNO"
    assert rows[title.format("8 times 972 points")] == "reached"
    assert rows[title.format("512 points to a million")] == "not measured"


@pytest.mark.parametrize(("rate", "known"), [(1.1e11, True), (2e11, False)])
def test_a_processor_that_was_not_named_is_known_by_its_products(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rate: float, known: bool
) -> None:
    monkeypatch.setattr(runner, "in_a_child", lambda *_: {"rate": 1.2e11})
    monkeypatch.setattr(runner, "code_version", lambda: "two")
    before = {"threads": 1, "code": "one"}
    lines = {"a": {**before, "rates": {"matrix product": rate, "copy": 1.0}}, "b": before}
    file = tmp_path / "bench.json"
    file.write_text(json.dumps({"measurements": lines}))
    works = [Work("c", lambda _: {"threads": 1})]

    def go() -> list[str]:
        return run(
            works,
            Measurements(file),
            command="c",
            again=False,
            on_work=lambda key: nothing,  # noqa: ARG005
        )

    if known:
        assert go() == []
        assert list(Measurements(file).records) == ["a", "b", "c"]
    else:
        with pytest.raises(ValueError, match=r"another one \(not named\)"):
            go()
