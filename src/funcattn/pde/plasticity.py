"""Forging: an elastic, perfectly plastic block squeezed by a rigid die of random shape.

Units are mm, ms, g and hence MPa, N and mJ; forces and energies are per mm of thickness.
"""

import math
from typing import Literal, no_type_check

import numpy as np
import numpy.typing as npt
from numba import njit
from scipy.interpolate import CubicSpline, PchipInterpolator, PPoly

from funcattn.pde.errors import NotConvergedError

Bottom = Literal["roller", "clamped"]
Interpolation = Literal["spline", "natural", "pchip"]

LENGTH, HEIGHT = 50.0, 15.0
SPEED, DURATION = 3.0, 2.0
YOUNG, POISSON, YIELD, DENSITY = 200e3, 0.3, 70.0, 7.85e-3
SHEAR = YOUNG / (2.0 * (1.0 + POISSON))
BULK = YOUNG / (2.0 * (1.0 - POISSON))  # of the plane: mean stress over change of area
PLATE = SHEAR + BULK  # stretched along one axis, held along the other
WAVE_SPEED = math.sqrt(PLATE / DENSITY)
VISCOSITY = 0.06  # damping of an element's highest frequency, as a fraction of critical

# The block is one flat array: rows of nodes from the top down, in each row the fields below, in
# each field the nodes from slot 1 on. An element has the slot of its upper left node. One empty
# row comes first, and the slots around the elements stay zero, so that every node sums four
# elements. With one array and distances known to the compiler the loops become vector code, three
# times as fast; a power of two as PITCH would map all fields to the same lines of the cache.
PITCH = 520
ROW = 19 * PITCH
X, Y, VX, VY, OLD_VX, OLD_VY, PER_MASS_X, PER_MASS_Y = range(0, 8 * PITCH, PITCH)
# Stress is kept as (s_xx + s_yy) / 2, (s_xx - s_yy) / 2 and s_xy; Q is the hourglass force.
MEAN, HALF, TAU, QX, QY = range(8 * PITCH, 13 * PITCH, PITCH)
STRAIN_WORK, EXTRA_WORK = range(13 * PITCH, 15 * PITCH, PITCH)
# Force on the lower left and on the lower right node; opposite nodes have the opposite force.
F1X, F1Y, F2X, F2Y = range(15 * PITCH, 19 * PITCH, PITCH)
# What `advance` keeps between calls.
TIME, STEP, STEPS, WORK = range(4)


def die_profile(
    heights: npt.NDArray[np.floating], interpolation: Interpolation = "spline"
) -> PPoly:
    """Interpolate the die between equidistant knots over the block, and lower it to first touch.

    Args:
        heights: at the knots k L / (K - 1), shape (K,), K >= 2, in mm, from any level.
        interpolation: "spline" (level at both ends, so that the die has no corner where it leaves
            the block), "natural" (a spline straight at both ends) or "pchip" (monotone Hermite).

    Returns:
        Cubic pieces on [0, 50] whose least value is 15, the height of the block.

    Example:
        >>> die_profile(np.array([4.0, 1.0, 2.0]), "pchip")([0.0, 25.0, 50.0])
        array([18., 15., 16.])
    """
    heights = np.asarray(heights, dtype=np.float64)
    if heights.ndim != 1 or len(heights) < 2 or not np.isfinite(heights).all():
        raise ValueError(
            f"expected finite die heights, shape (K,) with K >= 2, got {heights}: "
            "give the height at every knot"
        )
    knots = np.linspace(0.0, LENGTH, len(heights))
    if interpolation == "spline":
        profile: PPoly = CubicSpline(knots, heights, bc_type="clamped")
    elif interpolation == "natural":
        profile = CubicSpline(knots, heights, bc_type="natural")
    elif interpolation == "pchip":
        profile = PchipInterpolator(knots, heights)
    else:
        raise ValueError(
            f"expected interpolation spline, natural or pchip, got {interpolation!r}: "
            "choose one of them"
        )
    turns = profile.derivative().roots(extrapolate=False)
    lowest = profile(np.concatenate([knots, turns[np.isfinite(turns)]])).min()
    profile.c[-1] += HEIGHT - lowest
    return profile


