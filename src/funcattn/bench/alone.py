"""Candidates alone, each in a process of its own, as in training.

In the other parts of the bench all candidates take turns in one process, where the memory that one
holds changes what the allocator does for the next. Here processes take turns instead: ours, the
others, ours again.
"""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from funcattn.bench.candidates import (
    ALONE,
    HALF,
    NEAREST,
    OURS,
    REFERENCE,
    Scope,
    Shape,
    give_weights,
)
from funcattn.bench.found import Found, Record, TextTable, in_milliseconds, ratio, seconds
from funcattn.bench.measure import KINDS, Call, calls, inputs, seconds_of

PROCESSES = 3
"""For each candidate."""
FEWEST, MOST, SECONDS = 3, 12, 3.0
"""Calls of a process: as many as take about so long."""
COSTLY_UP_TO = 2**14
"""Points up to which the reference form and bfloat16 are measured too."""


@dataclass(frozen=True)
class Alone:
    """What candidates are asked to do."""

    part: Scope
    shape: Shape
    points: int
    batch: int = 1

    @property
    def candidates(self) -> tuple[str, ...]:
        """Who is asked."""
        if self.points > COSTLY_UP_TO:
            return (OURS, NEAREST)
        return tuple(ALONE[self.part])

    @property
    def key(self) -> str:
        """Its name in the file, but for the threads."""
        return f"alone {self.part} {self.shape}, {self.batch} times {self.points} points"


_EIGHT, _ONE = Shape(128, 64, 8), Shape(128, 64, 1)
CASES: Sequence[Alone] = (
    *(Alone("layer", _EIGHT, points) for points in (512, 1024, 2048)),
    *(Alone("layer", _EIGHT, 4**k) for k in range(6, 11)),
    Alone("layer", _EIGHT, 972, batch=8),
    *(Alone("layer", _ONE, points) for points in (2048, *(4**k for k in range(7, 11)))),
    Alone("model", _EIGHT, 972, batch=4),
    Alone("model", _EIGHT, 7225),
)


def measure_alone(case: Alone, candidate: str) -> dict[str, float]:
    """CPU seconds of a call, by kind: the lower quartile of those of this process."""
    module = ALONE[case.part][candidate].build(case.shape, case.points)
    give_weights(module)
    given = inputs(case.part, case.shape, case.points, case.batch)
    return {kind: _quartile(call) for kind, call in calls(case.part, module, given).items()}


def _quartile(call: Call) -> float:
    wanted = min(MOST, max(FEWEST, round(SECONDS / seconds_of(call))))
    for _ in range(wanted // 4):  # to warm
        call()
    return statistics.quantiles([seconds_of(call) for _ in range(wanted)], n=4)[0]


def merged(case: Alone, threads: int, took: Sequence[dict[str, dict[str, float]]]) -> Record:
    """The record of a case; took: of each round of processes, by candidate and kind."""
    candidates: dict[str, Any] = {}
    for name in case.candidates:
        each = {kind: [one[name][kind] for one in took] for kind in KINDS[case.part]}
        candidates[name] = {
            kind: {"median": statistics.median(values), "processes": values}
            for kind, values in each.items()
        }
    return {
        **asdict(case),
        "part": "alone",
        "of": case.part,
        "threads": threads,
        "candidates": candidates,
    }


def record_of(found: Found, case: Alone) -> Record | None:
    """What was measured of a case."""
    return next(
        (
            record
            for record in found.records
            if record.get("part") == "alone"
            and record["of"] == case.part
            and Shape(**record["shape"]) == case.shape
            and (record["points"], record["batch"]) == (case.points, case.batch)
        ),
        None,
    )


def faster(found: Found, case: Alone, kind: str, than: str, who: str = OURS) -> float | None:
    """How many times as long another candidate takes."""
    record = record_of(found, case)
    return ratio(seconds(record, than, kind), seconds(record, who, kind))


def table(found: Found) -> TextTable:
    """All cases."""
    rows = []
    for case in CASES:
        record = record_of(found, case)
        if record is None:
            continue
        heads = "8 heads" if case.shape == _EIGHT else "1 head"
        what = f"layer, {heads}" if case.part == "layer" else "network of 8 layers"
        times = "" if case.batch == 1 else f"{case.batch} times "
        for kind in KINDS[case.part]:
            took = [seconds(record, name, kind) for name in (OURS, REFERENCE, NEAREST)]
            gains = [
                faster(found, case, kind, REFERENCE),
                faster(found, case, kind, NEAREST),
                faster(found, case, kind, OURS, HALF),
            ]
            rows.append(
                [
                    f"{what}, {times}{case.points:,} points, {kind}",
                    *("-" if t is None else in_milliseconds(t) for t in took),
                    *("-" if gain is None else f"{gain:.2f}x" for gain in gains),
                ]
            )
    headers = ["", "ours, ms", "reference form, ms", "LinearNO, ms"]
    headers += ["faster than the reference form by", "than LinearNO by", "in bfloat16 by"]
    return TextTable(headers, rows)
