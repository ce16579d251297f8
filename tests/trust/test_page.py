"""The page of trust says what was measured, and what was measured is what is promised."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from scipy import stats

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import trust_tables  # noqa: E402

from .test_bands import assert_covered  # noqa: E402

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


@pytest.mark.parametrize("row", [pytest.param(row, id=row[0]) for row in measured()])
def test_measured_coverage_is_what_chance_allows(row):
    _, shares, found = row
    for coverage, share in shares.items():
        inside = round(share * found["asked"])
        assert_covered(inside, found["asked"], found["calibration samples"], float(coverage))


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
