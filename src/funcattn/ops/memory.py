"""How much memory there is, and who else looks after it, for choices between speed and memory."""

import os
from pathlib import Path

import torch


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


def saved_tensors_are_taken() -> bool:
    """Whether hooks take what autograd saves: those of a checkpoint, which computes it again."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
