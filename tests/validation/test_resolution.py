"""The demo's promise, checked on the demo's own run: takes minutes, so only in `make test-full`."""

from pathlib import Path

import pytest
from rich.console import Console

from funcattn.demo.run import SETTINGS, run


@pytest.mark.full
def test_twice_the_training_resolution_costs_little_accuracy(tmp_path: Path) -> None:
    record = run(SETTINGS, tmp_path, Console(quiet=True))
    assert record["test_error_finer"] < 1.3 * record["test_error"]
    assert record["test_error"] < 0.5 * min(record["yardsticks"].values())
