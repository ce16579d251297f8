"""Large buffers that are used again.

Fresh memory comes from the system page by page at its first touch, and on a CPU that can cost more
than the arithmetic on it: the usual allocator gives large blocks back as soon as they are free.
Accelerators have allocators that keep theirs, so there nothing is kept here.
"""

import threading

import torch

MOST_KEPT = 2**30


class Buffers:
    """Flat buffers, taken and given back; at most 1 GiB of free ones is kept."""

    def __init__(self) -> None:
        self._free: list[torch.Tensor] = []
        self._lock = threading.Lock()

    def take(self, count: int, like: torch.Tensor) -> torch.Tensor:
        """Room for so many values of the dtype and on the device of a tensor."""
        with self._lock:
            for place, buffer in enumerate(self._free):
                fits = count <= buffer.numel() <= 2 * count
                if fits and buffer.dtype == like.dtype and buffer.device == like.device:
                    return self._free.pop(place)[:count]
        return torch.empty(count, dtype=like.dtype, device=like.device)

    def give(self, buffer: torch.Tensor) -> None:
        """Nobody reads this buffer any more."""
        if buffer.device.type != "cpu":
            return
        whole = torch.empty(0, dtype=buffer.dtype).set_(buffer.untyped_storage())
        with self._lock:
            self._free.append(whole)
            while sum(b.nbytes for b in self._free) > MOST_KEPT:
                self._free.pop(0)


buffers = Buffers()
