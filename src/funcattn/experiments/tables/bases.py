"""The tables of the number of basis functions, with time and memory."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from funcattn.experiments.engine.claims import Below, Near
from funcattn.experiments.engine.drawing import curves
from funcattn.experiments.engine.experiment import Column, Experiment, Outcome
from funcattn.experiments.engine.trial import Trial
from funcattn.experiments.tables.paper import PAPER
from funcattn.experiments.tables.pde import TITLES
from funcattn.experiments.tiers import Tier

_NUMBERS = (16, 32, 64, 128, 256, 512)
_COLUMNS = {task: Column(title) for task, title in TITLES.items()} | {
    "time": Column(
        "Time on Elasticity, ms", "measured.inference_ms", 1.0, ranked=False, quantity="time"
    ),
    "memory": Column(
        "Memory on Elasticity, GB",
        "measured.inference_mb",
        scale=1e-3,
        ranked=False,
        quantity="memory",
    ),
}
_ON_TWO_CORES: Mapping[str, int] = {"elasticity": 256, "darcy": 256}
"""Up to this many functions fit into twenty minutes; for tasks that take longer, 128."""


def _trial(number: int, column: str) -> Trial:
    task = column if column in TITLES else "elasticity"
    beyond: dict[Tier, str] = {}
    if number > _ON_TWO_CORES.get(task, 128):
        beyond["cpu"] = "over twenty minutes on one core"
    return Trial(task, changes={"network": {"bases": number}}, beyond=beyond)


def _figures(outcome: Outcome) -> dict[str, Figure]:
    lines = {}
    for name in TITLES:
        found = [(n, outcome.numbers(str(n), name)) for n in _NUMBERS]
        known = [(n, numbers.mean) for n, numbers in found if numbers is not None]
        if len(known) > 1:
            lines[TITLES[name]] = ([float(n) for n, _ in known], [value for _, value in known])
    if not lines:
        return {}
    return {"bases": curves(lines, x_label="basis functions", y_label="error, times 100")}


BASES = Experiment(
    name="bases",
    aliases=("table6", "table11"),
    title="Number of basis functions",
    unit="relative L2 error, times 100; CPU time and peak memory of a prediction",
    rows={str(number): f"{number} functions" for number in _NUMBERS},
    columns=_COLUMNS,
    trials={(str(n), column): _trial(n, column) for column in _COLUMNS for n in _NUMBERS},
    paper=PAPER["bases"],
    claims=(
        *(
            Near(f"64 functions within 5 % of the best on {title}", task, 0.05, "64")
            for task, title in TITLES.items()
        ),
        *(
            Below(f"64 functions better than 16 on {title}", "64", "16", (task,))
            for task, title in TITLES.items()
        ),
        Below("512 functions over 5 times as slow as 64", "64", "512", ("time",), factor=5.0),
    ),
    figures=_figures,
    notes=(
        "The paper's time and memory are those of an Nvidia A2000; ours of one CPU core, some of "
        "them measured beside other work: times that differ by a factor of two may be equal.",
    ),
)
