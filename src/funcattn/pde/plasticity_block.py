"""An elastic, perfectly plastic block and its motion under a rigid die, compiled by numba.

Units are mm, ms, g and hence MPa, N and mJ; forces and energies are per mm of thickness.
"""

import math
from typing import Literal, no_type_check

import numpy as np
import numpy.typing as npt
from numba import njit

Bottom = Literal["roller", "clamped"]

LENGTH, HEIGHT = 50.0, 15.0
SPEED, DURATION = 3.0, 2.0
YOUNG, POISSON, YIELD, DENSITY = 200e3, 0.3, 70.0, 7.85e-3
SHEAR = YOUNG / (2.0 * (1.0 + POISSON))
BULK = YOUNG / (2.0 * (1.0 - POISSON))  # in-plane: mean stress over relative change of area
PLATE = SHEAR + BULK  # stiffness when stretched along one axis and held along the other
WAVE_SPEED = math.sqrt(PLATE / DENSITY)
VISCOSITY = 0.06  # damping of an element's highest frequency, as a fraction of critical

# The block is one flat array: rows of nodes from the top down, in each row the fields below, and in
# each field the nodes from slot 1 on. An element uses the slot of its upper left node. The first
# row is empty, and the slots around the elements stay zero, so that every node sums over four
# elements. With one array and offsets known at compile time the loops become vector code, three
# times as fast. A power of two as PITCH would map all fields to the same cache lines.
PITCH = 520
ROW = 19 * PITCH
X, Y, VX, VY, OLD_VX, OLD_VY, PER_MASS_X, PER_MASS_Y = range(0, 8 * PITCH, PITCH)
# Stress is stored as (s_xx + s_yy) / 2, (s_xx - s_yy) / 2 and s_xy; Q is the hourglass force.
MEAN, HALF, TAU, QX, QY = range(8 * PITCH, 13 * PITCH, PITCH)
STRAIN_WORK, EXTRA_WORK = range(13 * PITCH, 15 * PITCH, PITCH)
# Forces on the lower left and the lower right node; opposite nodes have opposite forces.
F1X, F1Y, F2X, F2Y = range(15 * PITCH, 19 * PITCH, PITCH)
# Entries of the clock, the state that `advance` keeps between calls.
TIME, STEP, STEPS, WORK = range(4)


def new_block(columns: int, rows: int, bottom: Bottom = "roller") -> npt.NDArray[np.float64]:
    """Return a block at rest, without stress, on the floor; `field` gives access to its fields.

    Where a node cannot move in a direction, its inverse mass is 0.
    """
    block = np.zeros((rows + 1) * ROW)
    field(block, columns, X)[:] = np.linspace(0.0, LENGTH, columns)
    field(block, columns, Y)[:] = np.linspace(HEIGHT, 0.0, rows)[:, None]
    mass = np.full((rows, columns), DENSITY * _element_area(columns, rows))
    mass[[0, -1]] /= 2.0
    mass[:, [0, -1]] /= 2.0
    free = rows - 1 if bottom == "clamped" else rows
    field(block, columns, PER_MASS_X)[:free] = 1.0 / mass[:free]
    field(block, columns, PER_MASS_Y)[:-1] = 1.0 / mass[:-1]
    return block


def field(block: npt.NDArray[np.float64], columns: int, name: int) -> npt.NDArray[np.float64]:
    """Return a view of a field, (rows, columns); elements use all but the last row and column."""
    return block.reshape(-1, ROW)[1:, name + 1 : name + 1 + columns]


def energies(block: npt.NDArray[np.float64], columns: int) -> dict[str, float]:
    """Return the energies that the work of the die became: kinetic, elastic, plastic and extra.

    Extra is the work of viscosity and hourglass forces.
    """
    per_mass = field(block, columns, PER_MASS_X)
    mass = 1.0 / np.where(per_mass > 0.0, per_mass, math.inf)
    speed = field(block, columns, VX) ** 2 + field(block, columns, VY) ** 2
    mean, half, tau = (field(block, columns, name) for name in (MEAN, HALF, TAU))
    density = mean**2 / (2.0 * BULK) + (half**2 + tau**2) / (2.0 * SHEAR)
    elastic = float(density.sum()) * _element_area(columns, len(mass))
    return {
        "kinetic": float((mass * speed).sum()) / 2.0,
        "elastic": elastic,
        "plastic": float(field(block, columns, STRAIN_WORK).sum()) - elastic,
        "extra": float(field(block, columns, EXTRA_WORK).sum()),
    }


