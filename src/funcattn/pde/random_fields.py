"""Gaussian random fields: the random inputs of the benchmark equations."""

import numpy as np
import numpy.typing as npt
from scipy.fft import fft2, idctn, irfft
from scipy.special import gammaln, xlogy


def neumann_field(
    points_per_axis: int, *, alpha: float = 2.0, tau: float = 3.0, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Draw a field from N(0, tau^(2 (alpha - 1)) (-Laplace + tau^2)^-alpha) on the unit square.

    The Laplacian has Neumann boundary conditions and its constant eigenfunction is left out, so the
    field has zero mean. With the cosines phi_k(x, y) = c_k1 c_k2 cos(pi k1 x) cos(pi k2 y), c_0 = 1
    and c_k = sqrt(2) otherwise, which are orthonormal in L2 of the square,

        field(x, y) = sum_k tau^(alpha-1) (pi^2 |k|^2 + tau^2)^(-alpha/2) xi_k phi_k(x, y)

    with independent standard normal xi_k and k1, k2 = 0 .. n - 1, (k1, k2) != (0, 0).

    Method: the nodes x_i = i / (n - 1) include both ends. On them the cosine transform of the first
    kind (DCT-I) sums this series exactly, in O(n^2 log n). (DCT-II, the common choice, would give
    the field at cell centres instead.) The trapezoid mean over the nodes is zero up to rounding.

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
    # that a coarser grid uses the first draws of a finer one.
    shell = np.maximum(row, column)
    xi = rng.standard_normal(points_per_axis**2)[shell**2 + shell + row - column]

    deviation = tau ** (alpha - 1.0) * (np.pi**2 * (row**2 + column**2) + tau**2) ** (-alpha / 2.0)
    deviation[0, 0] = 0.0
    # DCT-I counts inner cosines twice, the first and the last one once.
    weight = np.full(points_per_axis, np.sqrt(0.5))
    weight[0], weight[-1] = 1.0, np.sqrt(2.0)
    coefficients = deviation * xi * np.outer(weight, weight)
    # norm="forward" leaves the inverse transform, which sums the series, unscaled.
    field: npt.NDArray[np.float64] = idctn(coefficients, type=1, norm="forward", overwrite_x=True)
    return field


def periodic_square(
    points_per_axis: int,
    *,
    alpha: float = 2.5,
    tau: float = 7.0,
    scale: float = 2.0**0.5 * 7.0**1.5,
    rng: np.random.Generator,
) -> npt.NDArray[np.float64]:
    """Draw a zero-mean field from N(0, scale^2 (-Laplace + tau^2)^-alpha) on the periodic square.

    With cas(t) = cos(t) + sin(t), the functions cas(2 pi k.x) over integer k = (k1, k2) are
    orthonormal in L2 of the unit square (k and -k together span the sine and cosine), and

        field(x) = sum_k scale (4 pi^2 |k|^2 + tau^2)^(-alpha/2) xi_k cas(2 pi k.x)

    with independent standard normal xi_k and 0 < max(|k1|, |k2|) < n / 2.

    Method: on the nodes x_i = i / n a fast Fourier transform sums this series exactly, in
    O(n^2 log n); for even n the shortest wave, |k| = n / 2, is left out.

    Resolutions are nested: generators in the same state give the same xi_k at every n, so a
    coarser field is the truncation of the series of a finer one.

    Limits: pointwise values need alpha > 1, and gradients alpha > 2.

    The default is the initial vorticity of the Navier-Stokes benchmark in its first public
    generator: the real part of a sum over all k with independent complex coefficients, whose real
    and imaginary parts each have standard deviation sqrt(2) tau^(3/2) (4 pi^2 |k|^2 +
    tau^2)^(-alpha/2). Its values have standard deviation 0.262. Later versions of that generator
    halve the variance (`scale=7.0**1.5`, 0.185); the distribution published with the benchmark,
    N(0, 7^(3/2) (-Laplace + 49)^-2.5), is `scale=7.0**0.75`, 0.043.

    Args:
        points_per_axis: nodes n along each axis, at least 3.
        alpha: decay of the spectrum; larger is smoother.
        tau: inverse length scale.
        scale: amplitude; the field is proportional to it.
        rng: source of n^2 (n odd) or (n - 1)^2 (n even) standard normal draws.

    Returns:
        The field, shape (n, n), first axis x ("ij" order), period 1: the end is not repeated.

    Example:
        >>> field = periodic_square(6, rng=np.random.default_rng(0))
        >>> field.shape, bool(abs(field.mean()) < 1e-15)
        ((6, 6), True)
    """
    _check_spectrum(points_per_axis, alpha, tau, scale, least_alpha=1.0)
    top = (points_per_axis - 1) // 2
    k1, k2 = np.meshgrid(*2 * [np.arange(-top, top + 1)], indexing="ij")
    # Shells of equal max(|k1|, |k2|) are drawn one after the other, so that a coarser grid
    # uses the first draws of a finer one.
    order = np.lexsort((k2.ravel(), k1.ravel(), np.maximum(abs(k1), abs(k2)).ravel()))
    k1, k2 = k1.ravel()[order], k2.ravel()[order]
    deviation = scale * (4.0 * np.pi**2 * (k1**2 + k2**2) + tau**2) ** (-alpha / 2.0)
    deviation[0] = 0.0
    coefficients = np.zeros((points_per_axis, points_per_axis))
    coefficients[k1, k2] = deviation * rng.standard_normal(len(order))
    # The transform of c is sum_k c_k (cos - i sin).
    waves = fft2(coefficients)
    field: npt.NDArray[np.float64] = waves.real - waves.imag
    return field


def periodic_line(
    points: int,
    *,
    alpha: float = 2.0,
    tau: float = 5.0,
    scale: float = 25.0,
    rng: np.random.Generator,
) -> npt.NDArray[np.float64]:
    """Draw a zero-mean field from N(0, scale^2 (-d^2/dx^2 + tau^2)^-alpha) on the periodic line.

    The period is 1, and with independent standard normal xi_k, eta_k and 0 < k < n / 2

        field(x) = sum_k scale (4 pi^2 k^2 + tau^2)^(-alpha/2)
                         sqrt(2) (xi_k cos(2 pi k x) + eta_k sin(2 pi k x)).

    Method: on the nodes x_i = i / n the inverse fast Fourier transform sums this series exactly;
    for even n the shortest wave, k = n / 2, is left out.

    Resolutions are nested, as in `periodic_square`.

    Limits: pointwise values need alpha > 1/2, and a derivative alpha > 3/2.

    The default is the initial state of the Burgers benchmark, N(0, 625 (-d^2/dx^2 + 25)^-2). Its
    values have standard deviation 0.594.

    Args:
        points: nodes n, at least 3.
        alpha: decay of the spectrum; larger is smoother.
        tau: inverse length scale.
        scale: amplitude; the field is proportional to it.
        rng: source of n - 1 (n odd) or n - 2 (n even) standard normal draws.

    Returns:
        The field, shape (n,), period 1: the end is not repeated.

    Example:
        >>> field = periodic_line(6, rng=np.random.default_rng(0))
        >>> field.shape, bool(abs(field.mean()) < 1e-15)
        ((6,), True)
    """
    _check_spectrum(points, alpha, tau, scale, least_alpha=0.5)
    k = np.arange(1, (points + 1) // 2)
    deviation = scale * (4.0 * np.pi**2 * k**2 + tau**2) ** (-alpha / 2.0)
    # Both draws for each k come before those for the next: a coarser line uses the first draws of a
    # finer one.
    xi, eta = rng.standard_normal((len(k), 2)).T
    coefficients = np.zeros(points // 2 + 1, dtype=np.complex128)
    # The inverse transform adds the conjugate of every coefficient: 2 Re(c exp(it)).
    coefficients[k] = deviation * (xi - 1j * eta) / np.sqrt(2.0)
    field: npt.NDArray[np.float64] = irfft(coefficients, points, norm="forward")
    return field


def gaussian_process(
    points: npt.ArrayLike, *, length: float = 0.2, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Draw a Gaussian process with covariance exp(-(x - y)^2 / (2 length^2)) at points on a line.

    Method: with z = (x - centre) / length, the exponential series of exp(z z') splits the
    covariance into products, so that

        f(x) = sum_j exp(-z^2 / 2) z^j / sqrt(j!) xi_j

    with independent standard normal xi_j has exactly this distribution. The squared factors of the
    xi_j are Poisson probabilities with mean z^2: they sum to the variance 1, nothing cancels, and
    the truncated tail is below rounding. (The covariance matrix itself is singular to working
    precision on any fine grid, so its Cholesky factorisation fails.)

    A draw is a function: the centre is the middle of the range of the points, so generators in
    the same state give the same function on all sets of points with the same minimum and maximum.

    Limits: the covariance is exact to 2e-15 for a range of 5 lengths, 3e-12 for 100, and 2e-11
    for 300 lengths. At 300 lengths 24 thousand terms are summed; their number grows as the square
    of the range.

    Args:
        points: positions x, shape (n,), any order, within 300 lengths.
        length: correlation length.
        rng: source of the standard normal draws.

    Returns:
        The values, shape (n,).

    Example:
        >>> x = np.linspace(0, 1, 101)
        >>> fine = gaussian_process(x, rng=np.random.default_rng(0))
        >>> coarse = gaussian_process(x[::4], rng=np.random.default_rng(0))
        >>> fine.shape, bool(abs(fine[::4] - coarse).max() < 1e-14)
        ((101,), True)
    """
    x = np.asarray(points, dtype=np.float64)
    if x.ndim != 1 or x.size == 0 or not np.isfinite(x).all():
        raise ValueError(
            f"expected finite points, shape (n,) with n >= 1, got shape {x.shape}: "
            "give their positions along the line, without missing values"
        )
    if not 0.0 < length < np.inf:
        raise ValueError(f"expected a finite length > 0, got {length}: try 0.2")
    if x.max() - x.min() > 300.0 * length:
        raise ValueError(
            f"expected points within 300 lengths, got a range of {x.max() - x.min()} and length "
            f"{length}: use a longer one, or draw distant parts separately"
        )
    z = (x - (x.min() + x.max()) / 2.0) / length
    mean = z[:, None] ** 2
    # The Poisson tail beyond this many terms is below 1e-17 for every mean.
    j = np.arange(np.ceil(mean.max() + 9.0 * np.sqrt(mean.max()) + 20.0))
    factor = np.exp((xlogy(j, mean) - mean - gammaln(j + 1.0)) / 2.0)
    factor[:, 1::2] *= np.sign(z)[:, None]
    values: npt.NDArray[np.float64] = factor @ rng.standard_normal(len(j))
    return values


def _check_spectrum(
    points: int, alpha: float, tau: float, scale: float, *, least_alpha: float
) -> None:
    if points < 3:
        raise ValueError(
            f"expected at least 3 points along a period, got {points}: fewer resolve no wave"
        )
    if not (least_alpha < alpha < np.inf and 0.0 < tau < np.inf and 0.0 < scale < np.inf):
        raise ValueError(
            f"expected finite alpha > {least_alpha}, tau > 0 and scale > 0, got alpha={alpha}, "
            f"tau={tau}, scale={scale}: otherwise the field has no pointwise values; raise them"
        )
