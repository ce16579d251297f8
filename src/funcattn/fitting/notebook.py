"""Progress in a notebook: one bar that is drawn again, instead of lines."""

import sys
import time
from collections.abc import Callable
from html import escape
from typing import Any

EVERY = 0.5
"""Seconds between two pictures of the bar."""


def bar_in_notebook() -> Callable[[Any, int], None] | None:
    """What shows the progress of training in a notebook; None elsewhere."""
    shell = sys.modules.get("IPython")
    found = None if shell is None else shell.get_ipython()
    if found is None or not hasattr(found, "kernel"):  # a terminal has no page to draw on
        return None
    from IPython.display import HTML, display

    shown: Any = None
    drawn_at = 0.0

    def drawn(state: Any, steps: int) -> None:
        nonlocal shown, drawn_at
        ended = state.step == 0 and bool(state.history)
        now = time.monotonic()
        if shown is not None and not ended and now - drawn_at < EVERY:
            return
        drawn_at = now
        page = HTML(bar(state, steps))
        if shown is None:
            shown = display(page, display_id=True)
        else:
            shown.update(page)

    return drawn


def bar(state: Any, steps: int) -> str:
    """The steps of an epoch as a bar, with the errors so far."""
    words = f"epoch {state.epoch}"
    if state.history:
        last = state.history[-1]
        words += (
            f", validation error {last['validation_error']:.4g}, "
            f"best {state.best_value:.4g} (epoch {state.best_epoch})"
        )
    return f'<progress value="{state.step}" max="{max(steps, 1)}"></progress> {escape(words)}'
