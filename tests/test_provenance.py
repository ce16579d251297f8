import subprocess
import sys

import pytest
import torch

from funcattn.provenance import cpu_seconds, facts


def test_what_is_recorded_beside_numbers() -> None:
    said = facts()
    assert said["threads"] == torch.get_num_threads()
    assert {"python", "funcattn", "torch", "numpy"} <= said["versions"].keys()


def test_without_git_the_commit_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert facts()["commit"] == "unknown"


def test_cpu_time_counts_programs_that_were_run() -> None:
    def used(code: str) -> float:
        start = cpu_seconds()
        subprocess.run([sys.executable, "-c", code], check=True)
        return cpu_seconds() - start

    assert used("sum(range(20_000_000))") > used("pass") + 0.1
