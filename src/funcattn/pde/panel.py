"""Flow past an airfoil by vortex panels, with boundary layers for its drag: a proxy for RANS data.

The flow is incompressible and inviscid: the pressure follows from Bernoulli's equation, and the
velocity slips along the surface. Boundary layers are computed from this flow for wall shear and
drag, and do not act back on it. So there is no stall, no wake, no eddy viscosity and no velocity
profile at the wall, and the lift is that of potential flow, higher than that of a real airfoil.

Airfoils are polygons of chord 1 as returned by `funcattn.pde.naca`: counterclockwise nodes that
start and end at the trailing edge. Pressure and wall shear are divided by the density.
"""

import warnings
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, LinAlgWarning
from scipy.linalg import solve as linalg_solve

from funcattn.arrays import Floats
from funcattn.pde import airfrans
from funcattn.pde.airfrans import BOX
from funcattn.pde.boundary_layer import boundary_layer
from funcattn.pde.errors import NotConvergedError

_PAIRS = 2**18
"""Number of point-panel pairs processed at a time: few enough for the cache."""


class Flow(NamedTuple):
    """A potential flow."""

    nodes: Floats  # (panels + 1, 2)
    stream: Floats  # (2,), free-stream velocity
    speed: Floats  # (panels + 1,), along the surface at the nodes, positive towards the next node


class Surface(NamedTuple):
    """A flow at the midpoints of its panels."""

    position: Floats  # (panels, 2)
    normal: Floats  # (panels, 2), unit normal into the flow
    length: Floats  # (panels,), panel length
    speed: Floats  # (panels,), positive towards the next node
    velocity: Floats  # (panels, 2)


class Friction(NamedTuple):
    """The effect of boundary layers on an airfoil. Pairs are for the upper and the lower side."""

    shear: Floats  # (panels, 2), force on the wall per area and density
    drag: float  # coefficient, friction and form drag together
    transition: Floats  # (2,), x where the layer becomes turbulent; 1 if it does not
    separation: Floats  # (2,), x where the layer separates; 1 if it does not


def solve(nodes: Floats, stream: Floats) -> Flow:
    """Solve Laplace psi = 0 for the stream function around an airfoil, psi constant on it.

    At the trailing edge the speed is the same on both sides (Kutta condition).

    Method: a vortex sheet along the polygon, linear on each panel; psi has the same value at all
    nodes. The fluid inside is then at rest, so the strength of the sheet is the speed at the
    surface. At the trailing edge, where two nodes coincide, the mean speed of the two sides is
    extrapolated from the two neighbouring nodes on each side. The equations are solved by a dense
    LU factorisation of size panels + 2.

    Order: 2 in the length of the panels, for the lift and for the speed at the nodes. At the
    trailing edge itself the exact speed is zero, unless there is a cusp, but it drops so close to
    the edge (as the distance to the power 0.05 for NACA 0012) that panels do not resolve it: the
    speed there is the one just ahead, and at the few nodes next to it errors stop falling near
    0.001.

    Args:
        nodes: shape (panels + 1, 2), at least 6 panels, counterclockwise from the trailing edge
            to the trailing edge.
        stream: free-stream velocity, shape (2,), not zero.

    Raises:
        ValueError: an argument is not as described above.
        NotConvergedError: up to rounding, the equations have no unique solution.

    Example:
        >>> from funcattn.pde.naca import four_digit
        >>> angle = np.deg2rad(4.0)
        >>> flow = solve(four_digit(0.0, 0.0, 12.0), np.array([np.cos(angle), np.sin(angle)]))
        >>> round(lift(flow), 4)
        0.4826
    """
    nodes, stream = np.asarray(nodes, dtype=np.float64), np.asarray(stream, dtype=np.float64)
    if nodes.ndim != 2 or nodes.shape[1] != 2 or len(nodes) < 7 or not np.isfinite(nodes).all():
        raise ValueError(
            f"expected finite nodes, shape (panels + 1, 2) with at least 6 panels, got shape "
            f"{nodes.shape}: give the corners of one airfoil, without missing values"
        )
    if stream.shape != (2,) or not 0.0 < np.linalg.norm(stream) < np.inf:
        raise ValueError(
            f"expected a stream of two finite numbers, not both zero, got {stream}: "
            "give the free-stream velocity"
        )
    z = _complex(nodes)
    if z[0] != z[-1] or (z[1:] == z[:-1]).any() or (z[:-1].conj() * z[1:]).imag.sum() <= 0.0:
        raise ValueError(
            f"expected a closed, counterclockwise polygon of distinct nodes, got one from "
            f"{nodes[0]} to {nodes[-1]}: start and end at the trailing edge, upper side first"
        )
    panels = len(z) - 1
    matrix = np.zeros((panels + 2, panels + 2))
    start, end = _stream_functions(z)
    matrix[:panels, :panels] = start
    matrix[:panels, 1:-1] += end
    matrix[:panels, -1] = -1.0  # the unknown psi of the airfoil
    matrix[panels, [0, -2]] = 1.0  # speeds are positive along the polygon, so equal ones cancel
    matrix[panels + 1, :3] = 1.0, -2.0, 1.0
    matrix[panels + 1, -4:-1] = -1.0, 2.0, -1.0
    right = np.zeros(panels + 2)
    right[:panels] = stream[1] * nodes[:-1, 0] - stream[0] * nodes[:-1, 1]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", LinAlgWarning)
            speed: Floats = linalg_solve(matrix, right)[:-1]
    except (LinAlgError, LinAlgWarning) as error:
        raise NotConvergedError(
            f"expected equations with one solution, got '{error}': separate nodes that coincide"
        ) from error
    return Flow(nodes, stream, speed)


