"""The processor of this machine, as far as the system tells."""

import os
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_WORDS_OF_ONE = 16_384
"""Characters that hold all that Linux says of one processor."""
_LEAF_OF_TILES = 0x1D
"""Of the instruction cpuid: how large the tiles for products of matrices are."""


def described(said: str | None = None) -> Mapping[str, str]:
    """What Linux says of the first processor; elsewhere nothing.

    >>> described("processor : 0\\nvendor_id : GenuineIntel\\n\\nprocessor : 1\\n")["vendor_id"]
    'GenuineIntel'
    """
    if said is None:
        said = _said()
    pairs = (line.partition(":") for line in said.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def name() -> str:
    """Its name, as it is recorded beside times."""
    known = described()
    if "model name" not in known:
        return platform.processor() or platform.machine() or "unknown"
    # Virtual machines often hide the name; family and model tell their processors apart.
    numbers = f"family {known.get('cpu family', '?')}, model {known.get('model', '?')}"
    return f"{known['model name']}, {numbers}"


def is_intel() -> bool:
    """Whether PyTorch's library for matrices on it is that of its own maker."""
    return described().get("vendor_id") == "GenuineIntel"


def has_undescribed_tiles(known: Mapping[str, str]) -> bool:
    """Whether it says that it has tiles (AMX) and cannot say how large they are.

    Some virtual machines pass the flag on and cut the list that would tell.
    """
    level = known.get("cpuid level", "")
    tiles = "amx_tile" in known.get("flags", "").split()
    return tiles and level.isdecimal() and int(level) < _LEAF_OF_TILES


def avoid_undescribed_tiles() -> None:
    """Keep PyTorch from instructions that would end the process; a choice of the user's stays.

    oneDNN, which multiplies matrices in bfloat16, takes undescribed tiles for tiles of no size.
    """
    if has_undescribed_tiles(described()):
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")


@cache
def _said() -> str:
    try:
        with Path("/proc/cpuinfo").open() as file:
            return file.read(_WORDS_OF_ONE)
    except OSError:
        return ""
