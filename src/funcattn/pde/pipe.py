"""Pipe flow: the steady incompressible Navier-Stokes equations in a curved channel."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view
from scipy.interpolate import CubicHermiteSpline
from scipy.sparse import coo_array, csc_array
from scipy.sparse.linalg import splu

from funcattn.pde.errors import NotConvergedError, fallen

LENGTH = 10.0
PIECES = 4


class Flow(NamedTuple):
    """A steady flow on nx x ny nodes, and the end of its iteration."""

    velocity: npt.NDArray[np.float64]
    """u_x and u_y at the nodes, shape (2, nx, ny)."""
    pressure: npt.NDArray[np.float64]
    """p (over the density) at every second node, shape ((nx + 1) / 2, (ny + 1) / 2)."""
    iterations: int
    """Corrections made; 6 to 13 in the benchmark."""
    change: float
    """Last correction of the velocity over the largest velocity, at most the tolerance."""


def centre_line(design: npt.NDArray[np.floating]) -> CubicHermiteSpline:
    """Return the height c(x) of the middle of the channel, 0 <= x <= 10, as a callable.

    It consists of cubic Hermite pieces between five equidistant knots, with c(0) = 0: `design`
    holds the heights at the last four knots, then the slopes dc/dx at all five. c(x, 1) is the
    slope.

    Example:
        >>> c = centre_line(np.array([0.5, -1.0, 0.0, 1.0, 0.0, 0.2, 0.0, 0.0, -0.3]))
        >>> c(np.array([0.0, 2.5, 10.0])), float(c(10.0, 1).round(12))
        (array([0. , 0.5, 1. ]), -0.3)
    """
    design = np.asarray(design, dtype=np.float64)
    if design.shape != (2 * PIECES + 1,) or not np.isfinite(design).all():
        raise ValueError(
            f"expected {2 * PIECES + 1} finite numbers, {PIECES} heights then {PIECES + 1} "
            f"slopes, got {design} of shape {design.shape}: give one design at a time"
        )
    heights = np.concatenate([[0.0], design[:PIECES]])
    return CubicHermiteSpline(np.linspace(0.0, LENGTH, PIECES + 1), heights, design[PIECES:])


def channel(
    design: npt.NDArray[np.floating], nodes: int = 129
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the arguments of `solve` for a channel: the nodes x and y, and the velocity.

    The channel is 0 <= x <= 10, |y - c(x)| <= 1/2 with the centre line c, so its vertical width
    is 1. Nodes are equidistant in x (first axis, inlet first) and in y (second axis, lower wall
    first).

    The velocity has the boundary values of the benchmark: zero at the walls and (t (1 - t), 0) at
    the inlet, t = y - c + 1/2. Inside it is the parabola that follows the channel,
    t (1 - t) (1, c'), which is divergence-free and close enough for Newton's method.

    Args:
        design: heights and slopes, shape (9,), see `centre_line`.
        nodes: nodes n along each axis, odd and at least 5. The knots of the centre line
            lie on edges of elements if nodes - 1 is a multiple of 8.

    Returns:
        x and y of shape (n, n), velocity of shape (2, n, n).

    Example:
        >>> x, y, velocity = channel(np.zeros(9), nodes=5)
        >>> y[0]
        array([-0.5 , -0.25,  0.  ,  0.25,  0.5 ])
        >>> velocity[0, -1]
        array([0.    , 0.1875, 0.25  , 0.1875, 0.    ])
    """
    if nodes < 5 or nodes % 2 == 0:
        raise ValueError(
            f"expected an odd number of nodes, at least 5, got {nodes}: "
            "each element has nodes at its corners, edges and centre; try 129"
        )
    c = centre_line(design)
    along, t = np.linspace(0.0, LENGTH, nodes), np.linspace(0.0, 1.0, nodes)
    x = np.repeat(along[:, None], nodes, axis=1)
    y = c(along)[:, None] + (t - 0.5)
    velocity = np.empty((2, nodes, nodes))
    velocity[0] = t * (1.0 - t)
    velocity[1] = c(along, 1)[:, None] * velocity[0]
    velocity[1, 0] = 0.0
    return x, y, velocity


