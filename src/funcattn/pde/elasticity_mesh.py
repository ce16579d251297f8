"""The body of the elasticity benchmark: the unit square around a random void, and its mesh."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

from funcattn.arrays import Floats


def void_radius(
    coefficients: npt.NDArray[np.floating],
    angle: npt.NDArray[np.floating],
    *,
    amplitude: float = 4.0,
    inverse_length: float = 3.0,
) -> Floats:
    """Evaluate the radius of the void, 0.2 + 0.2 / (1 + exp(g)), at angles from the x axis.

    For independent standard normal coefficients (a_1, b_1, a_2, b_2, ...)

        g(angle) = sum_k amplitude / sqrt(k^2 + inverse_length^2)
                         * (a_k cos(k angle) + b_k sin(k angle)) / sqrt(pi)

    is Gaussian on the circle, N(0, amplitude^2 (-Laplace + inverse_length^2)^-1), without its mean
    and truncated to as many waves as there are pairs of coefficients.

    Returns:
        The radius, between 0.2 and 0.4, in the shape of `angle`.

    Raises:
        ValueError: the coefficients are not in pairs, or not finite.

    Example:
        >>> void_radius(np.zeros(10), np.array([0.0, 1.0]))
        array([0.3, 0.3])
    """
    pairs = np.asarray(coefficients, dtype=np.float64)
    if pairs.ndim != 1 or pairs.size % 2 or not np.isfinite(pairs).all():
        raise ValueError(
            f"expected finite coefficients in pairs, shape (2 modes,), got shape {pairs.shape} "
            f"and values {pairs}: give a cosine and a sine for every wave"
        )
    cosine, sine = pairs.reshape(-1, 2).T
    k = np.arange(1, len(cosine) + 1)
    size = amplitude / np.sqrt(np.pi * (k**2 + inverse_length**2))
    turn = np.asarray(angle, dtype=np.float64)[..., None] * k
    g = np.cos(turn) @ (size * cosine) + np.sin(turn) @ (size * sine)
    radius: Floats = 0.2 + 0.2 * expit(-g)
    return radius


def void_through(radii: npt.NDArray[np.floating]) -> Callable[[Floats], Floats]:
    """Return the radius of the void as a function of the angle, from an odd number of its values.

    The values are at equal angles from 0 on, between 0.2 and 0.4. Between them g of `void_radius`,
    with a mean, is the trigonometric polynomial through its values, so that voids of `void_radius`
    with at most half as many waves as there are values are met exactly.

    Raises:
        ValueError: the number of radii is even or below 3, or one is out of range.

    Example:
        >>> angles = 2 * np.pi * np.arange(11) / 11
        >>> waves = np.array([0.3, -1.0, 0.5, 0.0, 2.0, 0.1, 0.0, 0.0, -0.4, 1.0])
        >>> radius = void_through(void_radius(waves, angles))
        >>> others = np.array([0.2, 3.0])
        >>> bool(np.allclose(radius(others), void_radius(waves, others)))
        True
    """
    given = np.asarray(radii, dtype=np.float64)
    n = given.size
    if given.ndim != 1 or n < 3 or n % 2 == 0 or not ((given >= 0.2) & (given <= 0.4)).all():
        raise ValueError(
            f"expected an odd number of radii from 0.2 to 0.4, at least 3, got {given}: give them "
            "at equal angles"
        )
    # Both ends are never reached: g is infinite there.
    g = -logit(np.clip((given - 0.2) / 0.2, 0.005, 0.995))
    waves = np.fft.rfft(g) / n
    k = np.arange(1, len(waves))

    def radius(angle: Floats) -> Floats:
        turned = np.exp(1j * np.asarray(angle, dtype=np.float64)[..., None] * k)
        polynomial = waves[0].real + 2.0 * (turned @ waves[1:]).real
        found: Floats = 0.2 + 0.2 * expit(-polynomial)
        return found

    return radius


def void_mesh(
    radius: Callable[[Floats], Floats], *, around: int = 36, radial: int = 3, grading: float = 0.0
) -> tuple[Floats, npt.NDArray[np.intp]]:
    """Mesh the unit square around a void at its centre by nine-node quadrilaterals.

    Straight lines of nodes lead from the void to the edge of the square. Nodes are uniform on the
    edge, with one at each corner. On the void their angle is the mean of a uniform angle and the
    angle of the edge node as seen from the centre. For a symmetric void the mesh is its own mirror
    image in both axes.

    Args:
        radius: function from an array of angles to the radius of the void, between 0 and 0.5.
        around: elements around the void, a multiple of 4.
        radial: elements from the void to the edge.
        grading: 0 spaces them evenly from void to edge; towards 1 they cluster at the void.

    Returns:
        Nodes, shape (2 around (2 radial + 1), 2), and the node numbers of the elements, shape
        (around radial, 9), as `funcattn.pde.elasticity.evaluate` takes them.

    Raises:
        ValueError: an argument is not as described above.

    Example:
        >>> nodes, elements = void_mesh(lambda angle: np.full(angle.shape, 0.25))
        >>> nodes.shape, elements.shape
        ((504, 2), (108, 9))
    """
    if around < 4 or around % 4 or radial < 1:
        raise ValueError(
            f"expected around a multiple of 4 and radial >= 1, got around={around} and "
            f"radial={radial}: the corners of the square are corners of elements; try 36 and 3"
        )
    if not 0.0 <= grading < 1.0:
        raise ValueError(f"expected 0 <= grading < 1, got {grading}: try 0")
    half = around // 2  # nodes per side, without its end
    sides = [np.stack([np.ones(half), np.arange(half) / half], axis=-1)]
    for _ in range(3):
        x, y = sides[-1].T
        sides.append(np.stack([1.0 - y, x], axis=-1))  # a quarter turn about the centre
    edge = np.concatenate(sides)
    seen = np.unwrap(np.arctan2(edge[:, 1] - 0.5, edge[:, 0] - 0.5))
    angle = 0.5 * (seen + np.pi * (np.arange(2 * around) / around - 0.25))
    r = radius(angle)
    if r.shape != angle.shape or not ((r > 0.0) & (r < 0.5)).all():
        raise ValueError(
            f"expected a radius between 0 and 0.5 for each of {angle.size} angles, got shape "
            f"{r.shape} and values from {r.min()} to {r.max()}: keep the void in the square"
        )
    void = 0.5 + r[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    fraction = np.linspace(0.0, 1.0, 2 * radial + 1)[:, None]
    fraction = fraction - grading * fraction * (1.0 - fraction)
    # (2 around, 2 radial + 1, 2)
    nodes = (1.0 - fraction) * void[:, None] + fraction * edge[:, None]

    numbers = np.arange(nodes.size // 2).reshape(nodes.shape[:2])
    column = (2 * np.arange(around)[:, None] + np.arange(3)) % (2 * around)
    row = 2 * np.arange(radial)[:, None] + np.arange(3)
    # (around, radial, 3 outwards, 3 counterclockwise)
    elements = numbers[column[:, None, None, :], row[None, :, :, None]]
    return nodes.reshape(-1, 2), elements.reshape(-1, 9)