def lift(flow: Flow) -> float:
    """Return the lift coefficient from the circulation (Kutta-Joukowski theorem)."""
    wall = surface(flow)
    return float(-2.0 * (wall.speed @ wall.length) / np.linalg.norm(flow.stream))


def velocity(flow: Flow, points: Floats) -> Floats:
    """Evaluate the velocity at points in the fluid; both have shape (n, 2).

    Method: the exact field of linear vortex panels.

    Limits: closer to the surface than one panel length, the corners of the polygon matter. With 200
    panels on NACA 2412 at 8 degrees, root mean square errors are 0.002 of the stream at a distance
    of 0.001, and 0.01 at 0.0001. For points on the surface use `surface`; inside the airfoil the
    result is near zero and has no meaning.

    Raises:
        ValueError: a point is a node of the airfoil, or not finite.

    Example:
        >>> from funcattn.pde.naca import four_digit
        >>> flow = solve(four_digit(0.0, 0.0, 12.0), np.array([1.0, 0.0]))
        >>> velocity(flow, np.array([[0.3, 0.2], [0.3, -0.2]])).round(3)
        array([[ 1.095,  0.015],
               [ 1.095, -0.015]])
    """
    z, p = _complex(flow.nodes), _complex(points)
    step = np.diff(z)
    # For each panel, u - iv = (first + second p) log((p - start) / (p - end)) + constant.
    unit = abs(step) / (2j * np.pi * step)
    second = unit * np.diff(flow.speed) / step
    first = unit * flow.speed[:-1] - second * z[:-1]
    constant = complex(flow.stream[0], -flow.stream[1]) - (second * step).sum()
    result = np.empty_like(p)
    for part in _parts(len(p), len(step)):
        away = p[part, None] - z
        if not (np.isfinite(away) & (away != 0.0)).all():
            raise ValueError(
                "expected finite points away from the nodes of the airfoil, got others: "
                "take the surface speed from the flow, and check for missing values"
            )
        logarithm = np.log(away[:, :-1] / away[:, 1:])
        result[part] = logarithm @ first + p[part] * (logarithm @ second) + constant
    return np.stack([result.real, -result.imag], axis=-1)


def surface(flow: Flow) -> Surface:
    """Evaluate the flow at the midpoints of its panels, where it slips along them."""
    middle, normal, length = airfrans.panels(flow.nodes)
    speed = 0.5 * (flow.speed[1:] + flow.speed[:-1])
    along = np.stack([-normal[:, 1], normal[:, 0]], axis=-1)
    return Surface(middle, normal, length, speed, speed[:, None] * along)


