"""Memory of candidates: the rise of a process's peak during one call."""

import os
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from typing import Any

import torch

from funcattn.bench.candidates import Candidate
from funcattn.bench.measure import KINDS, Job, Say, calls, inputs, short
from funcattn.ops.memory import available_bytes, peak_rise, status
from funcattn.processes import end_with_parent

resource: Any
try:
    import resource
except ModuleNotFoundError:  # on Windows
    resource = None

SMALL = 256
"""Points of the call that warms a process before its memory is measured."""


def measure_memory(job: Job, say: Say) -> dict[str, Any]:
    """Rise of the peak of resident memory in each call, in a process of its own each.

    Those are copies of this one, which must not have computed anything yet: threads are not copied.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, candidate in job.chosen().items():
        found[name] = {}
        for kind in KINDS[job.part]:
            say(f"memory, {kind}, {name}")
            found[name][kind] = in_a_fork(partial(_rise, job, candidate, kind))
    return {"candidates": found}


def _rise(job: Job, candidate: Candidate, kind: str) -> dict[str, Any]:
    module = candidate.build(job.shape, job.points)
    # A compiled module is compiled in its first call, for its number of points.
    points = job.points if candidate.compiled else min(job.points, SMALL)
    warm = module if candidate.compiled else candidate.build(job.shape, points)
    calls(job.part, warm, inputs(job.part, job.shape, points))[kind]()
    module.zero_grad()
    call = calls(job.part, module, inputs(job.part, job.shape, job.points))[kind]
    rise = peak_rise(call)
    return {"bytes": rise, "bytes per point": rise / job.points}


def in_a_fork(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a call returns in a copy of this process; how it failed, where it did."""
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    parent = os.getpid()

    def run() -> None:
        end_with_parent(parent)
        try:
            sender.send(call())
        except (RuntimeError, MemoryError) as error:
            sender.send({"failed": short(error)})

    process = context.Process(target=run)
    process.start()
    sender.close()
    try:
        return dict(receiver.recv())
    except EOFError:
        process.join()
        return {"failed": f"the process ended with code {process.exitcode}"}
    finally:
        process.join()


def stay_within_memory() -> None:
    """Let a request for more memory than the machine has fail, instead of the machine."""
    if resource is None:
        return
    limit = status("VmData") + int(0.9 * available_bytes(torch.device("cpu")))
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
