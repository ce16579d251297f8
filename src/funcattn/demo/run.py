"""The demo from beginning to end: two networks trained side by side, one thread each."""

import sys
import time
from collections.abc import Mapping
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from funcattn.data import Store, worker_pool
from funcattn.demo.report import percent, report
from funcattn.settings import FunctionalSettings, OptimisationSettings, RunSettings
from funcattn.tasks.darcy import Darcy, DarcyData
from funcattn.training.loop import State
from funcattn.training.run import Run, train
from funcattn.training.settings import with_model

# Chosen on validation data.
SETTINGS = RunSettings(
    task="darcy",
    data=DarcyData(nodes=169, use_every=8, store_every=4, train=1000, validation=100, test=100),
    network=FunctionalSettings(width=64, layers=4, heads=4, bases=32, reach=1 / 21),
    optimisation=OptimisationSettings(
        optimiser="muon", muon_rate=2e-2, epochs=20, batch=4, clip=1.0
    ),
    checkpoint_seconds=5.0,
)
COMMAND = "python -m funcattn.demo"
NETWORKS = {"functional attention": "functional_operator", "without attention": "no_attention"}

_steps_done: Any = None


def _start_worker(steps_done: Any) -> None:
    """Workers count steps where the main process can see them."""
    global _steps_done
    _steps_done = steps_done
    torch.set_num_threads(1)


def _train(place: int, settings: RunSettings, folder: Path, cache: Path) -> None:
    """Train in a worker, from where an earlier attempt stopped."""

    def count(state: State, per_epoch: int) -> None:
        _steps_done[place] = state.epoch * per_epoch + state.step

    train(
        settings,
        folder,
        resume=(folder / "settings.json").exists(),
        store=Store(cache),
        on_step=count,
        command=COMMAND,
        heeds_signals=False,
    )


def run(settings: RunSettings, folder: Path, console: Console) -> dict[str, Any]:
    """Everything, with progress; returns the record that is also kept beside the report."""
    folder.mkdir(parents=True, exist_ok=True)
    steps_done = get_context("spawn").Array("i", len(NETWORKS))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with (
        worker_pool(len(NETWORKS), _start_worker, (steps_done,), reads_script=False) as pool,
        Progress(*columns, console=console) as progress,
    ):
        data = settings.data
        task = Darcy(settings)
        solving = progress.add_task("Darcy flow, solved", total=task.count)
        store = Store(
            folder,
            workers=len(NETWORKS),
            advance=lambda done, total: progress.update(solving, completed=done, total=total),
            note={"command": COMMAND},
        )
        made = store.made(task.recipe(), data.seed, task.count)
        progress.update(solving, completed=task.count)
        optimisation = settings.optimisation
        steps = optimisation.epochs * -(-data.train // optimisation.batch)
        bars = [progress.add_task(f"Training, {name}", total=steps) for name in NETWORKS]
        jobs = [
            pool.submit(
                _train, place, with_model(settings, model, "cpu"), run_folder(folder, name), folder
            )
            for place, (name, model) in enumerate(NETWORKS.items())
        ]
        while not all(job.done() for job in jobs):
            time.sleep(0.2)
            for bar, done in zip(bars, steps_done[:], strict=True):
                progress.update(bar, completed=done)
        for job in jobs:
            job.result()
        for bar in bars:
            progress.update(bar, completed=steps)
    with console.status("Testing and writing the report"):
        runs = {name: Run(run_folder(folder, name)) for name in NETWORKS}
        return report(store, settings, runs, made)


def run_folder(folder: Path, name: str) -> Path:
    """Where the run of a network is kept."""
    return folder / name.replace(" ", "-")


def main() -> None:
    """Run the demo into runs/demo."""
    console, folder = Console(), Path("runs/demo")
    start = time.perf_counter()
    torch.set_num_threads(1)
    if (folder / "record.json").exists():
        console.print(f"{folder} holds a finished demo; remove it to start from nothing.")
    try:
        record = run(SETTINGS, folder, console)
    except KeyboardInterrupt:
        console.print(f"Stopped. {folder} keeps what was finished; the same command goes on.")
        sys.exit(130)
    show(record, console)
    console.print(f"{time.perf_counter() - start:.0f} seconds; report: {folder / 'report.html'}")


def show(record: Mapping[str, Any], console: Console) -> None:
    """The result, and what to compare it with."""
    console.print(f"Relative test error {percent(record['test_error'])}; by comparison:")
    for name, value in record["yardsticks"].items():
        console.print(f"  {name}: {percent(value)}")
