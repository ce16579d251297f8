"""What an editor is: parameters that a person draws, from them an input, and the true answer.

Editors do without torch, as they are also used in the processes that solve. Axes: n point, s space
dimension, t frame, c channel.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from funcattn.arrays import Array, Floats
from funcattn.registry import Registry, unknown

AnyEditor = TypeVar("AnyEditor", bound="type[Editor]")
Parameters = Mapping[str, Any]
"""Numbers, lists of numbers and arrays, by name."""
Progress = Callable[[float], None]
"""Called with the share that is done, 0 to 1."""
REFINEMENTS = (1, 2, 4)
"""How many times the cells of training, per axis, an input may have."""


@dataclass(frozen=True)
class Drawing:
    """An input that was drawn: arrays as `Predictor.predict` takes them, and how to show them."""

    positions: Floats
    """(n s)"""
    values: Floats | None = None
    """(n c)"""
    context: Floats | None = None
    grid: tuple[int, ...] | None = None
    places: Floats | None = None
    """(n 2): where the points are drawn, where that is not at their positions."""
    triangles: Array | None = None
    """(k 3): the cells of a cloud."""


EDITORS: "Registry[type[Editor]]" = Registry(
    "editor",
    {
        name: f"funcattn.serve.drawn.{name}"
        for name in (
            "darcy",
            "burgers",
            "navier_stokes",
            "elasticity",
            "plasticity",
            "airfoil",
            "pipe",
            "airfrans",
            "few_shot",
        )
    },
)
"""By the name of the task."""


def register_editor(editor: AnyEditor) -> AnyEditor:
    """Make a class known under the name of its task: to be written above it as a decorator."""
    EDITORS.register(editor.task, editor)
    return editor


class Editor(ABC):
    """How inputs of a task are drawn.

    data: the settings of the run's data, by name, which say on which grid it was trained.
    """

    task: ClassVar[str]
    view: ClassVar[tuple[float, float, float, float] | None] = None
    """The part of the plane that a picture shows at first: x and y of two corners."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = dict(data)

    @property
    def solver(self) -> bool:
        """Whether there is a true answer."""
        return True

    @abstractmethod
    def form(self) -> dict[str, Any]:
        """What the page needs to know to let a person draw, as plain values."""

    @abstractmethod
    def default(self) -> dict[str, Any]:
        """The parameters to begin with."""

    @abstractmethod
    def random(self, rng: np.random.Generator) -> dict[str, Any]:
        """Parameters drawn from the law of the training set."""

    @abstractmethod
    def draw(self, parameters: Parameters, refine: int) -> Drawing:
        """The input; refine: how many times the cells of training per axis.

        Raises:
            ValueError: the parameters are not as `form` describes them.
        """

    def warm_up(self) -> None:  # noqa: B027
        """Load what the solver compiles at its first use, which is no part of its time."""

    def solve(self, parameters: Parameters, refine: int, progress: Progress) -> dict[str, Floats]:
        """The true fields at the points of `draw`, by name: (n), (n c), (t n) or (t n c)."""
        del parameters, refine, progress
        raise ValueError(f"solve: expected a task with a solver, got {self.task}, which has none")


def only(parameters: Parameters, known: Sequence[str]) -> None:
    """Refuse parameters of other names."""
    for name in parameters:
        if name not in known:
            raise ValueError(unknown("parameters", str(name), known))


def array(parameters: Parameters, name: str, axes: int) -> Floats:
    """A parameter with so many axes, of finite numbers."""
    if name not in parameters:
        raise ValueError(f"parameters: expected {name}, got {', '.join(parameters) or 'none'}")
    found = finite(name, parameters[name])
    if found.ndim != axes or not found.size:
        raise ValueError(
            f"parameters, {name}: expected an array with {axes} axes, got shape {found.shape}"
        )
    return found


def number(parameters: Parameters, name: str, default: float) -> float:
    """A parameter that is one number."""
    found = finite(name, parameters.get(name, default))
    if found.ndim:
        raise ValueError(f"parameters, {name}: expected one number, got shape {found.shape}")
    return float(found)


def finite(name: str, given: Any) -> Floats:
    """What was given, as finite numbers."""
    try:
        found = np.asarray(given)
        if found.dtype.kind not in "fiu":
            raise ValueError(f"{found.dtype}")
        found = found.astype(np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(
            f"parameters, {name}: expected numbers in rows of one length, got others ({error})"
        ) from error
    if not np.isfinite(found).all() or (found.size and abs(found).max() > 1e30):
        raise ValueError(f"parameters, {name}: expected finite numbers, got some that are not")
    return found


def counted(
    parameters: Parameters, name: str, count: int, low: float = -math.inf, high: float = math.inf
) -> Floats:
    """A parameter of so many numbers, within bounds."""
    found = array(parameters, name, 1)
    if len(found) != count:
        raise ValueError(f"parameters, {name}: expected {count} numbers, got {len(found)}")
    if found.min() < low or found.max() > high:
        raise ValueError(
            f"parameters, {name}: expected numbers from {low:g} to {high:g}, got "
            f"{found.min():g} to {found.max():g}"
        )
    return found


def unit_grid(grid: Sequence[int], *, periodic: bool = False) -> Floats:
    """The points of a grid on the unit box, (n s), the first axis slowest.

    >>> unit_grid((2, 3))[1]
    array([0. , 0.5])
    """
    axes = [
        np.arange(length) / length if periodic else np.linspace(0, 1, length) for length in grid
    ]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(grid))


def nested(cells: int, least: int) -> int:
    """The stride of the coarsest grid with `cells` nested in one of at least `least` cells.

    >>> nested(21, 210), nested(84, 210)
    (10, 3)
    """
    return max(1, -(-least // cells))


def slider(
    name: str, label: str, low: float, high: float, default: float, unit: str | None = None
) -> dict[str, Any]:
    """One number to be chosen from a range."""
    step = float(f"{(high - low) / 200:.1g}")
    return {
        "name": name,
        "label": label,
        "min": low,
        "max": high,
        "default": default,
        "step": step,
        "unit": unit,
    }
