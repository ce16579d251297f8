"""`funcattn train`, `compare` and `evaluate`."""

import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from funcattn.cli import commands
from funcattn.cli.settings import asked, open_store, over, read_changes, resolved
from funcattn.cli.terminal import command_line, counted, print_table, progress, refuse
from funcattn.data import Store
from funcattn.files import write_text
from funcattn.processes import free_cores, rank
from funcattn.settings import Profile, RunSettings
from funcattn.tasks import TASKS, Task
from funcattn.training.bundled import run_folder
from funcattn.training.cost import model_cost
from funcattn.training.ensemble import train_members, write_test
from funcattn.training.kept import differing
from funcattn.training.loggers import LoggerName
from funcattn.training.loop import State
from funcattn.training.report import write_report
from funcattn.training.run import Run, train

SHARED_FROM = 2**19
"""Values of a step, samples x points x width, from which threads share it: with as many, two were
1.4 times as fast on an idle machine, with fewer 0.96 to 1.25 times (results/threads.json)."""


@dataclass(frozen=True)
class Train(commands.Train):
    """`funcattn train`."""

    def run(self, rest: list[str], console: Console) -> None:
        """Train with progress."""
        if self.devices < 1:
            raise ValueError(f"--devices: expected at least 1 process, got {self.devices}")
        rest = _with_data(rest, self.data)
        if self.resume:
            settings, out = self._resumed(rest)
        else:
            settings = resolved(self.task, self.profile, self.preset, self.config, rest)
            out = self.out or self._folder(settings.seed)
        self._choose_threads(settings, Run(out), console)
        run = _trained(
            settings,
            out,
            console,
            self.profile,
            resume=self.resume,
            workers=self.workers,
            cache=self.cache,
            device=self.device,
            devices=self.devices,
            logger=self.logger,
        )
        record = run.record
        for name, value in record["test"].items():
            console.print(f"test {name}: [bold]{value:.5g}[/] ({record['test_note']})")
        if self.ensemble > 1 or self.bands:
            self._more(run, console)
        console.print(f"report: {run.report}", markup=False, soft_wrap=True)

    def _more(self, run: Run, console: Console) -> None:
        """The other networks of an ensemble, and bands."""
        from funcattn.cli.trust import Calibrate

        store = Store(self.cache, workers=self.workers)
        if self.ensemble > 1:

            def trained(settings: RunSettings, folder: Path, resume: bool) -> Run:
                return _trained(
                    settings,
                    folder,
                    console,
                    self.profile,
                    resume=resume,
                    workers=self.workers,
                    cache=self.cache,
                    device=self.device,
                    devices=self.devices,
                    name=f"network {folder.name}",
                )

            train_members(run, self.ensemble, trained)
            whole = Run(run.folder)
            test = write_test(whole, run.task, whole.evaluate("test", store, self.device))
            for name, value in test.items():
                console.print(f"test {name} of the mean of {self.ensemble}: [bold]{value:.5g}[/]")
        if self.bands:
            Calibrate(run.folder, workers=self.workers, cache=self.cache).run([], console)

    def _resumed(self, rest: list[str]) -> tuple[RunSettings, Path]:
        """The settings and the folder of the run to go on with; others are refused."""
        TASKS.named(self.task)
        seed = asked("seed", read_changes(self.config), rest)
        out = self.out or self._folder(0 if seed is None else seed)
        settings = Run(out).settings
        changes = [] if settings.task == self.task else [f"task was {settings.task}"]
        changes += differing(asdict(settings), asdict(over(settings, self.config, rest)), free=())
        if changes:
            raise ValueError(
                f"--resume: expected the task and settings of the run in {out}, got others: "
                f"{'; '.join(changes)}"
            )
        return settings, out

    def _choose_threads(self, settings: RunSettings, run: Run, console: Console) -> None:
        """Those of OMP_NUM_THREADS; those that the run has had, so that it goes on to the bit; or
        as many as there are free cores, where its steps are large enough to be shared."""
        free = max(free_cores() // self.devices, 1)
        if "OMP_NUM_THREADS" in os.environ:
            threads, why = torch.get_num_threads(), "OMP_NUM_THREADS says so"
        elif before := run.threads:
            threads, why = before, "as the run had before"
        elif values_of_a_step(settings) < SHARED_FROM:
            threads, why = 1, "its steps are too small to be shared"
        else:
            threads, why = free, f"{free_cores()} of {os.cpu_count()} cores are free"
        torch.set_num_threads(threads)
        if rank() == 0:
            console.print(
                f"[dim]computing with {counted(threads, 'thread')}: {why}; missing data is made by "
                f"{counted(self.workers, 'process')}[/]",
                soft_wrap=True,
            )

    def _folder(self, seed: object) -> Path:
        return Path("runs") / f"{self.task}-{self.profile}-seed{seed}"


@dataclass(frozen=True)
class Compare(commands.Compare):
    """`funcattn compare`."""

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
            run = _trained(
                settings,
                out / model,
                console,
                self.profile,
                resume=(out / model / "settings.json").exists(),
                workers=self.workers,
                cache=self.cache,
                name=model,
            )
            if run.settings != settings:
                raise ValueError(
                    f"{out / model}: expected the settings that are asked for now, got a run with "
                    "others; choose another --out"
                )
            rows.append((model, run.record, *costs[model]))
        headers, cells, text = _comparison(TASKS[self.task], rows)
        write_text(out / "comparison.md", text)
        print_table(console, headers, cells)
        console.print(f"{out / 'comparison.md'}", markup=False, soft_wrap=True)


@dataclass(frozen=True)
class Evaluate(commands.Evaluate):
    """`funcattn evaluate`."""

    def run(self, rest: list[str], console: Console) -> None:
        """Evaluate and print."""
        refuse(rest)
        store = Store(self.cache, workers=commands.WORKERS)
        run = Run(run_folder(self.run_folder), accept_edited=self.accept_edited)
        values = run.evaluate(self.split, store, self.device)
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
    device: str = "auto",
    devices: int = 1,
    logger: LoggerName | None = None,
    name: str = "",
) -> Run:
    """A run, trained with progress and with its report."""
    with progress(console) as bars:
        data = bars.add_task("data", total=None, visible=False)
        steps = bars.add_task(f"{name} training".strip(), total=None)

        def on_data(done: int, total: int) -> None:
            bars.update(data, completed=done, total=total, visible=True)

        def on_step(state: State, per_epoch: int) -> None:
            epochs = settings.optimisation.epochs
            text = f"{name} epoch {min(state.epoch + 1, epochs)} of {epochs}".strip()
            if state.history and state.best_value is not None:
                text += f", best validation {state.best_value:.4g} (epoch {state.best_epoch})"
            bars.update(
                steps,
                completed=state.epoch * per_epoch + state.step,
                total=epochs * per_epoch,
                description=text,
            )

        store = open_store(cache, on_data, profile, workers=workers)
        run = train(
            settings,
            out,
            resume=resume,
            store=store,
            device=device,
            devices=devices,
            logger=logger,
            on_step=on_step,
            command=command_line(),
        )
        if rank() == 0:
            write_report(run, store)
        return run


