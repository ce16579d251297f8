"""Commands that make data, train networks and score them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from funcattn.cli.commands.options import (
    WORKERS,
    AcceptEdited,
    Cache,
    Device,
    File,
    Name,
    Recipe,
    Size,
    Workers,
)
from funcattn.cli.terminal import CACHE


@dataclass(frozen=True)
class Train:
    """Train a network on a task, choose the epoch on validation data, test once, report.

    Any setting of `funcattn info TASK` can be given too, for example --network.width 32
    --optimisation.epochs 10 --data.train 200 --seed 1. Ctrl-C finishes the step and saves;
    --resume goes on from there, also after a crash.
    """

    task: Name
    """What to learn; `funcattn list` shows the tasks."""
    out: Path | None = None
    """Folder of the run; default runs/TASK-PROFILE-seedSEED."""
    profile: Size = "cpu"
    preset: Recipe = "modern"
    config: Path | None = None
    """A TOML or JSON file with settings; it goes over the defaults, and flags go over it."""
    resume: bool = False
    """Go on with the run in the folder, with its settings."""
    device: str = "auto"
    """Where to train: auto, cpu, cuda, cuda:1, mps; auto is an accelerator where there is one."""
    devices: int = 1
    """Processes that train together on this machine; with torchrun, what it starts."""
    data: Path | None = None
    """Read the samples from this file or folder, instead of making them."""
    workers: Workers = WORKERS
    ensemble: int = 1
    """Networks with seeds one after another, whose mean is the prediction."""
    bands: bool = False
    """Calibrate too, as `funcattn calibrate` does."""
    logger: Literal["tensorboard", "wandb"] | None = None
    """Send the curves to TensorBoard or to Weights & Biases too."""
    cache: Cache = CACHE


@dataclass(frozen=True)
class Compare:
    """Train several networks on one task, alike in everything else, and put the tests in a table.

    Settings as with train; sizes of a network are its own, as `funcattn list models` shows them.
    The folder gets one run per network; stopped at any moment, the same command goes on.
    """

    task: Name
    """What to learn; `funcattn list` shows the tasks."""
    models: list[str] = field(default_factory=lambda: ["funcattn", "transolver"])
    """Which networks; `funcattn list models` shows them."""
    out: Path | None = None
    """Folder of the runs and of comparison.md; default runs/compare-TASK-PROFILE-seedSEED."""
    profile: Size = "cpu"
    preset: Recipe = "modern"
    config: Path | None = None
    """A TOML or JSON file with settings."""
    workers: Workers = WORKERS
    cache: Cache = CACHE


@dataclass(frozen=True)
class Race:
    """Train several networks on a task, each with the same CPU time on one core, and compare.

    All get the same search of the rate on validation data and the same recipe. Stopped at any
    moment, the same command goes on.
    """

    task: Name
    """On which; `funcattn list` shows the tasks. With other data than its own: airfrans:split=aoa,
    rna:path=FOLDER."""
    models: list[str] = field(default_factory=lambda: ["functional_operator", "funcattn"])
    """Which networks; `funcattn list models` shows them. With other settings than a task's own:
    transolver:layers=3,bases=64. On clouds any of them takes surroundings=0.03125: the density of
    the points around each, at this reach, as a further input."""
    budget: str = "120s"
    """CPU time of each training: a number with s, m or h."""
    seeds: int = 3
    """Trainings with seeds 0, 1, ..."""
    recipe: Literal["shared", "task", "both"] = "shared"
    """One recipe for all, the task's own optimisation, or both in turn."""
    profile: Size = "cpu"
    out: Path = Path("runs/races")
    """Folder of the records, one file per task. They are continued on the kind of processor that
    they were begun on."""
    cache: Cache = CACHE


@dataclass(frozen=True)
class Generate:
    """Make the data of a task and keep it in the cache folder.

    Settings as with train, for example --data.nodes 85. Sample i depends on the seed and on i
    alone: asked for more samples later, a set is extended. Stopped at any moment, the same command
    goes on.
    """

    task: Name
    """Whose data; `funcattn list` shows the tasks."""
    profile: Size = "cpu"
    samples: int | None = None
    """How many; default: as many as the task trains, validates and tests with."""
    seed: int | None = None
    """Of the data; default: the task's."""
    workers: Workers = WORKERS
    scheduler: str | None = None
    """Address of a Dask scheduler (tcp://HOST:PORT), whose workers then make the samples."""
    public: Path | None = None
    """Write the set to this folder too, in the layout of the benchmark's original files."""
    public_format: Literal["5", "7.3"] = "7.3"
    """MATLAB's format of those files."""
    cache: Cache = CACHE


@dataclass(frozen=True)
class Evaluate:
    """Metrics of a trained run on its validation samples, or once more on its test samples."""

    run_folder: File
    split: Literal["validation", "test"] = "validation"
    device: Device = "auto"
    accept_edited: AcceptEdited = False
    cache: Cache = CACHE
