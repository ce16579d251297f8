"""A race: several networks, each with the same CPU time on one core, on one task.

1. The step of a network is measured in a fresh process, in CPU seconds. The budget over the step is
   the number of its steps, and its schedule ends with the last of them. CPU seconds are longer on
   a busy machine, which shares its caches: so a fixed piece of work is timed after every step, and
   the step counts in units of that work, whose least time is measured once for all networks.
   Another kind of processor does networks in other proportions to this work, so a race that began
   on one is not continued on another.
2. Five rates are tried on the training data, each for a tenth of the budget, and further ones while
   the best is at an end. All networks get the same five. Of the rates whose validation error is
   within 5 % of the least the middle one is taken, of two the smaller: short trainings favour large
   rates. Where so short a training teaches nothing all five tie, and the recipe's own rate stays.
3. For each seed the network is trained for the whole budget. The final weights or their moving
   average are chosen on validation data, and the test data are read once.

Every piece is one line of JSON, written when it is done. A race that was stopped goes on after its
last whole piece. The time for validation is not in the budget.

`recipe` says how all networks are trained; see `funcattn.training.recipe`.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from funcattn.processor import name as processor_name
from funcattn.provenance import facts
from funcattn.settings import Profile
from funcattn.training.entrant import MEASURED_STEPS, Entrant, Start
from funcattn.training.race_records import Records
from funcattn.training.recipe import RecipeName
from funcattn.training.unit import in_a_process, unit_here

RATE_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""What the recipe's rates are multiplied by in the search."""
_FURTHEST = 16.0
"""How far the search goes at most, up and down."""
_AS_GOOD = 1.05
"""Errors of the search that are this close count as the same."""
_ALIKE = 1.25
"""Least times of the fixed piece of work that differ by less are those of one kind of processor."""


def race(
    name: str,
    entrants: Sequence[Entrant],
    *,
    budget: float,
    seeds: Sequence[int] = (0, 1, 2),
    cache: Path,
    folder: Path,
    recipe: RecipeName = "shared",
    profile: Profile = "cpu",
    data: Mapping[str, Any] | None = None,
    tell: Callable[[str], None] = lambda text: None,  # noqa: ARG005
) -> list[dict[str, Any]]:
    """Run a race and return its finished trainings, one for each entrant and seed.

    budget: CPU seconds of each training. cache: where data is kept. folder: the lines are in
    `{folder}/{name}.jsonl`. data: changes to the task's settings of its data. tell: called with a
    line of text after each piece.
    """
    if not budget > 0 or not seeds or not entrants:
        raise ValueError(
            f"race: expected a positive budget, entrants and seeds, got {budget}, "
            f"{len(entrants)} entrants and {len(seeds)} seeds"
        )
    records = Records(folder / f"{name}.jsonl", before=_refuse_another_processor)
    results: list[dict[str, Any]] = []
    for entrant in entrants:
        results += _raced(
            Start(name, entrant, recipe, profile, cache, data or {}), records, budget, seeds, tell
        )
    return results


def _raced(
    start: Start,
    records: Records,
    budget: float,
    seeds: Sequence[int],
    tell: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Measurement, search and trainings of one entrant."""
    label, task = start.entrant.label, start.task
    known: dict[str, Any] = {"task": start.name, "recipe": start.recipe, "settings": start.settings}
    machine = {name: facts()[name] for name in ("machine", "threads")}
    unit = records.piece(
        {"piece": "unit", **machine},
        lambda: {"seconds": unit_here()},
    )

    def measured() -> dict[str, Any]:
        # Data is made here, as a process of a pool cannot start workers; so are refusals.
        start.lap(steps=sum(MEASURED_STEPS))
        found: dict[str, Any] = in_a_process(start.measured)
        return found

    step = records.piece({"piece": "step", **known}, measured)
    seconds = step["step_units"] * unit["seconds"]
    steps = max(round(budget / seconds), 20)
    tell(f"{label}: {1000 * seconds:.1f} ms per step, {steps} steps")
    known["budget"] = budget

    def error(factor: float) -> float:
        key = {"piece": "rate", **known, "factor": factor}
        line = records.piece(key, lambda: start.tried(factor, steps))
        found: float = line["validation"]
        tell(f"{label}: rates times {factor:g}: validation {found:.4g}")
        return found

    best = searched(error, larger_is_better=task.larger_is_better)
    results = []
    for seed in seeds:
        key = {"piece": "run", **known, "factor": best, "seed": seed}
        line = records.piece(key, lambda seed=seed: start.finished(best, steps, seed))  # type: ignore[misc]
        tell(f"{label}, seed {seed}: test {line['test']:.4g}")
        results.append({**step, **line, "entrant": label})
    return results


def searched(error: Callable[[float], float], *, larger_is_better: bool = False) -> float:
    """The factor of the rates that a search takes; error: the metric after a short training.

    >>> searched(lambda factor: abs(factor - 0.1))
    0.125
    >>> searched(lambda factor: 1.0 if factor < 3 else 0.98)
    1.0
    """
    sign = -1.0 if larger_is_better else 1.0
    cost: dict[float, float] = {}

    def look(factor: float) -> None:
        value = error(factor)
        cost[factor] = sign * value if math.isfinite(value) else math.inf

    def taken() -> float:
        least = min(cost.values())
        near = least * _AS_GOOD if least >= 0 else least / _AS_GOOD
        return statistics.median_low(factor for factor in cost if cost[factor] <= near)

    for factor in RATE_FACTORS:
        look(factor)
    while (lowest := min(cost)) == taken() and lowest > 1 / _FURTHEST:
        look(lowest / 2)
    while (highest := max(cost)) == taken() and highest < _FURTHEST:
        look(2 * highest)
    return taken()


def _refuse_another_processor(records: Records) -> None:
    """Whether times of this processor may stand beside those of the file.

    Raises:
        ValueError: they may not.
    """
    for line in records.lines:
        if line.get("key", {}).get("piece") != "unit":
            continue
        then, here = line["seconds"], unit_here()
        if not 1 / _ALIKE < here / then < _ALIKE:
            raise ValueError(
                f"{records.path}: expected the kind of processor that this race began on, where "
                f"its fixed piece of work takes {1000 * then:.3g} ms, got {processor_name()}, "
                f"where it takes {1000 * here:.3g} ms; choose another folder (--out)"
            )
