"""Figures as files."""

import io
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from funcattn.files import write_bytes

_KINDS: dict[str, dict[str, Any]] = {"png": {}, "svg": {"metadata": {"Date": None}}}


def write_figure(figure: Figure, stem: Path) -> list[Path]:
    """As PNG and SVG, each whole or not at all, and the same bytes from the same numbers.

    stem: the path without its ending.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    for axis in figure.axes:
        for field in axis.collections:  # triangles by the thousand, as one image
            field.set_rasterized(True)
    saved = []
    for kind, more in _KINDS.items():
        path = stem.with_name(f"{stem.name}.{kind}")
        buffer = io.BytesIO()
        with rc_context({"svg.hashsalt": "funcattn"}):  # else its names are made by the clock
            figure.savefig(buffer, format=kind, dpi=110, bbox_inches="tight", **more)
        write_bytes(path, buffer.getvalue())
        saved.append(path)
    return saved
