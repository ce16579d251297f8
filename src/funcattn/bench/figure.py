"""Time and memory over the number of points, as a picture."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from funcattn.bench.candidates import (
    CANDIDATES,
    CHECKPOINTED,
    COMPILED,
    LAYERS,
    LAYERS_OF_MODEL,
    OURS,
    PLAIN,
    REFERENCE,
    STREAMED,
    Shape,
)
from funcattn.bench.measure import KINDS
from funcattn.viz.style import PAGE_WIDTH, PREDICTION, TRUTH

Record = Mapping[str, Any]

_LINE: dict[str, Any] = {"linewidth": 1.3, "markersize": 4}
_OURS: dict[str, Any] = {**_LINE, "color": PREDICTION, "zorder": 3}
_WHOLE: dict[str, Any] = {**_LINE, "color": "#8a5a2b"}
_LOOKS: dict[str, dict[str, Any]] = {
    OURS: {**_OURS, "linewidth": 2.6, "marker": "o"},
    STREAMED: {**_OURS, "linestyle": "--", "marker": "s"},
    "functional, stored": {**_OURS, "linestyle": ":", "marker": "^"},
    PLAIN: {**_WHOLE, "marker": "v"},
    COMPILED: {**_WHOLE, "linestyle": "--", "marker": "d"},
    CHECKPOINTED: {**_OURS, "linestyle": "--", "marker": "s"},
    REFERENCE: {**_LINE, "color": TRUTH, "linewidth": 2.2, "marker": "o", "zorder": 2.9},
}
_LOOKS |= dict(
    zip(
        (name for name in LAYERS if name not in _LOOKS),
        (
            {**_LINE, "color": colour, "marker": marker, "alpha": 0.85}
            for colour, marker in (
                ("#c8102e", "x"),
                ("#2463b0", "o"),
                ("#1a9aa0", "s"),
                ("#7b4fa3", "^"),
                ("#3c8d40", "v"),
                ("#d98cb3", "D"),
                ("#6f7d8c", "P"),
                ("#b8a000", "X"),
                ("#6ab0e8", "*"),
            )
        ),
        strict=True,
    )
)


def curves(records: Sequence[Record]) -> Figure:
    """A column of time and one of memory, a row forward and one with backward; log-log.

    records: layers, or networks, of one shape at one number of points each, with one allocator.
    """
    records = sorted(records, key=lambda record: record["points"])
    kinds = KINDS[records[0]["part"]]
    figure = Figure(figsize=(PAGE_WIDTH, 7.4), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True)
    for row, kind in zip(axes, kinds, strict=True):
        _lines(row[0], records, lambda found, kind=kind: _seconds(found, kind))  # type: ignore[misc]
        row[0].set_ylabel(f"{kind}, milliseconds")
        _lines(row[1], records, lambda found, kind=kind: _megabytes(found, kind))  # type: ignore[misc]
        row[1].set_ylabel(f"{kind}, peak memory, MB")
    for axis in axes.ravel():
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.grid(visible=True, alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel("points")
    handles = {
        label: line
        for axis in axes.ravel()
        for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside right center", fontsize=9)
    shape, threads = Shape(**records[0]["shape"]), records[0]["threads"]
    what = "One layer" if records[0]["part"] == "layer" else f"Network of {LAYERS_OF_MODEL} layers"
    figure.suptitle(
        f"{what}, width {shape.width}, {shape.bases} bases, {shape.heads} "
        f"head{'s' * (shape.heads > 1)}; float32, {threads} thread{'s' * (threads > 1)}, "
        f"{records[0]['allocator']} allocator",
        fontsize=11,
    )
    return figure


def _lines(axis: Axes, records: Sequence[Record], value: Callable[[Record], float]) -> None:
    for name in CANDIDATES[records[0]["part"]]:
        found = [record["candidates"].get(name, {}) for record in records]
        heights = [value(of) for of in found]
        if any(not math.isnan(height) for height in heights):
            axis.plot(
                [record["points"] for record in records],
                heights,
                label=name,
                **_LOOKS[name],
            )


def _seconds(found: Record, kind: str) -> float:
    return 1e3 * found.get(kind, {}).get("median", math.nan)


def _megabytes(found: Record, kind: str) -> float:
    return found.get("memory", {}).get(kind, {}).get("bytes", math.nan) / 1e6
