"""`funcattn train`, `compare` and `evaluate`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.table import Table

from funcattn.cli.settings import WORKERS, File, Name, open_store, over, resolved
from funcattn.data import Store
from funcattn.settings import Preset, Profile, RunSettings, changed
from funcattn.tasks import TASKS, Task
from funcattn.terminal import CACHE, command_line, progress, refuse
from funcattn.training.checkpoint import write_whole
from funcattn.training.cost import model_cost
from funcattn.training.loggers import LoggerName
from funcattn.training.loop import State
from funcattn.training.run import evaluate_run, train
from funcattn.training.setup import read_settings


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
    workers: int = WORKERS
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
            if settings.task != self.task or over(settings, self.config, rest) != settings:
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
    workers: int = WORKERS
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
        values = evaluate_run(self.run_folder, self.split, Store(self.cache, workers=WORKERS))
        for name, numbers in values.items():
            mean, spread = float(np.mean(numbers)), float(np.std(numbers))
            console.print(f"{self.split} {name}: [bold]{mean:.5g}[/] +- {spread:.2g} over samples")


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
            store=open_store(cache, on_data, profile, workers=workers),
            devices=devices,
            logger=logger,
            on_step=on_step,
            command=command_line(),
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


def _with_data(rest: list[str], data: Path | None) -> list[str]:
    """--data PATH is short for --data.path PATH."""
    return rest if data is None else [*rest, "--data.path", str(data)]
