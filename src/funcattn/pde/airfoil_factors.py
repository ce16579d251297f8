"""Incomplete block factors of the first-order Euler Jacobian, compiled by numba."""

from math import sqrt
from typing import no_type_check

import numpy as np
from numba import njit

from funcattn.pde.airfoil_fluxes import GAMMA
from funcattn.pde.airfoil_mesh import WALL


@njit(cache=True, fastmath=False)
@no_type_check
def factor(primitive, neighbours, outward, cfl, blocks, inverse, speed):
    """Factor the first-order Jacobian incompletely: only diagonal blocks change.

    blocks[n, f] couples cell n to its neighbour f. inverse holds the inverted diagonal blocks.
    speed is the sum over the faces of a cell of wave speed times face length, that is, cell area
    over time step at CFL number 1. On a grid where no three cells are all neighbours of each other
    this is block ILU(0).
    """
    diagonal = np.empty((4, 4))
    part = np.empty((4, 4))
    for n in range(len(primitive)):
        density, u, v, pressure = primitive[n]
        c = sqrt(GAMMA * pressure / density)
        diagonal[:] = 0.0
        speed[n] = 0.0
        for f in range(4):
            sx, sy = outward[n, f]
            m = neighbours[n, f]
            speed[n] += 0.5 * (abs(u * sx + v * sy) + c * sqrt(sx * sx + sy * sy))
            if m == WALL:
                for k in range(4):
                    by_pressure = (GAMMA - 1.0) * (0.5 * (u * u + v * v), -u, -v, 1.0)[k]
                    diagonal[1, k] += sx * by_pressure
                    diagonal[2, k] += sy * by_pressure
                continue
            split_jacobian(primitive[n], sx, sy, 1.0, part)
            diagonal += part
            if m >= 0:
                split_jacobian(primitive[m], sx, sy, -1.0, blocks[n, f])
            if 0 <= m < n:
                for g in range(4):
                    if neighbours[m, g] == n:
                        _subtract_product(blocks[n, f], inverse[m], blocks[m, g], diagonal)
        for k in range(4):
            diagonal[k, k] += speed[n] / cfl
        _invert(diagonal, inverse[n])


@njit(cache=True, fastmath=False)
@no_type_check
def substitute(neighbours, blocks, inverse, right, solution):
    """Solve with the factors: forward over the cells, then backward."""
    rest = np.empty(4)
    count = len(right)
    for n in range(count):
        rest[:] = right[n]
        for f in range(4):
            m = neighbours[n, f]
            if 0 <= m < n:
                for k in range(4):
                    for c in range(4):
                        rest[k] -= blocks[n, f, k, c] * solution[m, c]
        for k in range(4):
            solution[n, k] = 0.0
            for c in range(4):
                solution[n, k] += inverse[n, k, c] * rest[c]
    for n in range(count - 1, -1, -1):
        rest[:] = 0.0
        for f in range(4):
            m = neighbours[n, f]
            if m > n:
                for k in range(4):
                    for c in range(4):
                        rest[k] += blocks[n, f, k, c] * solution[m, c]
        for k in range(4):
            for c in range(4):
                solution[n, k] -= inverse[n, k, c] * rest[c]


@njit(cache=True, fastmath=False)
@no_type_check
def split_jacobian(primitive, sx, sy, sign, out):
    """Set out = (A + sign |A|) / 2, where A is the Jacobian of the flux through s.

    The derivative is taken with respect to the conserved variables. A and |A| are multiples of the
    identity plus the columns (1, u, v, h) and (0, nx, ny, q), each times two rows that combine the
    derivatives of pressure and of normal momentum.
    """
    length = sqrt(sx * sx + sy * sy)
    nx = sx / length
    ny = sy / length
    density, u, v, pressure = primitive
    kinetic = 0.5 * (u * u + v * v)
    c = sqrt(GAMMA * pressure / density)
    h = c * c / (GAMMA - 1.0) + kinetic
    q = u * nx + v * ny
    # Speeds away from zero keep the diagonal blocks invertible.
    least = 1e-3 * c
    slow = sign * max(abs(q - c), least)
    middle = sign * max(abs(q), least)
    fast = sign * max(abs(q + c), least)
    mean = 0.5 * (slow + fast) - middle
    half_gap = 0.5 * (fast - slow) / c
    half = 0.5 * length
    for k in range(4):
        by_pressure = (GAMMA - 1.0) * (kinetic, -u, -v, 1.0)[k]
        by_momentum = (-q, nx, ny, 0.0)[k]
        first = half * (by_momentum * (1.0 + half_gap) + mean * by_pressure / (c * c))
        second = half * (by_pressure * (1.0 + half_gap) + mean * by_momentum)
        out[0, k] = first
        out[1, k] = u * first + nx * second
        out[2, k] = v * first + ny * second
        out[3, k] = h * first + q * second
        out[k, k] += half * (q + middle)


@njit(cache=True, fastmath=False)
@no_type_check
def _subtract_product(a, b, c, out):
    """Subtract a b c, 4 x 4 each, from out; far cheaper here than calling a matrix library."""
    row = np.empty(4)
    for i in range(4):
        for j in range(4):
            row[j] = a[i, 0] * b[0, j] + a[i, 1] * b[1, j] + a[i, 2] * b[2, j] + a[i, 3] * b[3, j]
        for j in range(4):
            out[i, j] -= row[0] * c[0, j] + row[1] * c[1, j] + row[2] * c[2, j] + row[3] * c[3, j]


@njit(cache=True, fastmath=False)
@no_type_check
def _invert(matrix, out):
    """Invert a 4 x 4 matrix by elimination without pivoting: its diagonal dominates."""
    out[:] = matrix
    for k in range(4):
        pivot = 1.0 / out[k, k]
        out[k, k] = 1.0
        for j in range(4):
            out[k, j] *= pivot
        for i in range(4):
            if i != k:
                share = out[i, k]
                out[i, k] = 0.0
                for j in range(4):
                    out[i, j] -= share * out[k, j]
