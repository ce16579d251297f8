"""Functional attention for operator learning: data, training, prediction, comparison."""

import json
import os
import shlex
import sys
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import platformdirs
import torch
import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from funcattn._version import __version__
from funcattn.bench.command import Bench
from funcattn.data import Store, StoreError
from funcattn.data.matlab import Format as MatlabFormat
from funcattn.experiments.command import Reproduce
from funcattn.export_command import Export
from funcattn.models import MODELS
from funcattn.serve.command import Predict
from funcattn.settings import Preset, Profile, RunSettings, changed
from funcattn.tasks import TASKS, Generated, Task
from funcattn.terminal import progress, refuse
from funcattn.training.checkpoint import CheckpointError, write_whole
from funcattn.training.cost import model_cost
from funcattn.training.loggers import LoggerName
from funcattn.training.loop import Interrupted, NonFiniteLossError, State
from funcattn.training.report import sample_picture
from funcattn.training.run import evaluate_run, train
from funcattn.training.setup import RunError, read_settings, with_model

Name = Annotated[str, tyro.conf.Positional]
File = Annotated[Path, tyro.conf.Positional]

CACHE = Path(os.environ.get("FUNCATTN_CACHE", platformdirs.user_cache_path("funcattn")))
_WORKERS = os.cpu_count() or 1


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
    profile: Profile = "cpu"
    """How large: as in the paper (wants a GPU), for two cores, or tiny."""
    preset: Preset = "modern"
    """How trained: by Muon and AdamW, or as in the paper."""
    config: Path | None = None
    """A TOML or JSON file with settings; it goes over the defaults, and flags go over it."""
    resume: bool = False
    """Go on with the run in the folder, with its settings."""
    devices: int = 1
    """Processes that train together on this machine; with torchrun, what it starts."""
    data: Path | None = None
    """Read the samples from this file or folder, instead of making them."""
    workers: int = _WORKERS
    """Processes that make samples."""
    logger: LoggerName | None = None
    """Send the curves to TensorBoard or to Weights & Biases too."""
    cache: Path = CACHE
    """Where made data is kept; also the environment variable FUNCATTN_CACHE."""

    def run(self, rest: list[str], console: Console) -> None:
        """Train with progress."""
        rest = _with_data(rest, self.data)
        settings = resolved(self.task, self.profile, self.preset, self.config, rest)
        out = self.out or Path("runs") / f"{self.task}-{self.profile}-seed{settings.seed}"
        if self.resume:
            settings = read_settings(out)
            if settings.task != self.task or _over(settings, self.config, rest) != settings:
                raise ValueError(
                    f"--resume: expected the task and settings of the run in {out}, got others"
                )
        record = _trained(
            settings,
            out,
            console,
            self.profile,
            resume=self.resume,
            workers=self.workers,
            cache=self.cache,
            devices=self.devices,
            logger=self.logger,
        )
        for name, value in record["test"].items():
            console.print(f"test {name}: [bold]{value:.5g}[/] ({record['test_note']})")
        console.print(f"report: {out / 'report.html'}", markup=False, soft_wrap=True)


@dataclass(frozen=True)
class Generate:
    """Make the data of a task and keep it in the cache folder.

    Settings as with train, for example --data.nodes 85. Sample i depends on the seed and on i
    alone: asked for more samples later, a set is extended. Stopped at any moment, the same command
    goes on.
    """

    task: Name
    """Whose data; `funcattn list` shows the tasks."""
    profile: Profile = "cpu"
    """How large: as in the paper, for two cores, or tiny."""
    samples: int | None = None
    """How many; default: as many as the task trains, validates and tests with."""
    seed: int | None = None
    """Of the data; default: the task's."""
    workers: int = _WORKERS
    """Processes that make samples; they change nothing in the result."""
    scheduler: str | None = None
    """Address of a Dask scheduler (tcp://HOST:PORT), whose workers then make the samples."""
    public: Path | None = None
    """Write the set to this folder too, in the layout of the benchmark's original files."""
    public_format: MatlabFormat = "7.3"
    """MATLAB's format of those files."""
    cache: Path = CACHE
    """Where made data is kept; also the environment variable FUNCATTN_CACHE."""

    def run(self, rest: list[str], console: Console) -> None:
        """Make data with progress."""
        if self.seed is not None:
            rest = [*rest, "--data.seed", str(self.seed)]
        settings = resolved(self.task, self.profile, "modern", None, rest)
        task = TASKS[self.task](settings)
        if not isinstance(task, Generated):
            raise ValueError(f"generate: {task.name} has no data to make: {task.title}")
        count = task.count if self.samples is None else self.samples
        with progress(console) as bars:
            bar = bars.add_task(f"{self.task}, samples", total=count)
            store = _store(
                self.cache,
                lambda done, total: bars.update(bar, completed=done, total=total),
                self.profile,
                workers=self.workers,
                scheduler=self.scheduler,
            )
            made = store.made(task.recipe(), task.settings.data.seed, count)
            bars.update(bar, completed=count)
        said = made.provenance
        console.print(
            f"{said['samples']} samples, {said['rejected']} draws rejected, "
            f"{_size(said['bytes'])}: {made.path}",
            soft_wrap=True,
        )
        if self.public is not None:
            for path in task.write_public(made, self.public, self.public_format):
                console.print(f"{path}", markup=False, soft_wrap=True)


