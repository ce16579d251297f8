"""Where the lines of a run's history go besides its own files: TensorBoard, Weights & Biases."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Literal, get_args

from funcattn.settings import RunSettings
from funcattn.training.setup import RunError

LoggerName = Literal["tensorboard", "wandb"]
Log = Callable[[Mapping[str, float]], None]
"""Called with a line of history after each epoch."""


def open_logger(name: LoggerName, folder: Path, settings: RunSettings, epochs_done: int) -> Log:
    """A logger for a run that starts, or goes on after some epochs."""
    openers = {"tensorboard": _tensorboard, "wandb": _wandb}
    if name not in openers:
        raise ValueError(f"logger: expected one of {get_args(LoggerName)}, got {name!r}")
    try:
        return openers[name](folder, settings, epochs_done)
    except ModuleNotFoundError as error:
        raise RunError(
            f"--logger {name}: expected {error.name} to be installed; "
            f"pip install 'funcattn[{name}]'"
        ) from error


def _tensorboard(folder: Path, settings: RunSettings, epochs_done: int) -> Log:
    """Curves below the run's folder: `tensorboard --logdir FOLDER` shows them."""
    from torch.utils.tensorboard import SummaryWriter

    # What an earlier attempt logged beyond its last checkpoint is not shown.
    writer = SummaryWriter(str(folder / "tensorboard"), purge_step=epochs_done + 1)
    writer.add_text("settings", str(asdict(settings)))

    def log(line: Mapping[str, float]) -> None:
        for name, value in line.items():
            if name != "epoch":
                writer.add_scalar(name, value, int(line["epoch"]))
        writer.flush()

    return log


def _wandb(folder: Path, settings: RunSettings, epochs_done: int) -> Log:  # noqa: ARG001
    """A run of the project `funcattn`, with the folder's name; sent to the service of W&B."""
    import wandb

    run = wandb.init(
        project="funcattn",
        name=folder.name,
        id=folder.name,
        dir=str(folder),
        config=asdict(settings),
        resume="allow",
    )

    def log(line: Mapping[str, float]) -> None:
        run.log(dict(line), step=int(line["epoch"]))

    return log
