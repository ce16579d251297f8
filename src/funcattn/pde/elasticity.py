"""A stretched rubber sheet with a void: hyperelastic plane stress by quadratic finite elements.

`sample` draws from the benchmark, `solve` takes a void of your own, and `equilibrium` takes any
mesh, clamping and load. Lengths and stresses are in units of your choice; the thickness is 1.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csc_array
from scipy.sparse.linalg import splu

from funcattn.arrays import Floats
from funcattn.pde.elasticity_material import cauchy_stress, mooney_rivlin, von_mises
from funcattn.pde.elasticity_mesh import void_mesh, void_radius
from funcattn.pde.errors import NotConvergedError


class Elements(NamedTuple):
    """Nine-node quadrilaterals, evaluated at their 3 x 3 Gauss points in the undeformed body."""

    points: Floats  # (elements, 9, 2)
    weights: Floats  # (elements, 9), area weights: their sum is the area of the body
    slopes: Floats  # (elements, 36, 18): u at the nodes -> du/dX at the points
    unknowns: npt.NDArray[np.intp]  # (elements, 18): 2 * node + component


class Equilibrium(NamedTuple):
    """A body at rest under its load."""

    displacement: Floats  # (nodes, 2)
    force: Floats  # (nodes, 2), acting on the body: the load, and reactions where fixed
    residuals: Floats  # (steps + 1,), relative, before the first step and after each step


def evaluate(nodes: Floats, elements: npt.NDArray[np.integer]) -> Elements:
    """Evaluate nine-node quadrilaterals, whose shape and displacement are both biquadratic.

    Args:
        nodes: positions, shape (nodes, 2).
        elements: node numbers, shape (elements, 9), each a row-major 3 x 3 grid whose second axis
            is counterclockwise from its first.

    Raises:
        ValueError: an argument is not as described above, or an element is folded.

    Example:
        >>> x, y = np.meshgrid([0.0, 0.5, 1.0], [0.0, 0.5, 1.0], indexing="ij")
        >>> square = evaluate(np.stack([x.ravel(), y.ravel()], axis=-1), np.arange(9)[None])
        >>> round(float(square.weights.sum()), 12)
        1.0
    """
    count = len(elements)
    numbered = elements.shape == (count, 9) and ((elements >= 0) & (elements < len(nodes))).all()
    if not (numbered and count and nodes.shape == (len(nodes), 2) and np.isfinite(nodes).all()):
        raise ValueError(
            f"expected finite nodes of shape (nodes, 2) and elements of nine of their numbers, got "
            f"shapes {nodes.shape} and {elements.shape}: check both where they were made"
        )
    places = nodes[elements]  # (elements, 9 nodes, 2)
    jacobian = _SLOPES @ places[:, None]  # (elements, 9 points, 2, 2)
    weights = _WEIGHTS * np.linalg.det(jacobian)
    if not (weights > 0.0).all():
        raise ValueError(
            f"expected elements of positive area, got {int((~(weights > 0.0)).any(1).sum())} of "
            f"{count} folded: number their nodes counterclockwise, or smooth the boundary"
        )
    # (point, component, axis) from (node, component): each component is differentiated separately.
    slopes = np.zeros((count, 9, 2, 2, 9, 2))
    slopes[:, :, 0, :, :, 0] = np.linalg.inv(jacobian) @ _SLOPES
    slopes[:, :, 1, :, :, 1] = slopes[:, :, 0, :, :, 0]
    return Elements(
        points=_VALUES @ places,
        weights=weights,
        slopes=slopes.reshape(count, 36, 18),
        unknowns=(2 * elements[:, :, None] + np.arange(2)).reshape(count, 18),
    )


def displacement_gradient(elements: Elements, displacement: Floats) -> Floats:
    """Return du/dX at the Gauss points, (elements, 9, 2, 2), from u at the nodes, (nodes, 2)."""
    gradient: Floats = elements.slopes @ displacement.ravel()[elements.unknowns][..., None]
    return gradient.reshape(-1, 9, 2, 2)


def assemble(
    elements: Elements, displacement: Floats, c1: float = 1.863e5, c2: float = 9.79e3
) -> tuple[float, Floats, csc_array]:
    """Sum the elastic energy of the body and its first and second derivatives by u at the nodes.

    Returns:
        The energy, the force on the nodes (nodes, 2), and the stiffness, sparse and symmetric,
        (2 nodes, 2 nodes).
    """
    gradient = displacement_gradient(elements, displacement)
    energy, stress, tangent = mooney_rivlin(gradient, c1, c2)
    weights = elements.weights[..., None, None]
    to_nodes = elements.slopes.swapaxes(1, 2)  # (elements, 18, 36)
    forces = to_nodes @ (weights * stress).reshape(-1, 36, 1)
    change = weights * tangent @ elements.slopes.reshape(-1, 9, 4, 18)
    stiffness = to_nodes @ change.reshape(-1, 36, 18)

    unknowns, size = elements.unknowns, displacement.size
    force = np.zeros(size)
    np.add.at(force, unknowns, forces[..., 0])
    row = np.broadcast_to(unknowns[:, :, None], stiffness.shape).ravel()
    column = np.broadcast_to(unknowns[:, None, :], stiffness.shape).ravel()
    matrix = coo_array((stiffness.ravel(), (row, column)), shape=(size, size)).tocsc()
    return float((elements.weights * energy).sum()), force.reshape(-1, 2), matrix


def equilibrium(
    elements: Elements,
    *,
    load: Floats,
    fixed: npt.NDArray[np.bool_],
    prescribed: Floats | None = None,
    c1: float = 1.863e5,
    c2: float = 9.79e3,
    tolerance: float = 1e-10,
    max_iterations: int = 20,
) -> Equilibrium:
    """Find the displacement at which a body carries its load, div P = 0.

    Method: total Lagrangian finite elements; Newton's method from rest, with the exact tangent
    and a sparse LU factorisation in every step.

    Order: 3 in the displacement and 2 in the stress, where the solution is smooth.

    Limits: the load is applied all at once. Newton's method converges for strains up to some tens
    of percent; a larger load, or one that buckles the body, can raise NotConvergedError.

    Args:
        elements: as returned by `evaluate`.
        load: force on each node, shape (nodes, 2); it keeps its direction.
        fixed: which components of which nodes are prescribed, shape (nodes, 2).
        prescribed: displacement where fixed, shape (nodes, 2), not read elsewhere; None means zero.
        c1, c2: as in `mooney_rivlin`.
        tolerance: bound on |load - force| over the free components, relative to the larger of
            |load| and |force| over all components (2-norms).
        max_iterations: Newton steps allowed.

    Raises:
        ValueError: an argument is not as described above.
        NotConvergedError: the tolerance was not met, the stiffness is singular, or an element
            turned inside out.
    """
    shape = (int(elements.unknowns.max()) // 2 + 1, 2)
    goal = np.zeros(shape) if prescribed is None else prescribed
    if not load.shape == fixed.shape == goal.shape == shape:
        raise ValueError(
            f"expected load, fixed and prescribed of shape {shape}, got {load.shape}, "
            f"{fixed.shape} and {goal.shape}: give them at every node"
        )
    if not (np.isfinite(load).all() and np.isfinite(goal[fixed]).all()):
        raise ValueError(
            "expected finite load and prescribed displacement, got NaN or infinity: "
            "check where they were made"
        )
    if not (c1 >= 0.0 and c2 >= 0.0 and 0.0 < c1 + c2 < np.inf):
        raise ValueError(
            f"expected finite c1, c2 >= 0, not both zero, got c1={c1}, c2={c2}: "
            "a softer material has no stable equilibrium"
        )
    if not (0.0 < tolerance < 1.0 and max_iterations >= 1):
        raise ValueError(
            f"expected 0 < tolerance < 1 and max_iterations >= 1, got {tolerance} and "
            f"{max_iterations}: try 1e-10 and 20"
        )
    free = np.flatnonzero(~fixed)
    displacement = np.zeros(shape)
    residuals: list[float] = []
    while True:
        _, force, stiffness = assemble(elements, displacement, c1, c2)
        scale = max(np.linalg.norm(load), np.linalg.norm(force)) or 1.0
        residuals.append(float(np.linalg.norm((load - force)[~fixed]) / scale))
        steps = len(residuals) - 1
        # The first step applies the prescribed displacement, so it is always taken.
        if steps and residuals[-1] <= tolerance:
            return Equilibrium(displacement, force, np.array(residuals))
        if steps == max_iterations:
            raise NotConvergedError(
                f"expected a relative residual of {tolerance:.1e} within {steps} steps, got "
                f"{residuals[-1]:.1e}: lower the load, allow more steps or a larger tolerance"
            )
        step = np.where(fixed, goal - displacement, 0.0).ravel()
        right = (load - force).ravel() - stiffness @ step
        try:
            # An ordering for symmetric patterns makes LU several times faster than the default.
            step[free] = splu(stiffness[free][:, free], "MMD_AT_PLUS_A").solve(right[free])
        except RuntimeError as error:
            raise NotConvergedError(
                f"expected a stiffness that can be inverted, got '{error}' after {steps} steps: "
                "fix more nodes or lower the load"
            ) from error
        displacement = displacement + step.reshape(shape)
        stretch = np.linalg.det(np.eye(2) + displacement_gradient(elements, displacement))
        if not (stretch > 0.0).all():
            raise NotConvergedError(
                f"expected det F > 0 at every Gauss point, got {stretch.min():.1e} after "
                f"{steps + 1} steps: lower the load, fix more nodes or refine the mesh"
            )


def solve(
    radius: Callable[[Floats], Floats],
    *,
    around: int = 36,
    radial: int = 3,
    grading: float = 0.0,
    traction: float = 100.0,
    c1: float = 1.863e5,
    c2: float = 9.79e3,
    tolerance: float = 1e-10,
) -> dict[str, Floats]:
    """Stretch the unit square with a void: bottom clamped, top pulled up, all other edges free.

    Method and order are those of `equilibrium`, on the mesh of `void_mesh`. The response is close
    to linear at the default load, where strains are about 1e-3: the stress hardly depends on c1 and
    c2.

    Limits: the 36 x 3 elements of the benchmark are coarse. Against 180 x 15, voids of the
    benchmark have errors of 0.5 to 1 % in the displacement and 3 to 4 % in the stress (relative
    2-norm over the points), mostly beside the void. At the ends of the clamp the exact stress is
    infinite, so values near them depend on the mesh.

    Args:
        radius: function from an array of angles to the radius of the void, between 0 and 0.5.
        around, radial, grading: as in `void_mesh`.
        traction: force on the top edge per undeformed length.
        c1, c2: as in `mooney_rivlin`.
        tolerance: as in `equilibrium`.

    Returns:
        At the n = 9 around radial Gauss points: `points` (n, 2) of the undeformed body; `weights`
        (n,) that integrate over it; `stress` (n,), the von Mises value of the Cauchy stress;
        `displacement` (n, 2); and `cauchy` (n, 3), the Cauchy stress xx, yy, xy. As 0-d arrays:
        `iterations` of Newton's method and the relative `residual` reached.

    Raises:
        ValueError: an argument is out of range, or the void folds an element.
        NotConvergedError: as in `equilibrium`.

    Example:
        >>> sheet = solve(lambda angle: np.full(angle.shape, 0.25))
        >>> sheet["stress"].shape, int(sheet["iterations"])
        ((972,), 3)
    """
    if not np.isfinite(traction):
        raise ValueError(f"expected a finite traction, got {traction}: try 100")
    nodes, numbers = void_mesh(radius, around=around, radial=radial, grading=grading)
    elements = evaluate(nodes, numbers)
    # Simpson's rule spreads a uniform pull over the nodes of the top edge, whose length is 1.
    simpson = np.full(around // 2 + 1, 2.0)
    simpson[1::2] = 4.0
    simpson[[0, -1]] = 1.0
    load = np.zeros(nodes.shape)
    load[nodes[:, 1] == 1.0, 1] = traction * simpson / simpson.sum()
    fixed = np.repeat(nodes[:, 1:] == 0.0, 2, axis=1)
    rest = equilibrium(elements, load=load, fixed=fixed, c1=c1, c2=c2, tolerance=tolerance)
    cauchy = cauchy_stress(displacement_gradient(elements, rest.displacement), c1, c2)
    return {
        "points": elements.points.reshape(-1, 2),
        "weights": elements.weights.ravel(),
        "stress": von_mises(cauchy).ravel(),
        "displacement": (_VALUES @ rest.displacement[numbers]).reshape(-1, 2),
        "cauchy": cauchy.reshape(-1, 3),
        "iterations": np.array(len(rest.residuals) - 1.0),
        "residual": np.array(rest.residuals[-1]),
    }


def sample(
    *,
    around: int = 36,
    radial: int = 3,
    grading: float = 0.0,
    modes: int = 5,
    amplitude: float = 4.0,
    inverse_length: float = 3.0,
    traction: float = 100.0,
    c1: float = 1.863e5,
    c2: float = 9.79e3,
    tolerance: float = 1e-10,
    rng: np.random.Generator,
) -> dict[str, Floats]:
    """Draw a void and stretch the sheet: one sample of the benchmark.

    The void depends only on `rng` and `modes`, so other meshes show the same sample; more modes
    continue the same series.

    Args:
        around, radial, grading, traction, c1, c2, tolerance: as in `solve`.
        modes: number of waves around the void.
        amplitude, inverse_length: as in `void_radius`.
        rng: source of the 2 modes standard normal draws.

    Returns:
        The result of `solve`; `coefficients` (2 modes,), the draws; and `radius` (42,), the radius
        of the void at angles from 0 to 2 pi, both included.

    Raises:
        ValueError: an argument is out of range.
        NotConvergedError: as in `equilibrium`.

    Example:
        >>> one = sample(rng=np.random.default_rng(0))
        >>> one["points"].shape, one["cauchy"].shape, one["coefficients"].shape
        ((972, 2), (972, 3), (10,))
    """
    if modes < 1 or not (0.0 <= amplitude < np.inf and 0.0 <= inverse_length < np.inf):
        raise ValueError(
            f"expected modes >= 1 and finite amplitude, inverse_length >= 0, got {modes}, "
            f"{amplitude} and {inverse_length}: try 5, 4 and 3"
        )
    coefficients = rng.standard_normal(2 * modes)
    radius = partial(void_radius, coefficients, amplitude=amplitude, inverse_length=inverse_length)
    sheet = solve(
        radius,
        around=around,
        radial=radial,
        grading=grading,
        traction=traction,
        c1=c1,
        c2=c2,
        tolerance=tolerance,
    )
    angles = np.linspace(0.0, 2.0 * np.pi, 42)
    angles[-1] = 0.0  # the same as the first, to the last bit
    return sheet | {"coefficients": coefficients, "radius": radius(angles)}


def _shape_functions() -> tuple[Floats, Floats, Floats]:
    """Return weights (9,), values (9, 9) and slopes (9, 2, 9) on the square [-1, 1]^2.

    The first axis is the Gauss point, the last the node, both row-major 3 x 3 grids.
    """
    x = np.sqrt(0.6) * np.array([-1.0, 0.0, 1.0])
    weight = np.array([5.0, 8.0, 5.0]) / 9.0
    value = np.stack([x * (x - 1) / 2, 1 - x**2, x * (x + 1) / 2], axis=-1)
    slope = np.stack([x - 0.5, -2 * x, x + 0.5], axis=-1)
    slopes = np.stack([np.kron(slope, value), np.kron(value, slope)], axis=1)
    return np.outer(weight, weight).ravel(), np.kron(value, value), slopes


_WEIGHTS, _VALUES, _SLOPES = _shape_functions()
