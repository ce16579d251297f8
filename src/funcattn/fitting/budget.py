"""How large a network and how long a training fit into a time that a person has.

A step of each size is measured, in CPU time per thread, so that a busy machine does not change what
is chosen. The largest network is taken that can still be trained for enough steps.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

UNITS = {"s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "hour": 3600.0}


@dataclass(frozen=True)
class Ladder:
    """Networks from small to large, and what a larger one must still get."""

    sizes: tuple[dict[str, Any], ...]
    steps: int
    """Of training."""


SIZES = Ladder(
    (
        {"width": 32, "layers": 3, "heads": 4, "bases": 16, "mlp_ratio": 2.0},
        {"width": 48, "layers": 4, "heads": 4, "bases": 24, "mlp_ratio": 2.0},
        {"width": 64, "layers": 4, "heads": 4, "bases": 32, "mlp_ratio": 2.0},
        {"width": 96, "layers": 5, "heads": 8, "bases": 48, "mlp_ratio": 2.0},
        {"width": 128, "layers": 6, "heads": 8, "bases": 64, "mlp_ratio": 2.0},
    ),
    steps=1500,
)
SIZES_ON_GRIDS = Ladder(
    (
        {"width": 32, "layers": 3},
        {"width": 32, "layers": 4},
        {"width": 48, "layers": 5},
    ),
    steps=20_000,
)
"""Of our network. Its mode-wise maps have a matrix for each function, so that few channels hold
much, and more of them bring less than the steps they cost. A fourth block pays where it still gets
some twenty thousand steps: Airfoil and Plasticity in eight minutes (results/races)."""
ENOUGH_EPOCHS = 40
MOST_EPOCHS = 1000
SHARE = 0.85
"""Of the time goes into steps; checkpoints and reports take the rest."""


@dataclass(frozen=True)
class Plan:
    """What fits into the time."""

    size: dict[str, Any]
    epochs: int
    seconds_per_epoch: float

    def __str__(self) -> str:
        shown = ", ".join(f"{name} {value}" for name, value in self.size.items())
        return f"{shown}; {self.epochs} epochs of about {self.seconds_per_epoch:.2g} s"


def seconds_of(budget: str | float | int) -> float:
    """A time in seconds, from words or a number of seconds.

    >>> seconds_of("10 min"), seconds_of("1.5h"), seconds_of(30)
    (600.0, 5400.0, 30.0)
    """
    if isinstance(budget, int | float):
        seconds = float(budget)
    else:
        match = re.fullmatch(r"\s*([0-9]+\.?[0-9]*)\s*([a-z]*)\s*", budget.lower())
        unit = match[2].removesuffix("s") or "s" if match else ""
        unit = {"minute": "min", "second": "s"}.get(unit, unit)
        if match is None or unit not in UNITS:
            raise ValueError(
                f"budget: expected a time such as '90 s', '10 min' or '1.5 h', got {budget!r}"
            )
        seconds = float(match[1]) * UNITS[unit]
    if not 0 < seconds < float("inf"):
        raise ValueError(f"budget: expected a time above 0, got {budget!r}")
    return seconds


def plan(
    seconds_left: Callable[[], float],
    seconds_per_epoch: Callable[[dict[str, Any]], float],
    steps_per_epoch: int,
    ladder: Ladder = SIZES,
) -> Plan:
    """The largest size that can be trained for enough epochs and steps in the time."""
    enough = max(ENOUGH_EPOCHS, -(-ladder.steps // steps_per_epoch))
    chosen: Plan | None = None
    for size in ladder.sizes:
        each = seconds_per_epoch(size)
        epochs = int(SHARE * seconds_left() / each)
        if chosen is None or epochs >= enough:
            chosen = Plan(size, min(max(epochs, 1), MOST_EPOCHS), each)
        if epochs < enough:
            break
    assert chosen is not None
    return chosen


def cpu_seconds_of(call: Callable[[], object], repeats: int = 3) -> float:
    """CPU time per thread of one call, after one to warm up."""
    call()
    started = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - started) / repeats / torch.get_num_threads()
