"""Forging: an elastic, perfectly plastic block squeezed by a rigid die of random shape.

Units are mm, ms, g and hence MPa, N and mJ; forces and energies are per mm of thickness.
"""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.interpolate import CubicSpline, PchipInterpolator, PPoly

from funcattn.pde.errors import NotConvergedError
from funcattn.pde.plasticity_block import (
    DURATION,
    HEIGHT,
    LENGTH,
    PITCH,
    SPEED,
    STEPS,
    TIME,
    VISCOSITY,
    WORK,
    YIELD,
    Bottom,
    X,
    Y,
    advance,
    energies,
    field,
    new_block,
)

Interpolation = Literal["spline", "natural", "pchip"]


def die_profile(
    heights: npt.NDArray[np.floating], interpolation: Interpolation = "spline"
) -> PPoly:
    """Interpolate the die between equidistant knots over the block, and lower it to first contact.

    Args:
        heights: heights at the knots k L / (K - 1), shape (K,), K >= 2, in mm, from any level.
        interpolation: "spline" (zero slope at both ends, so that the die has no corner at the ends
            of the block), "natural" (zero curvature at both ends) or "pchip" (monotone Hermite).

    Returns:
        Cubic pieces on [0, 50] whose minimum is 15, the height of the block.

    Example:
        >>> die_profile(np.array([4.0, 1.0, 2.0]), "pchip")([0.0, 25.0, 50.0])
        array([18., 15., 16.])
    """
    heights = np.asarray(heights, dtype=np.float64)
    if heights.ndim != 1 or len(heights) < 2 or not np.isfinite(heights).all():
        raise ValueError(
            f"expected finite die heights, shape (K,) with K >= 2, got {heights}: "
            "give the height at each knot"
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
    progress: Callable[[float], None] | None = None,
) -> dict[str, npt.NDArray[np.float64]]:
    """Squeeze the block from above with a die that moves down at 3 mm/ms for 2 ms.

    Equation: density * acceleration = div(stress) on a block of 50 x 15 mm in plane stress, with
    E = 200 GPa, Poisson ratio 0.3, density 7850 kg/m3, von Mises yield stress 70 MPa without
    hardening, associated flow, and large deformation (Jaumann rate, the thickness follows). The die
    is rigid and frictionless, and continues horizontally beyond the block. The sides are free.

    Method: quadrilaterals with one integration point; midpoint strain increments with the exact
    incremental rotation; return to the yield surface by Newton steps; lumped true mass; central
    differences in time near the critical step of the current elements; linear bulk viscosity (the
    quadratic term is below 0.2 MPa at this speed). Hourglass forces flow with the plastic
    multiplier of their element, as the stress of a fully integrated element does; otherwise they
    would stiffen it. Contact moves nodes, and the midpoints of edges, out of the die along its
    normal: with nodes alone a sharp die could pass between two of them.

    Limits: the block must not touch itself; there is no contact except with the die and the floor.

    Args:
        heights: heights of the die at equidistant knots, see `die_profile`.
        columns: nodes along the block, 3 to 518.
        rows: nodes from top to bottom, at least 3.
        frames: stored times k * 2 ms / frames, k = 0 .. frames - 1; at least 2.
        bottom: "roller" lets the bottom slide, "clamped" holds it in both directions.
        interpolation: see `die_profile`.
        hourglass: stiffness against hourglass motion, as a fraction of the elastic one, 0 to 1.
        courant: time step over the critical step, in (0, 1].
        max_steps: time steps allowed.
        progress: called with the share of the work that is done, 0 to 1.

    Returns:
        die: height of the die at time 0 above each column, shape (columns,).
        motion: x, y, u_x, u_y of the nodes, shape (columns, rows, frames, 4); x runs from 0 to 50
            with the columns, row 0 is the top.
        work: work of the die up to each frame, shape (frames,), in mJ per mm of thickness.
        imbalance: energy that the time steps lose or gain, over the work, shape ().
        overlap: maximum depth of the die in a line of nodes along the block, in mm, shape ().
        steps: number of time steps, shape ().

    Raises:
        ValueError: an argument is not as described above.
        NotConvergedError: an element was inverted, the steps ran out, energy is not conserved
            within 1 %, or the die is more than half a spacing deep in the block.

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
                f"expected valid elements until {time:.2f} ms within {max_steps} steps, got as "
                f"far as {clock[TIME]:.2f} ms in {clock[STEPS]:.0f} steps: try another mesh or "
                "draw another die"
            )
        if progress is not None:
            progress((frame + 1) / frames)
        motion[frame, ..., 0] = field(block, columns, X)
        motion[frame, ..., 1] = field(block, columns, Y)
        work[frame] = clock[WORK]
        # A die that has barely touched the block has done no work to compare with.
        scale = max(work[frame], YIELD * spacing**2)
        error = abs(work[frame] - sum(energies(block, columns).values())) / scale
        imbalance = np.maximum(imbalance, error)
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
    """Draw a die of the benchmark, knots uniform in [0, amplitude] mm, and `solve` for its motion.

    The die does not depend on the mesh: generators in the same state give the same sample at every
    resolution. The distribution of the knots and the interpolation are not published exactly.

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


def _overlap(profile: PPoly, nodes: npt.NDArray[np.float64], travel: float) -> float:
    """Return the maximum depth of the die in lines of nodes along the block, (rows, columns, 4)."""
    part = np.linspace(0.0, 1.0, 9)[:, None, None, None]
    x, y = np.moveaxis((1.0 - part) * nodes[:, :-1, :2] + part * nodes[:, 1:, :2], -1, 0)
    near = y > HEIGHT - travel
    return float((y[near] - profile(np.clip(x[near], 0.0, LENGTH)) + travel).max(initial=0.0))
