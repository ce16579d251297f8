import subprocess
import sys
from pathlib import Path

import pytest
import torch

from funcattn.provenance import commit, cpu_seconds, facts


def test_what_is_recorded_beside_numbers() -> None:
    said = facts()
    assert said["threads"] == torch.get_num_threads()
    assert said["processor"]
    assert {"python", "funcattn", "torch", "numpy"} <= said["versions"].keys()


def test_without_git_the_commit_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert facts()["commit"] == "unknown"


def test_the_commit_is_marked_where_the_source_differs_from_it(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        run = ["git", *who, *words]
        return subprocess.run(run, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    package = tmp_path / "src"
    package.mkdir()
    (package / "code.py").write_text("1")
    (tmp_path / "results.json").write_text("1")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    clean = git("rev-parse", "HEAD")[:12]
    assert commit(package) == clean
    (tmp_path / "results.json").write_text("2")
    assert commit(package) == clean
    (package / "code.py").write_text("2")
    assert commit(package) == f"{clean}-dirty"
    git("commit", "-am", "second")
    (package / "more.py").write_text("1")
    assert commit(package).endswith("-dirty")


def test_cpu_time_counts_programs_that_were_run() -> None:
    def used(code: str) -> float:
        start = cpu_seconds()
        subprocess.run([sys.executable, "-c", code], check=True)
        return cpu_seconds() - start

    assert used("sum(range(20_000_000))") > used("pass") + 0.1
