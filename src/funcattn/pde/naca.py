"""NACA airfoils of four and five digits, with real numbers for digits and a closed trailing edge.

An airfoil is the polygon of its nodes: chord 1 on the x axis, nose at the origin, trailing edge at
(1, 0). Nodes run counterclockwise, from the trailing edge over the upper side to the nose and back
along the lower side; the trailing edge is both the first and the last node.
"""

import numpy as np
from scipy.optimize import brentq

from funcattn.arrays import Floats


def four_digit(camber: float, position: float, thickness: float, *, panels: int = 200) -> Floats:
    """Return the nodes of a four-digit airfoil: NACA 2412 is `four_digit(2.0, 4.0, 12.0)`.

    The thickness is added at right angles to the camber line, which consists of two parabolas that
    meet at their summit with a common tangent. With m = camber / 100 and p = position / 10,

        y = m (2 p x - x^2) / p^2 for x < p,  m (1 - 2 p + 2 p x - x^2) / (1 - p)^2 beyond.

    Stations x of the camber line are (1 - cos t) / 2 at equidistant t, dense at both ends.

    Args:
        camber: maximum height of the camber line, percent of the chord, 0 to 10.
        position: its place, tenths of the chord, more than 0 and less than 10; any if camber is 0.
        thickness: maximum thickness, percent of the chord, more than 0 and at most 40.
        panels: sides of the polygon, even and at least 4.

    Returns:
        Nodes, shape (panels + 1, 2).

    Raises:
        ValueError: an argument is not as described above.

    Example:
        >>> nodes = four_digit(0.0, 0.0, 12.0, panels=4)  # symmetric
        >>> nodes.round(4)
        array([[ 1.    ,  0.    ],
               [ 0.5   ,  0.0529],
               [ 0.    ,  0.    ],
               [ 0.5   , -0.0529],
               [ 1.    ,  0.    ]])
    """
    if not (camber == 0.0 or (0.0 < camber <= 10.0 and 0.0 < position < 10.0)):
        raise ValueError(
            f"expected camber in [0, 10] and its position in (0, 10), got {camber} and {position}: "
            "NACA 2412 has 2 and 4; an airfoil without camber needs no position"
        )
    x = _stations(panels)
    if camber == 0.0:
        return _wrap(x, np.zeros_like(x), np.zeros_like(x), thickness)
    m, p = camber / 100.0, position / 10.0
    scale = m / np.where(x < p, p, 1.0 - p) ** 2
    height = scale * (np.where(x < p, 0.0, 1.0 - 2.0 * p) + 2.0 * p * x - x**2)
    return _wrap(x, height, 2.0 * scale * (p - x), thickness)


def five_digit(
    lift: float, position: float, thickness: float, *, reflex: bool = False, panels: int = 200
) -> Floats:
    """Return the nodes of a five-digit airfoil: NACA 23012 is `five_digit(2.0, 3.0, 12.0)`.

    With (x - m)+ and (x - m)- the parts of x - m above and below zero, the camber line is

        y = k1 / 6 ((x - m)-^3 + r (x - m)+^3 - (m^3 + r (1 - m)^3) x + m^3).

    Its constants follow from the meaning of the digits, by thin-airfoil theory: k1 from the design
    lift coefficient, and m from the place of maximum height. A plain line has r = 0, a straight
    tail. A reflexed line (NACA 23112) turns up at the tail, so that the moment about the quarter
    chord is zero, which determines r. Lines with the published constants differ from these by up
    to 3 % of their height (210), since those constants match the digits only approximately.

    Args:
        lift: design lift coefficient times 20 / 3, 0 to 10.
        position: place of maximum height, twentieths of the chord, 1 to 8. (Published: 1 to 5.
            Beyond that a reflexed line bends ever more sharply: r is 0.03 at 4, 6 at 7, 590 at 8.)
        thickness: maximum thickness, percent of the chord, more than 0 and at most 40.
        reflex: whether the tail turns up.
        panels: sides of the polygon, even and at least 4.

    Returns:
        Nodes, shape (panels + 1, 2), at the stations of `four_digit`.

    Raises:
        ValueError: an argument is not as described above.

    Example:
        >>> nodes = five_digit(2.0, 3.0, 12.0)
        >>> height = (nodes + nodes[::-1])[:, 1] / 2  # of the camber line
        >>> round(float(height.max()), 4), round(float(nodes[height.argmax(), 0]), 2)
        (0.0184, 0.15)
    """
    if not (0.0 <= lift <= 10.0 and 1.0 <= position <= 8.0):
        raise ValueError(
            f"expected lift in [0, 10] and position in [1, 8], got {lift} and {position}: "
            "NACA 23012 has 2 and 3"
        )
    x = _stations(panels)
    summit = position / 20.0
    # Both functions change sign exactly once in the interval, for every allowed summit.
    if reflex:
        m = float(brentq(lambda m: _moment(m, _bend(m, summit)), 1.05 * summit, 0.96, xtol=1e-14))
        r = _bend(m, summit)
    else:
        m = float(brentq(lambda m: m * (1.0 - np.sqrt(m / 3.0)) - summit, summit, 1.0, xtol=1e-14))
        r = 0.0
    # At the ideal angle of attack the lift coefficient is pi times the first cosine coefficient of
    # the slope.
    size = 0.15 * lift / (np.pi * _cosine(1, m, r))
    cubic = np.where(x < m, 1.0, r) * (x - m) ** 3
    height = size * (cubic - (r * (1.0 - m) ** 3 + m**3) * x + m**3)
    return _wrap(x, height, size * _unit_slope(x, m, r), thickness)


