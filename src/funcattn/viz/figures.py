"""Pictures of fields, bases and training curves, as matplotlib figures without global state.

Fields are arrays in "ij" order: the first index runs along x. They are drawn with x to the right
and y upwards.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

Array = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Panel:
    """One field of a row; panels of a row with the same `scale` share their colour range."""

    title: str
    values: Array
    colours: str = "viridis"
    scale: str | None = None


def field_rows(rows: Mapping[str, Sequence[Panel]]) -> Figure:
    """Rows of fields side by side, each with its colour bar; the key names the row."""
    columns = max(len(panels) for panels in rows.values())
    figure = Figure(figsize=(2.9 * columns, 2.6 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for line, (name, panels) in zip(axes, rows.items(), strict=True):
        for axis in line[len(panels) :]:
            axis.set_axis_off()
        for axis, panel in zip(line, panels, strict=False):
            alike = [p.values for p in panels if panel.scale and p.scale == panel.scale]
            low = min(float(v.min()) for v in alike or [panel.values])
            high = max(float(v.max()) for v in alike or [panel.values])
            image = _draw(axis, panel.values, panel.colours, low, high)
            axis.set_title(panel.title, fontsize=10)
            figure.colorbar(image, ax=axis, fraction=0.046, format="%.3g")
        line[0].set_ylabel(name, fontsize=10)
    return figure


def basis_gallery(functions: Sequence[Array], titles: Sequence[str], columns: int = 8) -> Figure:
    """Small pictures of basis functions, each on its own colour range."""
    rows = math.ceil(len(functions) / columns)
    figure = Figure(figsize=(1.4 * columns, 1.6 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes[len(functions) :]:
        axis.set_axis_off()
    for axis, values, title in zip(axes, functions, titles, strict=False):
        _draw(axis, values, "magma", float(values.min()), float(values.max()))
        axis.set_title(title, fontsize=8)
    return figure


def curves(
    lines: Mapping[str, Sequence[float]], *, x_label: str, y_label: str, marked: int | None = None
) -> Figure:
    """Curves over 1, 2, 3, ... on a logarithmic axis; `marked` draws a line at that place."""
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axis = figure.subplots()
    for name, values in lines.items():
        axis.semilogy(range(1, len(values) + 1), values, label=name)
    if marked is not None:
        axis.axvline(marked, color="grey", linestyle=":", label=f"chosen: {x_label} {marked}")
    axis.set(xlabel=x_label, ylabel=y_label)
    axis.grid(visible=True, which="both", alpha=0.3)
    axis.legend()
    return figure


def _draw(axis: Axes, values: Array, colours: str, low: float, high: float) -> AxesImage:
    axis.set_xticks([])
    axis.set_yticks([])
    return axis.imshow(values.T, origin="lower", cmap=colours, vmin=low, vmax=high)