@dataclass(frozen=True)
class Compare:
    """Train several networks on one task, alike in everything else, and put the tests in a table.

    Settings as with train; sizes of a network are its own, as `funcattn list models` shows them. A
    run a network, in the folder; stopped at any moment, the same command goes on.
    """

    task: Name
    """What to learn; `funcattn list` shows the tasks."""
    models: list[str] = field(default_factory=lambda: ["funcattn", "transolver"])
    """Which networks; `funcattn list models` shows them."""
    out: Path | None = None
    """Folder of the runs and of comparison.md; default runs/compare-TASK-PROFILE-seedSEED."""
    profile: Profile = "cpu"
    preset: Preset = "modern"
    config: Path | None = None
    """A TOML or JSON file with settings."""
    workers: int = _WORKERS
    cache: Path = CACHE

    def run(self, rest: list[str], console: Console) -> None:
        """Train one after another, then print the table."""
        rows = []
        chosen = {
            model: resolved(
                self.task, self.profile, self.preset, self.config, [*rest, "--model", model]
            )
            for model in self.models
        }
        seed = next(iter(chosen.values())).seed
        out = self.out or Path("runs") / f"compare-{self.task}-{self.profile}-seed{seed}"
        # A network that cannot take the task says so before others train for hours.
        costs = {model: model_cost(TASKS[self.task](s)) for model, s in chosen.items()}
        for model, settings in chosen.items():
            record = _trained(
                settings,
                out / model,
                console,
                self.profile,
                resume=(out / model / "settings.json").exists(),
                workers=self.workers,
                cache=self.cache,
                name=model,
            )
            if changed(settings, record["settings"]) != settings:
                raise ValueError(
                    f"{out / model}: expected the settings that are asked for now, got a run with "
                    "others; choose another --out"
                )
            rows.append((model, record, *costs[model]))
        table, text = _comparison(TASKS[self.task], rows)
        write_whole(out / "comparison.md", text)
        console.print(table, f"{out / 'comparison.md'}", soft_wrap=True)


@dataclass(frozen=True)
class Evaluate:
    """Metrics of a trained run on its validation samples, or once more on its test samples."""

    run_folder: File
    split: Literal["validation", "test"] = "validation"
    cache: Path = CACHE

    def run(self, rest: list[str], console: Console) -> None:
        """Evaluate and print."""
        refuse(rest)
        values = evaluate_run(self.run_folder, self.split, Store(self.cache, workers=_WORKERS))
        for name, numbers in values.items():
            mean, spread = float(np.mean(numbers)), float(np.std(numbers))
            console.print(f"{self.split} {name}: [bold]{mean:.5g}[/] +- {spread:.2g} over samples")


