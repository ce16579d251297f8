"""Two processes that train together do what one does, and end together."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from funcattn.data import Batch, Store
from funcattn.settings import changed
from funcattn.tasks import TASKS
from funcattn.tasks.base import Network
from funcattn.tasks.darcy import Darcy
from funcattn.training.kept import best_checkpoint
from funcattn.training.run import train

Until = Callable[..., None]
Gone = Callable[[int], bool]

SCRIPT = """
import os, torch
from funcattn import cli
from funcattn.tasks import TASKS
from funcattn.tasks.darcy import Darcy

class Twice(Darcy):
    def predict(self, network, batch):
        return (super().predict(network, batch) + super().predict(network, batch)) / 2

class Lost(Darcy):
    def loss(self, prediction, batch):
        # Of a batch of three, the second process gets one sample.
        return super().loss(prediction, batch) * (torch.nan if len(batch) == 1 else 1)

TASKS["darcy"] = {"twice": Twice, "lost": Lost}[os.environ["KIND"]]
try:
    cli.main()
finally:
    assert not torch.distributed.is_initialized(), "its threads may abort the process at its end"
"""


class Twice(Darcy):
    """Calls its network twice per step, as tasks in time do."""

    def predict(self, network: Network, batch: Batch) -> Tensor:
        return (super().predict(network, batch) + super().predict(network, batch)) / 2


def pair(
    tmp_path: Path, store: Store, kind: str, settings: dict[str, Any], *more: str
) -> subprocess.Popen[str]:
    """A command that trains in two processes, in a process group of its own."""
    script, config = tmp_path / "script.py", tmp_path / "config.json"
    script.write_text(SCRIPT)
    config.write_text(json.dumps(settings))
    arguments = ["train", "darcy", "--profile", "smoke", "--devices", "2", "--config", str(config)]
    return subprocess.Popen(
        [sys.executable, str(script), *arguments, "--cache", str(store.folder), *more],
        env=os.environ | {"KIND": kind, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def group_of(group: int) -> list[int]:
    """The processes of a group."""
    listed = subprocess.run(
        ["ps", "-e", "-o", "pid=,pgid="], capture_output=True, text=True, check=True
    )
    pairs = (map(int, line.split()) for line in listed.stdout.splitlines())
    return [pid for pid, its in pairs if its == group]


def steps_done(folder: Path) -> int:
    """The step of the newest checkpoint."""
    steps = [int(path.name.split("-")[1]) for path in folder.glob("checkpoints/step-*")]
    return max(steps, default=0)


# Of nine samples in batches of four, the second process gets none of the last one.
SETTINGS = {
    "data": {"train": 9, "validation": 5, "test": 6},
    "optimisation": {"optimiser": "adamw", "epochs": 10, "ema": 0.5},
    "precision": "64-true",
    "checkpoint_seconds": 0,
}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same task here, without waiting for the disk."""
    monkeypatch.setitem(TASKS, "darcy", Twice)
    monkeypatch.setattr(os, "fsync", lambda _: None)


def check_close(folder: Path, other: Path) -> None:
    """History, test and best weights of two runs differ by rounding only."""
    records = [json.loads((run / "record.json").read_text()) for run in (folder, other)]
    assert records[0]["best_epoch"] == records[1]["best_epoch"]
    values = [torch.tensor(record["test_values"]["relative_l2"]) for record in records]
    torch.testing.assert_close(*values, atol=1e-6, rtol=1e-6)
    lines = [(run / "metrics.jsonl").read_text().splitlines() for run in (folder, other)]
    assert len(lines[0]) == 10
    for ours, theirs in zip(*lines, strict=True):
        assert json.loads(ours) == pytest.approx(json.loads(theirs), rel=1e-6)
    weights = [best_checkpoint(run).tensors["model"] for run in (folder, other)]
    for name, tensor in weights[0].items():
        torch.testing.assert_close(tensor, weights[1][name], atol=1e-6, rtol=1e-6)


@pytest.mark.usefixtures("quick")
def test_a_signal_to_one_process_stops_both_and_one_goes_on_from_there(
    tmp_path: Path, store: Store, started: list[subprocess.Popen[str]], until: Until, is_gone: Gone
) -> None:
    both, one = tmp_path / "both", tmp_path / "one"
    process = pair(tmp_path, store, "twice", SETTINGS, "--out", str(both))
    started.append(process)
    until(lambda: steps_done(both) >= 8, process)
    os.kill(process.pid, signal.SIGTERM)
    said = process.communicate()[0]
    assert process.returncode == 143, said
    assert said.count("Stopped by SIGTERM; everything is saved.") == 1
    assert "Traceback" not in said
    until(lambda: is_gone(process.pid))
    assert not (both / "record.json").exists()

    settings = changed(Darcy.defaults("smoke", "modern"), SETTINGS)
    train(settings, both, store=store, resume=True)
    train(settings, one, store=store)
    check_close(both, one)


