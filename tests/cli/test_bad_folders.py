"""Folders with something wrong in them: a message that helps, and nothing left behind."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

pytest.importorskip("pyvista")
THOUSAND = 1000


def _module() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "bad_folders.py"
    spec = importlib.util.spec_from_file_location("bad_folders", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bad_folders"] = module  # where dataclasses look
    spec.loader.exec_module(module)
    return module


bad_folders = _module()
WAYS, KINDS = list(bad_folders.WAYS), len(bad_folders.KINDS)


@pytest.mark.parametrize("place", range(len(WAYS)), ids=WAYS)
def test_what_is_wrong_is_named_and_nothing_is_left(
    place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    for kind in range(KINDS):
        folder = tmp_path / str(kind)
        folder.mkdir()
        outcome = bad_folders.judged(folder, kind * len(WAYS) + place)
        assert outcome.wrong == [], outcome


@pytest.mark.full
def test_a_thousand_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    for number in range(KINDS * len(WAYS), THOUSAND):
        folder = tmp_path / str(number)
        folder.mkdir()
        outcome = bad_folders.judged(folder, number)
        assert outcome.wrong == [], (number, outcome)


@pytest.mark.full
@pytest.mark.parametrize("way", ["truncated", "wrong_length", "infinite_values", "no_row"])
def test_the_command_itself_says_the_same(way: str, tmp_path: Path) -> None:
    number = 2 * len(WAYS) + WAYS.index(way)  # VTU files
    bad = bad_folders.Maker(tmp_path / "work", number).bad
    before = bad_folders_left(tmp_path)
    words = ["fit", "cases", "--parameters", "table.csv", "--outputs", *bad.outputs]
    ran = subprocess.run(
        [sys.executable, "-m", "funcattn", *words],
        cwd=tmp_path / "work",
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = ran.stdout + ran.stderr
    assert ran.returncode == 1
    assert "Traceback" not in said
    assert any(
        all(word in line for word in (*bad.names, "expected", "got")) for line in said.splitlines()
    ), said
    assert bad_folders_left(tmp_path) == before


def bad_folders_left(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))
