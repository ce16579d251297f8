"""Fill in the tables of docs/trust.md and draw its pictures, from results/trust.json.

    python benchmarks/trust_page.py
    python benchmarks/trust_page.py --run runs/burgers --cache CACHE

A calibrated run on a line is drawn with its band, where one is given.
"""

import argparse
import json
from pathlib import Path

import torch
from matplotlib.figure import Figure
from trust_tables import NO_FIELD, PAGE, RESULTS, page

from funcattn.data import Store, collate
from funcattn.files import write_text
from funcattn.serve.bands import read_bands
from funcattn.trust.breakeven_page import draw_costs, few_ticks
from funcattn.trust.subject import FRESH, open_subject
from funcattn.viz.saving import write_figure
from funcattn.viz.style import PREDICTION, TRUTH


def main() -> None:
    """Write the page and its pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--cache", type=Path)
    asked = parser.parse_args()
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    pictures = {
        "trust_unlike": unlike(results),
        "trust_breakeven": breakeven(results),
        "trust_audit": audits(results),
    }
    if asked.run is not None:
        pictures["trust_bands"] = bands(asked.run, asked.cache, results)
    for name, figure in pictures.items():
        print(*write_figure(figure, PAGE.parent / "pictures" / name)[:1])
    write_text(PAGE, page())


def bands(folder: Path, cache: Path, results: dict) -> Figure:
    """A sample with its band, and coverage measured over coverage asked for."""
    subject = open_subject(folder, Store(cache))
    calibrated = read_bands(subject.run)
    assert calibrated is not None
    samples = subject.fresh(20, 2 * FRESH)
    worst = int(subject.errors(samples).argmax())
    sample = samples[worst]
    batch = collate([sample])
    said = subject.predictions(batch)
    ends = calibrated.around(subject.task.problem, said, batch.positions, batch.values)
    figure = Figure(figsize=(10.8, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    x = sample.positions[:, 0].numpy()
    middle, low, high = (part[0, :, 0].numpy() for part in ends)
    left.fill_between(x, low - middle, high - middle, color=PREDICTION, alpha=0.3, label="band")
    left.plot(x, sample.target[:, 0].numpy() - middle, color=TRUTH, label="truth")
    left.axhline(0, linestyle="--", color=PREDICTION, label="prediction")
    left.set(
        xlabel="place on the circle",
        ylabel="minus the prediction",
        title="Final velocity of the worst of 20 samples, band at 90 %",
    )
    left.legend(fontsize=8)
    right.plot([0.45, 1], [0.45, 1], color="grey", linewidth=1, label="as asked")
    for task, parts in results.items():
        if "bands" not in parts:
            continue
        for field, found in parts["bands"]["found"]["learned"]["as trained"][
            "inside at all points"
        ].items():
            if (task, field) == NO_FIELD:
                continue
            name = f"{task}, {field}" if task == "airfrans" else task
            right.plot([float(c) for c in found], list(found.values()), "o", label=name)
    right.set(
        xlabel="coverage asked for",
        ylabel="samples inside at all points",
        title="On fresh samples",
    )
    right.legend(fontsize=8)
    return figure


def unlike(results: dict) -> Figure:
    """How often samples of other distributions are flagged, over how much larger the error is."""
    figure = Figure(figsize=(8, 3.8), layout="constrained")
    axis = figure.subplots()
    for task, parts in results.items():
        if "unlike" not in parts:
            continue
        found = parts["unlike"]["found"]
        others = {name: each for name, each in found.items() if isinstance(each, dict)}
        growth = [each["error"] / found["error as trained"] for each in others.values()]
        area = [each["area under the ROC curve"] for each in others.values()]
        axis.plot(growth, area, "o", label=task)
    axis.axhline(0.5, color="grey", linewidth=1)
    axis.axvline(1.0, color="grey", linewidth=1)
    axis.set(
        xscale="log",
        xlabel="error on the other distribution, over that as trained",
        ylabel="area under the ROC curve",
        title="Each point is another distribution of inputs",
    )
    axis.legend(fontsize=8)
    return figure


def breakeven(results: dict) -> Figure:
    """Error over CPU time: the solver on its meshes, and the surrogate."""
    shown = {t: p["breakeven"]["found"] for t, p in results.items() if "breakeven" in p}
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(10.8, 2.7 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes[len(shown) :]:
        axis.set_axis_off()
    for axis, (task, found) in zip(axes, shown.items(), strict=False):
        rungs = [(rung["seconds"], rung["error"]) for rung in found["rungs"]]
        draw_costs(axis, rungs, (found["inference_seconds"], found["error"]))
        axis.set_title(task, fontsize=10)
    axes[0].legend(fontsize=8)
    figure.supxlabel("CPU milliseconds of one", fontsize=10)
    figure.supylabel("error", fontsize=10)
    return figure


def audits(results: dict) -> Figure:
    """The curves of the audits: error over resolution and wave numbers, time over points."""
    titles = ("Other resolutions", "Wave numbers", "Time and memory over the points")
    figure = Figure(figsize=(10.8, 3.2), layout="constrained")
    for axis, title in zip(figure.subplots(1, len(titles)), titles, strict=True):
        for task, parts in results.items():
            if "audit" not in parts:
                continue
            check = parts["audit"]["found"]["checks"][title]
            for line in check["lines"].values():
                x, y = zip(*sorted(zip(*line, strict=True)), strict=True)
                axis.plot(x, y, "o-", markersize=4, linewidth=1, label=task)
                axis.set(xlabel=check["axes"][0], ylabel=check["axes"][1])
        axis.set(xscale="log", yscale="log")
        axis.set_title(title, fontsize=10)
        few_ticks(axis)
        axis.legend(fontsize=8)
    return figure


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
