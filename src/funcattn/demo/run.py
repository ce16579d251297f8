"""The demo from beginning to end, with two worker processes: one thread each, two at a time."""

import json
import os
import signal
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from funcattn.demo.data import Array, make_data
from funcattn.demo.model import NETWORKS, Config
from funcattn.demo.report import percent, report
from funcattn.demo.training import Trained, train

_epochs_done: Any = None


def _start_worker(epochs_done: Any) -> None:
    """Workers count epochs where the main process can see them."""
    global _epochs_done
    _epochs_done = epochs_done
    torch.set_num_threads(1)


def _train(name: str, config: Config, permeability: Array, pressure: Array) -> Trained:
    """Train in a worker, counting the epochs."""

    def epoch_done() -> None:
        _epochs_done[list(NETWORKS).index(name)] += 1

    return train(name, config, permeability, pressure, epoch_done)


def run(config: Config, folder: Path, console: Console) -> dict[str, Any]:
    """Everything, with progress; returns the record that is also kept beside the report."""
    folder.mkdir(parents=True, exist_ok=True)
    context = get_context("spawn")
    epochs_done = context.Array("i", len(NETWORKS))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    # Workers inherit that Ctrl-C is ignored, from their first moment on: it is ours to act on.
    on_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    pool = context.Pool(2, _start_worker, (epochs_done,))
    signal.signal(signal.SIGINT, on_interrupt)
    with pool, Progress(*columns, console=console) as progress:
        permeability, pressure = make_data(config, folder, pool, progress)
        every = config.coarse_stride
        coarse = permeability[:, ::every, ::every].copy(), pressure[:, ::every, ::every].copy()
        seen = config.train + config.validation  # no worker is given the test samples
        jobs = {
            name: pool.apply_async(_train, (name, config, coarse[0][:seen], coarse[1][:seen]))
            for name in NETWORKS
        }
        bars = {
            name: progress.add_task(f"Training, {name}", total=config.epochs) for name in NETWORKS
        }
        while not all(job.ready() for job in jobs.values()):
            time.sleep(0.2)
            for bar, done in zip(bars.values(), epochs_done[:], strict=True):
                progress.update(bar, completed=done)
        trained = {name: job.get() for name, job in jobs.items()}
        for bar in bars.values():
            progress.update(bar, completed=config.epochs)
    with console.status("Testing and writing the report"):
        fine = torch.from_numpy(permeability), torch.from_numpy(pressure)
        record = report(folder, config, trained, fine)
        aside = folder / "record.json.part"
        aside.write_text(json.dumps(record, indent=2) + "\n")
        os.replace(aside, folder / "record.json")
    return record


def main() -> None:
    """Run the demo into runs/demo."""
    console, folder = Console(), Path("runs/demo")
    start = time.perf_counter()
    torch.set_num_threads(1)
    try:
        record = run(Config(), folder, console)
    except KeyboardInterrupt:
        console.print(
            f"Stopped. What was finished is kept in {folder}; the same command starts again."
        )
        sys.exit(130)
    console.print(f"Relative test error {percent(record['test_error'])}; by comparison:")
    for name, value in record["yardsticks"].items():
        console.print(f"  {name}: {percent(value)}")
    console.print(
        f"{time.perf_counter() - start:.0f} seconds. The report: {folder / 'report.html'}"
    )
