"""The process that measures: a job as JSON on standard input, what it found on standard output.

Lines {"said": ...} tell how far it is, the last one is {"found": ...}.
"""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from funcattn.bench.alone import Alone, measure_alone
from funcattn.bench.candidates import Shape
from funcattn.bench.measure import Job, Say, measure_time, product_rate
from funcattn.bench.memory import measure_memory, stay_within_memory
from funcattn.bench.scale import measure_feat

JOBS: Mapping[str, Callable[[Job, Say], dict[str, Any]]] = {
    "time": measure_time,
    "memory": measure_memory,
}


def done(asked: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """What was asked for."""
    if asked["what"] == "scale":
        return measure_feat(asked["name"], say)
    if asked["what"] == "product rate":
        return {"rate": product_rate()}
    if asked["what"] == "alone":
        case = {**asked["case"], "shape": Shape(**asked["case"]["shape"])}
        return measure_alone(Alone(**case), asked["candidate"])
    more = {"shape": Shape(**asked["shape"]), "candidates": tuple(asked["candidates"])}
    return JOBS[asked["what"]](Job(**{**asked, **more}), say)


def main() -> None:
    """Do the job."""
    asked = json.load(sys.stdin)
    torch.set_num_threads(asked.pop("threads"))
    torch.manual_seed(0)
    stay_within_memory()

    def say(text: str) -> None:
        print(json.dumps({"said": text}), flush=True)  # noqa: T201

    print(json.dumps({"found": done(asked, say)}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