def solve(
    heights: npt.NDArray[np.floating],
    *,
    columns: int = 101,
    rows: int = 31,
    frames: int = 20,
    bottom: Bottom = "roller",
    interpolation: Interpolation = "spline",
    hourglass: float = 0.05,
    courant: float = 0.9,
    max_steps: int = 500_000,
) -> dict[str, npt.NDArray[np.float64]]:
    """Squeeze the block from above by a die that sinks at 3 mm/ms for 2 ms.

    Equation: density * acceleration = div(stress) on a block of 50 x 15 mm in plane stress, with
    E = 200 GPa, Poisson ratio 0.3, density 7850 kg/m3, von Mises yield stress 70 MPa without
    hardening, associated flow, and large deformation (Jaumann rate, thickness follows). The die
    is rigid and without friction; it goes on level beyond the block. Sides are free.

    Method: quadrilaterals with one integration point, midpoint strain increments with the exact
    incremental rotation, return to the yield surface by Newton steps, lumped true mass, central
    differences in time near the critical step of the current elements, linear bulk viscosity (the
    quadratic one is below 0.2 MPa at this speed). Hourglass forces flow with the plastic
    multiplier of their element, as the stress of a fully integrated element does; otherwise they
    would stiffen it. Contact moves nodes, and edges by their midpoints, out of the die along its
    normal: nodes alone would let a sharp die pass between two of them.

    Limits: the block must not touch itself; nothing but the die and the floor holds it.

    Args:
        heights: of the die at equidistant knots, see `die_profile`.
        columns: nodes along the block, 3 to 518.
        rows: nodes from top to bottom, at least 3.
        frames: stored times k * 2 ms / frames, k = 0 .. frames - 1; at least 2.
        bottom: "roller" lets the bottom slide, "clamped" holds it in both directions.
        interpolation: of the die, see `die_profile`.
        hourglass: stiffness against hourglass motion as a fraction of the elastic one, 0 to 1.
        courant: time step over the critical one, in (0, 1].
        max_steps: time steps allowed.

    Returns:
        die: height of the die at time 0 above each column, shape (columns,).
        motion: x, y, u_x, u_y of the nodes, shape (columns, rows, frames, 4); x runs from 0 to 50
            with the columns, row 0 is the top.
        work: done by the die until each frame, shape (frames,), in mJ per mm of thickness.
        imbalance: energy that the time steps lose or make, over the work, shape ().
        overlap: greatest depth of the die in a line of nodes along the block, in mm, shape ().
        steps: number of time steps, shape ().

    Raises:
        ValueError: an argument is not of the kind above.
        NotConvergedError: an element turned over, the steps ran out, energy is not conserved
            within 1 %, or the die is deeper than half a spacing in the block.

    Example:
        >>> flat = solve(np.zeros(2), columns=11, rows=4)
        >>> float(flat["motion"][5, 0, -1, 3].round(6))  # the top follows the die: 3 * 1.9 mm
        -5.7
    """
    profile = die_profile(heights, interpolation)
    if not (3 <= columns <= PITCH - 2 and rows >= 3 and frames >= 2 and max_steps >= 1):
        raise ValueError(
            f"expected columns from 3 to {PITCH - 2}, rows >= 3, frames >= 2 and max_steps >= 1, "
            f"got {columns}, {rows}, {frames} and {max_steps}: change the mesh or the stride"
        )
    if bottom not in ("roller", "clamped"):
        raise ValueError(f"expected bottom roller or clamped, got {bottom!r}: choose one of them")
    if not (0.0 <= hourglass <= 1.0 and 0.0 < courant <= 1.0):
        raise ValueError(
            f"expected 0 <= hourglass <= 1 and 0 < courant <= 1, got {hourglass} and {courant}: "
            "try 0.05 and 0.9"
        )
    block = new_block(columns, rows, bottom)
    pieces = np.ascontiguousarray(profile.c)
    clock = np.zeros(4)
    spacing = LENGTH / (columns - 1)
    motion = np.empty((frames, rows, columns, 4))
    work = np.zeros(frames)
    imbalance, overlap = np.zeros(()), np.zeros(())
    for frame in range(frames):
        time = frame * DURATION / frames
        if not advance(
            block, columns, pieces, clock, time, hourglass, VISCOSITY, courant, max_steps
        ):
            raise NotConvergedError(
                f"expected upright elements until {time:.2f} ms within {max_steps} steps, got as "
                f"far as {clock[TIME]:.2f} ms in {clock[STEPS]:.0f} steps: another mesh may pass, "
                "or draw another die"
            )
        motion[frame, ..., 0] = field(block, columns, X)
        motion[frame, ..., 1] = field(block, columns, Y)
        work[frame] = clock[WORK]
        # A die that has hardly touched has no work to compare with.
        scale = max(work[frame], YIELD * spacing**2)
        lost = abs(work[frame] - sum(energies(block, columns).values())) / scale
        imbalance = np.maximum(imbalance, lost)
        overlap = np.maximum(overlap, _overlap(profile, motion[frame], SPEED * time))
        if not (imbalance <= 0.01 and overlap <= 0.5 * spacing):
            raise NotConvergedError(
                f"expected energy conserved within 1 % and the die less than half a spacing in the "
                f"block, got {imbalance:.1%} and {overlap:.2f} mm at {time:.2f} ms: lower "
                "courant, refine the mesh, or draw another die"
            )
    motion[..., 2:] = motion[..., :2] - motion[0, ..., :2]
    return {
        "die": profile(motion[0, 0, :, 0]),
        "motion": np.ascontiguousarray(motion.transpose(2, 1, 0, 3)),
        "work": work,
        "imbalance": np.asarray(imbalance),
        "overlap": np.asarray(overlap),
        "steps": np.array(clock[STEPS]),
    }