def pressure(flow: Flow, velocity: Floats) -> Floats:
    """Return Bernoulli's pressure / density, (n,), for velocity (n, 2); it is 0 far away."""
    result: Floats = 0.5 * (flow.stream @ flow.stream - (velocity**2).sum(axis=-1))
    return result


def signed_distance(nodes: Floats, points: Floats) -> Floats:
    """Return the distance of points (n, 2) from a closed polygon, negative inside; shape (n,).

    Example:
        >>> square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
        >>> signed_distance(square, np.array([[0.5, 0.75], [4.0, 5.0]]))
        array([-0.25,  5.  ])
    """
    z, p = _complex(nodes), _complex(points)
    step = np.diff(z)
    result = np.empty(len(p))
    for part in _parts(len(p), len(step)):
        q = (p[part, None] - z[:-1]) / step  # the panel is 0 to 1
        distance = (abs(q - np.clip(q.real, 0.0, 1.0)) * abs(step)).min(axis=1)
        # From inside, a ray along x crosses an odd number of panels.
        above = z.imag > p[part, None].imag
        crossed = (above[:, 1:] != above[:, :-1]) & ((q.imag > 0.0) == above[:, 1:])
        result[part] = np.where(crossed.sum(axis=1) % 2 == 1, -distance, distance)
    return result


def friction(flow: Flow, viscosity: float, *, trip: float = 0.05) -> Friction:
    """Compute the boundary layers on both sides of an airfoil, their wall shear and their drag.

    Method: `boundary_layer` from the stagnation point along each side. The drag follows from both
    layers at the trailing edge by the formula of Squire and Young. Over the last hundredth of each
    side the speed is held constant: potential flow comes to rest at the edge, real flow does not.

    Args:
        flow: as returned by `solve`.
        viscosity: kinematic; the Reynolds number is |stream| / viscosity.
        trip: distance from the stagnation point, as in `boundary_layer`. The default is close to
            turbulence models without transition; infinity means natural transition.

    Raises:
        ValueError: viscosity or trip is not positive.
        NotConvergedError: the flow does not have exactly one stagnation point ahead of the trailing
            edge.

    Example:
        >>> from funcattn.pde.naca import four_digit
        >>> flow = solve(four_digit(0.0, 0.0, 12.0), np.array([1.0, 0.0]))
        >>> [round(friction(flow, 1 / 6e6, trip=trip).drag, 5) for trip in (0.05, np.inf)]
        [0.00805, 0.00614]
    """
    wall = surface(flow)
    arc = np.cumsum(wall.length) - 0.5 * wall.length
    # In counterclockwise order, speeds are negative on the upper side and positive on the lower.
    turns = np.flatnonzero(np.diff(np.sign(wall.speed)))
    if not (len(turns) == 1 and wall.speed[0] < 0.0 < wall.speed[-1]):
        raise NotConvergedError(
            "expected one stagnation point besides the trailing edge, between panel midpoints, got "
            f"{len(turns)}: use more panels"
        )
    split = int(turns[0]) + 1
    front = np.interp(0.0, wall.speed[split - 1 : split + 1], arc[split - 1 : split + 1])
    sides = (np.arange(split - 1, -1, -1), np.arange(split, len(arc)))
    size = np.linalg.norm(flow.stream)
    shear, drag, places = np.zeros_like(arc), 0.0, []
    for side in sides:
        s = np.concatenate([[0.0], abs(arc[side] - front)])
        u = np.concatenate([[0.0], abs(wall.speed[side])])
        u = np.interp(np.minimum(s, 0.99 * s[-1]), s, u)
        layer = boundary_layer(s, u, viscosity, trip=trip)
        shear[side] = 0.5 * layer.friction * u[1:] ** 2
        wake = (u[-1] / size) ** (0.5 * (layer.shape[-1] + 5.0))
        drag += 2.0 * float(layer.thickness[-1] * wake)
        x = np.append(wall.position[side, 0], 1.0)
        places.append([x[layer.turbulent_from], x[layer.separated_from]])
    transition, separation = np.transpose(places)
    pull = shear[:, None] * wall.velocity / abs(wall.speed)[:, None]
    return Friction(pull, drag, transition, separation)