def _element_area(columns: int, rows: int) -> float:
    return LENGTH * HEIGHT / ((columns - 1) * (rows - 1))


# Python's division checks for zeros, which would prevent vector code.
compiled = njit(cache=True, fastmath=False, error_model="numpy")


@compiled
@no_type_check
def advance(w, columns, pieces, clock, until, hourglass, viscosity, courant, max_steps):
    """Advance the block to the time `until`; return False if an element inverts or steps run out.

    clock holds TIME, the last STEP, the number of STEPS and the WORK of the die. pieces holds the
    coefficients of the die, (4, K - 1), highest power first.
    """
    rows = w.size // ROW - 1
    area0 = LENGTH * HEIGHT / ((columns - 1) * (rows - 1))
    displacement = np.zeros((columns + 2, 2))
    safe = courant * (math.sqrt(1.0 + viscosity * viscosity) - viscosity)
    while True:
        critical = critical_step(w, columns)
        left = until - clock[TIME]
        if not critical > 0.0:
            return False
        if left <= 0.0:
            return True
        if not clock[STEPS] + left / (safe * critical) <= max_steps:
            return False
        needed = math.ceil(left / (safe * critical))
        dt = left / needed
        # Eight steps change an element by less than 1 %: the critical step is updated only then.
        steps = min(needed, 8)
        start = clock[TIME]
        for step in range(1, steps + 1):
            travel = SPEED * (start + step * dt)
            kick = (clock[STEP] + dt) / 2
            for j in range(1, rows + 1):
                _move_nodes(w[(j - 1) * ROW : (j + 1) * ROW], columns, kick, dt)
                if j == 1:
                    clock[WORK] += _press_top(w, columns, pieces, travel, dt, displacement)
                else:
                    for i in (j * ROW + 1, j * ROW + columns):
                        x, y = _push_out(w[i + X], w[i + Y], pieces, travel)
                        if y < 0.0:
                            clock[WORK] += _shift(w, i, x, y, dt)
                    above = w[(j - 1) * ROW : (j + 1) * ROW]
                    _update_elements(above, columns - 1, dt, area0, hourglass, viscosity)
            clock[STEP] = dt
        clock[STEPS] += steps
        clock[TIME] = until if steps == needed else start + steps * dt


@compiled
@no_type_check
def critical_step(w, columns):
    """Return 2 over the highest frequency of any element, 0 if one is inverted or not finite."""
    worst = 0.0
    for start in range(ROW, w.size - ROW, ROW):
        row = w[start : start + 2 * ROW]
        for i in range(1, columns):
            x13, y13 = row[i + 1 + X] - row[i + ROW + X], row[i + 1 + Y] - row[i + ROW + Y]
            x24, y24 = row[i + X] - row[i + 1 + ROW + X], row[i + Y] - row[i + 1 + ROW + Y]
            area = (x13 * y24 - x24 * y13) / 2
            if not area > 0.0:
                return 0.0
            # Largest eigenvalue of the element, exact for any shape.
            size = (x13 * x13 + x24 * x24 + y13 * y13 + y24 * y24) / 2
            root = math.sqrt(max(size * size - 4.0 * (1.0 - POISSON**2) * area * area, 0.0))
            worst = max(worst, (size + root) / (2.0 * area * area))
    return 1.0 / (WAVE_SPEED * math.sqrt(worst))


@compiled
@no_type_check
def return_to_yield(mean, half, tau):
    """Bring a trial stress back to mean^2 + 3 (half^2 + tau^2) <= YIELD^2, in plane stress.

    Flow is implicit: with the multiplier g, mean shrinks to mean / (1 + ratio g), and half and tau
    shrink by the factor 1 / (1 + g), which is returned last. Newton's method acts on 1 / sqrt(f),
    which is nearly linear in g: three steps meet the yield stress to 1e-11, without a branch.
    """
    ratio = BULK / (3.0 * SHEAR)
    square, deviator = mean * mean, 3.0 * (half * half + tau * tau)
    p = q = 1.0  # 1 + ratio g and 1 + g
    for _ in range(3):
        f = square * q * q + deviator * p * p
        slope = ratio * square * q * q * q + deviator * p * p * p
        g = max(q - 1.0 + f * (math.sqrt(f) * (1.0 / YIELD) - p * q) / (slope + 1e-300), 0.0)
        p, q = 1.0 + ratio * g, 1.0 + g
    share = 1.0 / (p * q)
    keep = p * share
    return mean * q * share, half * keep, tau * keep, keep


