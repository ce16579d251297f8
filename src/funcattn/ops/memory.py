"""How much memory there is, how much a call needs, and who else looks after it."""

import ctypes
import gc
import math
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

resource: Any
try:
    import resource
except ModuleNotFoundError:  # on Windows
    resource = None


def installed_bytes() -> int:
    """Memory of this machine, as far as the system tells."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        # Systems that do not say, such as Windows: what hardly any machine has less of.
        return 8 * 2**30


def available_bytes(device: torch.device) -> int:
    """Memory that can still be had on a device, as far as the system tells."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kibibytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
        return int(kibibytes) * 1024
    except (OSError, StopIteration):
        # Not Linux: half of what is built in is a fair guess of what is free.
        return installed_bytes() // 2


def peak_rise(call: Callable[[], object]) -> int | float:
    """Bytes by which the peak of resident memory rises in a call, over what stands before it.

    Not a number where the system does not say. Where it does not let the peak be reset, which may
    have been reached before, less than the rise.
    """
    gc.collect()
    with suppress(AttributeError, OSError, TypeError):  # C libraries that keep what was freed
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    before = _peak_bytes()
    call()
    return _peak_bytes() - before


def _peak_bytes() -> int | float:
    """The most resident memory that this process had, since its start or the last reset."""
    with suppress(OSError):
        # Linux: ru_maxrss begins with the peak of the process that started this one.
        return status("VmHWM")
    if resource is None:
        return math.nan
    peak: int = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


def status(name: str) -> int:
    """Bytes that Linux states for this process, such as VmHWM, its peak of memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name + ":")).split()[1])


def saved_tensors_are_taken() -> bool:
    """Whether hooks take what autograd saves: those of a checkpoint, which computes it again."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
