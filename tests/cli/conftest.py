"""The command in this process, and a finished run."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from funcattn import command
from funcattn.data import Store
from funcattn.tasks.darcy import Darcy
from funcattn.training.run import train

Call = Callable[..., tuple[int, str, str]]
Refused = Callable[..., None]


def record_of(folder: Path) -> dict[str, Any]:
    """What a finished run keeps of itself."""
    record: dict[str, Any] = json.loads((folder / "record.json").read_text())
    return record


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Call:
    """The command in this process: exit code, what it printed, what it complained of."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["funcattn", *map(str, arguments)])
        code: Any = 0
        try:
            command.main()
        except SystemExit as stop:
            code = stop.code or 0
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Path:
    """A finished run."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    train(Darcy.defaults("smoke", "modern"), folder, store=store)
    return folder


@pytest.fixture
def refused() -> Refused:
    """Checks that a call ended with code 1 and one line that says why."""

    def check(outcome: tuple[int, str, str], said: str, code: int = 1) -> None:
        ended, out, err = outcome
        assert ended == code, (out, err)
        assert err.startswith("funcattn: "), err
        assert err.count("\n") == 1, err
        assert said in err
        assert "Traceback" not in out + err

    return check
