"""The rubber of the elasticity benchmark: an incompressible Mooney-Rivlin sheet in plane stress."""

import numpy as np

# Maps (F11, F12, F21, F22) to its cofactors.
from funcattn.arrays import Floats

_COFACTOR = np.fliplr(np.diag([1.0, -1.0, -1.0, 1.0]))


def mooney_rivlin(
    gradient: Floats, c1: float = 1.863e5, c2: float = 9.79e3
) -> tuple[Floats, Floats, Floats]:
    """Evaluate the incompressible Mooney-Rivlin material in plane stress.

    W = c1 (I1 - 3) + c2 (I2 - 3). The thickness stretches by 1 / det F, since the volume is
    constant, and the pressure is the one that leaves the faces of the sheet free, so neither is an
    unknown. With the in-plane deformation gradient F = I + du/dX, t = F : F and j = det F,

        W = c1 (t + 1/j^2 - 3) + c2 (j^2 + t/j^2 - 3)

    P = dW/dF is the first Piola-Kirchhoff stress. Energy and stress are computed from du/dX
    without differences of numbers near 1, so that small strains keep their digits.

    Limits: j > 0 is not checked; j < 0 means a sheet turned inside out.

    Args:
        gradient: du/dX, shape (..., 2, 2).
        c1, c2: constants, >= 0; 6 (c1 + c2) is Young's modulus at small strain.

    Returns:
        W of shape (...), P of shape (..., 2, 2), and dP/dF of shape (..., 4, 4) with rows and
        columns in the order 11, 12, 21, 22.

    Example:
        >>> _, stress, _ = mooney_rivlin(np.diag([0.5**0.5 - 1.0, 1.0]), c1=1.0, c2=0.0)
        >>> bool(abs(stress[0, 0]) < 1e-15), round(float(stress[1, 1]), 12)  # 2 (l - 1 / l^2)
        (True, 3.5)
    """
    h = gradient.reshape(*gradient.shape[:-2], 4)
    f = h + np.eye(2).ravel()
    cofactor = f @ _COFACTOR  # dj/dF
    trace = h[..., 0] + h[..., 3]
    t_less_2 = 2.0 * trace + (h * h).sum(-1)
    j_less_1 = trace + h[..., 0] * h[..., 3] - h[..., 1] * h[..., 2]
    j = 1.0 + j_less_1
    jj_less_1 = j_less_1 * (1.0 + j)
    energy = c1 * (t_less_2 - jj_less_1 / j**2) + c2 * (
        jj_less_1 + (t_less_2 - 2.0 * jj_less_1) / j**2
    )
    # Derivatives of W: by t, by j, by t and j, twice by j; the second derivative by t is zero.
    c12 = c1 + c2 * (2.0 + t_less_2)
    w_t = (c1 + c2 / j**2)[..., None]
    w_j = (2.0 * c2 * j - 2.0 * c12 / j**3)[..., None]
    w_tj = (-2.0 * c2 / j**3)[..., None, None]
    w_jj = (2.0 * c2 + 6.0 * c12 / j**4)[..., None, None]
    # P = 2 w_t F + w_j cofactor, regrouped into 2 w_t (F - cofactor) + (2 w_t + w_j) cofactor.
    both = c1 * j_less_1 * (1.0 + j + j**2) + c2 * (j_less_1 + jj_less_1 * (1.0 + j**2) - t_less_2)
    stress = 2.0 * w_t * (h - h @ _COFACTOR) + (2.0 * both / j**3)[..., None] * cofactor
    mixed = f[..., :, None] * cofactor[..., None, :]
    tangent = (
        2.0 * w_t[..., None] * np.eye(4)
        + w_j[..., None] * _COFACTOR
        + 2.0 * w_tj * (mixed + mixed.swapaxes(-1, -2))
        + w_jj * cofactor[..., :, None] * cofactor[..., None, :]
    )
    return np.asarray(energy), stress.reshape(gradient.shape), tangent


def cauchy_stress(gradient: Floats, c1: float = 1.863e5, c2: float = 9.79e3) -> Floats:
    """Return the stress P F^T of `mooney_rivlin` in the deformed sheet: xx, yy, xy, (..., 3)."""
    _, nominal, _ = mooney_rivlin(gradient, c1, c2)
    tensor = nominal + nominal @ gradient.swapaxes(-1, -2)
    return np.stack([tensor[..., 0, 0], tensor[..., 1, 1], tensor[..., 0, 1]], axis=-1)


def von_mises(cauchy: Floats) -> Floats:
    """Return the von Mises stress, shape (...), of a plane stress xx, yy, xy, shape (..., 3).

    Example:
        >>> von_mises(np.array([[9.0, 0.0, 0.0], [4.0, 4.0, 0.0], [0.0, 0.0, 1.0]]))
        array([9.        , 4.        , 1.73205081])
    """
    xx, yy, xy = np.moveaxis(cauchy, -1, 0)
    return np.asarray(np.sqrt(xx**2 - xx * yy + yy**2 + 3.0 * xy**2))