def _comparison(
    task: type[Task], rows: list[tuple[str, dict[str, Any], int, int]]
) -> tuple[list[str], list[list[str]], str]:
    """Records of networks, parameters and operations: headers, rows, and both as Markdown."""
    metrics = list(rows[0][1]["test"])
    headers = ["model", *metrics, "parameters", "GFLOP", "minutes", "epoch"]
    sign = -1 if task.larger_is_better else 1
    rows = sorted(rows, key=lambda row: sign * row[1]["test"][task.headline])
    table, lines = [], ["| " + " | ".join(headers) + " |", "|" + " --- |" * len(headers)]
    for model, record, parameters, operations in rows:
        cells = [
            model,
            *(f"{record['test'][name]:.4g}" for name in metrics),
            f"{parameters:,}",
            f"{operations / 1e9:.3g}",
            f"{record['seconds'] / 60:.1f}",
            f"{record['best_epoch']} of {record['epochs']}",
        ]
        table.append(cells)
        lines.append("| " + " | ".join(cells) + " |")
    first = rows[0][1]
    lines.append(
        f"\n{task.title}: {first['test_samples']} test samples, read once with the weights that "
        f"did best on validation data; one seed, {first['settings']['seed']}. Command: "
        f"`{first['command']}`, commit {first['commit']}, {first['machine']}."
    )
    return headers, table, "\n".join(lines) + "\n"


def values_of_a_step(settings: RunSettings) -> int:
    """Samples times points times width; 0 where it is not known before there are samples."""
    task = TASKS[settings.task](settings)
    points = task.points or math.prod(task.grid or (0,))
    width = getattr(settings.network, "width", 0)
    return settings.optimisation.batch * points * int(width)


def _with_data(rest: list[str], data: Path | None) -> list[str]:
    """--data PATH is short for --data.path PATH."""
    return rest if data is None else [*rest, "--data.path", str(data)]
