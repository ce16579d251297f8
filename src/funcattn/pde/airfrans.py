"""The airfoils of AirfRANS, whatever solves their flow: what is drawn, and what forces mean."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from funcattn.pde.naca import five_digit, four_digit

Floats = npt.NDArray[np.float64]

BOX = np.array([[-2.0, -1.5], [4.0, 1.5]])
"""Lower left and upper right corner of the region that is sampled."""


class Design(NamedTuple):
    """An airfoil and its stream."""

    reynolds: float
    incidence: float  # of the stream, degrees
    family: int  # 4 or 5 digits
    digits: Floats  # (4,): camber or lift, position, 1 if reflexed, thickness


def draw_design(rng: np.random.Generator, *, reflex: float = 0.5) -> Design:
    """Draw a design of the benchmark, by seven uniform numbers.

    Reynolds number in (2e6, 6e6), incidence in (-5, 15) degrees, and with equal chances an airfoil
    of four digits (camber in (0, 7), its position in (0, 7) or, if below 1.5, no camber; thickness
    in (5, 20)) or of five (lift in (0, 4), position in (3, 8), thickness in (5, 20)).

    Args:
        rng: source of the draws.
        reflex: share of five-digit airfoils with a reflexed line. (The public generator of the
            benchmark says a half, but gives its reflexed line the constants of the plain one, with
            which both are the same: its shapes are those of 0.)

    Raises:
        ValueError: reflex is not a share.

    Example:
        >>> design = draw_design(np.random.default_rng(0))
        >>> design.family, design.digits.round(2)
        (4, array([5.69, 6.39, 0.  , 5.61]))
    """
    if not 0.0 <= reflex <= 1.0:
        raise ValueError(f"expected a share reflex in [0, 1], got {reflex}: try 0.5")
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
    """Return the nodes of the airfoil of a design, (panels + 1, 2), as `funcattn.pde.naca` does."""
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
    """Return the sides of a polygon of nodes (panels + 1, 2)."""
    step = np.diff(nodes, axis=0)
    length = np.linalg.norm(step, axis=1)
    along = step / length[:, None]
    normal = np.stack([along[:, 1], -along[:, 0]], axis=-1)
    return Panels(0.5 * (nodes[1:] + nodes[:-1]), normal, length)


def stream(design: Design, viscosity: float) -> Floats:
    """Return the velocity far away, (2,), of a chord of 1 in a fluid of this viscosity."""
    angle = np.deg2rad(design.incidence)
    return design.reynolds * viscosity * np.array([np.cos(angle), np.sin(angle)])


def coefficients(
    stream: Floats, pressure: Floats, shear: Floats, normal: Floats, length: Floats
) -> tuple[float, float]:
    """Return lift and drag coefficient of an airfoil of chord 1 from what acts on its surface.

    The force / density is the sum of (shear - pressure normal) length. Lift is its part across the
    stream, counterclockwise, and drag the part along it, over half the square of the stream.

    Args:
        stream: velocity far away, (2,).
        pressure: over density, at the s surface points, (s,).
        shear: of the wall, over density, (s, 2).
        normal: into the flow, of length 1, (s, 2).
        length: of the surface that belongs to a point, (s,).

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
