"""What a check of an audit is: an attempt to break a run, with a verdict."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, wraps
from typing import Any, Literal

from torch import Tensor

from funcattn.data import Sample
from funcattn.export import AGREEMENT
from funcattn.trust.subject import Subject

Outcome = Literal["passes", "fails", "not applicable"]
THRESHOLDS: Mapping[str, float] = {
    "resolution, half": 3.0,
    "resolution, 2 x": 1.5,
    "resolution, 4 x": 2.0,
    "subset": 0.05,
    "order": 1e-4,
    "patch": 1e-3,
    "symmetry": 1.5,
    "tail": 3.0,
    "waves": 0.5,
    "noise": 5.0,
    "residual": 2.0,
    "residual, least": 0.1,
    "cost": 1.3,
    "same": 1e-5,
    "export": AGREEMENT,
}


class NotApplicableError(Exception):
    """The run cannot be asked; the message says why."""


@dataclass(frozen=True)
class Found:
    """What a check found."""

    passes: bool
    said: str
    headings: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)
    """Curves to draw, with the names of the axes in `axes`."""
    axes: tuple[str, str] = ("", "")
    values: Sequence[float] = ()
    """Numbers of samples to draw as a histogram."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """For programs."""


@dataclass(frozen=True)
class Check:
    """What was asked, and what was found."""

    title: str
    asked: str
    """What was done and what has to hold, with the threshold."""
    outcome: Outcome
    found: Found

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = asdict(self.found)
        del found["passes"]  # the outcome says more
        return {"title": self.title, "asked": self.asked, "outcome": self.outcome, **found}


@dataclass(frozen=True)
class Examined:
    """A run and the samples that it is examined with."""

    subject: Subject
    samples: Sequence[Sample]
    few: int = 4
    """Samples of checks that compare predictions with each other."""
    sizes: Sequence[int] = (1, 4, 16)
    """By how much the points are multiplied where time and memory are measured."""

    @cached_property
    def errors(self) -> Tensor:
        """Of every sample."""
        return self.subject.errors(self.samples)

    @property
    def base(self) -> float:
        """The mean error, with which others are compared."""
        return float(self.errors.mean())

    @cached_property
    def takes_clouds(self) -> bool:
        """Whether points that form no grid can be asked for: a network without stencils."""
        plain = replace(self.samples[0], grid=None)
        try:
            alone = self.subject.predicted(plain)
        except (ValueError, RuntimeError, TypeError, AssertionError):
            return False
        if self.samples[0].grid is None:
            return True
        return apart(alone, self.subject.predicted(self.samples[0])) < THRESHOLDS["order"]

    def clouds(self) -> list[Sample]:
        """A few samples without their grid.

        Raises:
            NotApplicableError: the network needs it.
        """
        if not self.takes_clouds:
            raise NotApplicableError("the network reads a grid")
        return [replace(sample, grid=None) for sample in self.samples[: self.few]]


CheckFunction = Callable[[Examined], Check]


def check(title: str, asked: str) -> Callable[[Callable[[Examined], Found]], CheckFunction]:
    """Makes a check of a function that examines a run.

    asked: what is done and what has to hold, for the page.
    """

    def decorated(examine: Callable[[Examined], Found]) -> CheckFunction:
        @wraps(examine)
        def checked(examined: Examined) -> Check:
            try:
                found = examine(examined)
            except NotApplicableError as why:
                return Check(title, asked, "not applicable", Found(False, str(why)))
            return Check(title, asked, "passes" if found.passes else "fails", found)

        return checked

    return decorated


def apart(a: Tensor, b: Tensor) -> float:
    """||a - b|| / ||b||."""
    return float((a - b).double().norm() / b.double().norm().clamp(min=1e-300))
