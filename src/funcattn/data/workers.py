"""Worker processes: one thread each, Ctrl-C left to the process that started them."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from multiprocessing import active_children, current_process, get_context
from multiprocessing.resource_tracker import ensure_running
from typing import Any

from funcattn.processes import end_with_pool

_UNGUARDED = (
    "the worker processes could not start. They read the script that starts them: one that makes "
    "data has to do so below `if __name__ == '__main__':`"
)


def check_guarded() -> None:
    """Refuse to start anything while a worker reads the script that started it."""
    # The mark that multiprocessing itself goes by.
    if getattr(current_process(), "_inheriting", False):
        raise RuntimeError(_UNGUARDED)


@contextmanager
def worker_pool(
    workers: int,
    start: Callable[..., None] | None = None,
    arguments: tuple[Any, ...] = (),
    *,
    reads_script: bool = True,
) -> Iterator[Executor]:
    """Fresh processes that run jobs; `start(*arguments)` runs in each of them first.

    Ctrl-C does not reach workers, from their first moment on. They end with the pool, and
    with this process, whatever ends it. They compute with one thread, unless OMP_NUM_THREADS says
    otherwise: so results do not depend on how many cores a machine has, and workers do not fight
    for them.

    reads_script: whether jobs are functions of the script that was started. Workers then read it,
    so it needs a guard; otherwise it may go without.
    """
    check_guarded()
    others = active_children()
    with _inherited(), nullcontext() if reads_script else _script_hidden():
        pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin, (start, arguments))
        # A process starts with a job for which none is idle: these start them all.
        ready = [pool.submit(os.getpid) for _ in range(workers)]
    try:
        try:
            for job in ready:
                job.result()
        except BrokenProcessPool:
            raise RuntimeError(_UNGUARDED) from None
        yield pool
    finally:
        for process in active_children():
            if process not in others:
                process.terminate()
        pool.shutdown(cancel_futures=True)


def _begin(start: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    """The first call in every worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # also for what the worker starts itself
    end_with_pool()
    if start is not None:
        start(*arguments)


@contextmanager
def _script_hidden() -> Iterator[None]:
    """Processes that start meanwhile do not read the script that was started."""
    script = vars(sys.modules["__main__"])
    hidden = {name: script.get(name) for name in ("__spec__", "__file__")}
    script.update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        script.update(hidden)


@contextmanager
def _inherited() -> Iterator[None]:
    """What processes that start meanwhile take over: Ctrl-C does not reach them, one thread.

    Ctrl-C that comes meanwhile reaches this process afterwards.
    """
    threads = os.environ.get("OMP_NUM_THREADS")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    asked: list[int] = []
    handler: Any = None
    mask: Any = None
    if threading.current_thread() is threading.main_thread():
        # Whichever thread the signal comes to, it would interrupt this one.
        handler = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    if os.name != "nt":
        ensure_running()  # here, as its start lets signals through again
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if threads is None:
            del os.environ["OMP_NUM_THREADS"]
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
        if asked:
            signal.raise_signal(signal.SIGINT)
