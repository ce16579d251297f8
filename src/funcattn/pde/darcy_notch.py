"""Darcy flow on a triangle with a notch: -Laplace u = 10, u given on the edges.

The domain is the triangle (0, 0), (1, 0), (1/2, sqrt(3)/2) without the notch. The notch is the
rectangle [0.49, 0.51] x [0, 0.4], a hole. On the outer edges u = b(x), a function of x only. On the
three edges of the notch u = 0, also at the two points where the notch meets the bottom edge.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array, csr_array, vstack
from scipy.sparse.linalg import SuperLU, splu
from scipy.spatial import Delaunay
from skfem import Basis, ElementTriP2, MeshTri
from skfem.models.poisson import laplace, unit_load

from funcattn.pde.random_fields import gaussian_process

HEIGHT = np.sqrt(3.0) / 2.0
NOTCH_HALF_WIDTH = 0.01
NOTCH_HEIGHT = 0.4
# Tolerance for the side of an edge on which a point lies; far below any meaningful distance.
ON_EDGE = 1e-9
# Elements closer than this to a corner of the notch shrink in proportion to their distance from
# it: u jumps at the two lower corners, and its gradient is unbounded at the two upper corners.
GRADING_RADIUS = 0.06
GRADING_LEVELS = 8


def solve(
    boundary: npt.NDArray[np.floating], forcing: float = 10.0, *, spacing: float = 0.01
) -> npt.NDArray[np.float64]:
    """Solve -Laplace u = forcing with u = boundary on the outer edges and u = 0 on the notch.

    Method: quadratic finite elements (`elements`). u is linear in the boundary values, so it is
    solved once for each of them and once for the forcing; any number of samples is then one
    matrix product. At spacing 0.01 and n = 101 the first call takes about 1 s, and 2000 samples
    1 s. Grid points inside take the value of the quadratic polynomial of their element.

    Outside the triangle (57 % of the grid) the result is u at the closest point of the triangle,
    and in the notch it is 0. `inside` returns which points belong to the domain.

    Order: 3 in the spacing, since the elements are graded towards the corners of the notch. At
    spacing 0.01 the error of a sample of the benchmark is about 4e-6 relative to u in the 2-norm,
    and up to about 1e-4 at single grid points beside the jump of u at the lower notch corners.

    Limits: 8 n^3 bytes (8 MB at n = 101, 0.5 GB at n = 401) stay in memory for each of the last
    two pairs of n and spacing. b has a kink at each of its points; the order holds only if these
    are vertices of the mesh, as they are at spacing 0.01 if n - 1 divides 100.

    Args:
        boundary: b at n equidistant points x = 0 .. 1, linear in between; shape (..., n), n >= 3.
        forcing: the constant right-hand side.
        spacing: edge length of the elements away from the notch, 0.001 to 0.05.

    Returns:
        u on the n x n grid of the unit square, shape (..., n, n): first axis y, second axis x.
        Leading axes are independent samples.

    Raises:
        ValueError: an argument is not as described above.

    Example:
        >>> u = solve(np.ones(5), spacing=0.05)
        >>> u.shape, u[0]  # the bottom edge, with the notch in the middle
        ((5, 5), array([1., 1., 0., 1., 1.]))
        >>> bool(u[3, 2] > 1.0)  # (1/2, 3/4), below the apex
        True
    """
    b = np.asarray(boundary, dtype=np.float64)
    if b.ndim < 1 or b.shape[-1] < 3:
        raise ValueError(
            f"expected boundary values of shape (..., n) with n >= 3, got {b.shape}: "
            "give them at equidistant x from 0 to 1"
        )
    if not (np.isfinite(b).all() and np.isfinite(forcing)):
        raise ValueError(
            f"expected finite boundary values and forcing, got values from {b.min()} to {b.max()} "
            f"and forcing {forcing}: check where they were made"
        )
    n = b.shape[-1]
    by_boundary, by_forcing = _responses(n, float(spacing))
    u: npt.NDArray[np.float64] = b @ by_boundary + forcing * by_forcing
    return u.reshape(*b.shape[:-1], n, n)


def inside(nodes: int = 101) -> npt.NDArray[np.bool_]:
    """Return which grid points of `solve` lie in the open domain, shape (nodes, nodes).

    Only there u solves the equation: it is given on the edges, 0 in the notch, and outside it
    repeats the values of the edge.

    Example:
        >>> inside(5).astype(int)  # the first row is the bottom, y = 0
        array([[0, 0, 0, 0, 0],
               [0, 1, 0, 1, 0],
               [0, 0, 1, 0, 0],
               [0, 0, 1, 0, 0],
               [0, 0, 0, 0, 0]])
    """
    return _in_domain(*_grid(nodes))


def sample(
    *,
    nodes: int = 101,
    length: float = 0.2,
    forcing: float = 10.0,
    spacing: float = 0.01,
    rng: np.random.Generator,
) -> dict[str, npt.NDArray[np.float64]]:
    """Draw one sample of the benchmark: random boundary values and their solution.

    Args:
        nodes: number of points n of b, and of the grid along each axis.
        length: correlation length of b, a Gaussian process with covariance
            exp(-(x - x')^2 / (2 length^2)).
        forcing: the constant right-hand side.
        spacing: edge length of the elements, see `solve`.
        rng: source of all randomness.

    Returns:
        boundary: b at the nodes, shape (n,).
        solution: u, shape (n, n), first axis y, second axis x.

    Example:
        >>> drawn = sample(nodes=21, spacing=0.05, rng=np.random.default_rng(0))
        >>> drawn["boundary"].shape, drawn["solution"].shape
        ((21,), (21, 21))
    """
    if nodes < 3:
        raise ValueError(f"expected nodes >= 3, got {nodes}: the paper has 101")
    boundary = gaussian_process(np.linspace(0.0, 1.0, nodes), length=length, rng=rng)
    return {"boundary": boundary, "solution": solve(boundary, forcing, spacing=spacing)}


@dataclass(frozen=True)
class Elements:
    """Quadratic elements on the domain and the factorised Laplacian.

    Attributes:
        basis: the elements of scikit-fem; `basis.doflocs` are the points (vertices and midpoints
            of edges) where the unknowns live, shape (2, points).
        edge: numbers of the points on the edges of the domain, where u is given.
        inner: numbers of all other points.
        stiffness: integrals of grad(phi_i) . grad(phi_j).
        load: integrals of phi_i.
        factor: the factorised stiffness of the inner points.
    """

    basis: Any
    edge: npt.NDArray[np.integer]
    inner: npt.NDArray[np.integer]
    stiffness: csr_array
    load: npt.NDArray[np.float64]
    factor: SuperLU

    def solve(
        self, values: npt.NDArray[np.float64], forcing: float | npt.NDArray[np.float64] = 0.0
    ) -> npt.NDArray[np.float64]:
        """Solve -Laplace u = forcing with u = values at the points `edge`.

        Args:
            values: shape (edge points, k): k problems at once.
            forcing: one number, or one per problem, shape (k,).

        Returns:
            u at all points, shape (points, k).
        """
        u = np.zeros((len(self.load), values.shape[1]))
        u[self.edge] = values
        right = self.load[:, None] * forcing - self.stiffness @ u
        u[self.inner] = self.factor.solve(right[self.inner])
        return u


@lru_cache(maxsize=2)
def elements(spacing: float = 0.01) -> Elements:
    """Build the quadratic elements on `mesh(spacing)` and factorise their Laplacian.

    Example:
        >>> grid = elements(0.05)
        >>> x, y = grid.basis.doflocs
        >>> exact = x**2 - y**2  # harmonic and quadratic: reproduced up to rounding
        >>> u = grid.solve(exact[grid.edge, None])[:, 0]
        >>> bool(abs(u - exact).max() < 1e-13)
        True
    """
    basis = Basis(mesh(spacing), ElementTriP2())
    edge = basis.get_dofs().all()
    inner = basis.complement_dofs(edge)
    stiffness = csr_array(laplace.assemble(basis))
    # Symmetric and positive definite: the ordering needs only the pattern, and no pivoting.
    factor = splu(
        csc_array(stiffness[inner][:, inner]),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    return Elements(basis, edge, inner, stiffness, unit_load.assemble(basis), factor)


def mesh(spacing: float = 0.01) -> Any:
    """Triangulate the domain; the mesh is its own mirror image about x = 1/2.

    The left half is the Delaunay triangulation of equidistant points on its edges and a lattice
    of equilateral triangles inside. It is then refined eight times towards the corners of the
    notch, where elements become 256 times smaller. Reflection gives the right half.

    Returns:
        A `skfem.MeshTri`.

    Example:
        >>> triangles = mesh(0.05)
        >>> corner = triangles.p[:, triangles.t]  # (2, 3, triangles)
        >>> (x1, y1), (x2, y2) = corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0]
        >>> area = abs(x1 * y2 - x2 * y1).sum() / 2
        >>> bool(abs(area - (np.sqrt(3) / 4 - 0.02 * 0.4)) < 1e-14)
        True
    """
    if not 0.001 <= spacing <= 0.05:
        raise ValueError(
            f"expected 0.001 <= spacing <= 0.05, got {spacing}: try 0.01; cost grows as spacing^-2"
        )
    notch = 0.5 - NOTCH_HALF_WIDTH
    corners = np.array([[0, 0], [notch, 0], [notch, NOTCH_HEIGHT], [0.5, NOTCH_HEIGHT]])
    corners = np.vstack([corners, [0.5, HEIGHT]])
    points = []
    for start, end in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        # The small offset keeps rounding from adding one more segment.
        count = int(np.ceil(np.linalg.norm(end - start) / spacing - 1e-6))
        points.append(start + np.arange(count)[:, None] / count * (end - start))
    row, column = np.indices(2 * (int(1.0 / spacing) + 2,))
    x, y = (column + row % 2 / 2.0) * spacing, row * HEIGHT * spacing
    lattice = _in_domain(x, y, margin=spacing / 2.0) & (x < 0.5 - spacing / 2.0)
    points.append(np.stack([x[lattice], y[lattice]], axis=1))
    vertices = np.concatenate(points)

    triangles = Delaunay(vertices).simplices
    # Drop triangles in the notch, and flat triangles that rounding creates along an edge.
    kept = _in_domain(*vertices[triangles].mean(axis=1).T)
    half = MeshTri(np.ascontiguousarray(vertices.T), np.ascontiguousarray(triangles[kept].T))
    for level in range(GRADING_LEVELS):
        x, y = half.p[:, half.t].mean(axis=1)
        distance = np.hypot(x - notch, np.minimum(abs(y), abs(y - NOTCH_HEIGHT)))
        half = half.refined(np.flatnonzero(distance < GRADING_RADIUS * 0.5**level))

    # Vertices on the axis are shared; all others get a mirror image.
    x, y = half.p
    off_axis = x != 0.5
    image = np.arange(len(x))
    image[off_axis] = len(x) + np.arange(off_axis.sum())
    mirrored = np.stack([1.0 - x[off_axis], y[off_axis]])
    return MeshTri(np.hstack([half.p, mirrored]), np.hstack([half.t, image[half.t]]))


@lru_cache(maxsize=2)
def _responses(
    nodes: int, spacing: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return u on the grid for each unit boundary value, (n, n^2), and for forcing 1, (n^2,)."""
    grid = elements(spacing)
    x, y = grid.basis.doflocs[:, grid.edge]
    # One problem per boundary value, and a last one for the forcing.
    values = np.zeros((len(grid.edge), nodes + 1))
    values[:, :nodes] = _outer_values(x, y, nodes)
    forcing = np.zeros(nodes + 1)
    forcing[-1] = 1.0
    u = grid.solve(values, forcing)

    x, y = _grid(nodes)
    domain = _in_domain(x, y)
    response = np.zeros((nodes, nodes, nodes + 1))
    response[~domain, :nodes] = _outer_values(x[~domain], y[~domain], nodes)
    points = np.stack([x[domain], y[domain]])
    # Finding the elements of a chunk of points takes memory for chunk x elements.
    chunks = np.array_split(points, -(-points.shape[1] // 64), axis=1)
    response[domain] = vstack([csr_array(grid.basis.probes(chunk)) for chunk in chunks]) @ u
    table = np.ascontiguousarray(response.reshape(nodes**2, nodes + 1).T)
    return table[:nodes], table[nodes]


def _outer_values(
    x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], nodes: int
) -> npt.NDArray[np.float64]:
    """Return the weights of the boundary values in u outside the domain, (points, nodes).

    On an outer edge b is interpolated linearly at x, outside at the closest point of the triangle.
    On and in the notch u is zero.
    """
    fold = np.minimum(x, 1.0 - x)
    # Outside means beyond a slanted edge; for points above the triangle the apex can be closest.
    foot = np.clip((fold + 2.0 * HEIGHT * y) / 4.0, 0.0, 0.5)
    fold = np.where(2.0 * HEIGHT * fold < y - ON_EDGE, foot, fold)
    closest = np.where(x <= 0.5, fold, 1.0 - fold)
    hats = np.maximum(0.0, 1.0 - abs(closest[:, None] * (nodes - 1) - np.arange(nodes)))
    hats[_in_notch(x, y, ON_EDGE)] = 0.0
    return hats


def _in_domain(
    x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], margin: float = ON_EDGE
) -> npt.NDArray[np.bool_]:
    """Return which points lie in the domain and farther than `margin` from its edges."""
    from_slanted = HEIGHT * np.minimum(x, 1.0 - x) - y / 2.0
    return (y > margin) & (from_slanted > margin) & ~_in_notch(x, y, margin)


def _in_notch(
    x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], margin: float
) -> npt.NDArray[np.bool_]:
    return (abs(x - 0.5) < NOTCH_HALF_WIDTH + margin) & (y < NOTCH_HEIGHT + margin)


def _grid(nodes: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return x and y of the nodes x nodes grid on the unit square, first axis y."""
    axis = np.linspace(0.0, 1.0, nodes)
    y, x = np.meshgrid(axis, axis, indexing="ij")
    return x, y
