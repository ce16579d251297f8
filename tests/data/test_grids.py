import numpy as np
import pytest
import torch

from funcattn.data import grid_positions, trapezoid_weights


@pytest.mark.parametrize("grid", [(5,), (3, 4), (2, 3, 5)], ids=str)
def test_positions_are_those_of_meshgrid_in_ij_order(grid: tuple[int, ...]) -> None:
    axes = [np.linspace(0, 1, length) for length in grid]
    expected = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(grid))
    np.testing.assert_allclose(grid_positions(grid).numpy(), expected, atol=1e-7)


@pytest.mark.parametrize("grid", [(1,), (5,), (1, 4), (3, 4), (2, 3, 5)], ids=str)
def test_weights_integrate_multilinear_functions_exactly(grid: tuple[int, ...]) -> None:
    weights, positions = trapezoid_weights(grid), grid_positions(grid)
    long_axes = [axis for axis, length in enumerate(grid) if length > 1]
    product = positions[:, long_axes].prod(dim=1)
    torch.testing.assert_close(weights.sum(), torch.tensor(1.0))
    torch.testing.assert_close((weights * product).sum(), torch.tensor(0.5 ** len(long_axes)))


def test_weights_integrate_a_smooth_function_with_order_two() -> None:
    errors = []
    for points in (9, 17, 33):
        x, y = grid_positions((points, points)).double().T
        integral = (trapezoid_weights((points, points)).double() * torch.exp(x + 2 * y)).sum()
        errors.append(abs(float(integral) - (np.e - 1) * (np.e**2 - 1) / 2))
    orders = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    np.testing.assert_allclose(orders, 2.0, atol=0.05)