@dataclass(frozen=True)
class List:
    """The tasks, the networks, and the data that was made; or the networks for one task."""

    what: Annotated[Literal["all", "models"], tyro.conf.Positional] = "all"
    """models: what each network costs in the configuration of a task, and which cannot take it."""
    task: str = "darcy"
    """Whose configuration."""
    profile: Profile = "cpu"
    cache: Path = CACHE

    def run(self, rest: list[str], console: Console) -> None:
        """Print tables."""
        refuse(rest)
        if self.what == "models":
            self._models(console)
            return
        tasks = Table("task", "what it is", "input", "output", box=None)
        for name, task in TASKS.items():
            shape = f"{task.space}-D points" + (f", {task.inputs} values" if task.inputs else "")
            tasks.add_row(name, task.title, shape, str(task.outputs))
        models = Table("model", "what it is", "paper", box=None)
        for name, model in MODELS.items():
            models.add_row(name, model.title, model.paper)
        console.print(tasks, "", models)
        sets = Table("data made", "samples", "size", "how", box=None)
        for stored in (kept := Store(self.cache).sets()):
            said = stored.provenance
            how = ", ".join(f"{name} {value}" for name, value in said["parameters"].items())
            sets.add_row(
                said["name"],
                str(said["samples"]),
                _size(said["bytes"]),
                f"seed {said['seed']}, {how}",
            )
        if kept:
            console.print("", sets, f"in {self.cache}", soft_wrap=True)

    def _models(self, console: Console) -> None:
        """What each network costs for the task."""
        table = Table("model", "parameters", "GFLOP", "takes", "paper", box=None)
        for name, entry in MODELS.items():
            settings = resolved(self.task, self.profile, "modern", None, ["--model", name])
            try:
                parameters, operations = model_cost(TASKS[self.task](settings))
                cost = [f"{parameters:,}", f"{operations / 1e9:.3g}"]
            except (ValueError, ModuleNotFoundError) as error:
                cost = [str(error).rpartition(": ")[2], ""]
            table.add_row(name, *cost, entry.takes, entry.paper)
        console.print(
            table,
            f"\nfor {self.task} at profile {self.profile}; GFLOP: matrix products, convolutions "
            "and attention of one call on one sample, without Fourier transforms and solves",
            soft_wrap=True,
        )


@dataclass(frozen=True)
class Info:
    """The settings of a task and its data set, or the settings and results of a run."""

    what: Name
    """A task's name or a run's folder."""
    profile: Profile = "cpu"
    preset: Preset = "modern"
    cache: Path = CACHE

    def run(self, rest: list[str], console: Console) -> None:
        """Print them; of a data set that was made, also draw a few samples."""
        if self.what not in TASKS:
            self._run_folder(rest, console)
            return
        settings = resolved(self.what, self.profile, self.preset, None, rest)
        task, store = TASKS[self.what](settings), Store(self.cache)
        console.print(task.title)
        console.print_json(data=asdict(settings))
        if not isinstance(task, Generated) or settings.data.path is not None:
            return
        stored = store.find(task.recipe(), settings.data.seed)
        if stored is None:
            console.print(
                f"Its data was not made yet: funcattn generate {task.name} --profile {self.profile}"
            )
            return
        console.print(f"{stored.path}:", markup=False, soft_wrap=True)
        console.print_json(data=stored.provenance)
        if len(stored) >= task.count:
            picture = stored.path.with_suffix(".png")
            sample_picture(task, store).savefig(picture, bbox_inches="tight", dpi=80)
            console.print(f"A few samples: {picture}", markup=False, soft_wrap=True)

    def _run_folder(self, rest: list[str], console: Console) -> None:
        refuse(rest)
        settings = read_settings(Path(self.what))
        record = Path(self.what) / "record.json"
        if record.exists():
            shown = json.loads(record.read_text())
            console.print_json(
                data={k: v for k, v in shown.items() if k not in ("settings", "test_values")}
            )
        console.print_json(data=asdict(settings))


Command = Train | Compare | Generate | Evaluate | Predict | List | Info | Reproduce | Bench | Export


def resolved(
    task: str, profile: Profile, preset: Preset, config: Path | None, flags: list[str]
) -> RunSettings:
    """The task's defaults, with the network's own, changed by a file, changed by flags."""
    if task not in TASKS:
        raise ValueError(f"task: expected one of {', '.join(TASKS)}, got {task!r}")
    defaults = TASKS[task].defaults(profile, preset)
    model = _over(defaults, config, flags).model
    return _over(with_model(defaults, model, profile), config, flags)


def _over(settings: RunSettings, config: Path | None, flags: list[str]) -> RunSettings:
    """The settings, changed by a file, changed by flags."""
    task = settings.task
    if config is not None:
        text = config.read_text()
        changes = json.loads(text) if config.suffix == ".json" else tomllib.loads(text)
        settings = changed(settings, changes, where=str(config))
    settings = tyro.cli(
        type(settings), default=settings, args=flags, prog=f"funcattn train {task}", add_help=False
    )
    if settings.task != task:
        raise ValueError(f"task: expected settings of {task}, got those of {settings.task!r}")
    return settings


