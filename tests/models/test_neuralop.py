"""The package that some networks are made of neither shows up nor is needed by the others."""

import subprocess
import sys
import warnings
from typing import Any

import pytest

from funcattn.models.neuralop import quiet_neuralop


def test_neither_prints_nor_warns_nor_changes_how_warnings_are_shown(
    capfd: pytest.CaptureFixture[str], made: Any
) -> None:
    before = list(warnings.filters)
    for name in ("tfno", "uno", "gino"):
        made(name)
    assert warnings.filters == before
    assert capfd.readouterr() == ("", "")


def test_what_it_warns_and_prints_is_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    with quiet_neuralop("This"):  # warnings are errors elsewhere in the tests
        warnings.warn("something", UserWarning, stacklevel=1)
        warnings.filterwarnings("once", category=UserWarning)
        sys.stdout.write("something")
    assert capfd.readouterr() == ("", "")
    with pytest.raises(UserWarning, match="something"):
        warnings.warn("something", UserWarning, stacklevel=1)


@pytest.mark.full
def test_its_import_uses_no_network_and_starts_nothing() -> None:
    code = """
import socket, sys, threading, warnings
def refuse(*_): raise AssertionError("a connection")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from funcattn.models.neuralop import UNO
assert "neuralop" not in sys.modules
before = list(warnings.filters)
UNO(2, 1, 1, width=4, modes=2)
assert warnings.filters == before
assert threading.active_count() == 1
run = getattr(sys.modules.get("wandb"), "run", None)
assert run is None
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", ["tfno", "uno", "gino"])
def test_without_it_the_error_says_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch, made: Any
) -> None:
    monkeypatch.setitem(sys.modules, "neuralop.models", None)
    said = rf"{name.upper()} needs the package .*'funcattn\[baselines\]'"
    with pytest.raises(ModuleNotFoundError, match=said):
        made(name)
    made("fno")
