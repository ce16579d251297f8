"""The queue: runs one after another or side by side, each in its own process.

Its state is a folder, so it may be killed at any moment. A run that was stopped continues from its
checkpoint, a finished run has a line among the results, and a lock keeps two commands from working
on the same run.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from funcattn.documents import DocumentError, read_json
from funcattn.experiments.engine.cell import BUSY, CODE_CHANGED, DONE, STOPPED, Cell
from funcattn.experiments.engine.fingerprints import stored
from funcattn.processes import leashed

End = Literal["done", "failed", "busy", "code changed", "stopped"]
_ENDS: dict[int, End] = {
    DONE: "done",
    BUSY: "busy",
    CODE_CHANGED: "code changed",
    STOPPED: "stopped",
}


@dataclass
class Ended:
    """How a run ended."""

    cell: Cell
    end: End
    message: str = ""
    """The last line of its log, if it failed."""


@dataclass
class Queue:
    """Runs in a folder."""

    folder: Path
    workers: int = 1
    on_progress: Callable[[Cell, float], None] = lambda cell, part: None  # noqa: ARG005
    """Called with every run in progress and the fraction of it that is done."""
    on_end: Callable[[Ended], None] = lambda ended: None  # noqa: ARG005
    program: Sequence[str] = (sys.executable, "-m", "funcattn.experiments.engine.cell")
    """The program that is started with the folder of a run."""
    poll_seconds: float = 0.5
    _working: dict[str, tuple[Cell, subprocess.Popen[bytes]]] = field(default_factory=dict)

    def place(self, cell: Cell) -> Path:
        """The folder of a run."""
        return self.folder / "cells" / cell.name

    def forget(self, cell: Cell) -> None:
        """Delete the folder of a run, so that it starts again."""
        folder = self.place(cell)
        if not folder.exists():
            return
        try:
            with FileLock(folder / ".lock", timeout=0):
                shutil.rmtree(folder)
        except Timeout:
            raise ValueError(
                f"{cell.name}: expected a run that is not in progress, got one that another "
                "command works on; wait for it"
            ) from None

    def run(self, cells: Sequence[Cell]) -> list[Ended]:
        """Run them in order, `workers` at a time; a run that fails does not stop the others."""
        waiting, ended = list(cells), []
        with self._stopping_together():
            while waiting or self._working:
                while waiting and len(self._working) < self.workers:
                    self._start(waiting.pop(0))
                time.sleep(self.poll_seconds)
                for name, (cell, process) in list(self._working.items()):
                    self.on_progress(cell, self.fraction_done(cell))
                    if process.poll() is not None:
                        del self._working[name]
                        ended.append(self._end(cell, process.returncode))
                        self.on_end(ended[-1])
        return ended

    def fraction_done(self, cell: Cell) -> float:
        """From 0 to 1."""
        try:
            progress: dict[str, Any] = read_json(
                self.place(cell) / "progress.json", {"steps": float, "steps_per_epoch": float}
            )
        except (OSError, DocumentError):
            return 0.0
        total = progress["steps_per_epoch"] * cell.settings.optimisation.epochs
        return float(progress["steps"] / total)

    def _start(self, cell: Cell) -> None:
        # The code may have changed since this process loaded it; the run's process loads it anew.
        stored.cache_clear()
        cell = replace(cell, code=stored()[cell.fingerprint].name)
        folder = self.place(cell)
        cell.write(folder)
        environment = os.environ | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
        with (folder / "log.txt").open("ab") as log:
            process = subprocess.Popen(
                leashed([*self.program, str(folder)]),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._working[cell.name] = (cell, process)

    def _end(self, cell: Cell, code: int) -> Ended:
        if code in _ENDS:
            return Ended(cell, _ENDS[code])
        lines = (self.place(cell) / "log.txt").read_text(errors="replace").strip().splitlines()
        message = lines[-1] if lines else f"it ended with code {code}"
        return Ended(cell, "failed", message)

    @contextmanager
    def _stopping_together(self) -> Iterator[None]:
        """When asked to stop, ask the runs to save and stop, and wait for them."""

        def ask(number: int, frame: Any) -> None:  # noqa: ARG001
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGTERM, ask)
        try:
            yield
        finally:
            for _, process in self._working.values():
                process.terminate()
            for _, process in self._working.values():
                process.wait()
            self._working.clear()
            signal.signal(signal.SIGTERM, before)
