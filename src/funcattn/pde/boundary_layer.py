"""Boundary layers from the speed outside: laminar by Thwaites, turbulent by Head."""

from math import ceil, exp, log
from typing import NamedTuple

import numpy as np

from funcattn.arrays import Floats

_LEAST_REYNOLDS = 320.0
"""Based on momentum thickness: below it a tripped layer does not stay turbulent (Preston)."""
_FITS_MEET = 2.09092
"""Entrainment shape factor minus 3.3 at which both fits give the shape factor 1.585."""
_SEPARATED = 2.4
"""Shape factor at which a turbulent layer separates from the wall."""


class Layer(NamedTuple):
    """A boundary layer at its stations, without the first."""

    thickness: Floats  # momentum thickness
    shape: Floats  # displacement thickness over momentum thickness
    friction: Floats  # wall shear over half the square of the speed
    turbulent_from: int  # first turbulent station; the number of stations if always laminar
    separated_from: int  # first separated station; the number of stations if always attached


def boundary_layer(arc: Floats, speed: Floats, viscosity: float, *, trip: float = np.inf) -> Layer:
    """Compute a boundary layer from the outer speed, first laminar and then turbulent.

    Method: Thwaites' integral for the laminar layer. It becomes turbulent at the first station that
    meets Michel's criterion (in the form of Cebeci and Smith), where it would separate, or where it
    is tripped. The turbulent layer follows Head's entrainment method with the friction law of
    Ludwieg and Tillmann. It starts from the laminar thickness and a shape factor of 1.4, and is
    integrated by the Runge-Kutta method of order 4 in steps of at most 20 thicknesses. It separates
    at a shape factor of 2.4: beyond that friction is zero, the shape factor is constant, and the
    thickness is proportional to the speed to the power -4.4.

    Order: 2 in the spacing of the stations, between which the speed is linear; but transition and
    separation are located only to a station.

    Limits: the methods themselves have errors of 1 % (Thwaites) and up to 10 % (Head) on a flat
    plate. Values beyond separation are an extrapolation.

    Args:
        arc: distance along the wall, increasing from 0, shape (stations + 1,), at least 2 stations.
        speed: speed outside the layer, positive; zero is allowed at the first place (stagnation).
        viscosity: kinematic, positive.
        trip: positive distance beyond which the layer becomes turbulent as soon as the Reynolds
            number of its momentum thickness is 320.

    Raises:
        ValueError: an argument is not as described above.

    Example:
        >>> x = np.linspace(0.0, 1.0, 101)
        >>> plate = boundary_layer(x, np.ones(101), 1e-4)
        >>> round(float(plate.thickness[-1]), 5)  # exact: 0.00664
        0.00671
    """
    if not (
        arc.shape == speed.shape == (arc.size,)
        and arc.size > 2
        and np.isfinite([arc, speed]).all()
        and arc[0] == 0.0
        and (np.diff(arc) > 0.0).all()
        and speed[0] >= 0.0
        and (speed[1:] > 0.0).all()
    ):
        raise ValueError(
            "expected arc increasing from 0 and speed positive along it, at least 3 places, got "
            f"{arc} and {speed}: start at the stagnation point and follow the flow"
        )
    if not (0.0 < viscosity < np.inf and trip > 0.0):
        raise ValueError(
            f"expected viscosity and trip > 0, got {viscosity} and {trip}: "
            "try 1 / Reynolds number, and 0.05"
        )
    # The integral of speed^5, exact for a speed that is linear between stations.
    fifth = np.diff(arc) / 6.0 * sum(speed[:-1] ** k * speed[1:] ** (5 - k) for k in range(6))
    s, u = arc[1:], speed[1:]
    thickness = np.sqrt(0.45 * viscosity * np.cumsum(fifth) / u**6)
    gradient = thickness**2 * np.gradient(speed, arc)[1:] / viscosity
    z = 0.25 - np.clip(gradient, -0.09, 0.25)
    shape = 2.0 + z * (4.14 + z * (-83.5 + z * (854.0 + z * (-3337.0 + z * 4576.0))))
    friction = 2.0 * viscosity * (0.34 - z) ** 0.62 / (u * thickness)

    reynolds, along = u * thickness / viscosity, u * s / viscosity
    turbulent = (reynolds > 1.174 * (1.0 + 22400.0 / along) * along**0.46) | (gradient < -0.09)
    turbulent |= (s >= trip) & (reynolds >= _LEAST_REYNOLDS)
    turbulent[-1] = False  # no station follows that could be turbulent
    if not turbulent.any():
        return Layer(thickness, shape, friction, len(s), len(s))
    first = last = int(turbulent.argmax())
    state = np.array([log(thickness[first]), _entrainment_shape(1.4)])
    while state[1] > _entrainment_shape(_SEPARATED):
        thickness[last], shape[last] = exp(state[0]), _shape(state[1])
        friction[last] = _friction(shape[last], u[last] * thickness[last] / viscosity)
        last += 1
        if last == len(s):
            break
        state = _advance(state, s[last] - s[last - 1], u[last - 1], u[last], viscosity)
    thickness[last:] = thickness[last - 1] * (u[last - 1] / u[last:]) ** (_SEPARATED + 2.0)
    shape[last:] = _SEPARATED
    friction[last:] = 0.0
    return Layer(thickness, shape, friction, first, last)


