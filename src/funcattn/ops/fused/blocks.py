"""How large the blocks of the Triton programs are, by the sizes of a head.

A table, and no search at run time: the sizes decide the order of sums, and a search would choose
others from run to run, so that numbers would not come out again. The sizes are chosen by what they
take of a multiprocessor, which `benchmarks/triton_blocks.py` finds out without a GPU; none of them
was timed.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Blocks:
    """points: of a block. channels: at once. warps, stages: as Triton calls them."""

    points: int
    channels: int
    warps: int
    stages: int


TABLE: tuple[tuple[int, int, Blocks], ...] = (
    (32, 64, Blocks(points=64, channels=32, warps=4, stages=2)),
    (64, 64, Blocks(points=64, channels=64, warps=4, stages=2)),
    (64, 128, Blocks(points=64, channels=64, warps=8, stages=2)),
)
"""(channels of a head up to, functions of a head up to, blocks); the first that fits is taken."""
OTHERS = Blocks(points=32, channels=64, warps=8, stages=1)
PROGRAMS = 2048
"""How many programs share the points of a call: a few for each multiprocessor of a large GPU."""
_FEWEST = 16
"""The shortest side of a product that tensor cores do."""


def power_of_two(count: int) -> int:
    """The power of two that holds so many, as Triton's blocks have to."""
    return max(_FEWEST, 1 << (count - 1).bit_length())


def blocks_for(channels: int, bases: int) -> Blocks:
    """Those of the table for heads with so many channels (the most of any field) and functions."""
    for most_channels, most_bases, blocks in TABLE:
        if channels <= most_channels and bases <= most_bases:
            return blocks
    return OTHERS