def sample(
    *,
    columns: int = 101,
    rows: int = 31,
    frames: int = 20,
    knots: int = 8,
    amplitude: float = 8.0,
    interpolation: Interpolation = "spline",
    bottom: Bottom = "roller",
    hourglass: float = 0.05,
    courant: float = 0.9,
    max_steps: int = 500_000,
    rng: np.random.Generator,
) -> dict[str, npt.NDArray[np.float64]]:
    """Draw a die of the benchmark, knots uniform in [0, amplitude] mm, and `solve` it.

    The die does not depend on the mesh: generators in the same state show the same sample at
    every resolution. The law of the knots and the interpolation are not published exactly.

    Example:
        >>> drawn = sample(columns=11, rows=4, rng=np.random.default_rng(0))
        >>> drawn["die"].shape, drawn["motion"].shape
        ((11,), (11, 4, 20, 4))
    """
    if not (knots >= 2 and 0.0 <= amplitude < math.inf):
        raise ValueError(
            f"expected knots >= 2 and a finite amplitude >= 0, got {knots} and {amplitude}: "
            "try 8 and 8.0"
        )
    return solve(
        rng.uniform(0.0, amplitude, knots),
        columns=columns,
        rows=rows,
        frames=frames,
        bottom=bottom,
        interpolation=interpolation,
        hourglass=hourglass,
        courant=courant,
        max_steps=max_steps,
    )


def new_block(columns: int, rows: int, bottom: Bottom = "roller") -> npt.NDArray[np.float64]:
    """Return a block at rest, without stress, on its floor; `field` shows what is in it.

    A direction in which a node cannot move has the inverse mass 0.
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
    """Show a field of the block, shape (rows, columns); elements fill all but the last of each."""
    return block.reshape(-1, ROW)[1:, name + 1 : name + 1 + columns]


def energies(block: npt.NDArray[np.float64], columns: int) -> dict[str, float]:
    """Return where the work of the die has gone: kinetic, elastic, plastic, and extra.

    Extra is what viscosity and hourglass forces have taken.
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


