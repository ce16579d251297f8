"""Jobs: true answers, each computed in a process of its own.

A job is a folder below one that all workers of a service share, so that any of them can tell how
far it is and cancel it. The worker that started a job watches it.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from funcattn.arrays import Array
from funcattn.data.foreign import read_npz
from funcattn.files import write_text
from funcattn.processes import leashed
from funcattn.serve.encoding import encoded
from funcattn.serve.solving import tell

KEPT_SECONDS = 600.0
"""So long the answer of a job can be asked for."""
_PAUSE = 0.05
_LAST = ("result", "error")


class BusyError(Exception):
    """As many jobs run as may run."""


@dataclass(frozen=True)
class Event:
    """What happened to a job."""

    name: str
    data: dict[str, Any]

    @property
    def last(self) -> bool:
        """Whether none follows."""
        return self.name in _LAST


class Jobs:
    """Jobs of one worker, and a view of those of the others.

    root: the folder that the workers share. most: jobs of this worker at a time. seconds: that a
    job may take.
    """

    def __init__(self, root: Path, *, most: int, seconds: float) -> None:
        self.root, self.most, self.seconds = root, most, seconds
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    @property
    def running(self) -> int:
        """Jobs of this worker that are not at their end."""
        with self._lock:
            return len(self._running)

    def start(
        self, model: str, task: str, data: Mapping[str, Any], parameters: Any, refine: int
    ) -> str:
        """Begin a job; its name."""
        self._tidy()
        with self._lock:
            if len(self._running) >= self.most:
                raise BusyError(f"{self.most} jobs are running: try again when one has ended")
            name = secrets.token_hex(16)
            folder = self.root / name
            folder.mkdir(mode=0o700)
            request = {
                "model": model,
                "task": task,
                "data": encoded(data, packed=False),
                "parameters": encoded(parameters, packed=False),
                "refine": refine,
                "owner": os.getpid(),
            }
            write_text(folder / "request.json", json.dumps(request))
            command = [sys.executable, "-P", "-m", "funcattn.serve.solving", str(folder)]
            child = subprocess.Popen(
                leashed(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd=folder,
            )
            self._running[name] = child
        threading.Thread(target=self._watch, args=(name, child), daemon=True).start()
        return name

    def known(self, name: str) -> bool:
        """Whether there is such a job."""
        # Compared with the names that are there, so that no other path is ever formed.
        return name in {each.name for each in self.root.iterdir()}

    def request(self, name: str) -> dict[str, Any]:
        """What was asked for."""
        found: dict[str, Any] = json.loads(
            (self.root / name / "request.json").read_text(encoding="utf-8")
        )
        return found

    def events(self, name: str, start: int) -> list[Event]:
        """What happened, from the event with this number on."""
        found = self._told(name)[start:]
        if not any(each.last for each in found) and not self._watched(name):
            found.append(Event("error", {"detail": "the process that ran the job has ended"}))
        return found

    def _told(self, name: str) -> list[Event]:
        try:
            text = (self.root / name / "events.jsonl").read_text(encoding="utf-8")
        except FileNotFoundError:  # before its first word
            return []
        whole = text[: text.rfind("\n") + 1].splitlines()
        return [Event(each["event"], each["data"]) for each in map(json.loads, whole)]

    def result(self, name: str, names: list[str]) -> dict[str, Array]:
        """The fields that were found."""
        arrays = read_npz(self.root / name / "result.npz")
        return {each: arrays[f"a{i}"].astype(np.float32) for i, each in enumerate(names)}

    def cancel(self, name: str) -> None:
        """Let the worker that watches the job end it."""
        with suppress(FileNotFoundError):  # it is long at its end
            (self.root / name / "cancel").touch()

    def close(self) -> None:
        """End all jobs of this worker."""
        with self._lock:
            children = list(self._running.values())
        for child in children:
            child.kill()
        for child in children:
            child.wait()

    def _watch(self, name: str, child: "subprocess.Popen[bytes]") -> None:
        """Wait for the end of a job, or bring it about."""
        folder, start = self.root / name, time.monotonic()
        why = ""
        while child.poll() is None:
            if not why and (folder / "cancel").exists():
                why = "cancelled"
            if not why and time.monotonic() - start > self.seconds:
                why = f"the job took longer than {self.seconds:g} s: ask for a coarser grid"
            if why:
                child.kill()
                child.wait()
            time.sleep(_PAUSE)
        with self._lock:
            del self._running[name]
        said = child.stderr.read().decode(errors="replace") if child.stderr else ""
        if child.stderr:
            child.stderr.close()
        if not any(event.last for event in self._told(name)):
            if not why:
                why = "the solver ended without an answer"
                sys.stderr.write(f"funcattn: {why} ({child.returncode}): {said[-2000:]}\n")
            with suppress(OSError):  # the folder is gone, with the service
                tell(folder, "error", detail=why)

    def _watched(self, name: str) -> bool:
        """Whether the worker that started a job is there, or the job has told its end."""
        try:
            os.kill(int(self.request(name)["owner"]), 0)
        except (ProcessLookupError, FileNotFoundError):
            return False
        return True

    def _tidy(self) -> None:
        """Remove what nobody asks for any more."""
        with self._lock:
            running = set(self._running)
        for folder in list(self.root.iterdir()):
            with suppress(OSError):
                old = time.time() - folder.stat().st_mtime > KEPT_SECONDS + self.seconds
                if old and folder.name not in running:
                    shutil.rmtree(folder, ignore_errors=True)