def half_thickness(x: Floats, thickness: float) -> Floats:
    """Return half the thickness at x, normal to the camber line; `thickness` is in percent.

    0.05 thickness (0.2969 sqrt(x) - 0.126 x - 0.3516 x^2 + 0.2843 x^3 - 0.1036 x^4): the last
    constant, published as 0.1015, closes the trailing edge.
    """
    polynomial = x * (-0.1260 + x * (-0.3516 + x * (0.2843 - 0.1036 * x)))
    half: Floats = 0.05 * thickness * (0.2969 * np.sqrt(x) + polynomial)
    return half


def _stations(panels: int) -> Floats:
    if panels < 4 or panels % 2:
        raise ValueError(
            f"expected an even number of panels, at least 4, got {panels}: "
            "both sides have the same number; try 200"
        )
    return 0.5 * (1.0 - np.cos(np.linspace(0.0, np.pi, panels // 2 + 1)))


def _wrap(x: Floats, height: Floats, slope: Floats, thickness: float) -> Floats:
    """Add the thickness on both sides of a camber line given at stations from nose to tail."""
    if not 0.0 < thickness <= 40.0:
        raise ValueError(
            f"expected thickness in (0, 40] percent of the chord, got {thickness}: try 12"
        )
    line = np.stack([x, height], axis=-1)
    normal = np.stack([-slope, np.ones_like(x)], axis=-1) / np.sqrt(1.0 + slope**2)[:, None]
    offset = half_thickness(x, thickness)[:, None] * normal
    nodes = np.concatenate([(line + offset)[::-1], (line - offset)[1:]])
    # The formulas give these points up to rounding; a closed polygon needs them exactly.
    nodes[[0, -1]] = 1.0, 0.0
    nodes[len(x) - 1] = 0.0
    return nodes


def _unit_slope(x: Floats, m: float, r: float) -> Floats:
    """Return the slope of the five-digit camber line with k1 = 6."""
    slope: Floats = np.where(x < m, 3.0, 3.0 * r) * (x - m) ** 2 - r * (1.0 - m) ** 3 - m**3
    return slope


def _bend(m: float, summit: float) -> float:
    """Return the r for which the slope is zero at the summit."""
    return (3.0 * (m - summit) ** 2 - m**3) / (1.0 - m) ** 3


def _cosine(k: int, m: float, r: float) -> float:
    """Return (2 / pi) times the integral of slope * cos(k t), 0 < t < pi, x = (1 - cos t) / 2.

    The slope is a polynomial on each side of m: 16 Gauss points per side are exact to rounding.
    """
    point, weight = np.polynomial.legendre.leggauss(16)
    middle = np.arccos(1.0 - 2.0 * m)
    total = 0.0
    for start, end in ((0.0, middle), (middle, np.pi)):
        t = 0.5 * (start + end) + 0.5 * (end - start) * point
        values = _unit_slope(0.5 * (1.0 - np.cos(t)), m, r) * np.cos(k * t)
        total += 0.5 * (end - start) * float(weight @ values)
    return 2.0 / np.pi * total


def _moment(m: float, r: float) -> float:
    """Return a positive multiple of the moment about the quarter chord, by thin-airfoil theory."""
    return _cosine(2, m, r) - _cosine(1, m, r)