def test_the_second_process_does_not_outlive_the_first(
    tmp_path: Path, store: Store, started: list[subprocess.Popen[str]], until: Until, is_gone: Gone
) -> None:
    process = pair(tmp_path, store, "twice", SETTINGS, "--out", str(tmp_path / "both"))
    started.append(process)
    until(lambda: steps_done(tmp_path / "both") >= 1, process)
    process.kill()
    process.wait()
    until(lambda: is_gone(process.pid))


def test_the_first_process_ends_soon_after_the_second_has_died(
    tmp_path: Path, store: Store, started: list[subprocess.Popen[str]], until: Until, is_gone: Gone
) -> None:
    settings = SETTINGS | {"optimisation": {"epochs": 10_000}, "checkpoint_seconds": 1e6}
    process = pair(tmp_path, store, "twice", settings, "--out", str(tmp_path / "both"))
    started.append(process)
    until(lambda: steps_done(tmp_path / "both") >= 1, process)
    (second,) = [pid for pid in group_of(process.pid) if pid != process.pid]
    os.kill(second, signal.SIGKILL)
    killed = time.monotonic()
    said = process.communicate(timeout=300)[0]
    assert time.monotonic() - killed < 30
    assert process.returncode == 1, said
    assert "Traceback" not in said
    assert "expected all processes that train together, got one that died" in " ".join(said.split())
    until(lambda: is_gone(process.pid))
    assert steps_done(tmp_path / "both") >= 1


@pytest.mark.full
@pytest.mark.usefixtures("quick")
def test_two_processes_come_to_the_numbers_of_one(
    tmp_path: Path, store: Store, started: list[subprocess.Popen[str]], until: Until, is_gone: Gone
) -> None:
    process = pair(tmp_path, store, "twice", SETTINGS, "--out", str(tmp_path / "both"))
    started.append(process)
    said = process.communicate()[0]
    assert process.returncode == 0, said
    assert "Traceback" not in said
    assert said.count("test relative_l2") == 1
    until(lambda: is_gone(process.pid))
    settings = changed(Darcy.defaults("smoke", "modern"), SETTINGS)
    train(settings, tmp_path / "one", store=store)
    check_close(tmp_path / "both", tmp_path / "one")


def test_a_bad_loss_in_one_process_ends_both(
    tmp_path: Path, store: Store, started: list[subprocess.Popen[str]], until: Until, is_gone: Gone
) -> None:
    settings = {"data": {"train": 11, "validation": 5, "test": 4}, "optimisation": {"epochs": 1}}
    process = pair(tmp_path, store, "lost", settings, "--out", str(tmp_path / "run"))
    started.append(process)
    said = " ".join(process.communicate()[0].split())
    assert process.returncode == 1, said
    assert "Traceback" not in said
    assert "is not finite in epoch 1, step 3; the batch is kept in" in said
    until(lambda: is_gone(process.pid))
    assert [path.name for path in (tmp_path / "run").glob("bad*")] == [
        "bad_batch_epoch1_step3_rank1"
    ]


@pytest.mark.full
def test_torchrun_trains_on_two_machines_as_one_process_does(
    tmp_path: Path, store: Store, started: list[subprocess.Popen[str]]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"]
    launcher += ["--nproc-per-node", "1", "--rdzv-backend", "c10d"]
    launcher += ["--rdzv-endpoint", f"127.0.0.1:{port}", "-m", "funcattn"]
    line = ["train", "darcy", "--profile", "smoke", "--cache", str(store.folder)]
    line += ["--precision", "64-true", "--optimisation.optimiser", "adamw", "--out"]
    started += [
        subprocess.Popen(
            [*launcher, *line, str(tmp_path / "both")],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    for process in started:
        said, _ = process.communicate()
        assert process.returncode == 0, said
    subprocess.run([sys.executable, "-m", "funcattn", *line, str(tmp_path / "one")], check=True)
    both, one = (
        json.loads((tmp_path / name / "record.json").read_text())["test_values"]["relative_l2"]
        for name in ("both", "one")
    )
    assert both == pytest.approx(one, rel=1e-6)
