"""Measurements within one process: agreement, time and operations of candidates."""

import math
import os
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from funcattn.bench.candidates import CANDIDATES, PLAIN, Candidate, Scope, Shape, give_weights
from funcattn.training.cost import ON_CPU

resource: Any
try:
    import resource
except ModuleNotFoundError:  # on Windows
    resource = None

Call = Callable[[], object]
Say = Callable[[str], None]

AGREE_AT_MOST: Mapping[Scope, int] = {"layer": 2**14, "model": 2**12}
"""Points at which forms are compared, at most: enough for several chunks."""
AGREE_IN: Mapping[Scope, torch.dtype] = {"layer": torch.float32, "model": torch.float64}
"""What forms compute in when they are compared with the plain one in float64. Over eight layers the
rounding of float32 grows beyond any tolerance that would tell right from wrong."""
OUTPUT_TOLERANCE, GRADIENT_TOLERANCE = 1e-5, 1e-4
"""Of a float32 form against the plain one in float64, relative. A gradient that is a single number,
such as that of the ridge, is a sum that cancels: there the plain form itself is off by 2e-5."""
MOST_ROUNDS, YARDSTICK_ROUNDS = 200, 10
KINDS: Mapping[Scope, tuple[str, str]] = {
    "layer": ("forward", "forward + backward"),
    "model": ("forward", "training step"),
}


@dataclass(frozen=True)
class Job:
    """What a process is asked to measure."""

    what: Literal["time", "memory"]
    part: Scope
    shape: Shape
    points: int
    candidates: tuple[str, ...]
    rounds: int = 5
    """At least so many."""
    seconds: float = 1.5
    """About so long for a candidate, once the rounds are done."""

    def chosen(self) -> dict[str, Candidate]:
        """The candidates by name."""
        return {name: CANDIDATES[self.part][name] for name in self.candidates}


def inputs(part: Scope, shape: Shape, points: int, batch: int = 1) -> tuple[Tensor, ...]:
    """What calls are given, the same always.

    Of a layer, features and the gradient of what it makes of them; of a network, positions, values
    and what it should make of them.
    """
    random = torch.Generator().manual_seed(1)
    if part == "layer":
        size = (batch, points, shape.width)
        x, cotangent = (torch.randn(size, generator=random) for _ in range(2))
        return x.requires_grad_(), cotangent
    values, target = (torch.randn(batch, points, 1, generator=random) for _ in range(2))
    return torch.rand(batch, points, 2, generator=random), values, target


def calls(part: Scope, module: nn.Module, given: tuple[Tensor, ...]) -> dict[str, Call]:
    """What is measured of a module on these inputs, by kind."""
    forward, with_gradient = KINDS[part]
    fields = given[:-1]
    step = _gradients(module, given) if part == "layer" else _training_step(module, given)
    return {forward: torch.no_grad()(lambda: module(*fields)), with_gradient: step}


def _gradients(module: nn.Module, given: tuple[Tensor, ...]) -> Call:
    x, cotangent = given

    def there_and_back() -> None:
        x.grad = None
        module.zero_grad()
        module(x).backward(cotangent)

    return there_and_back


def _training_step(module: nn.Module, given: tuple[Tensor, ...]) -> Call:
    positions, values, target = given
    optimiser = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimiser.zero_grad()
        (module(positions, values) - target).square().mean().backward()
        optimiser.step()

    return step


