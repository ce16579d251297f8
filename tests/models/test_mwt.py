import math
from typing import Any

import numpy as np
import pytest
import torch

from funcattn.models.mwt import MWT, LowModes, MultiwaveletLayer, multiwavelet_filters


@pytest.mark.parametrize("order", [1, 2, 4])
def test_filters_form_an_orthogonal_matrix(order: int) -> None:
    matrix = np.concatenate(multiwavelet_filters(order))
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(2 * order), atol=1e-13)


def test_filters_of_order_one_are_haars() -> None:
    low, high = multiwavelet_filters(1)
    np.testing.assert_allclose(low, [[math.sqrt(0.5), math.sqrt(0.5)]])
    np.testing.assert_allclose(high, [[math.sqrt(0.5), -math.sqrt(0.5)]])


def test_low_filters_halve_legendre_functions() -> None:
    """A parabola on [0, 1] by its coefficients on both halves, and back."""
    low, high = multiwavelet_filters(3)
    nodes, weights = np.polynomial.legendre.leggauss(8)
    nodes, weights = (nodes + 1) / 2, weights / 2

    def coefficients(values: np.ndarray) -> np.ndarray:
        phi = np.polynomial.legendre.legvander(2 * nodes - 1, 2) * np.sqrt([1, 3, 5])
        return phi.T @ (weights * values)

    def parabola(x: np.ndarray) -> np.ndarray:
        return 1 + 2 * x - 3 * x**2

    # <f, sqrt 2 phi_j(2 x)> = <f(x / 2), phi_j> / sqrt 2
    fine = np.concatenate([coefficients(parabola((nodes + h) / 2)) for h in (0, 1)]) / math.sqrt(2)
    np.testing.assert_allclose(low @ fine, coefficients(parabola(nodes)), atol=1e-13)
    np.testing.assert_allclose(high @ fine, 0, atol=1e-13)


def test_in_one_dimension_split_and_joined_are_inverse(uniform: Any) -> None:
    layer, x = MultiwaveletLayer(1, 3, 2, 2, 0), uniform(2, 6, 8)
    layer.decompose = torch.tensor(np.concatenate(multiwavelet_filters(3)))
    low, high = layer.split(x)
    assert low.shape == high.shape == (2, 6, 4)
    torch.testing.assert_close(layer.joined(low, high), x, rtol=0, atol=1e-13)


@pytest.mark.parametrize("space", [2, 3])
def test_on_more_axes_what_is_split_is_kept_but_for_mixed_details(space: int, uniform: Any) -> None:
    layer = MultiwaveletLayer(space, 2, 1, 2, 0).double()
    grid = (4,) * space
    x = uniform(1, 2**space, *grid)
    low, high = layer.split(x)
    once = layer.joined(low, high)
    again = layer.split(once)
    torch.testing.assert_close(again[0], low, rtol=0, atol=1e-6)
    torch.testing.assert_close(again[1], high, rtol=0, atol=1e-6)
    assert (once - x).abs().max() > 0.01  # a projection, not the identity


def test_low_modes_take_what_a_grid_carries(uniform: Any) -> None:
    torch.manual_seed(0)
    layer = LowModes(3, (4, 4)).double()
    weight = torch.view_as_complex(layer.parts.detach())
    for grid in ((1, 1), (2, 2), (4, 8), (16, 16)):
        x = uniform(1, 3, *grid)
        spectrum, out = torch.fft.fft2(x), torch.fft.fft2(layer(x))
        mean = torch.einsum("bi,io->bo", spectrum[..., 0, 0], weight[:, :, 0, 0])
        torch.testing.assert_close(out[..., 0, 0].real, mean.real)
        if grid == (16, 16):
            wave = torch.einsum("bi,io->bo", spectrum[..., -2, 3], weight[:, :, -2, 3])
            torch.testing.assert_close(out[..., -2, 3], wave)
            assert out[..., 5, 3].abs().max() < 1e-12


def test_sizes_of_the_published_configuration() -> None:
    with torch.device("meta"):
        network = MWT(2, 1, 1, order=4, channels=4, layers=4, modes=12)
    c = 64
    square = c * c + c
    layer = 2 * c * c * 12 * 12 + square + 2 * (9 * c * c + c + square) + square
    total = sum(
        p.numel() // (2 if "parts" in name else 1) for name, p in network.named_parameters()
    )
    assert total == 4 * layer + 4 * c + 65 * 128 + 129 == 5_089_281