def solve(
    x: npt.NDArray[np.floating],
    y: npt.NDArray[np.floating],
    velocity: npt.NDArray[np.floating],
    *,
    viscosity: float = 0.005,
    traction: float | npt.NDArray[np.floating] = 0.0,
    tolerance: float = 1e-10,
    max_iterations: int = 25,
    progress: Callable[[float], None] | None = None,
) -> Flow:
    """Solve (u . grad) u - nu Laplace u + grad p = 0, div u = 0 for a steady flow.

    The domain is a curved grid of nx x ny nodes. The velocity is given on its sides [0], [:, 0] and
    [:, -1] (inlet and walls); the side [-1] is the outlet, where nu du/dn - p n = `traction`,
    zero for a free ("do-nothing") outlet.

    Method: isoparametric Taylor-Hood elements Q2/Q1, with 3 x 3 nodes and 3 x 3 Gauss points each.
    Newton's method with sparse LU factors, which are reused as long as each correction is at least
    five times smaller than the last: a step with old factors costs a fifteenth of one with new
    factors.

    Order: in the spacing, 3 for the velocity and 2 for the pressure if the flow is smooth. Where
    walls meet the inlet or outlet at an angle it is not, and the pressure is singular in the
    corner. The benchmark at 129 x 129 is within 0.1 to 0.3 % of 257 x 257. Mass is conserved as far
    as the pressure functions test it: between vertical grid lines the flux through x, averaged over
    a column of elements, is exact, but at a single x it is off by 0.4 % (median; up to 1.2 %).

    Limits: steady flows that Newton's method reaches from the given start and that the elements
    resolve (there is no upwinding). In the channels of the benchmark a viscosity of 0.00125, a
    Reynolds number of 200 based on width and peak velocity, still succeeds.

    Args:
        x: positions of the nodes, shape (nx, ny), both odd and at least 5.
        y: the same for y; (x, y) must be a right-handed grid without folds.
        velocity: shape (2, nx, ny). Its values on the three sides are kept; the others start the
            iteration.
        viscosity: nu, positive.
        traction: traction at the outlet nodes, a number or shape (2, ny).
        tolerance: bound on the last correction of the velocity, relative to its largest value.
            The remaining error is smaller, also for the pressure, which enters linearly.
        max_iterations: corrections allowed.
        progress: called with the share of the work that is done, 0 to 1.

    Returns:
        The flow: velocity, pressure, iterations and change.

    Raises:
        ValueError: an argument is not as described above.
        NotConvergedError: the tolerance was not met; the message states the last correction.

    Example:
        >>> flow = solve(*channel(np.zeros(9), nodes=9))  # straight: p falls by 2 nu 10
        >>> flow.velocity.shape, flow.pressure.shape, float(flow.pressure[0, 2].round(12))
        ((2, 9, 9), (5, 5), 0.1)
    """
    nx, ny = _checked_shape(x, y, velocity)
    if not 0.0 < viscosity < np.inf:
        raise ValueError(
            f"expected a positive, finite viscosity, got {viscosity}: the benchmark has 0.005"
        )
    if not 0.0 < tolerance < 1.0:
        raise ValueError(f"expected 0 < tolerance < 1, got {tolerance}: try 1e-10")
    outside = np.asarray(traction, dtype=np.float64)
    if outside.shape not in ((), (2, ny)) or not np.isfinite(outside).all():
        raise ValueError(
            f"expected a finite traction, a number or shape (2, {ny}), got shape {outside.shape} "
            f"and values from {outside.min()} to {outside.max()}: give it at the outlet nodes"
        )
    position = np.stack([x, y]).astype(np.float64)
    elements = _TaylorHood(position, viscosity, np.broadcast_to(outside, (2, ny)))
    count = 2 * nx * ny
    state = np.concatenate([np.ravel(velocity), np.zeros((nx + 1) // 2 * ((ny + 1) // 2))])
    factors = None
    change, last_change = np.inf, 1.0
    for iteration in range(1, max_iterations + 1):
        residual = elements.residual(state)
        if factors is None:
            # The ordering reduces fill for the given pattern: swap rows only where necessary.
            factors = splu(
                elements.matrix(state),
                permc_spec="MMD_AT_PLUS_A",
                diag_pivot_thresh=1e-3,
                options={"SymmetricMode": True},
            )
        correction = np.zeros_like(state)
        correction[elements.free] = factors.solve(residual)
        state -= correction
        # A flow at rest has the exact solution zero.
        speed = abs(state[:count]).max() or 1.0
        change = float(abs(correction[:count]).max() / speed)
        if progress is not None:
            progress(fallen(change, 1.0, tolerance))
        if change <= tolerance:
            pressure = state[count:].reshape((nx + 1) // 2, (ny + 1) // 2)
            return Flow(state[:count].reshape(2, nx, ny), pressure, iteration, change)
        if change > 0.2 * last_change:
            factors = None
        last_change = change
    raise NotConvergedError(
        f"expected corrections of {tolerance:.1e} of the velocity within {max_iterations} "
        f"iterations, got {change:.1e}: start from the flow at a larger viscosity, refine the "
        "grid, or allow more iterations or a larger tolerance"
    )


def sample(
    *,
    nodes: int = 129,
    stride: int = 1,
    viscosity: float = 0.005,
    heights: float = 1.0,
    slopes: float = 1.0,
    tolerance: float = 1e-10,
    rng: np.random.Generator,
) -> dict[str, npt.NDArray[np.float64]]:
    """Draw one channel of the benchmark and its flow.

    The four heights of the centre line are uniform in (-heights, heights) and its five slopes dc/dx
    uniform in (-slopes, slopes); other descriptions of the benchmark have heights up to 2, or
    slopes up to 0.4 (1 over a piece of length 2.5). Here the inlet velocity always peaks at 0.25: a
    flow with a peak of 1 is this flow at a quarter of the viscosity, times 4.

    Args:
        nodes: nodes of the solve along each axis, see `channel`.
        stride: every `stride`-th node is stored; a divisor of nodes - 1.
        viscosity: nu.
        heights: bound on the heights.
        slopes: bound on the slopes.
        tolerance: see `solve`.
        rng: source of the nine uniform draws; the same for every resolution.

    Returns:
        x, y (n, n) and flow (3, n, n), which is u_x, u_y and p, with n = (nodes - 1) / stride + 1;
        design (9,); iterations and change of the solve. The solve has the pressure at every second
        node; it is linear in between.

    Raises:
        ValueError: an argument is out of range.
        NotConvergedError: as in `solve`; it did not occur in 360 draws.

    Example:
        >>> stored = sample(nodes=33, stride=2, rng=np.random.default_rng(0))
        >>> stored["x"].shape, stored["flow"].shape
        ((17, 17), (3, 17, 17))
    """
    if stride < 1 or (nodes - 1) % stride:
        raise ValueError(
            f"expected stride to be a divisor of nodes - 1 = {nodes - 1}, got {stride}: "
            "both ends of each axis are stored; try 2"
        )
    if not (0.0 <= heights < np.inf and 0.0 <= slopes < np.inf):
        raise ValueError(
            f"expected finite heights >= 0 and slopes >= 0, got {heights} and {slopes}: "
            "they bound the random draws; the benchmark has 1 and 1"
        )
    bounds = np.repeat([heights, slopes], [PIECES, PIECES + 1])
    design = bounds * rng.uniform(-1.0, 1.0, bounds.size)
    x, y, start = channel(design, nodes)
    flow = solve(x, y, start, viscosity=viscosity, tolerance=tolerance)
    kept = (..., slice(None, None, stride), slice(None, None, stride))
    return {
        "x": x[kept],
        "y": y[kept],
        "flow": np.concatenate([flow.velocity, at_all_nodes(flow.pressure)[None]])[kept],
        "design": design,
        "iterations": np.array(float(flow.iterations)),
        "change": np.array(flow.change),
    }


def at_all_nodes(pressure: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Interpolate the pressure linearly from every second node along each axis to all nodes.

    >>> at_all_nodes(np.array([[0.0, 2.0], [4.0, 6.0]]))
    array([[0., 1., 2.],
           [2., 3., 4.],
           [4., 5., 6.]])
    """
    for _ in range(2):
        refined = np.repeat(pressure, 2, axis=0)[:-1]
        refined[1::2] = (pressure[:-1] + pressure[1:]) / 2
        pressure = refined.T
    return np.ascontiguousarray(pressure)


def _checked_shape(
    x: npt.NDArray[np.floating], y: npt.NDArray[np.floating], velocity: npt.NDArray[np.floating]
) -> tuple[int, int]:
    if not (x.ndim == 2 and x.shape == y.shape and velocity.shape == (2, *x.shape)):
        raise ValueError(
            "expected x and y of shape (nx, ny) and velocity of shape (2, nx, ny), got "
            f"{x.shape}, {y.shape} and {velocity.shape}: give all of them at the same nodes"
        )
    nx, ny = x.shape
    if min(nx, ny) < 5 or nx % 2 == 0 or ny % 2 == 0:
        raise ValueError(
            f"expected an odd number of nodes per axis, at least 5, got {nx} x {ny}: "
            "each element has nodes at its corners, edges and centre"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all() and np.isfinite(velocity).all()):
        raise ValueError(
            "expected finite x, y and velocity, got NaN or infinity: check where they were made"
        )
    return nx, ny


class _TaylorHood:
    """The residual of the weak equations on a grid, and its derivative.

    The state is u_x at all nodes, then u_y, then p at every second node; an element sees 22 of
    these unknowns, 9 + 9 + 4. Letters: e element, q Gauss point, i and j one of the 9 velocity
    functions of an element, k one of its 4 pressure functions, s and r direction.
    """

    def __init__(
        self,
        position: npt.NDArray[np.float64],
        viscosity: float,
        traction: npt.NDArray[np.float64],
    ) -> None:
        _, nx, ny = position.shape
        node = np.arange(nx * ny).reshape(nx, ny)
        corner = np.arange((nx + 1) // 2 * ((ny + 1) // 2)).reshape((nx + 1) // 2, -1)
        element_nodes = sliding_window_view(node, (3, 3))[::2, ::2].reshape(-1, 9)  # (e, i)
        element_corners = sliding_window_view(corner, (2, 2)).reshape(-1, 4)  # (e, k)
        self.unknowns = np.concatenate(
            [element_nodes, element_nodes + nx * ny, element_corners + 2 * nx * ny], axis=1
        )

        # Along one axis of an element: Gauss points, and the values there of the quadratic
        # functions of its three nodes, of their derivatives, and of the linear functions of its two
        # ends.
        point, weight = np.polynomial.legendre.leggauss(3)
        quadratic = np.stack([point * (point - 1) / 2, 1 - point**2, point * (point + 1) / 2], 1)
        slope = np.stack([point - 0.5, -2 * point, point + 0.5], 1)
        linear = np.stack([(1 - point) / 2, (1 + point) / 2], 1)
        self.functions = np.kron(quadratic, quadratic)  # (q, i)
        reference_gradient = np.stack([np.kron(slope, quadratic), np.kron(quadratic, slope)], 1)

        place = position.reshape(2, -1)
        jacobian = np.einsum("sei,qri->eqsr", place[:, element_nodes], reference_gradient)
        volume = np.linalg.det(jacobian)
        if not (volume > 0.0).all():
            raise ValueError(
                f"expected a right-handed grid without folds, got {(volume <= 0.0).any(1).sum()} "
                f"of {len(volume)} elements turned over: let the first axis run along x and "
                "the second along y, without crossing lines"
            )
        self.weights = volume * np.kron(weight, weight)  # (e, q)
        self.gradient = np.einsum("qri,eqrs->eqsi", reference_gradient, np.linalg.inv(jacobian))

        # The linear part: viscous force, pressure force, and the divergence as its transpose.
        weighted = self.weights[:, :, None, None] * self.gradient
        viscous = viscosity * np.einsum("eqsi,eqsj->eij", weighted, self.gradient, optimize=True)
        force = -np.einsum("eqsi,qk->esik", weighted, np.kron(linear, linear), optimize=True)
        self.linear = np.zeros((len(volume), 22, 22))
        self.linear[:, :9, :9] = self.linear[:, 9:18, 9:18] = viscous
        self.linear[:, :18, 18:] = force.reshape(-1, 18, 4)
        self.linear[:, 18:, :18] = self.linear[:, :18, 18:].swapaxes(1, 2)

        # The traction acts along the outlet, whose edges have three nodes.
        edges = sliding_window_view(np.arange(ny), 3)[::2]
        length = weight * np.linalg.norm(position[:, -1][:, edges] @ slope.T, axis=0)  # (edge, q)
        push = (traction[:, edges] @ quadratic.T * length) @ quadratic  # (s, edge, i)
        self.load = np.zeros(2 * nx * ny + corner.size)
        for direction in range(2):
            np.add.at(self.load, direction * nx * ny + node[-1][edges], push[direction])

        given = np.zeros((2, nx, ny), dtype=bool)
        given[:, 0] = given[:, :, 0] = given[:, :, -1] = True
        self.free = np.flatnonzero(np.append(~given, np.ones(corner.size, dtype=bool)))
        number = np.full(self.load.size, -1, dtype=np.int32)
        number[self.free] = np.arange(self.free.size)
        row, column = np.broadcast_arrays(
            number[self.unknowns][:, :, None], number[self.unknowns][:, None, :]
        )
        self.kept = (row >= 0) & (column >= 0)
        self.coordinates = (row[self.kept], column[self.kept])

    def residual(self, state: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return forces at the free velocity nodes, then minus the divergence at pressure nodes."""
        local = state[self.unknowns]
        velocity, gradient = self._at_points(local)
        convection = np.einsum("eqr,eqsr,eq->esq", velocity, gradient, self.weights)
        forces = (self.linear @ local[:, :, None])[:, :, 0]
        forces[:, :18] += (convection @ self.functions).reshape(-1, 18)
        total = np.bincount(self.unknowns.ravel(), forces.ravel()).astype(np.float64, copy=False)
        return (total - self.load)[self.free]

    def matrix(self, state: npt.NDArray[np.float64]) -> csc_array:
        """Return the derivative of the residual with respect to the free unknowns."""
        velocity, gradient = self._at_points(state[self.unknowns])
        entries = self.linear.copy()
        # The velocity carries its change ...
        carried = np.einsum("eqs,eqsj->eqj", velocity, self.gradient)
        convection = (self.weights[:, :, None] * self.functions).swapaxes(1, 2) @ carried
        entries[:, :9, :9] += convection
        entries[:, 9:18, 9:18] += convection
        # ... and the change carries the velocity.
        products = np.einsum("qi,qj->qij", self.functions, self.functions).reshape(9, 81)
        carrying = np.einsum("eqsr,eq->esrq", gradient, self.weights) @ products
        # (e, s, r, i j) -> (e, s i, r j)
        entries[:, :18, :18] += (
            carrying.reshape(-1, 2, 2, 9, 9).transpose(0, 1, 3, 2, 4).reshape(-1, 18, 18)
        )
        shape = (self.free.size, self.free.size)
        return coo_array((entries[self.kept], self.coordinates), shape=shape).tocsc()

    def _at_points(
        self, local: npt.NDArray[np.float64]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return velocity (e, q, s) and gradient du_s/dx_r (e, q, s, r) at the Gauss points."""
        nodal = local[:, :18].reshape(-1, 2, 9)
        velocity = np.einsum("esi,qi->eqs", nodal, self.functions, optimize=True)
        gradient = np.einsum("esi,eqri->eqsr", nodal, self.gradient, optimize=True)
        return velocity, gradient
