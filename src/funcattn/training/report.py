"""The report of a finished run: its test, cases, curves, learned bases."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from funcattn.data import Sample, Store, collate
from funcattn.nn import inspect
from funcattn.problem import Field
from funcattn.tasks import Task
from funcattn.training.evaluation import first_calls
from funcattn.training.run import Run
from funcattn.viz import Canvas, Case, Panel, Row, RunReport, canvas, point_rows, write_run_report

SMALL = 5_000
"""Points of a sample that are drawn."""
Singles = npt.NDArray[np.float32]


def write_report(run: Run, store: Store) -> Path:
    """Write the report of a finished run, unless it is there; where it is."""
    if not run.report.exists():
        write_run_report(run.report, describe_run(run, store))
    return run.report


def describe_run(run: Run, store: Store, *, task: Task | None = None) -> RunReport:
    """The report of a finished run, ready to be written.

    task: one that has its samples with it; by default the run's.
    """
    record, history, task = run.record, run.history, task or run.task
    samples = task.splits(store).test

    errors = np.array(record["test_values"][task.headline])
    ranking = np.argsort(-errors if task.larger_is_better else errors, kind="stable")
    cases: list[Case] = []
    bases: dict[str, Singles] = {}
    for label, place in (("best", 0), ("median", len(ranking) // 2), ("worst", -1)):
        index = int(ranking[place])
        case, seen = drawn_case(task, run.network, samples[index], label, float(errors[index]))
        cases.append(case)
        bases = bases or seen
    layers = [name for name in history[0] if name.startswith("condition_")]
    hidden = {"settings", "test", "test_values"}
    return RunReport(
        title=task.title,
        summary=(
            f"{task.headline.replace('_', ' ')} {record['test'][task.headline]:.4g} on "
            f"{len(samples)} test samples, {record['test_note']}."
        ),
        picture=task.picture,
        settings=asdict(run.settings),
        history=history,
        headline=task.headline,
        larger_is_better=task.larger_is_better,
        best_epoch=record["best_epoch"],
        test_metrics=record["test_values"],
        cases=cases,
        bases=bases,
        conditions={
            name.replace("condition_", "layer "): [line[name] for line in history]
            for name in layers
        },
        facts={
            name.replace("_", " "): value if isinstance(value, str) else json.dumps(value)
            for name, value in record.items()
            if name not in hidden
        },
    )


def drawn_case(
    task: Task, network: nn.Module, sample: Sample, label: str, error: float
) -> tuple[Case, dict[str, Singles]]:
    """A test sample beside its prediction, and the basis functions of each layer on it."""
    prediction, bases = _look(task, network, sample)
    return _case(task, label, error, sample, prediction), bases


@torch.no_grad()
def _look(task: Task, surrogate: nn.Module, sample: Sample) -> tuple[Tensor, dict[str, Singles]]:
    """The prediction of one sample, and the values (g n) of each layer's first head on it.

    Of a task that calls its network for each frame, the values are those of the first one.
    """
    dtype = next(surrogate.parameters()).dtype
    with inspect(surrogate) as calls:
        prediction = task.predict(surrogate.eval(), collate([sample]).to("cpu", dtype))[0].float()
    bases = [
        call.basis  # and not a fast transform
        for call in first_calls(calls)
        if isinstance(call.basis, Tensor)
    ]
    return prediction, {
        f"layer {number}": values[0, 0].T.float().numpy() for number, values in enumerate(bases, 1)
    }


def _case(task: Task, label: str, error: float, sample: Sample, prediction: Tensor) -> Case:
    """One test sample as arrays; of logits, the label they choose."""
    classes = not sample.target.is_floating_point()
    return Case(
        label=label,
        error=error,
        positions=task.drawn_at(sample).numpy(),
        grid=sample.grid,
        inputs=None if sample.values is None else sample.values.numpy(),
        truth=sample.target.numpy(),
        prediction=(prediction.argmax(-1) if classes else prediction).numpy(),
        context=None if sample.context is None else sample.context.numpy(),
        on_body=None if sample.surface is None else (sample.surface > 0).numpy(),
        input_names=_channel_names(task.problem.inputs, sample.values),
        output_names=() if classes else _channel_names(task.problem.outputs, sample.target),
    )


def _channel_names(fields: Sequence[Field], values: Tensor | None) -> tuple[str, ...]:
    """A name with its unit per channel; none where these are not the channels of the fields."""
    names = tuple(
        f"{name} [{each.unit}]" if each.unit else name
        for each in fields
        for name in each.channel_names
    )
    return names if values is not None and len(names) == values.shape[-1] else ()


def sample_picture(task: Task, store: Store, count: int = 3) -> Figure:
    """The first training samples of a task: what goes in, and what should come out."""
    samples = task.splits(store).train
    rows = []
    for number in range(min(count, len(samples))):
        sample = samples[number]
        portrait = task.portrait(sample)
        if portrait is None:
            place = _place(task.drawn_at(sample), sample.grid, sample.surface)
            inputs = [] if sample.values is None else _panels("input", sample.values, "cividis")
            target = sample.target.reshape(len(sample.positions), -1)
            panels = [*inputs, *_panels("output", target)]
        else:
            place = _place(portrait.positions, sample.grid, portrait.surface)
            panels = [Panel(name, f.double().numpy()) for name, f in portrait.fields.items()]
        rows.append(Row(f"sample {number}", place, panels))
    return point_rows(rows)


def _place(points: Tensor, grid: tuple[int, ...] | None, surface: Tensor | None) -> Canvas:
    on_body = None if surface is None else (surface > 0).numpy()
    return canvas(points.double().numpy(), grid, most=SMALL, on_body=on_body)


def _panels(name: str, fields: Tensor, colours: str = "viridis", most: int = 4) -> list[Panel]:
    """Up to four channels (n k), evenly spread, in one colour range."""
    channels = fields.shape[1]
    shown = np.unique(np.linspace(0, channels - 1, min(channels, most)).round().astype(int))
    return [
        Panel(
            name if channels == 1 else f"{name} {channel + 1}",
            fields[:, channel].double().numpy(),
            colours,
            scale=name,
        )
        for channel in shown.tolist()
    ]
