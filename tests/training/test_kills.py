"""Commands that are killed at random moments come to the same end: see benchmarks/kills.py."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import hardening_page  # noqa: E402
import kills  # noqa: E402


@pytest.mark.full
@pytest.mark.parametrize("job", kills.JOBS, ids=lambda job: job.name)
def test_killed_and_started_again_a_command_comes_to_the_same_end(
    job: kills.Job, tmp_path: Path
) -> None:
    *_, found = kills.attack(job, tmp_path, job.share, seed=1)
    assert found["kills"] >= job.share


def test_a_stage_is_told_by_what_has_changed() -> None:
    run, data, part = Path("run/settings.json"), Path("data/a.shards"), Path("run/.1.part.a")
    before = {run: 1, part: 1}
    assert kills.stage(before, before) == "starting"
    assert kills.stage(before, {**before, data: 2}) == "making data"
    assert kills.stage(before, {**before, run: 2}) == "at work"  # the part is of an earlier kill
    assert kills.stage(before, {**before, run: 2, part: 2}) == "saving"
    logs = {**before, run: 2, Path("run/metrics.csv"): 1}
    assert kills.stage(before, logs) == "testing or report"


def test_the_table_has_a_hundred_kills_of_every_command() -> None:
    kept = json.loads((ROOT / "results/kills.json").read_text())["jobs"]
    assert kept.keys() == {job.name for job in kills.JOBS}
    assert sum(job["kills"] for job in kept.values()) >= 100
    assert all(job["ends"] >= 1 for job in kept.values())


def test_the_page_is_that_of_the_records() -> None:
    assert hardening_page.PAGE.read_text(encoding="utf-8") == hardening_page.page()
