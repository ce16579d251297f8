"""The page of trust says what was measured, and what was measured is what is promised."""

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path

from scipy import stats

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import trust_tables  # noqa: E402

RESULTS = json.loads(trust_tables.RESULTS.read_text(encoding="utf-8"))


def test_the_tables_of_the_page_are_those_of_the_records():
    assert trust_tables.PAGE.read_text(encoding="utf-8") == trust_tables.page()


def measured() -> Iterator[tuple[str, dict, dict]]:
    """Every row of shares as trained: its name, the shares, and how they were measured."""
    for task, parts in RESULTS.items():
        for spread, grids in parts.get("bands", {}).get("found", {}).items():
            found = grids["as trained"]
            rows = found["inside at all points"] | found["quantities within their bounds"]
            for name, shares in (rows | {"error": found["error below its bound"]}).items():
                yield f"{task}, {spread}, {name}", shares, found


def test_measured_coverage_is_what_chance_allows():
    """With an error of 1 % for all comparisons together; each alone is shared out evenly."""
    rows = [
        (name, float(coverage), round(share * found["asked"]), found)
        for name, shares, found in measured()
        for coverage, share in shares.items()
    ]
    assert len(rows) > 100
    for name, coverage, inside, found in rows:
        scored = found["calibration samples"]
        rank = math.ceil((scored + 1) * coverage - 1e-9)
        law = stats.betabinom(found["asked"], rank, scored + 1 - rank)
        tail = 0.01 / len(rows) / 2
        assert law.cdf(inside) > tail, (name, coverage, inside)
        assert law.sf(inside - 1) > tail, (name, coverage, inside)


def test_measured_false_alarms_are_what_chance_allows():
    for task, parts in RESULTS.items():
        if "unlike" in parts:
            share = parts["unlike"]["found"]["flagged of fresh samples as trained"]
            # AirfRANS' splits have 13 validation samples or so, of which the largest is the limit.
            law = stats.betabinom(100, 1, 13) if "airfrans" in task else stats.betabinom(100, 5, 96)
            assert round(100 * share) <= law.ppf(0.999), task


def test_every_solver_has_a_break_even():
    solved = {task for task, parts in RESULTS.items() if "breakeven" in parts}
    assert solved == {
        *("airfoil", "airfrans", "burgers", "darcy", "darcy_notch", "elasticity"),
        *("navier_stokes", "pipe", "plasticity"),
    }
