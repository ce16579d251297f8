"""The material against the incompressible solid in three dimensions, and Hooke's law at rest."""

from typing import Any

import numpy as np
import pytest

from funcattn.pde.elasticity_material import cauchy_stress, mooney_rivlin, von_mises

C1, C2 = 1.863e5, 9.79e3
YOUNG = 6 * (C1 + C2)


def rotation(degrees: float) -> np.ndarray:
    cosine, sine = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    return np.array([[cosine, -sine], [sine, cosine]])


def gradients(count: int = 20, size: float = 0.3) -> np.ndarray:
    """Random du/dX, with det F from about 0.5 to 1.5."""
    return np.random.default_rng(1).uniform(-size, size, (count, 2, 2))


def test_energy_is_that_of_the_three_dimensional_invariants() -> None:
    gradient = gradients()
    energy, _, _ = mooney_rivlin(gradient)
    for plane, value in zip(np.eye(2) + gradient, energy, strict=True):
        f = np.zeros((3, 3))
        f[:2, :2], f[2, 2] = plane, 1 / np.linalg.det(plane)
        c = f.T @ f
        i1, i2 = np.trace(c), (np.trace(c) ** 2 - np.trace(c @ c)) / 2
        assert value == pytest.approx(C1 * (i1 - 3) + C2 * (i2 - 3), rel=1e-11)


def test_cauchy_stress_is_that_of_an_incompressible_solid_with_free_faces(agree: Any) -> None:
    gradient = gradients()
    for plane, (xx, yy, xy) in zip(np.eye(2) + gradient, cauchy_stress(gradient), strict=True):
        b = np.zeros((3, 3))
        b[:2, :2], b[2, 2] = plane @ plane.T, np.linalg.det(plane) ** -2
        tensor = 2 * C1 * b - 2 * C2 * np.linalg.inv(b)
        tensor -= tensor[2, 2] * np.eye(3)  # the pressure that frees the faces
        agree(np.array([xx, yy, xy]), tensor[[0, 1, 0], [0, 1, 1]], 1e-11)


def test_stress_and_tangent_are_derivatives(agree: Any) -> None:
    gradient, step = gradients(), 1e-5
    _, stress, tangent = mooney_rivlin(gradient)
    for k in range(4):
        move = (np.arange(4) == k).reshape(2, 2) * step
        ahead = mooney_rivlin(gradient + move)
        behind = mooney_rivlin(gradient - move)
        slopes = [(a - b) / (2 * step) for a, b in zip(ahead[:2], behind[:2], strict=True)]
        # Second order in the step: 1e-10 times a third derivative, which det F = 0.5 enlarges.
        agree(slopes[0], stress[:, k // 2, k % 2], 1e-7)
        agree(slopes[1].reshape(-1, 4), tangent[:, :, k], 1e-7)


def test_at_rest_the_tangent_is_hookes_law_of_an_incompressible_solid(agree: Any) -> None:
    energy, stress, tangent = mooney_rivlin(np.zeros((2, 2)))
    assert energy == 0.0
    np.testing.assert_array_equal(stress, 0.0)
    stiff, shear = YOUNG / (1 - 0.5**2), YOUNG / 3
    rows = [[stiff, 0, 0, stiff / 2], [0, shear, shear, 0]]
    agree(tangent, np.array([rows[0], rows[1], rows[1], rows[0][::-1]]), 1e-15)


def test_tiny_strains_keep_their_digits(agree: Any) -> None:
    gradient = 1e-12 * gradients()
    energy, stress, _ = mooney_rivlin(gradient)
    _, _, tangent = mooney_rivlin(np.zeros((2, 2)))
    # The second order remains, 1e-12 of the first.
    agree(stress.reshape(-1, 4), gradient.reshape(-1, 4) @ tangent, 1e-11)
    assert (energy > 0).all()


def test_von_mises_is_the_length_of_the_deviator() -> None:
    xx, yy, xy = np.random.default_rng(2).standard_normal((3, 9))
    tensor = np.zeros((9, 3, 3))
    tensor[:, 0, 0], tensor[:, 1, 1], tensor[:, 0, 1], tensor[:, 1, 0] = xx, yy, xy, xy
    deviator = tensor - (xx + yy)[:, None, None] / 3 * np.eye(3)
    expected = np.sqrt(1.5 * (deviator**2).sum((1, 2)))
    value = von_mises(np.stack([xx, yy, xy], axis=-1))
    np.testing.assert_allclose(value, expected, rtol=1e-13)


def test_rotating_the_deformed_sheet_rotates_the_stress_and_keeps_the_energy(agree: Any) -> None:
    turn, f = rotation(73.0), np.eye(2) + gradients()
    energy, stress, _ = mooney_rivlin(f - np.eye(2))
    turned_energy, turned_stress, _ = mooney_rivlin(turn @ f - np.eye(2))
    np.testing.assert_allclose(turned_energy, energy, rtol=1e-11)
    agree(turned_stress, turn @ stress, 1e-11)
    values = [von_mises(cauchy_stress(g - np.eye(2))) for g in (f, turn @ f)]
    np.testing.assert_allclose(values[1], values[0], rtol=1e-11)


def test_material_is_isotropic() -> None:
    f = np.eye(2) + gradients()
    energy, _, _ = mooney_rivlin(f - np.eye(2))
    turned, _, _ = mooney_rivlin(f @ rotation(31.0) - np.eye(2))
    np.testing.assert_allclose(turned, energy, rtol=1e-11)
