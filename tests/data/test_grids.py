import numpy as np
import pytest
import torch

from funcattn.data import StackedSamples, grid_positions, public_positions, trapezoid_weights


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


@pytest.mark.parametrize("grid", [(8,), (4, 6)], ids=str)
def test_a_periodic_grid_leaves_out_the_end_and_weighs_all_points_alike(
    grid: tuple[int, ...],
) -> None:
    axes = [np.arange(length) / length for length in grid]
    expected = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(grid))
    np.testing.assert_allclose(grid_positions(grid, periodic=True).numpy(), expected, atol=1e-7)
    weights = trapezoid_weights(grid, periodic=True)
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / len(expected)))


def test_public_positions_run_along_the_first_axis_first() -> None:
    x, y = np.meshgrid(np.linspace(0, 1, 3), np.linspace(0, 1, 2))  # numpy's default order
    np.testing.assert_allclose(public_positions((3, 2)), np.c_[x.ravel(), y.ravel()])


def test_samples_of_a_grid_have_their_points_in_row_major_order() -> None:
    grid = (2, 3)
    positions, weights = grid_positions(grid), trapezoid_weights(grid)
    inputs = np.arange(4 * 6 * 2, dtype=np.float32).reshape(4, *grid, 2)
    targets = np.arange(4 * 6, dtype=np.float32).reshape(4, *grid, 1)
    samples = StackedSamples(positions, inputs, targets, grid=grid, weights=weights)
    assert len(samples) == 4
    assert samples[1].values.tolist() == inputs[1].reshape(6, 2).tolist()
    assert samples[1].target.shape == (6, 1)
    assert samples[1].grid == grid
    assert [float(s.target[0]) for s in samples[1:3]] == [6.0, 12.0]
    with pytest.raises(IndexError):
        samples[4]
