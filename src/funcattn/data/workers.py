"""Worker processes that leave Ctrl-C to the process that started them."""

import signal
import threading
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.pool import Pool
from typing import Any


def worker_pool(
    workers: int, start: Callable[..., None] | None = None, arguments: tuple[Any, ...] = ()
) -> Pool:
    """A pool of fresh processes; `start(*arguments)` runs in each of them first.

    Workers inherit that Ctrl-C is ignored, from their first moment on, and end with the pool.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if in_main_thread else None
    try:
        return get_context("spawn").Pool(workers, start, arguments)
    finally:
        if in_main_thread:
            signal.signal(signal.SIGINT, before)
