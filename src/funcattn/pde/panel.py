"""Flow past an airfoil by vortex panels, with boundary layers for its drag: a proxy for RANS data.

The flow is incompressible and without viscosity: pressure is Bernoulli's, and velocity slips along
the surface. Boundary layers are computed from it for wall shear and drag, and nothing comes back
from them. So there is no stall, no wake, no eddy viscosity and no velocity profile at the wall, and
lift is that of potential flow, above the lift of a real airfoil.

Airfoils are polygons as `funcattn.pde.naca` gives them, of chord 1: counterclockwise nodes that
start and end at the trailing edge. Pressure and wall shear are divided by the density.
"""

import warnings
from math import ceil, exp, log
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, LinAlgWarning
from scipy.linalg import solve as linalg_solve

from funcattn.pde import airfrans
from funcattn.pde.airfrans import BOX
from funcattn.pde.errors import NotConvergedError

Floats = npt.NDArray[np.float64]

_PAIRS = 2**18
"""Pairs of point and panel that are worked on at a time: few enough for the cache."""
_LEAST_REYNOLDS = 320.0
"""Of the momentum thickness: a layer below it does not stay turbulent when tripped (Preston)."""
_FITS_MEET = 2.09092
"""Entrainment shape factor less 3.3 at which two fits to it have the shape factor 1.585."""
_SEPARATED = 2.4
"""Shape factor with which a turbulent layer leaves the wall."""


class Flow(NamedTuple):
    """A potential flow."""

    nodes: Floats  # (panels + 1, 2)
    stream: Floats  # (2,), velocity far away
    speed: Floats  # (panels + 1,), along the surface at the nodes, positive towards the next node


class Surface(NamedTuple):
    """A flow at the middles of its panels."""

    position: Floats  # (panels, 2)
    normal: Floats  # (panels, 2), of length 1, into the flow
    length: Floats  # (panels,), of the panels
    speed: Floats  # (panels,), positive towards the next node
    velocity: Floats  # (panels, 2)


class Layer(NamedTuple):
    """A boundary layer at its stations, without the first."""

    thickness: Floats  # of momentum
    shape: Floats  # displacement thickness over momentum thickness
    friction: Floats  # wall shear over half the square of the speed
    turbulent_from: int  # station; their number if the layer stays laminar
    separated_from: int  # station; their number if the layer stays attached


class Friction(NamedTuple):
    """What boundary layers do to an airfoil. Pairs are its upper and its lower side."""

    shear: Floats  # (panels, 2), force on the wall per area and density
    drag: float  # coefficient, of friction and form together
    transition: Floats  # (2,), x where the layer turns turbulent; 1 if it does not
    separation: Floats  # (2,), x where the layer separates; 1 if it does not