def outcome(module: nn.Module, given: Sequence[Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """What a module makes of its inputs, and the gradients of them and of all weights by name.

    given: the inputs, and last the gradient of what is made of them.
    """
    fields = {f"input {i}": field.clone().requires_grad_() for i, field in enumerate(given[:-1])}
    out = module(*fields.values())
    sources = {**fields, **dict(module.named_parameters())}
    found = torch.autograd.grad(out, list(sources.values()), given[-1])
    return out.detach(), dict(zip(sources, found, strict=True))


def agreement(
    found: tuple[Tensor, dict[str, Tensor]], truth: tuple[Tensor, dict[str, Tensor]]
) -> dict[str, Any]:
    """How far one outcome is from another.

    Errors are relative: of the output to its largest value, of a gradient to its norm. `failed`
    says what is above its tolerance, and is not there where all is well.
    """
    (out, grads), (true_out, true_grads) = found, truth
    output = float((out - true_out).abs().max() / true_out.abs().max())
    each = {name: float((grads[name] - g).norm() / g.norm()) for name, g in true_grads.items()}
    worst = max(each, key=lambda name: math.inf if math.isnan(each[name]) else each[name])
    said: dict[str, Any] = {"output": output, "gradient": each[worst], "worst gradient": worst}
    failed = [
        f"{what} is off by {error:.2g}, expected at most {most:g}"
        for what, error, most in (
            ("output", output, OUTPUT_TOLERANCE),
            (f"gradient of {worst}", each[worst], GRADIENT_TOLERANCE),
        )
        if not error <= most  # not `>`: what is not a number has failed too
    ]
    if failed:
        said["failed"] = "; ".join(failed)
    return said


def interleaved(
    candidates: Mapping[str, Call],
    *,
    rounds: int,
    seconds: float,
    yardsticks: Mapping[str, Call],
    say: Say,
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Seconds of each call, in turns, round by round, and what went wrong.

    Each round has an order of its own, drawn once for all: what comes before a call, by the caches
    and the heap that it leaves, is worth some percent.

    Calls have been made once before, to warm. The first round says how many there is time for: one
    that fills its seconds with the least rounds has no more, so that it does not take the time of
    the others. Yardsticks are part of the first rounds only. A candidate that fails is out.
    """
    running = dict(candidates)
    took: dict[str, list[float]] = {name: [] for name in (*candidates, *yardsticks)}
    failed: dict[str, str] = {}

    orders = random.Random(0)

    def one_round(calls: Mapping[str, Call]) -> None:
        for name in orders.sample(list(calls), len(calls)):
            try:
                took[name].append(seconds_of(calls[name]))
            except (RuntimeError, MemoryError) as error:
                failed[name] = short(error)
                running.pop(name)

    one_round({**running, **yardsticks})
    brief = [name for name in running if took[name][0] * rounds < seconds]
    once = sum(took[name][0] for name in brief)
    wanted = min(MOST_ROUNDS, max(rounds, round(seconds * len(brief) / max(once, 1e-9))))
    said = time.perf_counter()
    for index in range(1, wanted):
        on = {name: call for name, call in running.items() if index < rounds or name in brief}
        one_round({**on, **(yardsticks if index < YARDSTICK_ROUNDS else {})})
        if time.perf_counter() - said > 1:
            said = time.perf_counter()
            say(f"round {index + 1} of {wanted}")
    return took, failed


def summary(took: Sequence[float]) -> dict[str, Any]:
    """Median and quartiles of seconds.

    >>> summary([3.0, 1.0, 2.0])
    {'median': 2.0, 'quartiles': [1.5, 2.5], 'rounds': 3}
    """
    low, middle, high = statistics.quantiles(took, n=4, method="inclusive")
    return {"median": middle, "quartiles": [low, high], "rounds": len(took)}


def operations(call: Call, *, run_plainly: bool = False) -> int | None:
    """Floating-point operations of the matrix products of a call, two for a multiply-add.

    run_plainly: do not count. Compiled code would not show what it does.
    """
    if run_plainly:
        call()
        return None
    with FlopCounterMode(display=False, custom_mapping=ON_CPU) as counter:
        call()
    return int(counter.get_total_flops())


def machine_yardsticks() -> tuple[dict[str, Call], dict[str, float]]:
    """A matrix product and a copy, and the operations and bytes of one call of each."""
    size, floats = 2048, 2**25
    a, b = torch.randn(2, size, size).unbind()
    product = torch.empty(size, size)
    source, target = torch.zeros(floats), torch.zeros(floats)
    works: dict[str, Call] = {
        "matrix product": lambda: torch.mm(a, b, out=product),
        "copy": lambda: target.copy_(source),
    }
    # A copy reads and writes four bytes per number.
    return works, {"matrix product": 2.0 * size**3, "copy": 8.0 * floats}


def product_rate(times: int = 10) -> float:
    """Of the matrix product, operations per second: the best of so many calls."""
    works, amounts = machine_yardsticks()
    call, best = works["matrix product"], math.inf
    for _ in range(times):
        best = min(best, seconds_of(call))
    return amounts["matrix product"] / best


def seconds_of(call: Call) -> float:
    """Of one call: CPU time of one thread, the clock's of several.

    Other work on the machine takes little of the CPU time of one thread, but much on the clock.
    """
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    call()
    return clock() - start


def page_faults() -> int:
    """Of making a buffer of 64 MiB over and over, the fewest: none where pages are kept."""
    if resource is None:
        raise OSError("page faults: expected a system that counts them, got Windows")
    faults = []
    for _ in range(4):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(2**24)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return min(faults)


def measure_time(job: Job, say: Say) -> dict[str, Any]:
    """Agreement, times and operations of all candidates of a job, and the machine's yardsticks."""
    faults, load = page_faults(), os.getloadavg()[0]
    chosen = job.chosen()
    found: dict[str, dict[str, Any]] = {name: {} for name in chosen}
    modules = _modules_that_agree(job, found, say)
    works, amounts = machine_yardsticks()
    best = dict.fromkeys(works, math.inf)
    given = inputs(job.part, job.shape, job.points)
    of_module = {name: calls(job.part, module, given) for name, module in modules.items()}
    for kind in KINDS[job.part]:
        counts, running = {}, {}
        for name in modules:
            say(f"{kind}, {name}: first call")
            # Forms of one layer do the same work, and counting takes memory, with blocks computed
            # again nearly as much as the step itself.
            uncounted = chosen[name].functional and name != PLAIN
            try:
                counts[name] = operations(of_module[name][kind], run_plainly=uncounted)
                running[name] = of_module[name][kind]
            except (RuntimeError, MemoryError) as error:
                found[name][kind] = {"failed": short(error)}
        took, failed = interleaved(
            running,
            rounds=job.rounds,
            seconds=job.seconds,
            yardsticks=works,
            say=partial(_say_of, say, kind),
        )
        for name in running:
            # A basis computed twice is no more work.
            count = counts.get(PLAIN) if chosen[name].functional else counts[name]
            found[name][kind] = (
                {"failed": failed[name]}
                if name in failed
                else {**summary(took[name]), "operations": count}
            )
        best = {name: min(best[name], *took[name]) for name in works}
    return {
        "candidates": found,
        # The best of several: what the machine can do when nothing disturbs it.
        "rates": {name: amounts[name] / seconds for name, seconds in best.items()},
        "page_faults": faults,
        "load": load,
    }


def _say_of(say: Say, what: str, text: str) -> None:
    say(f"{what}, {text}")


def _modules_that_agree(
    job: Job, found: dict[str, dict[str, Any]], say: Say
) -> dict[str, nn.Module]:
    """The candidates built; forms of functional attention only where they pass their test."""
    modules: dict[str, nn.Module] = {}
    points = min(job.points, AGREE_AT_MOST[job.part])
    given = [each.detach().double() for each in inputs(job.part, job.shape, points)]
    dtype = AGREE_IN[job.part]
    truth = None
    for name, candidate in job.chosen().items():
        module = candidate.build(job.shape, job.points)
        modules[name] = module
        if not candidate.functional:
            continue
        give_weights(module)
        say(f"{name}: does it agree with the plain form?")
        if truth is None:
            plain = CANDIDATES[job.part][PLAIN].build(job.shape, points).double()
            give_weights(plain)
            truth = outcome(plain, given)
        try:
            of_form = outcome(module.to(dtype), [each.to(dtype) for each in given])
            found[name]["agreement"] = agreement(of_form, truth)
        except Exception as error:  # a form that breaks in any way has failed its test
            found[name]["agreement"] = {"failed": short(error)}
        module.float()
        if "failed" in found[name]["agreement"]:
            del modules[name]
    return modules


def short(error: Exception) -> str:
    """An error in a line."""
    text = str(error)
    if "not enough memory" in text or "can't allocate memory" in text or not text:
        return "out of memory"
    return text.strip().splitlines()[0][:200]
