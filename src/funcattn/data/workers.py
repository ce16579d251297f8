"""Worker processes: one thread each, and Ctrl-C left to the process that started them."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, current_process, get_context
from typing import Any

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
    workers: int, start: Callable[..., None] | None = None, arguments: tuple[Any, ...] = ()
) -> Iterator[Executor]:
    """Fresh processes that run jobs; `start(*arguments)` runs in each of them first.

    Workers inherit that Ctrl-C is ignored, from their first moment on, and end with the pool. They
    compute with one thread, unless OMP_NUM_THREADS says otherwise: so results do not depend on how
    many cores a machine has, and workers do not fight for them.
    """
    check_guarded()
    others = active_children()
    with _inherited():
        pool = ProcessPoolExecutor(workers, get_context("spawn"), start, arguments)
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


@contextmanager
def _inherited() -> Iterator[None]:
    """What processes that start meanwhile take over."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if in_main_thread else None
    threads = os.environ.get("OMP_NUM_THREADS")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        yield
    finally:
        if in_main_thread:
            signal.signal(signal.SIGINT, before)
        if threads is None:
            del os.environ["OMP_NUM_THREADS"]