def solve(nodes: Floats, stream: Floats) -> Flow:
    """Solve Laplace psi = 0 for the stream function around an airfoil, psi constant on it.

    At the trailing edge the speed is the same on both sides (Kutta condition).

    Method: a vortex sheet along the polygon, linear on every panel; psi has one value at all nodes.
    Inside, the fluid is then at rest, so the strength of the sheet is the speed at the surface. At
    the trailing edge, which is two nodes in one place, the mean speed of the sides is extrapolated
    from their last two nodes. Dense LU factors, of size panels + 2.

    Order: 2 in the length of the panels, for the lift and for the speed at the nodes. At the
    trailing edge itself the exact speed is zero, unless there is a cusp, but falls there so late
    (as the distance to the power 0.05 for NACA 0012) that panels do not see it: the speed in that
    place is the one just ahead, and at the few nodes next to it errors stop falling near 0.001.

    Args:
        nodes: shape (panels + 1, 2), at least 6 panels, counterclockwise from the trailing edge
            to the trailing edge.
        stream: velocity far away, shape (2,), not zero.

    Raises:
        ValueError: an argument is not of the kind above.
        NotConvergedError: the equations have no unique solution, up to rounding.

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
            "give the velocity far away"
        )
    z = _complex(nodes)
    if z[0] != z[-1] or (z[1:] == z[:-1]).any() or (z[:-1].conj() * z[1:]).imag.sum() <= 0.0:
        raise ValueError(
            f"expected a closed, counterclockwise polygon of different nodes, got one from "
            f"{nodes[0]} to {nodes[-1]}: start and end at the trailing edge, upper side first"
        )
    panels = len(z) - 1
    matrix = np.zeros((panels + 2, panels + 2))
    start, end = _stream_functions(z)
    matrix[:panels, :panels] = start
    matrix[:panels, 1:-1] += end
    matrix[:panels, -1] = -1.0  # the unknown psi of the airfoil
    matrix[panels, [0, -2]] = 1.0  # speeds count along the polygon, so equal ones cancel
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
    """Lift coefficient, from the circulation (theorem of Kutta and Joukowski)."""
    wall = surface(flow)
    return float(-2.0 * (wall.speed @ wall.length) / np.linalg.norm(flow.stream))


def velocity(flow: Flow, points: Floats) -> Floats:
    """Evaluate the velocity at points of the fluid; both have shape (n, 2).

    Method: the exact field of linear vortex panels.

    Limits: closer to the surface than the length of a panel, the corners of the polygon show. Of
    200 panels on NACA 2412 at 8 degrees, errors are 0.002 of the stream (root mean square) at a
    distance of 0.001, and 0.01 at 0.0001. On the surface take `surface`; inside the airfoil the
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
    # u - iv of a panel is (first + second p) log((p - start) / (p - end)), plus a constant.
    unit = abs(step) / (2j * np.pi * step)
    second = unit * np.diff(flow.speed) / step
    first = unit * flow.speed[:-1] - second * z[:-1]
    constant = complex(flow.stream[0], -flow.stream[1]) - (second * step).sum()
    result = np.empty_like(p)
    for part in _parts(len(p), len(step)):
        away = p[part, None] - z
        if not (np.isfinite(away) & (away != 0.0)).all():
            raise ValueError(
                "expected finite points off the nodes of the airfoil, got others: "
                "take the speed on the surface from the flow, and check for missing values"
            )
        logarithm = np.log(away[:, :-1] / away[:, 1:])
        result[part] = logarithm @ first + p[part] * (logarithm @ second) + constant
    return np.stack([result.real, -result.imag], axis=-1)


def surface(flow: Flow) -> Surface:
    """Evaluate the flow at the middles of its panels, where it slips along them."""
    middle, normal, length = airfrans.panels(flow.nodes)
    speed = 0.5 * (flow.speed[1:] + flow.speed[:-1])
    along = np.stack([-normal[:, 1], normal[:, 0]], axis=-1)
    return Surface(middle, normal, length, speed, speed[:, None] * along)


def pressure(flow: Flow, velocity: Floats) -> Floats:
    """Bernoulli's pressure over density, (n,), where the velocity is this, (n, 2); 0 far away."""
    result: Floats = 0.5 * (flow.stream @ flow.stream - (velocity**2).sum(axis=-1))
    return result


def signed_distance(nodes: Floats, points: Floats) -> Floats:
    """Distance of points (n, 2) from a closed polygon, negative inside; shape (n,).

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
        # From inside, a ray along x meets an odd number of panels.
        above = z.imag > p[part, None].imag
        met = (above[:, 1:] != above[:, :-1]) & ((q.imag > 0.0) == above[:, 1:])
        result[part] = np.where(met.sum(axis=1) % 2 == 1, -distance, distance)
    return result


def boundary_layer(arc: Floats, speed: Floats, viscosity: float, *, trip: float = np.inf) -> Layer:
    """Compute a boundary layer from the speed outside, laminar at first and then turbulent.

    Method: Thwaites' integral for the laminar layer. It turns turbulent at the first station that
    meets Michel's criterion (in the form of Cebeci and Smith) or at which it would separate, or
    when tripped. The turbulent layer follows Head's entrainment method, with the friction law of
    Ludwieg and Tillmann, from the laminar thickness and a shape factor of 1.4 on, integrated by
    the Runge-Kutta method of order 4 in steps of at most 20 thicknesses. At a shape factor of 2.4
    it separates: beyond, friction is zero, the shape factor stays, and thickness goes as speed to
    the power -4.4.

    Order: 2 in the distance of the stations, between which the speed is linear; but transition
    and separation are placed at stations.

    Limits: errors of the methods themselves are 1 % (Thwaites) and up to 10 % (Head) on a flat
    plate. What is said beyond separation is an extrapolation.

    Args:
        arc: distance along the wall, increasing from 0, shape (stations + 1,), 2 stations or more.
        speed: outside the layer, positive, at the first place also zero (stagnation).
        viscosity: kinematic, positive.
        trip: distance, positive, from which on the layer is turbulent as soon as the Reynolds
            number of its momentum thickness is 320.

    Raises:
        ValueError: an argument is not of the kind above.

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
            "expected arc increasing from 0 and speed positive along it, 3 places or more, got "
            f"{arc} and {speed}: start at the stagnation point and follow the flow"
        )
    if not (0.0 < viscosity < np.inf and trip > 0.0):
        raise ValueError(
            f"expected viscosity and trip > 0, got {viscosity} and {trip}: "
            "try 1 / Reynolds number, and 0.05"
        )
    # The integral of speed^5, exactly for a speed that is linear between stations.
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
    turbulent[-1] = False  # nothing follows that could be turbulent
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


