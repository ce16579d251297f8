"""Checks of the computation: time and memory, determinism, and the exported file."""

import math
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from funcattn.data import Sample, collate, trapezoid_weights
from funcattn.export import example_inputs, fixed_grid, to_onnx
from funcattn.ops.memory import peak_rise
from funcattn.tasks.own import rows_of_sample
from funcattn.trust.checks.check import (
    THRESHOLDS,
    Examined,
    Found,
    NotApplicableError,
    apart,
    check,
)


@check(
    "Time and memory over the points",
    f"The CPU time of a prediction may grow like the number of points to the "
    f"{THRESHOLDS['cost']:g}.",
)
def cost(examined: Examined) -> Found:
    """Time and memory over the number of points."""
    rows, points, seconds = [], [], []
    numbers: dict[str, Any] = {}
    for factor in examined.sizes:
        larger = _enlarged(examined.samples[0], factor, cloud=examined.takes_clouds)
        call = partial(examined.subject.predictions, collate([larger]))
        spent = min(_cpu_seconds(call) for _ in range(4))
        rise = peak_rise(call) / 2**20
        count = len(larger.positions)
        points.append(float(count))
        seconds.append(spent)
        rows.append((f"{count:,}", f"{1e3 * spent:.3g}", f"{rise:.3g}"))
        numbers[str(count)] = {"milliseconds": 1e3 * spent, "megabytes": rise}
    slope = math.log(seconds[-1] / seconds[-2]) / math.log(points[-1] / points[-2])
    return Found(
        slope <= THRESHOLDS["cost"],
        f"the last step grows like the points to the {slope:.2f}",
        ("points", "CPU milliseconds", "peak memory above the start, MB"),
        rows,
        {"CPU milliseconds": (points, [1e3 * s for s in seconds])},
        ("points", "CPU milliseconds"),
        numbers={"exponent": slope, **numbers},
    )


def _cpu_seconds(call: Any) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def _enlarged(sample: Sample, factor: int, *, cloud: bool) -> Sample:
    """So many times the points, of a grid and of a cloud; only their number matters."""
    if cloud or sample.grid is None:
        many = torch.arange(len(sample.positions)).repeat(factor)
        return rows_of_sample(sample, many)
    axes = len(sample.grid)
    times = round(factor ** (1 / axes))
    grid = tuple(length * times for length in sample.grid)
    places = torch.arange(len(sample.positions)).reshape(sample.grid)
    for axis in range(axes):
        places = places.repeat_interleave(times, axis)
    larger = replace(rows_of_sample(sample, places.flatten()), grid=grid)
    if sample.weights is not None:
        larger = replace(larger, weights=trapezoid_weights(grid, periodic=False).float())
    return larger


@check(
    "Determinism",
    "A second call must give the same bits, and a sample in a batch what it gives alone, up to "
    f"{THRESHOLDS['same']:g}.",
)
def determinism(examined: Examined) -> Found:
    """The same again, and alone as in a batch."""
    samples = list(examined.samples[: examined.few])
    first, second = (examined.subject.predicted(samples[0]) for _ in range(2))
    again = bool(torch.equal(first, second))
    batch = examined.subject.predictions(collate(samples)).mean(0)
    worst = max(
        apart(batch[b, : len(s.positions)], examined.subject.predicted(s))
        for b, s in enumerate(samples)
    )
    return Found(
        again and worst <= THRESHOLDS["same"],
        f"{'the same bits' if again else 'OTHER BITS'}; in a batch {worst:.2g} apart",
        numbers={"same bits": again, "batch": worst},
    )


@check(
    "Export",
    "The ONNX file of the network must give what PyTorch gives, up to "
    f"{THRESHOLDS['export']:g} of the largest value.",
)
def export(examined: Examined) -> Found:
    """The network as an ONNX file, beside PyTorch."""
    task, network = examined.subject.task, examined.subject.run.network
    example = example_inputs(task, network, weights=task.weighted)
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "network.onnx"
            to_onnx(network, path, example, grid=fixed_grid(task, network))
    except ModuleNotFoundError as error:
        raise NotApplicableError(f"{error.name} is not installed") from error
    except ValueError as error:
        raise NotApplicableError(f"the network cannot be written: {error}") from error
    except RuntimeError as error:
        return Found(False, str(error).splitlines()[0])
    return Found(True, "the file and the network agree")
