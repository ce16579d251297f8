"""A fixed piece of work, whose CPU seconds grow on a busy machine as those of networks do."""

import math
import multiprocessing
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from funcattn.processes import end_with_pool


def unit_seconds(times: int = 1) -> float:
    """CPU seconds of a fixed piece of work, not unlike that of a layer: the least of so many.

    It works in memory that it keeps: new memory costs more in some processes than in others, by
    what the network before has left to the allocator.
    """
    x, weight, y = _unit_tensors()
    least = math.inf
    for _ in range(times):
        began = time.process_time()
        for _ in range(4):
            torch.mm(x, weight, out=y)
            torch.tanh(y, out=y)
        least = min(least, time.process_time() - began)
    return least


@cache
def unit_here() -> float:
    """The unit, in a process that has done nothing else."""
    found: float = in_a_process(unit_seconds, 1000)
    return found


def in_a_process(measure: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a process that has done nothing else."""
    with multiprocessing.get_context("spawn").Pool(1, initializer=end_with_pool) as pool:
        return pool.apply(measure, arguments)


@cache
def _unit_tensors() -> tuple[Tensor, Tensor, Tensor]:
    return torch.ones(2048, 64), torch.eye(64), torch.empty(2048, 64)
