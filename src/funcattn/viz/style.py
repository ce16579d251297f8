"""Types, colours and sizes that all pictures share."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure

Reals = npt.NDArray[np.floating]
Labels = npt.NDArray[np.integer]
Series = tuple[Sequence[float], Sequence[float]]
"""Places and the values at them."""

PAGE_WIDTH = 10.8
"""Inches of a figure that is as wide as the page; wider ones would shrink their letters."""
TRUTH, PREDICTION, OBSERVED = "#1b1f24", "#d1660a", "#2463b0"
RIGHT, WRONG = "#c4c9cf", "#c8102e"


class ShownFigure(Figure):
    """A figure that a notebook shows where it is the last line of a cell."""

    def _repr_png_(self) -> bytes:
        """The picture."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=110, bbox_inches="tight")
        return buffer.getvalue()


@dataclass(frozen=True)
class Look:
    """Which colour a value has; `smooth` allows colours between those of the points."""

    colours: Colormap
    norm: Normalize
    smooth: bool = True


def colour_ends(look: Look) -> tuple[float, float]:
    """The values at the two ends of a look's colours."""
    return float(look.norm.vmin or 0), float(look.norm.vmax or 0)


def value_range(arrays: Sequence[Reals], *, from_zero: bool = False) -> tuple[float, float]:
    """The smallest and largest finite value of all, never the same."""
    finite = [a[np.isfinite(a)] for a in arrays]
    every = np.concatenate([*finite, [0.0] if from_zero else []], dtype=np.float64)
    if not len(every):
        return 0.0, 1.0
    return widened(float(every.min()), float(every.max()))


def widened(low: float, high: float) -> tuple[float, float]:
    """A range that is not empty, for colours and axes."""
    if high - low > 1e-9 * max(abs(low), abs(high)):
        return low, high
    by = 0.1 * max(abs(low), abs(high)) or 1.0
    return low - by, high + by


def short_numbers(axis: Axes, which: Literal["x", "y"] = "y") -> None:
    """Powers of ten taken out of the tick numbers."""
    axis.ticklabel_format(axis=which, style="sci", scilimits=(-3, 4), useMathText=True)
