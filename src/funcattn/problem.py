"""What a problem looks like: the space, the fields that are given and the fields that are sought.

A task has a `Problem`, a network is built from its settings and a `Problem`, and a run on people's
own data keeps one beside its weights. Every field is named here, once.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

PictureKind = Literal["grid", "line", "cloud", "frames"]
"""How a sample is drawn."""


@dataclass(frozen=True)
class Field:
    """A scalar or vector field.

    >>> Field("velocity", 2, "m/s").channel_names
    ('velocity 1', 'velocity 2')
    """

    name: str
    channels: int = 1
    unit: str = ""
    """Empty where the field has no dimension."""

    def __post_init__(self) -> None:
        if not self.name or not isinstance(self.name, str):
            raise ValueError(f"field: expected a name, got {self.name!r}")
        if not isinstance(self.channels, int) or self.channels < 1:
            raise ValueError(
                f"field {self.name!r}: expected at least one channel, got {self.channels!r}"
            )

    @property
    def channel_names(self) -> tuple[str, ...]:
        """A name per channel: that of the field, with a number where there are several."""
        if self.channels == 1:
            return (self.name,)
        return tuple(f"{self.name} {number}" for number in range(1, self.channels + 1))


@dataclass(frozen=True)
class Problem:
    """From fields to fields over some space.

    >>> darcy = Problem(2, (Field("permeability"),), (Field("pressure"),), grid=True)
    >>> darcy.input_channels, darcy.output_channels
    (1, 1)
    >>> Problem.from_dict(darcy.to_dict()) == darcy
    True
    """

    space: int
    """Number of space dimensions."""
    inputs: tuple[Field, ...]
    """Fields that are given at the points; none where the geometry is the input."""
    outputs: tuple[Field, ...]
    """Fields that are sought at the points, those of one frame where there are several."""
    time: bool = False
    """Whether a time is an input."""
    context: bool = False
    """Whether observations at other points are an input."""
    periodic: bool = False
    """Whether space is a torus."""
    coefficients: bool | None = None
    """Whether input fields are coefficients of the equation, such as a permeability, rather than
    places, loads or boundary values; None: not known."""
    lower: float | tuple[float, ...] = 0.0
    upper: float | tuple[float, ...] = 1.0
    """Corners of the box of space: one number for all axes, or one per axis."""
    grid: bool = False
    """Whether the points form a grid."""
    points: int | None = None
    """Points of every sample, in training and test; None where their number differs."""

    def __post_init__(self) -> None:
        if self.space < 1:
            raise ValueError(f"space: expected at least one dimension, got {self.space}")
        if not self.outputs:
            raise ValueError("outputs: expected at least one field, got none")
        for side in ("inputs", "outputs"):
            names = [field.name for field in getattr(self, side)]
            if len(set(names)) < len(names):
                raise ValueError(f"{side}: expected fields with different names, got {names}")
        if self.points is not None and self.points < 1:
            raise ValueError(f"points: expected at least 1, or None, got {self.points}")
        for name, corner in (("lower", self.lower), ("upper", self.upper)):
            if isinstance(corner, tuple) and len(corner) != self.space:
                raise ValueError(
                    f"{name}: expected one number, or one for each of {self.space} axes, got "
                    f"{corner}"
                )
        lower, upper = self.box
        if not all(-math.inf < a < b < math.inf for a, b in zip(lower, upper, strict=True)):
            raise ValueError(f"upper: expected to be above lower={lower} on all axes, got {upper}")

    @property
    def box(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The corners of the box of space, with one number per axis."""
        lower, upper = (
            corner if isinstance(corner, tuple) else (corner,) * self.space
            for corner in (self.lower, self.upper)
        )
        return lower, upper

    @property
    def input_channels(self) -> int:
        """Channels of the input values; 0 where the geometry is the input."""
        return sum(field.channels for field in self.inputs)

    @property
    def output_channels(self) -> int:
        """Channels of the output."""
        return sum(field.channels for field in self.outputs)

    @property
    def output_slices(self) -> dict[str, slice]:
        """The channels of each output field, by its name."""
        return slices(self.outputs)

    def to_dict(self) -> dict[str, Any]:
        """As plain values that JSON can hold."""
        values = asdict(self)
        for name in ("inputs", "outputs"):
            values[name] = list(values[name])
        for name in ("lower", "upper"):
            if isinstance(values[name], tuple):
                values[name] = list(values[name])
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Problem":
        """The problem of `to_dict`, also after a way through JSON.

        Raises:
            ValueError: a name that is unknown or missing, or a value of another kind.
        """
        known = [field.name for field in fields(cls)]
        if unknown := [name for name in values if name not in known]:
            raise ValueError(f"problem: expected {', '.join(known)}, got {', '.join(unknown)}")
        made = dict(values)
        try:
            for name in ("inputs", "outputs"):
                made[name] = tuple(Field(**field) for field in made[name])
            for name in ("lower", "upper"):
                if isinstance(made.get(name), list | tuple):
                    made[name] = tuple(float(number) for number in made[name])
            return cls(**made)
        except (TypeError, KeyError) as error:
            raise ValueError(
                f"problem: expected what `Problem.to_dict` gives, got {values!r} ({error})"
            ) from error


def slices(fields: Iterable[Field]) -> dict[str, slice]:
    """The channels of each field, by its name, when they lie one after another.

    >>> slices([Field("velocity", 2), Field("pressure")])
    {'velocity': slice(0, 2, None), 'pressure': slice(2, 3, None)}
    """
    found, start = {}, 0
    for field in fields:
        found[field.name] = slice(start, start + field.channels)
        start += field.channels
    return found