def friction(flow: Flow, viscosity: float, *, trip: float = 0.05) -> Friction:
    """Compute the boundary layers on both sides of an airfoil, their wall shear and their drag.

    Method: `boundary_layer` from the stagnation point along either side; drag by the formula of
    Squire and Young, from both layers at the trailing edge. In the last hundredth of a side the
    speed is held: potential flow comes to rest at the edge, and real flow does not.

    Args:
        flow: as `solve` gives it.
        viscosity: kinematic; the Reynolds number is |stream| / viscosity.
        trip: distance from the stagnation point, as in `boundary_layer`. The default is near to
            models of turbulence that know no transition; infinity leaves transition to itself.

    Raises:
        ValueError: viscosity or trip is not positive.
        NotConvergedError: the flow has not one stagnation point ahead of the trailing edge.

    Example:
        >>> from funcattn.pde.naca import four_digit
        >>> flow = solve(four_digit(0.0, 0.0, 12.0), np.array([1.0, 0.0]))
        >>> [round(friction(flow, 1 / 6e6, trip=trip).drag, 5) for trip in (0.05, np.inf)]
        [0.00805, 0.00614]
    """
    wall = surface(flow)
    arc = np.cumsum(wall.length) - 0.5 * wall.length
    # Counterclockwise, the upper side is met by the flow and the lower side carries it along.
    turns = np.flatnonzero(np.diff(np.sign(wall.speed)))
    if not (len(turns) == 1 and wall.speed[0] < 0.0 < wall.speed[-1]):
        raise NotConvergedError(
            "expected one stagnation point, between the middles of panels, besides the trailing "
            f"edge, got {len(turns)}: take more panels"
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
    """Draw points of the fluid in `BOX`, and return them and their distances, (n, 2) and (n,).

    A share `near` of the candidates starts at a random place of a random panel and goes away from
    it in a random direction, over a distance whose logarithm is uniform between that of `closest`
    and 0; the others are uniform in the box. Candidates outside the box or nearer to the airfoil
    than `closest` are drawn again.
    """
    found = np.empty((0, 3))
    z = _complex(nodes)
    while (missing := count - len(found)) > 0:
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
        found = np.concatenate([found, np.column_stack([points, distance])[good]])
    return found[:, :2], found[:, 2]


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

    The design is that of the benchmark, by `funcattn.pde.airfrans`. The chord is 1, along x, and
    the stream is inclined.

    The flow is not that of the benchmark, which has Reynolds-averaged Navier-Stokes equations with
    k-omega SST: see the head of this module for what is missing. Velocity on the surface is that
    of the slipping flow, the limit of its neighbours, where the benchmark has zero; eddy viscosity
    is zero everywhere. Drag of layers with separation < 1 is an extrapolation.

    Args:
        panels: of the airfoil, even; their middles are the surface points.
        field_points: points of the fluid. The default makes 32 000 with those of the surface, as
            many as training on the benchmark draws from its meshes.
        near, closest: where they are, as in `scatter`.
        reflex: as in `funcattn.pde.airfrans.draw_design`.
        trip: as in `friction`.
        viscosity: kinematic; the stream has Reynolds number times viscosity.
        rng: source of all draws. The design comes first and does not depend on the others.

    Returns:
        Of n = panels + field_points points, the surface first, from the trailing edge over the
        upper side to the nose and back: position (n, 2); features (n, 7), which are x, y, u and v
        of the stream, distance to the airfoil, normal x and y (zero off the surface); target
        (n, 4), which is u, v, pressure / density, eddy viscosity (zero); surface (n,), true there.
        Of the surface points: length (panels,) of their panels and shear (panels, 2), the wall
        shear / density, so that the force / density is the sum of (shear - pressure normal) length.
        Numbers: lift and drag (coefficients), reynolds, incidence in degrees, family (4 or 5),
        digits (4,): camber or lift, position, 1 if reflexed, thickness; and for upper and lower
        side transition (2,) and separation (2,), the x where they happen, 1 if they do not.

    Raises:
        ValueError: a parameter is out of range.
        NotConvergedError: as in `friction`.

    Example:
        >>> stored = sample(panels=60, field_points=100, rng=np.random.default_rng(0))
        >>> stored["features"].shape, stored["target"].shape, int(stored["surface"].sum())
        ((160, 7), (160, 4), 60)
    """
    if field_points < 0:
        raise ValueError(f"expected field_points >= 0, got {field_points}: try 31800")
    if not 0.0 <= near <= 1.0:
        raise ValueError(f"expected a share near in [0, 1], got {near}: try 0.75")
    if not 0.0 < closest <= 0.5:
        raise ValueError(
            f"expected closest in (0, 0.5], got {closest}: points keep off the airfoil, and find "
            "room in the box; try 0.001"
        )
    design = airfrans.draw_design(rng, reflex=reflex)
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
    """Points (n, 2) as x + iy, shape (n,)."""
    return points[:, 0] + 1j * points[:, 1]


def _parts(points: int, panels: int) -> list[slice]:
    size = max(1, _PAIRS // panels)
    return [slice(start, start + size) for start in range(0, points, size)]


def _stream_functions(z: npt.NDArray[np.complex128]) -> tuple[Floats, Floats]:
    """Psi at nodes (but the last, which is the first) of panels of strength 1 at one end, 0 at the
    other: first of all starts, then of all ends, (panels, panels) each.

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


def _advance(state: Floats, length: float, start: float, end: float, viscosity: float) -> Floats:
    """Follow a turbulent layer over a length along which the speed goes from start to end.

    The state is the logarithm of the thickness and the shape factor of entrainment.
    """
    # A layer forgets within some tens of thicknesses; a longer step would not be stable.
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
    """Derivative of the state by the distance: von Karman's and Head's equation."""
    thickness, entrainment = exp(state[0]), float(state[1])
    shape = _shape(entrainment)
    growth = _friction(shape, speed * thickness / viscosity) / (2.0 * thickness)
    growth -= (shape + 2.0) * slope / speed
    # A trial step may lead beyond separation, where the fit has a pole.
    fed = 0.0306 * max(entrainment - 3.0, 0.3) ** -0.6169 / thickness
    return np.array([growth, fed - entrainment * (growth + slope / speed)])


def _shape(entrainment: float) -> float:
    """Shape factor of a layer from that of entrainment, (full - displacement) / momentum."""
    excess = max(entrainment - 3.3, 0.01)
    # Two fits, changed where they meet, so that there is no step.
    if excess < _FITS_MEET:
        return 0.6778 + 1.1536 * excess**-0.326
    return 1.1 + 0.86 * excess**-0.777


def _entrainment_shape(shape: float) -> float:
    """Inverse of `_shape`, for shape factors above 1.1."""
    excess = ((shape - 0.6778) / 1.1536) ** (-1.0 / 0.326)
    return 3.3 + (excess if excess < _FITS_MEET else ((shape - 1.1) / 0.86) ** (-1.0 / 0.777))


def _friction(shape: float, reynolds: float) -> float:
    """Friction law of Ludwieg and Tillmann; `reynolds` is that of the momentum thickness."""
    return 0.246 * 10.0 ** (-0.678 * shape) * reynolds**-0.268
