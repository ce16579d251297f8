"""Where the time of a training goes: its steps part by part, checkpoints, validation, the report.

    python benchmarks/step_profile.py [TASK ...]

Each bundled task as `funcattn train` trains it, with its settings of the profile `cpu` and its
data, but two epochs of few samples; our network and the paper's; CPU time with one thread. Steps
are the medians over the second epoch. Data that is missing is made first, which can take an hour.
Writes results/step_profile.json, task by task: stopped at any moment, the same command goes on.
"""

import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from lightning_fabric import Fabric
from lightning_fabric.wrappers import _FabricOptimizer
from torch.optim.lr_scheduler import LRScheduler

from funcattn.cli.terminal import CACHE
from funcattn.data import Sample, Store
from funcattn.files import write_text
from funcattn.provenance import facts
from funcattn.settings import changed
from funcattn.tasks import TASKS
from funcattn.training import loop
from funcattn.training.loop import Trainer
from funcattn.training.report import describe_run
from funcattn.training.run import train
from funcattn.training.settings import default_settings
from funcattn.viz import write_run_report

NAMES = ("burgers", "darcy", "navier_stokes", "elasticity", "plasticity", "airfoil", "pipe")
NETWORKS = ("functional_operator", "funcattn")
STEPS, SAMPLES = 12, 8
"""Steps of an epoch, and samples of validation and test."""
RESULT = Path("results/step_profile.json")


class Clock:
    """CPU seconds of calls by part. A part within another one is not counted as the outer one's."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = defaultdict(list)
        """Of what is done once in a while, one number for each call."""
        self.steps: list[Counter[str]] = []
        """Of each step, by part."""
        self._now: Counter[str] | None = None
        self._inner = [0.0]

    def of(self, part: str, call: Callable[..., Any], *, of_step: bool) -> Callable[..., Any]:
        """The same call, measured; of_step: only where it is part of a step."""

        def measured(*given: Any, **named: Any) -> Any:
            if of_step and self._now is None:
                return call(*given, **named)
            with self.running(part):
                return call(*given, **named)

        return measured

    def step(self, call: Callable[..., None]) -> Callable[..., None]:
        """The call that is a step."""

        def measured(*given: Any) -> None:
            self._now = Counter()
            with self.running("the rest"):
                call(*given)
            self.steps.append(self._now)
            self._now = None

        return measured

    @contextmanager
    def running(self, part: str) -> Iterator[None]:
        """What happens inside, as a part."""
        start = time.process_time()
        self._inner.append(0.0)
        yield
        took = time.process_time() - start
        own = took - self._inner.pop()
        self._inner[-1] += took
        if self._now is None:
            self.spent[part].append(own)
        else:
            self._now[part] += own


OF_A_STEP: dict[str, list[tuple[Any, str]]] = {
    "data": [(Trainer, "_visited"), (loop, "on_device")],
    "backward": [(Fabric, "backward")],
    "clipping": [(torch.nn.utils, "clip_grad_norm_")],
    "optimisers": [
        (_FabricOptimizer, "step"),
        (torch.optim.Optimizer, "zero_grad"),
        (LRScheduler, "step"),
    ],
    "moving average": [(Trainer, "_average")],
}
ONCE_IN_A_WHILE = {
    "validation": (loop, "evaluate"),
    "checkpoint": (Trainer, "save"),
    "best weights": (Trainer, "_save_best"),
}


def profiled(name: str, model: str) -> dict[str, dict[str, float]]:
    """Milliseconds of a step by part, and seconds of what is done once in a while."""
    torch.set_num_threads(1)
    defaults = default_settings(name, "cpu", "modern", model)
    settings = changed(defaults, {"optimisation": {"epochs": 2}})
    task, store, clock = TASKS[name](settings), Store(CACHE, workers=1), Clock()
    with clock.running("data"):
        whole = task.splits(store)
        visits = max(STEPS * settings.optimisation.batch // task.visits, 1)
        few = replace(
            whole,
            train=_first(whole.train, visits),
            validation=_first(whole.validation, SAMPLES),
            test=_first(whole.test, SAMPLES),
        )
    task.splits = lambda _: few  # type: ignore[method-assign]
    task.augmented = clock.of("data", task.augmented, of_step=True)  # type: ignore[method-assign]
    for what in ("predict", "loss"):
        setattr(task, what, clock.of("forward and loss", getattr(task, what), of_step=True))
    with ExitStack() as stack:

        def patched(where: Any, what: str, by: Callable[..., Any]) -> None:
            stack.enter_context(mock.patch.object(where, what, by))

        for part, places in OF_A_STEP.items():
            for where, what in places:
                patched(where, what, clock.of(part, getattr(where, what), of_step=True))
        for part, (where, what) in ONCE_IN_A_WHILE.items():
            patched(where, what, clock.of(part, getattr(where, what), of_step=False))
        patched(Trainer, "_train", clock.step(Trainer._train))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        run = train(settings, Path(folder) / "run", store=store, task=task)
        with clock.running("report"):
            write_run_report(run.report, describe_run(run, store, task=task))
    steps = clock.steps[len(clock.steps) // 2 :]
    parts = ("data", "forward and loss", *(p for p in OF_A_STEP if p != "data"), "the rest")
    return {
        "milliseconds of a step": {
            part: round(1e3 * statistics.median(step[part] for step in steps), 3) for part in parts
        },
        "seconds once in a while": {
            "validation of a sample": round(clock.spent["validation"][0] / len(few.validation), 4),
            **{
                part: round(statistics.median(clock.spent[part]), 4)
                for part in ("checkpoint", "best weights", "data", "report")
            },
        },
    }


def _first(samples: Sequence[Sample], count: int) -> list[Sample]:
    return [samples[i] for i in range(min(count, len(samples)))]


def main() -> None:
    """Profile each in a process of its own, print and write."""
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(profiled(*sys.argv[2:])))
        return
    record = {"command": shlex.join(["python", *sys.argv]), "seed": 0, **facts()}
    kept = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    found = kept["profiles"] if kept.get("commit") == record["commit"] else {}
    for model in NETWORKS:
        for name in sys.argv[1:] or NAMES:
            if (key := f"{model}, {name}") not in found:
                asked = [sys.executable, __file__, "--one", name, model]
                done = subprocess.run(asked, check=True, capture_output=True, text=True)
                found[key] = json.loads(done.stdout.splitlines()[-1])
                write_text(RESULT, json.dumps({"profiles": found, **record}, indent=1) + "\n")
            print(key, json.dumps(found[key]), flush=True)


if __name__ == "__main__":
    main()