def scatter(
    nodes: Floats, count: int, *, near: float, closest: float, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Draw points of the fluid in `BOX`; return them, (n, 2), and their distances, (n,).

    A fraction `near` of the candidates starts at a random place on a random panel and moves away
    from it in a random direction, by a distance whose logarithm is uniform between that of
    `closest` and 0. The others are uniform in the box. Candidates outside the box or closer to the
    airfoil than `closest` are drawn again.
    """
    accepted = np.empty((0, 3))
    z = _complex(nodes)
    while (missing := count - len(accepted)) > 0:
        place, turn, reach, x, y, choice = rng.random((missing, 6)).T
        panel, part = np.divmod(place * (len(z) - 1), 1.0)
        step = np.diff(z)[panel.astype(np.intp)]
        outwards = -1j * step / abs(step) * np.exp(1j * np.pi * (turn - 0.5))
        beside = z[panel.astype(np.intp)] + part * step + closest ** (1.0 - reach) * outwards
        points = BOX[0] + (BOX[1] - BOX[0]) * np.stack([x, y], axis=-1)
        points = np.where(
            (choice < near)[:, None], np.stack([beside.real, beside.imag], axis=-1), points
        )
        distance = signed_distance(nodes, points)
        good = (distance >= closest) & ((points >= BOX[0]) & (points <= BOX[1])).all(axis=1)
        accepted = np.concatenate([accepted, np.column_stack([points, distance])[good]])
    return accepted[:, :2], accepted[:, 2]


def sample(
    *,
    panels: int = 200,
    field_points: int = 31_800,
    near: float = 0.75,
    closest: float = 1e-3,
    reflex: float = 0.5,
    trip: float = 0.05,
    viscosity: float = 1.56e-5,
    rng: np.random.Generator,
) -> dict[str, npt.NDArray[np.float64] | npt.NDArray[np.bool_]]:
    """Draw one airfoil, its flow and its forces: a proxy for the samples of AirfRANS.

    The design is drawn as in the benchmark, by `funcattn.pde.airfrans`. The chord is 1, along x,
    and the stream is inclined.

    The flow is not that of the benchmark, which solves the Reynolds-averaged Navier-Stokes
    equations with k-omega SST; the module docstring lists what is missing. The velocity on the
    surface is that of the slipping flow, the limit of its neighbours, where the benchmark has zero.
    The eddy viscosity is zero everywhere. The drag of layers with separation < 1 is an
    extrapolation.

    Args:
        panels: number of panels of the airfoil, even; their midpoints are the surface points.
        field_points: points in the fluid. With the surface points the default gives 32 000, as
            many as training on the benchmark draws from its meshes.
        near, closest: distribution of the field points, as in `scatter`.
        reflex: as in `funcattn.pde.airfrans.draw_design`.
        trip: as in `friction`.
        viscosity: kinematic; the speed of the stream is Reynolds number times viscosity.
        rng: source of all draws. The design comes first and does not depend on the others.

    Returns:
        For n = panels + field_points points, surface points first, from the trailing edge along the
        upper side to the nose and back: position (n, 2); features (n, 7): x, y, u and v of the
        stream, distance to the airfoil, normal x and y (zero off the surface); target (n, 4): u, v,
        pressure / density, eddy viscosity (zero); surface (n,), true for surface points.
        For the surface points: length (panels,) of their panels and shear (panels, 2), the wall
        shear / density, so that the force / density is the sum of (shear - pressure normal) length.
        Numbers: lift and drag (coefficients), reynolds, incidence in degrees, family (4 or 5),
        digits (4,): camber or lift, position, 1 if reflexed, thickness; and for the upper and lower
        side transition (2,) and separation (2,), the x where they occur, 1 if they do not.

    Raises:
        ValueError: an argument is out of range.
        NotConvergedError: as in `friction`.

    Example:
        >>> stored = sample(panels=60, field_points=100, rng=np.random.default_rng(0))
        >>> stored["features"].shape, stored["target"].shape, int(stored["surface"].sum())
        ((160, 7), (160, 4), 60)
    """
    design = airfrans.draw_design(rng, reflex=reflex)
    return case(
        design,
        panels=panels,
        field_points=field_points,
        near=near,
        closest=closest,
        trip=trip,
        viscosity=viscosity,
        rng=rng,
    )


def case(
    design: airfrans.Design,
    *,
    panels: int = 200,
    field_points: int = 31_800,
    near: float = 0.75,
    closest: float = 1e-3,
    trip: float = 0.05,
    viscosity: float = 1.56e-5,
    rng: np.random.Generator,
) -> dict[str, npt.NDArray[np.float64] | npt.NDArray[np.bool_]]:
    """Solve for the flow past an airfoil of your own; arguments and results are as in `sample`.

    rng: source of the points in the fluid.
    """
    if field_points < 0:
        raise ValueError(f"expected field_points >= 0, got {field_points}: try 31800")
    if not 0.0 <= near <= 1.0:
        raise ValueError(f"expected a fraction near in [0, 1], got {near}: try 0.75")
    if not 0.0 < closest <= 0.5:
        raise ValueError(
            f"expected closest in (0, 0.5], got {closest}: points must stay off the airfoil and "
            "inside the box; try 0.001"
        )
    nodes = airfrans.outline(design, panels=panels)
    flow = solve(nodes, airfrans.stream(design, viscosity))
    wall, layers = surface(flow), friction(flow, viscosity, trip=trip)
    points, distance = scatter(nodes, field_points, near=near, closest=closest, rng=rng)

    fluid = np.zeros((field_points, 2))
    where = np.concatenate([wall.position, points])
    moved = np.concatenate([wall.velocity, velocity(flow, points)])
    on_surface = np.arange(len(where)) < panels
    return {
        "position": where,
        "features": np.column_stack(
            [
                where,
                np.broadcast_to(flow.stream, where.shape),
                np.concatenate([np.zeros(panels), distance]),
                np.concatenate([wall.normal, fluid]),
            ]
        ),
        "target": np.column_stack([moved, pressure(flow, moved), np.zeros(len(where))]),
        "surface": on_surface,
        "length": wall.length,
        "shear": layers.shear,
        "lift": np.array(lift(flow)),
        "drag": np.array(layers.drag),
        "reynolds": np.array(design.reynolds),
        "incidence": np.array(design.incidence),
        "family": np.array(float(design.family)),
        "digits": design.digits,
        "transition": layers.transition,
        "separation": layers.separation,
    }


def _complex(points: Floats) -> npt.NDArray[np.complex128]:
    """Return points (n, 2) as x + iy, shape (n,)."""
    return points[:, 0] + 1j * points[:, 1]


def _parts(points: int, panels: int) -> list[slice]:
    size = max(1, _PAIRS // panels)
    return [slice(start, start + size) for start in range(0, points, size)]


def _stream_functions(z: npt.NDArray[np.complex128]) -> tuple[Floats, Floats]:
    """Return psi at the nodes, without the last, of panels with strength 1 at one end and 0 at the
    other: first for strength 1 at the start, then at the end, (panels, panels) each.

    Psi is -1 / (2 pi) times the real part of the integral of strength times log(z - zeta).
    """
    step = np.diff(z)
    length = abs(step)
    q = (z[:-1, None] - z[:-1]) / step  # the panel is 0 to 1
    rest = (z[:-1, None] - z[1:]) / step  # q - 1, and exactly 0 at the end
    log_q, log_rest = (np.log(np.where(w == 0.0, 1.0, w)) for w in (q, rest))
    both = q * log_q - rest * log_rest - 1.0 + np.log(length)
    end = 0.5 * (q**2 * log_q - (q + 1.0) * rest * log_rest - q - 0.5 + np.log(length))
    scale = -length / (2.0 * np.pi)
    return scale * (both - end).real, scale * end.real
