"""Darcy flow on the unit square: -div(a grad u) = f, u = 0 on the boundary."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.fft import dstn, idstn
from scipy.sparse.linalg import LinearOperator, cg

from funcattn.pde.errors import NotConvergedError, fallen
from funcattn.pde.random_fields import neumann_field


def permeability(
    field: npt.NDArray[np.floating], low: float = 3.0, high: float = 12.0
) -> npt.NDArray[np.float64]:
    """Threshold a random field: `high` where field >= 0, `low` elsewhere; same shape.

    Example:
        >>> permeability(np.array([[-0.1, 0.0], [0.2, -3.0]]))
        array([[ 3., 12.],
               [12.,  3.]])
    """
    field = np.asarray(field, dtype=np.float64)
    if not np.isfinite(field).all():
        raise ValueError(
            "expected a finite field, got NaN or infinity: check where the field was made"
        )
    return np.where(field >= 0.0, float(high), float(low))


def solve(
    permeability: npt.NDArray[np.floating],
    forcing: float | npt.NDArray[np.floating] = 1.0,
    *,
    tolerance: float = 1e-8,
    max_iterations: int = 200,
    progress: Callable[[float], None] | None = None,
) -> npt.NDArray[np.float64]:
    """Solve -div(a grad u) = f on the unit square with u = 0 on the boundary.

    Method: five-point finite differences on n x n equidistant nodes, boundary included; a at a
    face is the arithmetic mean of its two nodes. Conjugate gradients from zero, preconditioned by
    the constant-coefficient Laplacian, which the sine transform of the first kind inverts. The
    condition number is at most max(a) / min(a) for every n: 16 to 18 iterations at n = 22 and
    21 to 22 at n = 1345 for values 3 and 12.

    Order: 2 in the spacing for smooth a and u; about 1 where a jumps, since the grid locates a
    jump only to within a cell.

    Limits: iterations grow with sqrt(max(a) / min(a)). Rounding stops the residual at about
    1e-16 n^2 (2e-11 at n = 421); a smaller tolerance ends in the error below. Samples are solved
    one by one: a batched iteration was measured and is no faster for n >= 211.

    Args:
        permeability: a at the nodes, positive, shape (..., n, n), n >= 3. Corners are not used.
        forcing: f, a number or an array of shape (..., n, n); boundary values are not used.
        tolerance: bound on |f - A u| / |f|, 2-norm over the inner nodes; every result meets it.
        max_iterations: conjugate gradient steps allowed per sample.
        progress: called with the share of the work on a sample that is done, 0 to 1.

    Returns:
        u at the nodes, shape (..., n, n). Leading axes are independent samples, and those of
        permeability and forcing broadcast.

    Raises:
        ValueError: an argument is not as described above.
        NotConvergedError: the tolerance was not met; the message states the residual reached.

    Example:
        >>> solve(np.ones((3, 3)))  # one inner node: 4 u / h^2 = 1, h = 1/2
        array([[0.    , 0.    , 0.    ],
               [0.    , 0.0625, 0.    ],
               [0.    , 0.    , 0.    ]])
    """
    a = np.asarray(permeability, dtype=np.float64)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(
            f"expected a square grid of permeability, shape (..., n, n), got {a.shape}: "
            "resample it to as many points along x as along y"
        )
    n = a.shape[-1]
    if n < 3:
        raise ValueError(
            f"expected at least 3 points per axis, got {n}: "
            "a smaller grid has no node inside the boundary; refine it"
        )
    if not (np.isfinite(a).all() and (a > 0.0).all()):
        raise ValueError(
            f"expected positive, finite permeability, got values from {a.min()} to {a.max()}: "
            "the equation has no unique solution; check units and missing values"
        )
    f = np.asarray(forcing, dtype=np.float64)
    if (f.ndim > 0 and f.shape[-2:] != (n, n)) or not np.isfinite(f).all():
        raise ValueError(
            f"expected finite forcing, a number or shape (..., {n}, {n}), got shape {f.shape} "
            f"and values from {f.min()} to {f.max()}: give it at the nodes of the permeability"
        )
    if not 0.0 < tolerance < 1.0:
        raise ValueError(f"expected 0 < tolerance < 1, got {tolerance}: try 1e-8")
    a, f = np.broadcast_arrays(a, f)
    u = np.zeros(a.shape)
    for sample in np.ndindex(a.shape[:-2]):
        inside, residual = _solve_one(a[sample], f[sample], tolerance, max_iterations, progress)
        if not residual <= tolerance:
            raise NotConvergedError(
                f"expected a relative residual of {tolerance:.1e} within {max_iterations} "
                f"iterations, got {residual:.1e}{f' in sample {sample}' if sample else ''}: "
                "allow more iterations or a larger tolerance"
            )
        u[sample][1:-1, 1:-1] = inside
    return u


def sample(
    *, nodes: int = 421, keep: int = 1, rng: np.random.Generator
) -> dict[str, npt.NDArray[np.float64]]:
    """Draw one sample of the benchmark: permeability 12 or 3, forcing 1, and its pressure.

    It is solved on `nodes` points per axis; every `keep`-th of them is returned, boundary included.
    The random field keeps its coefficients when `nodes` changes, so other resolutions show the same
    sample up to the detail they resolve.

    Example:
        >>> fields = sample(nodes=43, keep=2, rng=np.random.default_rng(0))
        >>> sorted(fields), fields["pressure"].shape
        (['permeability', 'pressure'], (22, 22))
    """
    if keep < 1 or (nodes - 1) % keep:
        raise ValueError(
            f"keep: expected a divisor of nodes - 1 = {nodes - 1}, so that the coarse grid is "
            f"nested in the fine one, got {keep}"
        )
    a = permeability(neumann_field(nodes, rng=rng))
    kept = (slice(None, None, keep),) * 2
    return {"permeability": a[kept], "pressure": solve(a)[kept]}


def _solve_one(
    a: npt.NDArray[np.float64],
    f: npt.NDArray[np.float64],
    tolerance: float,
    max_iterations: int,
    progress: Callable[[float], None] | None,
) -> tuple[npt.NDArray[np.float64], float]:
    """Return u at the inner nodes and the relative residual; both sides are times spacing^2."""
    inner = a.shape[0] - 2
    # The minus sign of -div is part of the face values, which saves a pass in every product.
    face_x = -0.5 * (a[1:, 1:-1] + a[:-1, 1:-1])
    face_y = -0.5 * (a[1:-1, 1:] + a[1:-1, :-1])
    padded = np.zeros_like(a)
    angle = np.arange(1, inner + 1) * (np.pi / (2 * (inner + 1)))
    eigenvalue = 4.0 * np.sin(angle) ** 2
    inverse = 1.0 / (eigenvalue[:, None] + eigenvalue[None, :])

    def apply(vector: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        padded[1:-1, 1:-1] = vector.reshape(inner, inner)
        product = np.diff(face_x * np.diff(padded[:, 1:-1], axis=0), axis=0)
        product += np.diff(face_y * np.diff(padded[1:-1, :], axis=1), axis=1)
        return product.ravel()

    def precondition(vector: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        spectrum = dstn(vector.reshape(inner, inner), type=1)
        spectrum *= inverse
        smooth: npt.NDArray[np.float64] = idstn(spectrum, type=1, overwrite_x=True)
        return smooth.ravel()

    right = f[1:-1, 1:-1].ravel() / (inner + 1) ** 2
    size = float(np.linalg.norm(right)) or 1.0  # zero forcing has the exact solution zero
    shape = (inner**2, inner**2)

    def tell(u: npt.NDArray[np.float64]) -> None:
        if progress is not None:
            progress(fallen(float(np.linalg.norm(right - apply(u))) / size, 1.0, tolerance))

    # cg monitors a recursive residual, which drifts by rounding: aim a little lower, and judge by
    # the true residual.
    u, _ = cg(
        LinearOperator(shape, matvec=apply, dtype=np.float64),
        right,
        rtol=0.9 * tolerance,
        maxiter=max_iterations,
        M=LinearOperator(shape, matvec=precondition, dtype=np.float64),
        callback=None if progress is None else tell,
    )
    residual = np.linalg.norm(right - apply(u))
    return u.reshape(inner, inner), float(residual / size)
