"""Fluxes of the Euler equations between the cells of a structured grid, compiled by numba."""

from math import sqrt
from typing import no_type_check

import numpy as np
from numba import njit

from funcattn.arrays import Floats

GAMMA = 1.4
# Differences between neighbours below the square root of this count as smooth flow, and the limiter
# hardly acts on them.
SMOOTH = 1e-2


def flux_balance(
    padded: Floats, faces_i: Floats, faces_j: Floats, wall: tuple[int, int] = (0, 0)
) -> Floats:
    """Return the net outflow of mass, momentum x, momentum y and energy of every cell.

    Args:
        padded: density, velocity x, velocity y, pressure of n x m cells and of two layers of
            ghost cells on every side, shape (n + 4, m + 4, 4).
        faces_i: see `funcattn.pde.airfoil_mesh.faces`.
        faces_j: the same.
        wall: the range of cells along i, end excluded, whose first face along j is a slip wall, at
            the mean pressure of its two sides.

    Returns:
        Integrals over the boundary of each cell, shape (n, m, 4): second order for smooth states
        on smooth grids, and 0 up to rounding for a uniform state.

    Example:
        >>> from funcattn.pde.airfoil_mesh import faces
        >>> x, y = np.meshgrid([0.0, 1.0, 3.0], [0.0, 1.0, 2.0], indexing="ij")
        >>> _, faces_i, faces_j = faces(x, x + y)
        >>> bool(abs(flux_balance(np.ones((6, 6, 4)), faces_i, faces_j)).max() < 1e-14)
        True
    """
    balance = np.empty((padded.shape[0] - 4, padded.shape[1] - 4, 4))
    _add_fluxes(padded, faces_i, faces_j, wall, balance)
    return balance


@njit(cache=True, fastmath=False)
@no_type_check
def _add_fluxes(padded, faces_i, faces_j, wall, balance):
    n, m = balance.shape[:2]
    balance[:] = 0.0
    for j in range(m):
        _add_line_fluxes(padded[:, j + 2], faces_i[:, j], False, balance[:, j])
    for i in range(n):
        _add_line_fluxes(padded[i + 2], faces_j[i], wall[0] <= i < wall[1], balance[i])


@njit(cache=True, fastmath=False)
@no_type_check
def _add_line_fluxes(padded, faces, wall, balance):
    """Add the fluxes along one line of cells; `padded` has two more cells at each end."""
    left = np.empty(4)
    right = np.empty(4)
    half = np.empty(4)
    for cell in range(1, len(balance) + 3):
        for k in range(4):
            # Half of van Albada's slope, times the cell width.
            back = padded[cell, k] - padded[cell - 1, k]
            ahead = padded[cell + 1, k] - padded[cell, k]
            a = ahead * ahead + SMOOTH
            b = back * back + SMOOTH
            half[k] = 0.5 * (back * a + ahead * b) / (a + b)
            right[k] = padded[cell, k] - half[k]
        # The face is the one before the cell.
        face = cell - 2
        if face >= 0:
            if wall and face == 0:
                pressure = 0.5 * (padded[1, 3] + padded[2, 3])
                flux = (0.0, pressure * faces[0, 0], pressure * faces[0, 1], 0.0)
            else:
                flux = roe_flux(left, right, faces[face, 0], faces[face, 1])
            for k in range(4):
                if face > 0:
                    balance[face - 1, k] += flux[k]
                if face < len(balance):
                    balance[face, k] -= flux[k]
        for k in range(4):
            left[k] = padded[cell, k] + half[k]


@njit(cache=True, fastmath=False)
@no_type_check
def roe_flux(left, right, sx, sy):
    """Return Roe's flux of mass, momentum x and y, energy; s is face length times normal."""
    length = sqrt(sx * sx + sy * sy)
    nx = sx / length
    ny = sy / length
    rl, ul, vl, pl = left
    rr, ur, vr, pr = right
    heat = GAMMA / (GAMMA - 1.0)
    hl = heat * pl / rl + 0.5 * (ul * ul + vl * vl)
    hr = heat * pr / rr + 0.5 * (ur * ur + vr * vr)
    ql = ul * nx + vl * ny
    qr = ur * nx + vr * ny
    # Roe's mean state.
    w = sqrt(rr / rl)
    share = 1.0 / (1.0 + w)
    r = w * rl
    u = (ul + w * ur) * share
    v = (vl + w * vr) * share
    h = (hl + w * hr) * share
    q = u * nx + v * ny
    kinetic = 0.5 * (u * u + v * v)
    c2 = (GAMMA - 1.0) * (h - kinetic)
    c = sqrt(c2)
    # Harten's fix keeps acoustic wave speeds from vanishing at sonic points.
    fix = 0.05 * c
    slow = abs(q - c)
    fast = abs(q + c)
    if slow < fix:
        slow = 0.5 * (slow * slow / fix + fix)
    if fast < fix:
        fast = 0.5 * (fast * fast / fix + fix)
    # Wave strengths times wave speeds: acoustic against and along n, entropy, shear.
    jump_q = qr - ql
    jump_p = pr - pl
    against = slow * (jump_p - r * c * jump_q) / (2.0 * c2)
    along = fast * (jump_p + r * c * jump_q) / (2.0 * c2)
    entropy = abs(q) * (rr - rl - jump_p / c2)
    shear_x = abs(q) * r * (ur - ul - jump_q * nx)
    shear_y = abs(q) * r * (vr - vl - jump_q * ny)
    total = against + along + entropy
    sound = c * (along - against)
    ml = rl * ql
    mr = rr * qr
    work = (total - entropy) * h + entropy * kinetic + sound * q + u * shear_x + v * shear_y
    half = 0.5 * length
    return (
        half * (ml + mr - total),
        half * (ml * ul + mr * ur + (pl + pr) * nx - total * u - sound * nx - shear_x),
        half * (ml * vl + mr * vr + (pl + pr) * ny - total * v - sound * ny - shear_y),
        half * (ml * hl + mr * hr - work),
    )
