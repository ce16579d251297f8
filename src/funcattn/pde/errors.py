"""The error of a solver that has no answer, and how far an iteration is."""

import math


class NotConvergedError(RuntimeError):
    """A solver could not finish a sample; makers of data sets draw another and count the failure.

    The message states what was expected, what was reached, and what to try.
    """


def fallen(now: float, start: float, goal: float) -> float:
    """How far a number that falls by factors is on its way from start to goal, 0 to 1.

    >>> fallen(1e-4, 1.0, 1e-8), fallen(0.0, 1.0, 1e-8)
    (0.5, 1.0)
    """
    if not now > goal:
        return 1.0
    return min(max(math.log(start / now) / math.log(start / goal), 0.0), 1.0)
