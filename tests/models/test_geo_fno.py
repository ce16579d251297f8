import math
from typing import Any

import pytest
import torch

from funcattn.models.geo_fno import Deformation, GeoFNO
from funcattn.nn.points import Points


def test_sizes_are_those_of_the_public_network() -> None:
    with torch.device("meta"):
        network = GeoFNO(2, 0, 1, width=32, modes=12)
    total = sum(
        p.numel() // (2 if "parts" in name else 1) for name, p in network.named_parameters()
    )
    spectral = 5 * 2 * 32 * 32 * 12 * 12
    of_grid = 3 * (32 * 32 + 32) + 2 * (2 * 32 + 32) + 3 * 2 * 32
    ends = 3 * 32 + 33 * 128 + 129
    deformation = 5 * 32 + 97 * 128 + 3 * 129 * 128 + 129 * 2
    assert total == spectral + of_grid + ends + deformation == 1_544_931


def test_on_points_that_form_the_grid_series_and_coefficients_are_the_fast_transform(
    uniform: Any,
) -> None:
    network = GeoFNO(2, 1, 1, width=3, modes=2, latent=4).double()
    axis = torch.arange(6).double() / 6
    nodes = torch.cartesian_prod(axis, axis)[None]
    u = uniform(2, 36, 3)
    found = network._coefficients(u, nodes, Points())
    expected = torch.fft.rfft2(u.mT.unflatten(-1, (6, 6)), norm="forward")
    rows = [int(k) for k in network.waves[:, 0]]
    columns = [int(k) for k in network.waves[:, 1]]
    torch.testing.assert_close(found, expected[:, :, rows, columns], rtol=0, atol=1e-13)
    field = network._series(found, nodes).unflatten(-1, (6, 6))
    kept = torch.zeros_like(expected)
    kept[:, :, rows, columns] = found
    torch.testing.assert_close(
        field, torch.fft.irfft2(kept, s=(6, 6), norm="forward"), rtol=0, atol=1e-13
    )


def test_a_wave_at_scattered_points_is_found_with_their_weights() -> None:
    """Points of any density count by their weights: the mean is the integral."""
    network = GeoFNO(1, 1, 1, width=1, modes=3, latent=6).double()
    t = torch.arange(200).double() / 200
    x = (t + 0.1 * torch.sin(2 * math.pi * t) / (2 * math.pi))[None, :, None]
    weights = (1 + 0.1 * torch.cos(2 * math.pi * t))[None]
    u = torch.cos(2 * math.pi * 2 * x)
    found = network._coefficients(u, x, Points(x, weights=weights))[0, 0]
    expected = torch.tensor([0.0, 0.0, 0.5], dtype=torch.complex128)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("space", [1, 2, 3])
def test_a_deformation_of_nothing_is_the_identity(space: int, uniform: Any) -> None:
    deformation, x = Deformation(space).double(), uniform(2, 7, space)
    assert (deformation(x) - x).abs().max() > 1e-4
    with torch.no_grad():
        deformation.head.weight.zero_()
        deformation.head.bias.zero_()
    assert torch.equal(deformation(x), x)


def test_too_coarse_a_grid_is_refused() -> None:
    with pytest.raises(ValueError, match="latent: expected at least twice the 4 modes"):
        GeoFNO(2, 1, 1, modes=4, latent=7)
