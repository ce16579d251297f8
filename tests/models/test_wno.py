import math
from typing import Any

import pytest
import torch
from torch import nn

from funcattn.models.wno import WNO, WaveletLayer

GRIDS = {1: (30,), 2: (12, 13), 3: (6, 7, 8)}


@pytest.mark.parametrize("space", [1, 2, 3])
def test_with_maps_that_do_nothing_one_level_is_the_identity(space: int, uniform: Any) -> None:
    layer = WaveletLayer(space, 2, 2, 1, "db2").double()
    layer.maps = nn.ModuleList(nn.Identity() for _ in range(2**space))
    x = uniform(3, 2, *GRIDS[space])
    torch.testing.assert_close(layer(x), x, rtol=0, atol=1e-12)


def test_finer_details_are_left_out(uniform: Any) -> None:
    """With Haar's wavelets on two levels: what is left are means over two points."""
    layer = WaveletLayer(1, 1, 2, 2, "haar").double()
    layer.maps = nn.ModuleList([nn.Identity(), nn.Identity()])
    x = uniform(1, 1, 16)
    means = x.unflatten(-1, (8, 2)).mean(-1).repeat_interleave(2, dim=-1)
    torch.testing.assert_close(layer(x), means, rtol=0, atol=1e-12)


def test_the_first_map_takes_means_and_the_second_differences(uniform: Any) -> None:
    torch.manual_seed(0)
    layer = WaveletLayer(1, 2, 3, 1, "haar").double()
    x = uniform(1, 2, 16)
    first, second = x.unflatten(-1, (8, 2)).unbind(-1)
    low, high = layer.maps[0](first + second), layer.maps[1](first - second)
    out = layer(x).unflatten(-1, (8, 2))
    torch.testing.assert_close(out[..., 0], (low + high) / 2, rtol=0, atol=1e-12)
    torch.testing.assert_close(out[..., 1], (low - high) / 2, rtol=0, atol=1e-12)


def test_sizes_of_the_published_configuration() -> None:
    with torch.device("meta"):
        network = WNO(2, 1, 1)
    total = sum(
        p.numel() // (2 if "parts" in name else 1) for name, p in network.named_parameters()
    )
    layer = 4 * 2 * 40 * 40 * 6 * 6 + 40 * 40 + 40
    assert total == 4 * layer + 4 * 40 + 41 * 128 + 129 == 1_855_297


def test_without_its_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ptwt", None)
    n = math.prod(GRIDS[2])
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'funcattn\[baselines\]'"):
        WNO(2, 1, 1, width=4)(torch.rand(1, n, 2), torch.rand(1, n, 1), grid=GRIDS[2])
