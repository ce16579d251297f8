"""Curves go where they are asked to go, once each, also after a resume."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from funcattn.settings import RunSettings
from funcattn.training.loggers import open_logger
from funcattn.training.setup import RunError

LINES = [
    {"epoch": float(epoch), "train_loss": 1 / epoch, "validation_mse": 2 / epoch}
    for epoch in range(1, 5)
]


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    assert "epoch" not in events.Tags()["scalars"]
    return [(event.step, event.value) for event in events.Scalars(name)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_shows_each_epoch_once_also_after_a_resume(tmp_path: Path) -> None:
    settings = RunSettings("toy")
    log = open_logger("tensorboard", tmp_path, settings, 0)
    for line in LINES[:3]:
        log(line)
    # Killed before the third epoch was saved: it is done again.
    log = open_logger("tensorboard", tmp_path, settings, 2)
    for line in LINES[2:]:
        log(line)
    for name in ("train_loss", "validation_mse"):
        expected = [(int(line["epoch"]), pytest.approx(line[name])) for line in LINES]
        assert scalars(tmp_path, name) == expected


def test_wandb_gets_the_settings_and_the_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []

    class Run:
        def log(self, line: dict[str, float], step: int) -> None:
            said.append((step, line))

    service = ModuleType("wandb")
    service.init = lambda **how: said.append(how) or Run()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", service)
    log = open_logger("wandb", tmp_path / "mine", RunSettings("toy", seed=3), 0)
    log(LINES[0])
    how = said[0]
    assert (how["project"], how["id"], how["resume"]) == ("funcattn", "mine", "allow")
    assert how["config"]["seed"] == 3
    assert said[1] == (1, LINES[0])


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_logger_that_is_not_installed_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: Any
) -> None:
    module = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb"}[name]
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(RunError, match=rf"--logger {name}: .* pip install 'funcattn\[{name}\]'"):
        open_logger(name, tmp_path, RunSettings("toy"), 0)


@pytest.mark.usefixtures("as_a_user")
def test_an_unknown_logger_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"logger: expected one of .*tensorboard.* got 'paper'"):
        open_logger("paper", tmp_path, RunSettings("toy"), 0)  # type: ignore[arg-type]