def main() -> None:
    """Parse the command line, run the command, and turn expected errors into one clear line."""
    # Of processes that train together, the first one speaks.
    console = Console(quiet=os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) != "0")
    if sys.argv[1:] == ["--version"]:
        console.print(__version__)
        return
    command, rest = tyro.cli(
        Command,
        prog="funcattn",
        description=__doc__,
        return_unknown_args=True,
        config=(tyro.conf.OmitSubcommandPrefixes,),
    )
    # Threads of one process that fight for busy cores are slower than one thread.
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    errors = (RunError, StoreError, CheckpointError, NonFiniteLossError, ValueError, OSError)
    try:
        command.run(rest, console)
    except Interrupted as stop:
        console.print(f"Stopped by {stop}; everything is saved. Go on with --resume.")
        sys.exit(130 if str(stop) == "SIGINT" else 143)
    except KeyboardInterrupt:
        console.print("Stopped.")
        sys.exit(130)
    except errors as error:
        # One line as it is: not wrapped, and with brackets that are no markup.
        Console(stderr=True).print(
            f"[bold red]funcattn:[/] {escape(str(error))}", highlight=False, soft_wrap=True
        )
        sys.exit(1)


def _trained(
    settings: RunSettings,
    out: Path,
    console: Console,
    profile: Profile,
    *,
    resume: bool,
    workers: int,
    cache: Path,
    devices: int = 1,
    logger: LoggerName | None = None,
    name: str = "",
) -> dict[str, Any]:
    """The record of a run, trained with progress."""
    with progress(console) as bars:
        data = bars.add_task("data", total=None, visible=False)
        steps = bars.add_task(f"{name} training".strip(), total=None)

        def on_data(done: int, total: int) -> None:
            bars.update(data, completed=done, total=total, visible=True)

        def on_step(state: State, per_epoch: int) -> None:
            epochs = settings.optimisation.epochs
            text = f"{name} epoch {state.epoch + 1} of {epochs}".strip()
            if state.history and state.best_value is not None:
                text += f", best validation {state.best_value:.4g} (epoch {state.best_epoch})"
            bars.update(
                steps,
                completed=state.epoch * per_epoch + state.step,
                total=epochs * per_epoch,
                description=text,
            )

        return train(
            settings,
            out,
            resume=resume,
            store=_store(cache, on_data, profile, workers=workers),
            devices=devices,
            logger=logger,
            on_step=on_step,
            command=_command(),
        )


def _comparison(
    task: type[Task], rows: list[tuple[str, dict[str, Any], int, int]]
) -> tuple[Table, str]:
    """Records of networks, parameters and operations as a table, and the same as Markdown."""
    metrics = list(rows[0][1]["test"])
    headers = ["model", *metrics, "parameters", "GFLOP", "minutes", "epoch"]
    sign = -1 if task.larger_is_better else 1
    rows = sorted(rows, key=lambda row: sign * row[1]["test"][task.headline])
    table, lines = Table(*headers, box=None), ["| " + " | ".join(headers) + " |"]
    lines.append("|" + " --- |" * len(headers))
    for model, record, parameters, operations in rows:
        cells = [
            model,
            *(f"{record['test'][name]:.4g}" for name in metrics),
            f"{parameters:,}",
            f"{operations / 1e9:.3g}",
            f"{record['seconds'] / 60:.1f}",
            f"{record['best_epoch']} of {record['epochs']}",
        ]
        table.add_row(*cells)
        lines.append("| " + " | ".join(cells) + " |")
    first = rows[0][1]
    lines.append(
        f"\n{task.title}: {first['test_samples']} test samples, read once with the weights that "
        f"did best on validation data; one seed, {first['settings']['seed']}. Command: "
        f"`{first['command']}`, commit {first['commit']}, {first['machine']}."
    )
    return table, "\n".join(lines) + "\n"


def _store(
    cache: Path,
    advance: Callable[[int, int], None],
    profile: str,
    *,
    workers: int,
    scheduler: str | None = None,
) -> Store:
    note = {"command": _command(), "profile": profile}
    return Store(cache, workers=workers, scheduler=scheduler, advance=advance, note=note)


def _with_data(rest: list[str], data: Path | None) -> list[str]:
    """--data PATH is short for --data.path PATH."""
    return rest if data is None else [*rest, "--data.path", str(data)]


def _command() -> str:
    return shlex.join(["funcattn", *sys.argv[1:]])


def _size(count: int) -> str:
    """Bytes as people read them.

    >>> _size(3_400_000)
    '3.4 MB'
    """
    size = float(count)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


if __name__ == "__main__":
    main()