@compiled
@no_type_check
def _update_elements(w, count, dt, area0, hourglass, viscosity):
    """Update stress and nodal forces of one row of elements after the nodes moved for time dt."""
    for i in range(1, count + 1):
        # Nodes 1 to 4 run counterclockwise from the lower left. Diagonals suffice: 13 is the vector
        # from node 1 to node 3. h is the hourglass pattern, 1 - 2 + 3 - 4.
        lower, right = i + ROW, i + 1
        other = lower + 1
        x13, y13 = w[right + X] - w[lower + X], w[right + Y] - w[lower + Y]
        x24, y24 = w[i + X] - w[other + X], w[i + Y] - w[other + Y]
        hx = w[lower + X] - w[other + X] + w[right + X] - w[i + X]
        hy = w[lower + Y] - w[other + Y] + w[right + Y] - w[i + Y]
        u13, v13 = dt * (w[right + VX] - w[lower + VX]), dt * (w[right + VY] - w[lower + VY])
        u24, v24 = dt * (w[i + VX] - w[other + VX]), dt * (w[i + VY] - w[other + VY])
        hu = dt * (w[lower + VX] - w[other + VX] + w[right + VX] - w[i + VX])
        hv = dt * (w[lower + VY] - w[other + VY] + w[right + VY] - w[i + VY])

        # Displacement gradient with respect to midstep positions: a rotation then has no strain.
        mx13, my13, mx24, my24 = x13 - u13 / 2, y13 - v13 / 2, x24 - u24 / 2, y24 - v24 / 2
        per_area = 1.0 / (mx13 * my24 - mx24 * my13)
        u_x, u_y = (my24 * u13 - my13 * u24) * per_area, (mx13 * u24 - mx24 * u13) * per_area
        v_x, v_y = (my24 * v13 - my13 * v24) * per_area, (mx13 * v24 - mx24 * v13) * per_area
        spread, stretch, shear = u_x + v_y, u_x - v_y, u_y + v_x
        tangent = (v_x - u_y) / 4  # of half the angle of rotation
        per_secant = 1.0 / (1.0 + tangent * tangent)
        cos, sin = (1.0 - tangent * tangent) * per_secant, 2.0 * tangent * per_secant
        cos2, sin2 = cos * cos - sin * sin, 2.0 * cos * sin

        mean = w[i + MEAN]
        half = cos2 * w[i + HALF] - sin2 * w[i + TAU]
        tau = sin2 * w[i + HALF] + cos2 * w[i + TAU]
        new_mean, new_half, new_tau, keep = return_to_yield(
            mean + BULK * spread, half + SHEAR * stretch, tau + SHEAR * shear
        )
        w[i + MEAN], w[i + HALF], w[i + TAU] = new_mean, new_half, new_tau

        area = (x13 * y24 - x24 * y13) / 2
        per_area = 1.0 / area
        # Plastic flow keeps the volume; pressure changes it by tr(stress) (1 - 2 nu) / E.
        thickness = area0 * per_area * (1.0 + 2.0 * (1.0 - 2.0 * POISSON) / YOUNG * new_mean)
        size = (x13 * x13 + x24 * x24 + y13 * y13 + y24 * y24) / 2
        viscous = viscosity * DENSITY * WAVE_SPEED * area / (math.sqrt(size) * dt) * spread

        bend_x = (hu - (hx - hu / 2) * u_x - (hy - hv / 2) * u_y) / 4
        bend_y = (hv - (hx - hu / 2) * v_x - (hy - hv / 2) * v_y) / 4
        stiffness = hourglass * PLATE / 2 * size * per_area * thickness
        qx = keep * (cos * w[i + QX] - sin * w[i + QY] + stiffness * bend_x)
        qy = keep * (sin * w[i + QX] + cos * w[i + QY] + stiffness * bend_y)
        w[i + QX], w[i + QY] = qx, qy

        strain_work = (mean + new_mean) * spread + (half + new_half) * stretch
        w[i + STRAIN_WORK] += area0 / 2 * (strain_work + (tau + new_tau) * shear)
        w[i + EXTRA_WORK] += area0 * viscous * spread + qx * bend_x + qy * bend_y

        xx = (new_mean + viscous + new_half) * thickness / 2
        yy = (new_mean + viscous - new_half) * thickness / 2
        xy = new_tau * thickness / 2
        # Hourglass forces are 1/4 (-1, 1, -1, 1) plus these terms, which exclude affine motion.
        lever1 = (hy * x24 - hx * y24) * per_area / 8
        lever2 = (hx * y13 - hy * x13) * per_area / 8
        w[i + F1X] = y24 * xx - x24 * xy + lever1 * qx
        w[i + F1Y] = y24 * xy - x24 * yy + lever1 * qy
        w[i + F2X] = x13 * xy - y13 * xx + lever2 * qx
        w[i + F2Y] = x13 * yy - y13 * xy + lever2 * qy