def _advance(state: Floats, length: float, start: float, end: float, viscosity: float) -> Floats:
    """Integrate a turbulent layer over a length along which the speed goes from start to end.

    The state is the logarithm of the thickness and the entrainment shape factor.
    """
    # A layer forgets its past within some tens of thicknesses; longer steps would be unstable.
    relative = abs(end - start) / min(start, end)
    steps = ceil(max(length / (20.0 * exp(state[0])), 4.0 * relative, 1.0))
    step, slope = length / steps, (end - start) / length
    for before in np.linspace(start, end, steps, endpoint=False):
        middle, after = before + 0.5 * step * slope, before + step * slope
        first = _turbulent_change(state, before, slope, viscosity)
        second = _turbulent_change(state + 0.5 * step * first, middle, slope, viscosity)
        third = _turbulent_change(state + 0.5 * step * second, middle, slope, viscosity)
        fourth = _turbulent_change(state + step * third, after, slope, viscosity)
        state = state + step / 6.0 * (first + 2.0 * (second + third) + fourth)
    return state


def _turbulent_change(state: Floats, speed: float, slope: float, viscosity: float) -> Floats:
    """Return the derivative of the state by distance: von Karman's and Head's equations."""
    thickness, entrainment = exp(state[0]), float(state[1])
    shape = _shape(entrainment)
    growth = _friction(shape, speed * thickness / viscosity) / (2.0 * thickness)
    growth -= (shape + 2.0) * slope / speed
    # A trial step may lead beyond separation, where the fit has a pole.
    entrained = 0.0306 * max(entrainment - 3.0, 0.3) ** -0.6169 / thickness
    return np.array([growth, entrained - entrainment * (growth + slope / speed)])


def _shape(entrainment: float) -> float:
    """Return the shape factor for an entrainment shape factor, (full - displacement) / momentum."""
    excess = max(entrainment - 3.3, 0.01)
    # Two fits, joined where they meet, so that there is no jump.
    if excess < _FITS_MEET:
        return 0.6778 + 1.1536 * excess**-0.326
    return 1.1 + 0.86 * excess**-0.777


def _entrainment_shape(shape: float) -> float:
    """Invert `_shape`, for shape factors above 1.1."""
    excess = ((shape - 0.6778) / 1.1536) ** (-1.0 / 0.326)
    return 3.3 + (excess if excess < _FITS_MEET else ((shape - 1.1) / 0.86) ** (-1.0 / 0.777))


def _friction(shape: float, reynolds: float) -> float:
    """Apply the friction law of Ludwieg and Tillmann; `reynolds` is based on momentum thickness."""
    return 0.246 * 10.0 ** (-0.678 * shape) * reynolds**-0.268
