"""The airfoils of AirfRANS, for any flow solver: designs, outlines and force coefficients."""

from typing import NamedTuple

import numpy as np

from funcattn.arrays import Floats
from funcattn.pde.naca import five_digit, four_digit

BOX = np.array([[-2.0, -1.5], [4.0, 1.5]])
"""Lower left and upper right corner of the sampled region."""


class Design(NamedTuple):
    """An airfoil and its free stream."""

    reynolds: float
    incidence: float  # of the stream, degrees
    family: int  # 4 or 5 digits
    digits: Floats  # (4,): camber or lift, position, 1 if reflexed, thickness


def draw_design(rng: np.random.Generator, *, reflex: float = 0.5) -> Design:
    """Draw a design of the benchmark from seven uniform numbers.

    The Reynolds number is in (2e6, 6e6) and the incidence in (-5, 15) degrees. With equal
    probability the airfoil has four digits (camber in (0, 7), its position in (0, 7), but no camber
    if the position is below 1.5; thickness in (5, 20)) or five digits (lift in (0, 4), position in
    (3, 8), thickness in (5, 20)).

    Args:
        rng: source of the draws.
        reflex: fraction of five-digit airfoils with a reflexed camber line. (The benchmark's public
            generator states one half, but gives the reflexed line the constants of the plain line,
            so both are the same: its shapes are those of `reflex=0`.)

    Raises:
        ValueError: reflex is not in [0, 1].

    Example:
        >>> design = draw_design(np.random.default_rng(0))
        >>> design.family, design.digits.round(2)
        (4, array([5.69, 6.39, 0.  , 5.61]))
    """
    if not 0.0 <= reflex <= 1.0:
        raise ValueError(f"expected a fraction reflex in [0, 1], got {reflex}: try 0.5")
    draw = rng.random(7)
    reynolds, incidence = 2e6 + 4e6 * draw[0], -5.0 + 20.0 * draw[1]
    thickness = 5.0 + 15.0 * draw[2]
    if draw[3] < 0.5:
        position = 7.0 * draw[5] if 7.0 * draw[5] >= 1.5 else 0.0
        family, digits = 4, [7.0 * draw[4] if position else 0.0, position, 0.0, thickness]
    else:
        bent = float(draw[6] < reflex)
        family, digits = 5, [4.0 * draw[4], 3.0 + 5.0 * draw[5], bent, thickness]
    return Design(float(reynolds), float(incidence), family, np.array(digits))


def outline(design: Design, *, panels: int) -> Floats:
    """Return the airfoil nodes of a design, (panels + 1, 2), ordered as in `funcattn.pde.naca`."""
    first, position, bent, thickness = (float(digit) for digit in design.digits)
    if design.family == 4:
        return four_digit(first, position, thickness, panels=panels)
    return five_digit(first, position, thickness, reflex=bool(bent), panels=panels)


class Panels(NamedTuple):
    """The sides of a polygon."""

    middle: Floats  # (panels, 2)
    normal: Floats  # (panels, 2), of length 1, out of a counterclockwise polygon
    length: Floats  # (panels,)


def panels(nodes: Floats) -> Panels:
    """Return the sides of the polygon with nodes of shape (panels + 1, 2)."""
    step = np.diff(nodes, axis=0)
    length = np.linalg.norm(step, axis=1)
    along = step / length[:, None]
    normal = np.stack([along[:, 1], -along[:, 0]], axis=-1)
    return Panels(0.5 * (nodes[1:] + nodes[:-1]), normal, length)


def stream(design: Design, viscosity: float) -> Floats:
    """Return the free-stream velocity, (2,), for a chord of 1 and a fluid of this viscosity."""
    angle = np.deg2rad(design.incidence)
    return design.reynolds * viscosity * np.array([np.cos(angle), np.sin(angle)])


def coefficients(
    stream: Floats, pressure: Floats, shear: Floats, normal: Floats, length: Floats
) -> tuple[float, float]:
    """Return the lift and drag coefficients of an airfoil of chord 1 from its surface forces.

    The force / density is the sum of (shear - pressure normal) length. Lift is its component
    across the stream, counterclockwise, and drag its component along the stream, each divided by
    half the square of the stream.

    Args:
        stream: free-stream velocity, (2,).
        pressure: pressure / density at the s surface points, (s,).
        shear: wall shear / density, (s, 2).
        normal: unit normal into the flow, (s, 2).
        length: surface length that belongs to each point, (s,).

    Example:
        >>> normal = np.array([[0.0, 1.0], [0.0, -1.0]])  # a flat plate, sucked up and pulled along
        >>> suction, pull = np.array([-1.0, 0.0]), np.array([[0.1, 0.0], [0.1, 0.0]])
        >>> coefficients(np.array([2.0, 0.0]), suction, pull, normal, np.ones(2))
        (0.5, 0.1)
    """
    force = ((shear - pressure[:, None] * normal) * length[:, None]).sum(axis=0)
    scale = 2.0 / (stream @ stream) / np.linalg.norm(stream)
    across = np.array([-stream[1], stream[0]])
    return float(scale * (force @ across)), float(scale * (force @ stream))
