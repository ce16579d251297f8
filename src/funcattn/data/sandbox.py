"""Reading in a process of its own, for formats whose libraries may end the whole process.

One process reads file after file, because it takes a second or more to start; when a file ends it,
that file is refused and the next one gets a new process. It may compute for a limited time and take
a limited amount of memory, and ends with the process that started it.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from funcattn.arrays import Array
from funcattn.data.foreign import FileError, check_file, memory_budget, most_bytes, reading

CPU_SECONDS = 5.0
"""So long the reading of a small file may compute, and one second more for each megabyte."""
_WAIT = 20
"""So many times as long it may take by the clock, on a busy machine or a slow disk."""
_CHILD = Path(__file__).with_name("sandbox_child.py")
_INSTALL = {
    "pyvista": "pip install 'funcattn[mesh]'",
    "vtkmodules": "pip install 'funcattn[mesh]'",
    "pyarrow": "pip install 'funcattn[tables]'",
    "scipy": "pip install 'funcattn[pde]'",
}


def read_apart(
    path: Path,
    operation: str,
    *arguments: Any,
    expected: str,
    seconds: float | None = None,
    memory: int | None = None,
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Facts and arrays of a file, read by an operation of `sandbox_child`.

    Args:
        path: the file.
        operation: what to do with it.
        arguments: of the operation, after the path.
        expected: what the file should be, in words.
        seconds: of computing that it may take; by default as many as its size allows.
        memory: bytes that it may take; by default `memory_budget`.

    Raises:
        FileNotFoundError: there is no such file.
        FileError: the file is of another kind or damaged, or ended the process.
    """
    check_file(path)
    if seconds is None:
        seconds = seconds_for(path.stat().st_size)
    request = {
        "operation": operation,
        "arguments": [str(path.resolve()), *arguments],
        "seconds": seconds,
        "memory": memory_budget() if memory is None else memory,
    }
    with tempfile.TemporaryDirectory(prefix="funcattn-") as folder:
        answer = _child().ask({**request, "folder": folder}, seconds * _WAIT)
        if "missing" in answer:
            package = answer["missing"].partition(".")[0]
            raise FileError(
                path,
                f"{answer['missing']}, which reads files of this kind",
                "no such package",
                _INSTALL.get(package, f"pip install {package}"),
            )
        if "wrong" in answer:
            raise FileError(
                path, expected, answer["wrong"], "download, copy or save it again, and look at it"
            )
        with reading(path, expected):
            arrays = {
                name: np.load(Path(folder, file), allow_pickle=False)
                for name, file in answer["files"].items()
            }
    return answer["facts"], arrays


def seconds_for(size: int) -> float:
    """How long the reading of so many bytes may compute."""
    return CPU_SECONDS + size / 1e6


def try_hdf5(path: Path, expected: str) -> None:
    """Read an HDF5 file as a whole in the process of its own, once; what it dies of is refused."""
    facts = path.stat()
    _tried(path, expected, facts.st_size, facts.st_mtime_ns, facts.st_ino)


@lru_cache(maxsize=1024)
def _tried(path: Path, expected: str, size: int, *_: int) -> None:
    read_apart(path, "hdf5_try", most_bytes(size), expected=expected)


class _Child:
    """The process, started when it is first needed and again when it has died."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def ask(self, request: dict[str, Any], patience: float) -> dict[str, Any]:
        """The answer to a request, or `wrong` where the process died of it."""
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            patient = threading.Timer(patience, process.kill)
            patient.daemon = True
            patient.start()
            try:
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
                if line.endswith("\n"):
                    answer: dict[str, Any] = json.loads(line)
                    return answer
            except (BrokenPipeError, ValueError):
                pass
            finally:
                patient.cancel()
            self.stop()
            return {"wrong": f"one at which the reader ended, {_reason(process.returncode)}"}

    def stop(self) -> None:
        """End the process, at once."""
        if self._process is not None and self.owner == os.getpid():
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with suppress(OSError):  # what was not sent cannot be sent any more
                    assert pipe is not None
                    pipe.close()
        self._process = None

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_CHILD)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                # Ctrl-C is for the process that asked; this one ends with it.
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
            )
        return self._process


def _reason(code: int) -> str:
    """Why a process ended, in words."""
    if code >= 0:
        return f"with code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return {
        "SIGPROF": "after computing for too long",
        "SIGKILL": "killed after too long, or for want of memory",
    }.get(name, f"by {name}: it is damaged, or takes more memory than allowed")


_current = _Child()
atexit.register(lambda: _current.stop())


def _child() -> _Child:
    """That of this process: one that was forked does not talk to its parent's."""
    global _current
    if _current.owner != os.getpid():
        _current = _Child()
    return _current
