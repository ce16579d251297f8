"""What one machine can still do: single calls with very many points, each in a process of its own.

To add one, add it to `FEATS`.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from funcattn.bench.candidates import (
    CANDIDATES,
    CHECKPOINTED,
    OURS,
    STREAMED,
    Scope,
    Shape,
)
from funcattn.bench.measure import KINDS, Call, Say, calls, inputs
from funcattn.bench.memory import SMALL
from funcattn.models import OperatorTransformer, predict_streamed
from funcattn.ops.memory import peak_rise, status

SHAPE = Shape(128, 64, 8)
MILLION = 2**20


@dataclass(frozen=True)
class Feat:
    """A call with very many points, and the memory it may take."""

    title: str
    points: int
    prepare: Callable[[int, Say], Call]
    """The call for a number of points, with its inputs made, and where it may say how far it is."""
    limit: int
    """Bytes that may count."""
    output: int | None
    """Bytes that the call returns, which do not count; None: all memory of the process counts."""


def _prepared(part: Scope, candidate: str, kind: str) -> Callable[[int, Say], Call]:
    def prepare(points: int, say: Say) -> Call:  # noqa: ARG001
        module = CANDIDATES[part][candidate].build(SHAPE, points)
        return calls(part, module, inputs(part, SHAPE, points))[kind]

    return prepare


def _inference(points: int, say: Say) -> Call:
    """Fields on a mesh, by the memory of a few chunks of it, with nothing put on a disk."""
    network = CANDIDATES["model"][OURS].build(SHAPE, points).eval()
    assert isinstance(network, OperatorTransformer)
    positions, values, out = (field[0].numpy() for field in inputs("model", SHAPE, points))

    def progress(done: int, of: int) -> None:
        say(f"{done / of:.1%}")

    return lambda: predict_streamed(network, positions, values, out=out, progress=progress)


FEATS: Mapping[str, Feat] = {
    "layer": Feat(
        "forward of a layer, a million points: memory above input and output",
        MILLION,
        _prepared("layer", STREAMED, KINDS["layer"][0]),
        limit=2**30,
        output=4 * SHAPE.width * MILLION,
    ),
    "training step": Feat(
        "training step of 8 layers, a million points: memory of the process",
        MILLION,
        _prepared("model", CHECKPOINTED, KINDS["model"][1]),
        limit=16 * 2**30,
        output=None,
    ),
    "inference": Feat(
        "inference of 8 layers, ten million points: memory of the process",
        10**7,
        _inference,
        limit=8 * 2**30,
        output=None,
    ),
}


def measure_feat(name: str, say: Say) -> dict[str, Any]:
    """Seconds and memory of one call, after a small one that warms the process."""
    feat = FEATS[name]
    feat.prepare(min(SMALL, feat.points), say)()
    call = feat.prepare(feat.points, say)
    say(f"{feat.points:,} points")
    start = time.perf_counter()
    rise = peak_rise(call)
    process = status("VmHWM")
    return {
        "title": feat.title,
        "points": feat.points,
        "seconds": time.perf_counter() - start,
        "rise": rise,
        "process": process,
        "counted": process if feat.output is None else rise - feat.output,
    }
