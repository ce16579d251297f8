"""Ctrl-C and SIGTERM at every stage of start-up end the command with a word, or without any."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from funcattn.data import Store

SCRIPT = """
import os, signal, sys

# As in a terminal: whoever runs tests in the background may have it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
stage, number, *words = sys.argv[1:]

class At:
    def find_spec(self, name, path, target=None):
        if name == stage:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), int(number))

sys.meta_path.insert(0, At())
from funcattn.command import main
sys.argv = ["funcattn", *words]
main()
"""
STAGES = {
    "the command": "funcattn.cli",
    "its options": "tyro",
    "its words": "rich.console",
    "numbers": "numpy",
    "tensors": "torch",
    "what it does": "funcattn.cli.train",
    "the task": "funcattn.tasks.darcy",
    "the solver": "funcattn.pde.darcy",
    "the lock": "filelock",
    "training": "lightning_fabric",
    "pictures": "matplotlib.figure",
}
"""By name, the module with whose import each stage begins."""
OFTEN = ("its options", "tensors")


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, -15, marks=pytest.mark.full)],
    ids=["Ctrl-C", "SIGTERM"],
)
@pytest.mark.parametrize(
    "stage",
    [stage if stage in OFTEN else pytest.param(stage, marks=pytest.mark.full) for stage in STAGES],
)
def test_a_signal_while_starting_ends_the_command_without_a_traceback(
    tmp_path: Path, store: Store, stage: str, number: signal.Signals, code: int
) -> None:
    words = ["train", "darcy", "--profile", "smoke", "--optimisation.epochs", "1"]
    words += ["--out", str(tmp_path / "run"), "--cache", str(store.folder)]
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, STAGES[stage], str(int(number)), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == code, (ended.stdout, ended.stderr)
    assert "Traceback" not in ended.stdout + ended.stderr
    if number == signal.SIGINT:
        assert "Stopped." in ended.stdout + ended.stderr
