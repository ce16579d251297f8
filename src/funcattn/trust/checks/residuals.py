"""The residual of the equation, where the outputs of a task determine one.

A residual is the root mean square of what a field leaves of the equation, over the size of its
right-hand side. It is not 0 for the truth on a coarse grid.
"""

from collections.abc import Callable, Mapping

import numpy as np
from torch import Tensor

from funcattn.arrays import Floats
from funcattn.data import Sample
from funcattn.pde import darcy_notch
from funcattn.trust.checks.check import THRESHOLDS, Examined, Found, NotApplicableError, check

Residual = Callable[[Sample, Tensor], float]
"""Of a sample and a field in place of its target."""


@check(
    "Residual of the equation",
    "What the prediction leaves of the equation, by finite differences on the grid of the sample, "
    f"may be {THRESHOLDS['residual']:g} times what the truth leaves, which is not 0 on a coarse "
    f"grid, or {THRESHOLDS['residual, least']:g} of the right-hand side where that is more.",
)
def residual(examined: Examined) -> Found:
    """The residual of the equation, beside that of the truth on the same grid."""
    task = examined.subject.task
    of = RESIDUALS.get(task.name)
    if of is None or (task.name == "airfrans" and not examined.subject.has_solver):
        raise NotApplicableError("the outputs of this task do not determine a residual")
    pairs = [
        (of(sample, examined.subject.predicted(sample)), of(sample, sample.target))
        for sample in examined.samples[: examined.few]
    ]
    least = THRESHOLDS["residual, least"]
    worst = max(guess / max(truth, least / THRESHOLDS["residual"]) for guess, truth in pairs)
    guess, truth = (max(column) for column in zip(*pairs, strict=True))
    return Found(
        worst <= THRESHOLDS["residual"],
        f"at most {guess:.3g}, of the truth {truth:.3g}",
        ("field", "largest residual over the right-hand side"),
        [("prediction", f"{guess:.3g}"), ("truth", f"{truth:.3g}")],
        numbers={"prediction": guess, "truth": truth},
    )


def darcy_residual(a: Floats, u: Floats) -> float:
    """Of -div(a grad u) = 1 at inner nodes, by the scheme of the solver."""
    step = 1 / (len(u) - 1)
    flux_x = (a[1:] + a[:-1]) / 2 * np.diff(u, axis=0) / step
    flux_y = (a[:, 1:] + a[:, :-1]) / 2 * np.diff(u, axis=1) / step
    left = np.diff(flux_x, axis=0)[:, 1:-1] / step + np.diff(flux_y, axis=1)[1:-1] / step + 1
    return float(np.sqrt(np.mean(np.square(left))))


def notch_residual(u: Floats) -> float:
    """Of -Laplace u = 10, at nodes (x, y) whose four neighbours are inside the domain too."""
    count = len(u)
    inside = darcy_notch.inside(count).T
    around = [(slice(2, None), MIDDLE), (slice(None, -2), MIDDLE)]
    around += [(MIDDLE, slice(2, None)), (MIDDLE, slice(None, -2))]
    laplace = (sum(u[place] for place in around) - 4 * u[1:-1, 1:-1]) * (count - 1) ** 2
    known = inside[1:-1, 1:-1] & np.all([inside[place] for place in around], axis=0)
    return float(np.sqrt(np.mean(np.square(laplace[known] / 10 + 1))))


MIDDLE = slice(1, -1)


def bernoulli_residual(stream: Floats, flow: Floats) -> float:
    """Of p = (|stream|^2 - |u|^2) / 2, which holds at every point of a potential flow."""
    pressure = (stream @ stream - np.square(flow[:, :2]).sum(1)) / 2
    return float(np.sqrt(np.mean(np.square(flow[:, 2] - pressure)) / np.mean(pressure**2)))


def _on_grid(sample: Sample, field: Tensor) -> Floats:
    assert sample.grid is not None
    values: Floats = field.double().numpy().reshape(sample.grid)
    return values


def _darcy(sample: Sample, field: Tensor) -> float:
    assert sample.values is not None
    return darcy_residual(_on_grid(sample, sample.values), _on_grid(sample, field))


def _airfrans(sample: Sample, field: Tensor) -> float:
    assert sample.values is not None
    return bernoulli_residual(sample.values[0, 2:4].double().numpy(), field.double().numpy())


RESIDUALS: Mapping[str, Residual] = {
    "darcy": _darcy,
    "darcy_notch": lambda sample, field: notch_residual(_on_grid(sample, field)),
    "airfrans": _airfrans,
}
"""By task. The other tasks give one of several unknowns, or moments that are far apart."""