def _overlap(profile: PPoly, nodes: npt.NDArray[np.float64], sunk: float) -> float:
    """Return how deep the die is in the lines of nodes along the block, (rows, columns, 4)."""
    part = np.linspace(0.0, 1.0, 9)[:, None, None, None]
    x, y = np.moveaxis((1.0 - part) * nodes[:, :-1, :2] + part * nodes[:, 1:, :2], -1, 0)
    near = y > HEIGHT - sunk
    return float((y[near] - profile(np.clip(x[near], 0.0, LENGTH)) + sunk).max(initial=0.0))


# Python's division would look for zeros, which stops the compiler from making vector code.
compiled = njit(cache=True, fastmath=False, error_model="numpy")


@compiled
@no_type_check
def return_to_yield(mean, half, tau):
    """Bring a trial stress back to mean^2 + 3 (half^2 + tau^2) <= YIELD^2, in plane stress.

    Flow is implicit: with the multiplier g, mean shrinks to mean / (1 + a g) and the others to
    1 / (1 + g) of themselves, which is returned last. Newton runs on 1 / sqrt(f), which is nearly
    linear in g: three steps meet the yield stress to 1e-11, and need no branch.
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
    """Stress and nodal forces of one row of elements after the nodes moved for the time dt."""
    for i in range(1, count + 1):
        # Nodes 1 to 4 run from the lower left against the clock. Diagonals are all it takes: 13 is
        # the way from node 1 to node 3. h is the hourglass pattern, 1 - 2 + 3 - 4.
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

        # Displacement gradient over the middle of the step: a rotation then has no strain.
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
        # Hourglass forces are 1/4 (-1, 1, -1, 1) and this, which makes them blind to affine motion.
        lever1 = (hy * x24 - hx * y24) * per_area / 8
        lever2 = (hx * y13 - hy * x13) * per_area / 8
        w[i + F1X] = y24 * xx - x24 * xy + lever1 * qx
        w[i + F1Y] = y24 * xy - x24 * yy + lever1 * qy
        w[i + F2X] = x13 * xy - y13 * xx + lever2 * qx
        w[i + F2Y] = x13 * yy - y13 * xy + lever2 * qy


@compiled
@no_type_check
def _move_nodes(w, count, kick, dt):
    """Velocity and position of one row of nodes, the second row of w."""
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
def _way_out(x, y, pieces, sunk):
    """Displacement that takes a point out of the die along its normal; zero outside."""
    piece = LENGTH / pieces.shape[1]
    inside = min(max(x, 0.0), LENGTH)
    # The lower bound is for a block that has blown up: NaN is no place in an array.
    k = max(0, min(int(inside / piece), pieces.shape[1] - 1))
    r = inside - k * piece
    a, b, c, d = pieces[0, k], pieces[1, k], pieces[2, k], pieces[3, k]
    depth = y + sunk - (((a * r + b) * r + c) * r + d)
    if depth <= 0.0:
        return 0.0, 0.0
    slope = (3.0 * a * r + 2.0 * b) * r + c if inside == x else 0.0
    down = depth / (1.0 + slope * slope)
    return slope * down, -down


@compiled
@no_type_check
def _shift(w, i, dx, dy, dt):
    """Displace a node within the step that just moved it; return the work that this takes."""
    w[i + X] += dx
    w[i + Y] += dy
    w[i + VX] += dx / dt
    w[i + VY] += dy / dt
    twice = dx * (w[i + VX] + w[i + OLD_VX]) + dy * (w[i + VY] + w[i + OLD_VY])
    return twice / (2.0 * dt * w[i + PER_MASS_X])


@compiled
@no_type_check
def _press_top(w, columns, pieces, sunk, dt, way):
    """Move the top out of the die; return the work of the die.

    Nodes leave the die, then midpoints of edges: a node goes half the way of the edge on its left
    and half the way of that on its right. No node moves before its edges have been looked at, so
    that left and right are the same.
    """
    for i in range(ROW + 1, ROW + 1 + columns):
        way[i - ROW] = _way_out(w[i + X], w[i + Y], pieces, sunk)
    work = 0.0
    left_x, left_y = 0.0, 0.0
    for i in range(ROW + 1, ROW + 1 + columns):
        (x, y), (next_x, next_y) = way[i - ROW], way[i - ROW + 1]
        right_x, right_y = 0.0, 0.0
        if i < ROW + columns:
            middle_x = (w[i + X] + x + w[i + 1 + X] + next_x) / 2
            middle_y = (w[i + Y] + y + w[i + 1 + Y] + next_y) / 2
            right_x, right_y = _way_out(middle_x, middle_y, pieces, sunk)
        x += (left_x + right_x) / 2
        y += (left_y + right_y) / 2
        if y < 0.0:
            work += _shift(w, i, x, y, dt)
        left_x, left_y = right_x, right_y
    return work


@compiled
@no_type_check
def critical_step(w, columns):
    """Return 2 over the highest frequency of an element, 0 if one is turned over or not finite."""
    worst = 0.0
    for start in range(ROW, w.size - ROW, ROW):
        row = w[start : start + 2 * ROW]
        for i in range(1, columns):
            x13, y13 = row[i + 1 + X] - row[i + ROW + X], row[i + 1 + Y] - row[i + ROW + Y]
            x24, y24 = row[i + X] - row[i + 1 + ROW + X], row[i + Y] - row[i + 1 + ROW + Y]
            area = (x13 * y24 - x24 * y13) / 2
            if not area > 0.0:
                return 0.0
            # Largest eigenvalue of the element, exact for every shape.
            size = (x13 * x13 + x24 * x24 + y13 * y13 + y24 * y24) / 2
            root = math.sqrt(max(size * size - 4.0 * (1.0 - POISSON**2) * area * area, 0.0))
            worst = max(worst, (size + root) / (2.0 * area * area))
    return 1.0 / (WAVE_SPEED * math.sqrt(worst))


@compiled
@no_type_check
def advance(w, columns, pieces, clock, until, hourglass, viscosity, courant, max_steps):
    """March the block to the time `until`; False if an element turned over or steps ran out.

    clock holds TIME, the last STEP, the number of STEPS and the WORK of the die. pieces are the
    coefficients of the die, (4, K - 1), highest power first.
    """
    rows = w.size // ROW - 1
    area0 = LENGTH * HEIGHT / ((columns - 1) * (rows - 1))
    way = np.zeros((columns + 2, 2))
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
        # Eight steps change an element by less than 1 %: the critical step can wait.
        steps = min(needed, 8)
        start = clock[TIME]
        for step in range(1, steps + 1):
            sunk = SPEED * (start + step * dt)
            kick = (clock[STEP] + dt) / 2
            for j in range(1, rows + 1):
                _move_nodes(w[(j - 1) * ROW : (j + 1) * ROW], columns, kick, dt)
                if j == 1:
                    clock[WORK] += _press_top(w, columns, pieces, sunk, dt, way)
                else:
                    for i in (j * ROW + 1, j * ROW + columns):
                        x, y = _way_out(w[i + X], w[i + Y], pieces, sunk)
                        if y < 0.0:
                            clock[WORK] += _shift(w, i, x, y, dt)
                    above = w[(j - 1) * ROW : (j + 1) * ROW]
                    _update_elements(above, columns - 1, dt, area0, hourglass, viscosity)
            clock[STEP] = dt
        clock[STEPS] += steps
        clock[TIME] = until if steps == needed else start + steps * dt
