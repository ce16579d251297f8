"""Child processes that end with their parent, whatever ends it.

Only a parent that ends in good order can end its children. Killed by SIGKILL, or by a signal that
it does not handle, it leaves them running. So every child here watches its parent: on Linux the
kernel kills the child in the moment of the parent's death, and everywhere a thread of the child
waits for it.

    subprocess.Popen(leashed(["simpleFoam", "-case", "flow"]))     # any program
    end_with_parent(pid)                                            # first call of a Python child
    end_with_pool()                                                 # of a worker of multiprocessing

This file uses the standard library only, as it is also run as a script.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import parent_process
from multiprocessing.connection import wait

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.5
_LINUX: bool = sys.platform == "linux"


def rank() -> int:
    """Which of the processes that train together this one is; the first one speaks and writes."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")))


def free_cores() -> int:
    """Cores that this process may use and that have nothing to do now, one at least."""
    ours = len(os.sched_getaffinity(0)) if _LINUX else os.cpu_count() or 1
    if not hasattr(os, "getloadavg"):  # Windows does not tell
        return ours
    busy = round(os.getloadavg()[0])
    return max(min(ours, (os.cpu_count() or 1) - busy), 1)


def leashed(command: Sequence[str]) -> list[str]:
    """The command line of a program that ends with this process.

    On Linux the process becomes the program. Elsewhere it starts the program, hands SIGTERM and
    SIGINT on to it, and ends with its code. On Windows the program runs without a leash.
    """
    if os.name == "nt":
        return list(command)
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def end_with_parent(parent: int) -> None:
    """Kill this process as soon as the process `parent`, which started it, is gone."""
    _ask_kernel()
    if os.getppid() != parent:  # it was gone before the kernel was asked
        _end()
    if os.name != "nt":  # where a process keeps the number of a parent that is gone
        _watch(lambda: _gone(parent))


def end_with_pool() -> None:
    """The same in a process that multiprocessing started."""
    _ask_kernel()
    parent = parent_process()
    if parent is None:
        raise RuntimeError("end_with_pool: expected a process that multiprocessing started")
    _watch(lambda: wait([parent.sentinel]))


def _ask_kernel() -> None:
    if _LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _watch(until_gone: Callable[[], object]) -> None:
    """End this process when the call returns."""

    def watch() -> None:
        until_gone()
        _end()

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _gone(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)


def _end() -> None:
    """At once: nothing here is worth keeping without the process that asked for it."""
    os._exit(1)


def _become(parent: int, command: list[str]) -> None:
    """Run a program on the leash of the process `parent`."""
    if _LINUX:
        _ask_kernel()
        if os.getppid() != parent:
            _end()
        os.execvp(command[0], command)
    program = subprocess.Popen(command)

    def follow() -> None:
        _gone(parent)
        program.kill()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: program.send_signal(number))  # noqa: ARG005
    threading.Thread(target=follow, daemon=True).start()
    code = program.wait()
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    try:
        _become(int(sys.argv[1]), sys.argv[2:])
    except OSError as error:
        sys.exit(f"{sys.argv[2]} could not be started: {error.strerror}")
