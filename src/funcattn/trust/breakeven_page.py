"""The page of a break-even: what was measured, as a picture and as tables."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from funcattn.files import write_text
from funcattn.provenance import facts
from funcattn.trust.breakeven import BreakEven
from funcattn.trust.ladders import EXACT
from funcattn.trust.pages import made_section
from funcattn.viz.report import Picture, Section, Table, write_report
from funcattn.viz.style import PREDICTION, TRUTH


def write_breakeven(path: Path, found: BreakEven, command: str) -> Path:
    """As JSON, and as a page beside it; returns the page."""
    document = {
        **asdict(found),
        "summary": found.in_words(),
        "equal": None if found.equal is None else asdict(found.equal),
        "speed_up": found.speed_up,
        "weak_speed_up": found.weak_speed_up,
        "predictions": None if math.isinf(found.predictions) else math.ceil(found.predictions),
        "command": command,
        **facts(),
    }
    page = path.with_suffix(".html")
    write_text(path.with_suffix(".json"), json.dumps(document, indent=1) + "\n")
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axis = figure.subplots()
    rungs = [(rung.seconds, rung.error) for rung in found.rungs]
    draw_costs(axis, rungs, (found.inference_seconds, found.error))
    axis.set(xlabel="CPU milliseconds of one", ylabel="error")
    axis.legend(fontsize=9)
    write_report(
        page,
        title=f"Break-even: {found.task}, {found.model}",
        summary=found.in_words(),
        sections=[
            Section(
                "Error over cost",
                f"On {found.samples} samples of the test. The baseline is the cheapest solve that "
                "is as accurate as this run; it stands out. A mesh that gives the data itself has "
                "no error by definition, and is not drawn.",
                [_rungs(found)],
                [Picture(figure, "error over the CPU time of one solve, or of one prediction")],
            ),
            Section("What has to be earned back", "", [_costs(found)]),
            made_section(document),
        ],
    )
    return page


def _rungs(found: BreakEven) -> Table:
    rows = [
        (f"solver: {rung.in_words()}", f"{rung.error:.3g}", f"{1e3 * rung.seconds:.3g}")
        for rung in found.rungs
    ]
    rows.append(("this run", f"{found.error:.3g}", f"{1e3 * found.inference_seconds:.3g}"))
    strong = None if found.equal is None else list(found.rungs).index(found.equal)
    return Table(("what", "error", "CPU milliseconds of one"), rows, strong)


def _costs(found: BreakEven) -> Table:
    saved = found.solver_seconds - found.inference_seconds
    never = math.isinf(found.predictions)
    rows = [
        ("data for training and validation", f"{found.data_seconds:.3g}"),
        (f"training ({found.training_note})", f"{found.training_seconds:.3g}"),
        ("saved by one prediction", f"{saved:.3g}"),
        (
            "predictions until it pays",
            "never" if never else f"{math.ceil(found.predictions):,}",
        ),
    ]
    return Table(("what", "CPU seconds, or number"), rows)


def draw_costs(
    axis: Axes, rungs: Sequence[tuple[float, float]], surrogate: tuple[float, float]
) -> None:
    """Errors over CPU milliseconds: of solves, with a line along the best, and of a prediction."""
    shown = sorted((1e3 * seconds, error) for seconds, error in rungs if error > EXACT)
    best = [(x, y) for x, y in shown if y <= min(e for t, e in shown if t <= x)]
    axis.plot([x for x, _ in best], [y for _, y in best], color=TRUTH, linewidth=1)
    axis.plot(
        [x for x, _ in shown], [y for _, y in shown], "o", color=TRUTH, markersize=4, label="solver"
    )
    mine = [1e3 * surrogate[0]], [surrogate[1]]
    axis.plot(*mine, "*", color=PREDICTION, markersize=12, label="this run")
    axis.set(xscale="log", yscale="log")
    few_ticks(axis)


def few_ticks(axis: Axes) -> None:
    """Plain numbers at powers of ten, and where there are few of these, at 2 and 5 too."""
    for side in (axis.xaxis, axis.yaxis):
        low, high = side.get_view_interval()
        side.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 50 * low else (1,)))
        side.set_major_formatter("{x:g}")
        side.set_minor_formatter(NullFormatter())
    axis.grid(visible=True, alpha=0.3)
