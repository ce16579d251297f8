"""Turbulent flow past an airfoil, solved by the program OpenFOAM: samples of AirfRANS.

The equations are the steady, incompressible Reynolds-averaged Navier-Stokes equations with the
k-omega SST model, fully turbulent. The program `simpleFoam` must be installed, in a version from
openfoam.com; version 1912 is the one tested.

Airfoils are polygons of chord 1 as returned by `funcattn.pde.naca`. Pressure, wall shear and
viscosities are divided by the density.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from funcattn.arrays import Floats
from funcattn.pde import airfrans
from funcattn.pde.errors import NotConvergedError
from funcattn.pde.openfoam_case import FIELDS, FoamCase, Scheme
from funcattn.pde.openfoam_mesh import COARSE, FINE, Size, c_grid, centres, transfer
from funcattn.pde.panel import signed_distance

Mesh = Literal["coarse", "fine"]
# A fine mesh starts from the flow on a coarse one: from a uniform stream it would diverge.
LEVELS: dict[Mesh, tuple[Size, ...]] = {"coarse": (COARSE,), "fine": (COARSE, FINE)}
START, FIRST, MORE, STEADY, AVERAGED = 20, 150, 50, 100, 500
"""Numbers of iterations: of the gentle start; of the normal iterations before the first `MORE`;
between checks; over which the lift must be steady; and over which a flow is averaged."""
_STILL = 0.01
"""Change of the eddy viscosity between checks, rms over standard deviation, that counts as steady.
On the fine mesh it lags behind the lift: its distance from the limit halves in 100 iterations."""
_MOST_SWING = 0.25
"""Largest relative swing of the lift within an average: iterations that swing more are not close to
any flow. Iterations that swing twice as much before the average do not settle within it."""
_LEAST_LIFT = 0.1
"""Changes of lift are relative to the lift coefficient, or to this if it is smaller."""

_FIRST_ORDER = Scheme("upwind", velocity=0.8, turbulence=0.7)
_GENTLE = Scheme("linearUpwind grad(U)", velocity=0.8, turbulence=0.7)
# If turbulence lags behind the velocity (a factor of 0.8), separated flows oscillate.
_NORMAL = Scheme("linearUpwind grad(U)", velocity=0.9, turbulence=0.95)


class Flow(NamedTuple):
    """A flow at the n x m cells of its C-grid and at the s wall faces, which follow the panels."""

    grid: Floats  # (n + 1, m + 1, 2), nodes
    velocity: Floats  # (n, m, 2)
    pressure: Floats  # (n, m), zero far away
    eddy_viscosity: Floats  # (n, m)
    wall_viscosity: Floats  # (s,), eddy viscosity at the wall, by the wall function
    shear: Floats  # (s, 2), force on the wall per area and density
    lift: float  # coefficient
    drag: float  # coefficient
    iterations: int  # on the mesh of the grid
    change: float  # of the lift within the last 100 iterations, relative
    averaged: bool  # over the last 500 iterations


def solve(
    nodes: Floats,
    stream: Floats,
    *,
    mesh: Mesh = "fine",
    viscosity: float = 1.56e-5,
    tolerance: float = 5e-3,
    max_iterations: int = 1050,
    timeout: float = 3600.0,
) -> Flow:
    """Solve the Reynolds-averaged Navier-Stokes equations around an airfoil.

    With nu_t = nu_t(k, omega) from the k-omega SST model,

        div u = 0,  (u grad) u = -grad p + div((nu + nu_t) (grad u + grad u^T)),

    u = 0 at the airfoil. In the far field, where the flow enters, u is the stream,
    k = 0.001 nu |u| and omega = 5 |u| / chord; where it leaves, p is 0.

    Method: finite volumes on a C-grid; second-order upwind for velocity and first-order upwind for
    k and omega; wall functions that also hold when the first cell is in the viscous sublayer.
    SIMPLEC, with gentle steps at first; a fine mesh starts from the flow on a coarse one. The flow
    is accepted when the lift has stayed within `tolerance` over 100 iterations and the eddy
    viscosity has changed by at most 1 % of its standard deviation over 50, or at `max_iterations`.
    If the lift is not steady 500 iterations before that, the last 500 are averaged. The average is
    accepted if the lift of its two halves differs by at most ten times the tolerance and the lift
    swings by at most a quarter. With wider swings the average is meaningless: on the coarse mesh
    past thin airfoils at incidence, its lift was half that of the fine mesh. If the lift swings by
    more than a half over the 200 iterations before, no average is tried.

    Args:
        nodes: nodes of the airfoil, shape (81, 2) for the coarse mesh of 5120 cells, (161, 2) for
            the fine mesh of 20 280 cells.
        stream: free-stream velocity, (2,), within 30 degrees of the x axis.
        mesh: "coarse" or "fine".
        viscosity: kinematic; the Reynolds number is |stream| / viscosity.
        tolerance: allowed change of the lift coefficient, relative to it or to 0.1, whichever is
            greater.
        max_iterations: iterations allowed on the last mesh, at least 720.
        timeout: seconds that one run of the program may take; there are 2 to 11 runs.

    Raises:
        ValueError: an argument is not as described above.
        FileNotFoundError: the program is not installed.
        RuntimeError: the program does not start iterating.
        NotConvergedError: the lift is not steady, the program stopped or took too long, or the
            grid is folded.

    Example:
        >>> from funcattn.pde.naca import four_digit
        >>> nodes, stream = four_digit(0.0, 0.0, 12.0, panels=80), np.array([46.8, 0.0])
        >>> flow = solve(nodes, stream, mesh="coarse")  # doctest: +SKIP
        >>> round(flow.drag, 3)  # doctest: +SKIP
        0.010
    """
    levels = _levels(mesh)
    nodes, stream = np.asarray(nodes, dtype=np.float64), np.asarray(stream, dtype=np.float64)
    if stream.shape != (2,) or not (
        abs(stream[1]) <= 0.58 * stream[0] and 0.0 < stream[0] < np.inf
    ):
        raise ValueError(
            f"expected a stream of two finite numbers, within 30 degrees of x, got {stream}: "
            "give the free-stream velocity of an airfoil whose chord is along x"
        )
    if not (0.0 < viscosity < np.inf and 0.0 < tolerance < 1.0 and timeout > 0.0):
        raise ValueError(
            f"expected viscosity > 0, 0 < tolerance < 1 and timeout > 0, got {viscosity}, "
            f"{tolerance} and {timeout}: try 1.56e-5, 0.005 and 3600"
        )
    least = START + FIRST + MORE + AVERAGED
    if max_iterations < least:
        raise ValueError(f"expected max_iterations >= {least}, got {max_iterations}: try 1050")
    angle = float(np.arctan2(stream[1], stream[0]))
    # All grids are made before any run, the finest first: errors in the nodes refer to it.
    finest = levels[-1].surface
    grids = [c_grid(nodes[:: finest // size.surface], angle, size) for size in levels[::-1]][::-1]
    with TemporaryDirectory(prefix="funcattn-") as folder:
        cases: list[FoamCase] = []
        for size, grid in zip(levels, grids, strict=True):
            start = {
                name: transfer(coarse.cells(name), coarse.grid, coarse.size, grid, size)
                for coarse in cases[-1:]
                for name in FIELDS
            }
            case = FoamCase(Path(folder) / str(len(cases)), grid, size, stream, viscosity, start)
            case.run(START, _GENTLE if start else _FIRST_ORDER, timeout=timeout)
            case.run(FIRST, _NORMAL, timeout=timeout)
            cases.append(case)
        steady = True
        while case.iterations + MORE + (0 if steady else AVERAGED) <= max_iterations:
            before = case.cells("nut")
            case.run(MORE, _NORMAL, timeout=timeout)
            steady = lift_change(case.lift()) <= tolerance
            if steady and is_still(case.grid, before, case.cells("nut")):
                break
        if steady:
            return _read(case, nodes, stream, averaged=False)
        refuse_swing(case.lift()[-2 * STEADY :], 2.0 * _MOST_SWING)
        case.run(AVERAGED, _NORMAL, average=True, timeout=timeout)
        return _read(case, nodes, stream, averaged=needs_average(case.lift(), tolerance))


def lift_change(lift: Floats) -> float:
    """Return the range of the last 100 lift coefficients, relative to the last one or to 0.1.

    Example:
        >>> round(lift_change(np.linspace(0.0, 0.4, 401)), 4)  # 0.3 to 0.4, less one step
        0.2475
    """
    return float(np.ptp(lift[-STEADY:]) / max(abs(lift[-1]), _LEAST_LIFT))


def is_still(grid: Floats, before: Floats, after: Floats) -> bool:
    """Return whether the eddy viscosity in the benchmark's box has become steady.

    Its rms change must be at most 1 % of its standard deviation.
    """
    lower, upper = airfrans.BOX
    place = centres(grid)
    inside = np.all((lower <= place) & (place <= upper), axis=-1)
    change, values = (after - before)[inside], after[inside]
    return bool(np.sqrt(np.mean(change**2)) <= _STILL * values.std())


def refuse_swing(lift: Floats, most: float) -> None:
    """Raise NotConvergedError if the range of lift coefficients exceeds `most` of their mean."""
    swing = np.ptp(lift) / max(abs(lift.mean()), _LEAST_LIFT)
    if not swing <= most:
        raise NotConvergedError(
            f"expected a lift that swings by at most {most} of {lift.mean():.3f}, got {swing:.2g} "
            f"over {len(lift)} iterations: use a finer mesh or less incidence, since a separated "
            "flow may have no steady state"
        )


def needs_average(lift: Floats, tolerance: float) -> bool:
    """Return False if a flow is steady at its last iteration, True if only its average is steady.

    Args:
        lift: lift coefficients of all iterations, at least 500.
        tolerance: as in `solve`.

    Raises:
        NotConvergedError: neither of them is steady.

    Example:
        >>> wave = 0.01 * np.sin(np.arange(500) / 10)
        >>> [needs_average(0.5 + size * wave, 5e-3) for size in (0.1, 1.0)]
        [False, True]
    """
    change = lift_change(lift)
    if change <= tolerance:
        return False
    refuse_swing(lift[-AVERAGED:], _MOST_SWING)
    early, late = (half.mean() for half in np.split(lift[-AVERAGED:], 2))
    drift = abs(late - early) / max(abs(late), _LEAST_LIFT)
    if not drift <= 10.0 * tolerance:
        raise NotConvergedError(
            f"expected a lift within {tolerance:.1e} over {STEADY} iterations, or on average "
            f"within {10.0 * tolerance:.1e} over {AVERAGED}, got {change:.1e} and {drift:.1e} "
            f"after {len(lift)} iterations, when it was {lift[-1]:.3f}: allow more iterations"
        )
    return True


def sample(
    *,
    mesh: Mesh = "fine",
    reflex: float = 0.5,
    viscosity: float = 1.56e-5,
    tolerance: float = 5e-3,
    max_iterations: int = 1050,
    timeout: float = 3600.0,
    rng: np.random.Generator,
) -> dict[str, npt.NDArray[np.float64] | npt.NDArray[np.bool_]]:
    """Draw one airfoil, its turbulent flow and its forces: a sample of AirfRANS.

    The design is drawn as in the benchmark, by `funcattn.pde.airfrans`; a generator in the same
    state gives the same design to `funcattn.pde.panel.sample`. The chord is 1, along x, and the
    stream is inclined. Equations and turbulence model are those of the benchmark. The meshes are
    coarser (20 280 cells where the benchmark has about 180 000 nodes), and the points are cell
    centres where the benchmark has nodes.

    Args:
        mesh: "coarse" or "fine".
        reflex: as in `funcattn.pde.airfrans.draw_design`.
        viscosity: kinematic; the speed of the stream is Reynolds number times viscosity.
        tolerance, max_iterations, timeout: as in `solve`.
        rng: source of all draws.

    Returns:
        For n points, whose number differs between samples: first the s wall faces, from the
        trailing edge along the upper side to the nose and back; then the s cells next to them, in
        the same order; then all other cells in the box of the benchmark. Position (n, 2); features
        (n, 7): x, y, u and v of the stream, distance to the airfoil, normal x and y (zero off the
        surface); target (n, 4): u, v, pressure / density, eddy viscosity; surface (n,), true at
        wall faces. For the wall faces: length (s,) and shear (s, 2), the wall shear / density, so
        that the force / density is the sum of (shear - pressure normal) length. The shear of a
        predicted velocity follows from the cell next to the face: it is (viscosity + eddy viscosity
        at the face) times the tangential velocity of the cell, over its distance from the face
        along the normal.
        Numbers: lift and drag (coefficients), reynolds, incidence in degrees, family (4 or 5),
        digits (4,): camber or lift, position, 1 if reflexed, thickness; iterations, change (of the
        lift within the last 100 iterations, relative) and averaged (1 if the flow is the average of
        the last 500 iterations).

    Raises:
        ValueError, FileNotFoundError, RuntimeError, NotConvergedError: as in `solve`.

    Example:
        >>> stored = sample(mesh="coarse", rng=np.random.default_rng(0))  # doctest: +SKIP
        >>> int(stored["surface"].sum()), stored["shear"].shape  # doctest: +SKIP
        (80, (80, 2))
    """
    design = airfrans.draw_design(rng, reflex=reflex)
    surface, wake = _levels(mesh)[-1][:2]
    nodes = airfrans.outline(design, panels=surface)
    stream = airfrans.stream(design, viscosity)
    flow = solve(
        nodes,
        stream,
        mesh=mesh,
        viscosity=viscosity,
        tolerance=tolerance,
        max_iterations=max_iterations,
        timeout=timeout,
    )
    wall, normal, length = airfrans.panels(nodes)
    centre = centres(flow.grid)
    chosen = ((centre >= airfrans.BOX[0]) & (centre <= airfrans.BOX[1])).all(axis=-1)
    beside = (slice(wake, wake + surface), 0)
    chosen[beside] = False
    cells = np.concatenate(
        [flow.velocity, flow.pressure[..., None], flow.eddy_viscosity[..., None]], axis=-1
    )
    # No slip, and constant pressure across the cell at the wall.
    faces = np.column_stack([np.zeros((surface, 2)), flow.pressure[beside], flow.wall_viscosity])
    points = np.concatenate([centre[beside], centre[chosen]])
    position = np.concatenate([wall, points])
    return {
        "position": position,
        "features": np.column_stack(
            [
                position,
                np.broadcast_to(stream, position.shape),
                np.concatenate([np.zeros(surface), signed_distance(nodes, points)]),
                np.concatenate([normal, np.zeros_like(points)]),
            ]
        ),
        "target": np.concatenate([faces, cells[beside], cells[chosen]]),
        "surface": np.arange(len(position)) < surface,
        "length": length,
        "shear": flow.shear,
        "lift": np.array(flow.lift),
        "drag": np.array(flow.drag),
        "reynolds": np.array(design.reynolds),
        "incidence": np.array(design.incidence),
        "family": np.array(float(design.family)),
        "digits": design.digits,
        "iterations": np.array(float(flow.iterations)),
        "change": np.array(flow.change),
        "averaged": np.array(float(flow.averaged)),
    }


def _levels(mesh: Mesh) -> tuple[Size, ...]:
    if mesh not in LEVELS:
        raise ValueError(f"expected mesh to be one of {sorted(LEVELS)}, got {mesh!r}: try 'fine'")
    return LEVELS[mesh]


def _read(case: FoamCase, nodes: Floats, stream: Floats, *, averaged: bool) -> Flow:
    suffix = "Mean" if averaged else ""
    velocity, pressure, eddy = (case.cells(name + suffix) for name in ("U", "p", "nut"))
    wall_viscosity = case.wall("nut" + suffix)[:, 0]
    _, normal, length = airfrans.panels(nodes)
    # The program gives the stress on the fluid. Its normal part is an error: for an incompressible
    # fluid it vanishes.
    stress = -case.wall("wallShearStress" + suffix)
    shear = stress - (stress * normal).sum(axis=1, keepdims=True) * normal
    if not all(np.isfinite(v).all() for v in (velocity, pressure, eddy, wall_viscosity, shear)):
        raise NotConvergedError(
            f"expected finite fields, got NaN or infinity after {case.iterations} iterations: "
            "the flow diverges; try another mesh"
        )
    at_wall = pressure[case.size.wake : case.size.wake + len(length), 0, 0]
    lift, drag = airfrans.coefficients(stream, at_wall, shear, normal, length)
    return Flow(
        case.grid,
        velocity,
        pressure[..., 0],
        eddy[..., 0],
        wall_viscosity,
        shear,
        lift,
        drag,
        case.iterations,
        lift_change(case.lift()),
        averaged,
    )