@compiled
@no_type_check
def _move_nodes(w, count, kick, dt):
    """Update velocity and position of one row of nodes, the second row of w."""
    for slot in range(1, count + 1):
        i = slot + ROW
        left, above = i - 1, i - ROW
        corner = above - 1
        fx = w[above + F1X] + w[corner + F2X] - w[left + F1X] - w[i + F2X]
        fy = w[above + F1Y] + w[corner + F2Y] - w[left + F1Y] - w[i + F2Y]
        fx += (w[i + QX] - w[left + QX] - w[above + QX] + w[corner + QX]) / 4
        fy += (w[i + QY] - w[left + QY] - w[above + QY] + w[corner + QY]) / 4
        w[i + OLD_VX], w[i + OLD_VY] = w[i + VX], w[i + VY]
        w[i + VX] += kick * w[i + PER_MASS_X] * fx
        w[i + VY] += kick * w[i + PER_MASS_Y] * fy
        w[i + X] += dt * w[i + VX]
        w[i + Y] += dt * w[i + VY]


@compiled
@no_type_check
def _push_out(x, y, pieces, travel):
    """Return the displacement that moves a point out of the die along its normal; zero outside."""
    piece = LENGTH / pieces.shape[1]
    inside = min(max(x, 0.0), LENGTH)
    # The lower bound is for a block that has diverged: NaN is not a valid index.
    k = max(0, min(int(inside / piece), pieces.shape[1] - 1))
    r = inside - k * piece
    a, b, c, d = pieces[0, k], pieces[1, k], pieces[2, k], pieces[3, k]
    depth = y + travel - (((a * r + b) * r + c) * r + d)
    if depth <= 0.0:
        return 0.0, 0.0
    slope = (3.0 * a * r + 2.0 * b) * r + c if inside == x else 0.0
    down = depth / (1.0 + slope * slope)
    return slope * down, -down


@compiled
@no_type_check
def _shift(w, i, dx, dy, dt):
    """Displace a node within the step that just moved it; return the work that this requires."""
    w[i + X] += dx
    w[i + Y] += dy
    w[i + VX] += dx / dt
    w[i + VY] += dy / dt
    twice = dx * (w[i + VX] + w[i + OLD_VX]) + dy * (w[i + VY] + w[i + OLD_VY])
    return twice / (2.0 * dt * w[i + PER_MASS_X])


@compiled
@no_type_check
def _press_top(w, columns, pieces, travel, dt, displacement):
    """Move the top out of the die; return the work of the die.

    First nodes leave the die, then midpoints of edges: each node moves by half the displacement of
    the edge on its left plus half that of the edge on its right. No node moves before its edges
    have been checked, so that left and right are treated alike.
    """
    for i in range(ROW + 1, ROW + 1 + columns):
        displacement[i - ROW] = _push_out(w[i + X], w[i + Y], pieces, travel)
    work = 0.0
    left_x, left_y = 0.0, 0.0
    for i in range(ROW + 1, ROW + 1 + columns):
        (x, y), (next_x, next_y) = displacement[i - ROW], displacement[i - ROW + 1]
        right_x, right_y = 0.0, 0.0
        if i < ROW + columns:
            middle_x = (w[i + X] + x + w[i + 1 + X] + next_x) / 2
            middle_y = (w[i + Y] + y + w[i + 1 + Y] + next_y) / 2
            right_x, right_y = _push_out(middle_x, middle_y, pieces, travel)
        x += (left_x + right_x) / 2
        y += (left_y + right_y) / 2
        if y < 0.0:
            work += _shift(w, i, x, y, dt)
        left_x, left_y = right_x, right_y
    return work
