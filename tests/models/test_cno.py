import itertools
import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from funcattn.models.cno import CNO, Activation, resampled


def test_size_is_that_of_the_public_script() -> None:
    """One input and output, no positions: 9 weights a pair of channels, and a bias."""
    widths = [8, 16, 32, 64, 128]
    pairs = [(1, 64), (64, 8), (16, 64), (64, 1), *itertools.pairwise(widths)]
    pairs += [(128, 64), (128, 32), (64, 16), (32, 8)]  # up
    pairs += [(w, w) for w in widths for _ in range(1 + 2 * 4)]  # across, and residual blocks
    public = sum(9 * a * b + b for a, b in pairs)
    assert public == 2_005_481
    ours = sum(p.numel() for p in CNO(2, 1, 1).parameters())
    assert ours == public + 9 * 2 * 64


@pytest.mark.parametrize("grid", [(20, 26), (10, 13), (7, 30)], ids=str)
def test_axis_by_axis_is_the_interpolation_of_pytorch(grid: tuple[int, int], uniform: Any) -> None:
    x = uniform(2, 3, 10, 13)
    whole = F.interpolate(x, grid, mode="bicubic", antialias=True)
    torch.testing.assert_close(resampled(x, grid), whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("grid", [(12,), (12, 9), (6, 7, 8)], ids=str)
def test_constants_stay_what_they_are_on_every_grid(grid: tuple[int, ...]) -> None:
    x = torch.full((1, 2, *grid), 3.0).double()
    for factor in (0.5, 2, 3):
        size = [math.ceil(factor * length) for length in grid]
        assert resampled(x, size).shape[2:] == tuple(size)
        torch.testing.assert_close(resampled(x, size), torch.full((1, 2, *size), 3.0).double())


def test_what_the_activation_adds_above_the_grid_is_damped() -> None:
    """The highest wave of a grid, through leaky ReLU, has twice its frequency: on the grid itself
    that would be taken for a constant."""
    x = torch.cos(math.pi * torch.arange(64).double())[None, None]
    plain = F.leaky_relu(x)[..., 8:-8].mean()
    ours = Activation()(x)[..., 8:-8].mean()
    # The wave between the points of the grid is a cosine, whose positive part has mean 1 / pi.
    exact = 0.99 / math.pi
    assert abs(ours - exact) < 0.3 * abs(plain - exact)


def test_a_finer_grid_gives_nearly_the_same_field() -> None:
    """Kernels are of 3 points, so that grids matter to them; without them only the rest is left."""
    torch.manual_seed(0)
    network = CNO(1, 1, 1, width=8, levels=2, blocks=1).double()
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, torch.nn.Conv1d):
                module.weight[..., 1] = module.weight.sum(-1)
                module.weight[..., [0, 2]] = 0
    outs = []
    for n in (64, 128):
        x = ((torch.arange(n).double() + 0.5) / n)[None, :, None]
        outs.append(network(x, torch.sin(2 * math.pi * x), grid=(n,)).mT)
    coarse, fine = outs[0], resampled(outs[1], (64,))
    assert (coarse - fine).norm() < 0.05 * (coarse - coarse.mean()).norm()
