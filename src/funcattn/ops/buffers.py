"""Large buffers that are used again.

Fresh memory comes from the system page by page at its first touch, and on a CPU that can cost more
than the arithmetic on it: the usual allocator gives large blocks back as soon as they are free.
Accelerators have allocators that keep theirs, so there nothing is kept here.
"""

import threading

import torch

from funcattn.ops.memory import installed_bytes


class Buffers:
    """Flat buffers, taken and given back.

    most: bytes of free ones that are kept; default: an eighth of the machine's memory.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most = installed_bytes() // 8 if most is None else most
        self._free: list[torch.Tensor] = []
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def idle(self) -> int:
        """Bytes of free buffers, which the system counts as used."""
        return self._bytes

    def take(self, count: int, like: torch.Tensor) -> torch.Tensor:
        """Room for so many values of the dtype and on the device of a tensor."""
        with self._lock:
            chosen = -1
            for place, buffer in enumerate(self._free):
                fits = count <= buffer.numel() <= 2 * count
                if fits and buffer.dtype == like.dtype and buffer.device == like.device:
                    chosen = place
                    if buffer.numel() == count:
                        break
            if chosen >= 0:
                buffer = self._free.pop(chosen)
                self._bytes -= buffer.nbytes
                return buffer if buffer.numel() == count else buffer[:count]
        return torch.empty(count, dtype=like.dtype, device=like.device)

    def give(self, buffer: torch.Tensor) -> None:
        """Nobody reads this buffer any more."""
        if buffer.device.type != "cpu":
            return
        storage = buffer.untyped_storage()
        if buffer.ndim != 1 or storage.nbytes() != buffer.nbytes:  # it is a view of a flat one
            buffer = torch.empty(0, dtype=buffer.dtype).set_(storage)
        with self._lock:
            self._free.append(buffer)
            self._bytes += buffer.nbytes
            while self._bytes > self.most:
                self._bytes -= self._free.pop(0).nbytes

    def clear(self) -> None:
        """Give the free ones back to the system."""
        with self._lock:
            self._free.clear()
            self._bytes = 0


buffers = Buffers()
