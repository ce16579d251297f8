"""Gaussian random fields: the random inputs of the benchmark equations."""

import numpy as np
import numpy.typing as npt
from scipy.fft import idctn


def neumann_field(
    points_per_axis: int, *, alpha: float = 2.0, tau: float = 3.0, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Draw a field from N(0, tau^(2 (alpha - 1)) (-Laplace + tau^2)^-alpha) on the unit square.

    The Laplacian has Neumann boundary and its constant eigenfunction is left out, so the field
    has zero mean. With the cosines phi_k(x, y) = c_k1 c_k2 cos(pi k1 x) cos(pi k2 y), c_0 = 1 and
    c_k = sqrt(2) otherwise, which are orthonormal in L2 of the square,

        field(x, y) = sum_k tau^(alpha-1) (pi^2 |k|^2 + tau^2)^(-alpha/2) xi_k phi_k(x, y)

    with independent standard normal xi_k and k1, k2 = 0 .. n - 1, (k1, k2) != (0, 0).

    Method: the nodes x_i = i / (n - 1) include both ends, and on them the cosine transform of the
    first kind (DCT-I) sums this series exactly, in O(n^2 log n). (DCT-II, the common choice, would
    give the field at cell centres instead.) The trapezoid mean over the nodes is zero up to
    rounding.

    Resolutions are nested: generators in the same state give the same xi_k at every n, so a
    coarser field is the truncation of the series of a finer one.

    Limits: pointwise values need alpha > 1, and gradients alpha > 2; at alpha = 2 the slopes of
    the truncated series grow (slowly) with n.

    Args:
        points_per_axis: nodes n along each axis, at least 2.
        alpha: decay of the spectrum; larger is smoother.
        tau: inverse length scale.
        rng: source of the n^2 standard normal draws.

    Returns:
        The field, shape (n, n), first axis x ("ij" order).

    Example:
        >>> field = neumann_field(5, rng=np.random.default_rng(0))
        >>> field.shape
        (5, 5)
        >>> trapezoid = np.array([0.5, 1, 1, 1, 0.5]) / 4
        >>> bool(abs(trapezoid @ field @ trapezoid) < 1e-15)
        True
    """
    if points_per_axis < 2:
        raise ValueError(
            f"expected points_per_axis >= 2, got {points_per_axis}: "
            "the nodes include both ends of each axis"
        )
    if not (1.0 < alpha < np.inf and 0.0 < tau < np.inf):
        raise ValueError(
            f"expected finite alpha > 1 and tau > 0, got alpha={alpha}, tau={tau}: "
            "otherwise the field has no pointwise values in the limit; raise them"
        )
    k = np.arange(points_per_axis)
    row, column = k[:, None], k[None, :]
    # Shells of equal max(k1, k2) are drawn one after the other (Rosenberg-Strong numbering), so
    # that a coarser grid consumes the first draws of a finer one.
    shell = np.maximum(row, column)
    xi = rng.standard_normal(points_per_axis**2)[shell**2 + shell + row - column]

    deviation = tau ** (alpha - 1.0) * (np.pi**2 * (row**2 + column**2) + tau**2) ** (-alpha / 2.0)
    deviation[0, 0] = 0.0
    # DCT-I counts inner cosines twice and the first and last once.
    weight = np.full(points_per_axis, np.sqrt(0.5))
    weight[0], weight[-1] = 1.0, np.sqrt(2.0)
    coefficients = deviation * xi * np.outer(weight, weight)
    # norm="forward" leaves the inverse transform, which is the sum of the series, unscaled.
    field: npt.NDArray[np.float64] = idctn(coefficients, type=1, norm="forward", overwrite_x=True)
    return field
