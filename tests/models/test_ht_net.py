from typing import Any

import pytest
import torch

from funcattn.models.ht_net import HTNet, WindowAttention, WindowBlock, in_blocks, out_of_blocks


def test_size_is_that_of_the_public_network() -> None:
    """A complex number counted as one; the public code has a map more, which it does not use."""
    total = 0
    for c in (64, 128, 256):
        attention = 4 * (c * c + c) + 49
        total += attention + 4 * c + c * 4 * c + 4 * c + 4 * c * c + c
    for c in (64, 128):
        total += 2 * 4 * c + 4 * c * 2 * c + 2 * c * 4 * c + 4 * c
    total += 5 * (64 * 64 * 24 * 12 + 64 + 9 * 64 * 64)
    total += 27 * 64 + 64 + 2 * 64 + 64 * 128 + 128 + 128 + 1
    network = HTNet(2, 1, 1)
    ours = sum(p.numel() // (2 if "parts" in name else 1) for name, p in network.named_parameters())
    assert ours == total == 7_461_396


@pytest.mark.parametrize("grid", [(8,), (4, 8), (4, 8, 4)], ids=str)
def test_blocks_are_blocks_and_come_back(grid: tuple[int, ...], uniform: Any) -> None:
    x = uniform(2, *grid, 3)
    blocks = in_blocks(x, 2)
    assert blocks.shape == (2, *(length // 2 for length in grid), 2 ** len(grid), 3)
    assert torch.equal(out_of_blocks(blocks, 2), x)
    first = x[(slice(None), *(slice(0, 2) for _ in grid))].flatten(1, len(grid))
    assert torch.equal(blocks[(slice(None), *(0 for _ in grid))], first)


def test_attention_in_a_window_is_the_equation(uniform: Any) -> None:
    torch.manual_seed(0)
    layer, x = WindowAttention(2, 6, 2, 2).double(), uniform(1, 4, 6)
    heads = []
    for h in range(2):
        q, k, v = (
            m(x[0])[:, 3 * h : 3 * h + 3] for m in (layer.to_query, layer.to_key, layer.to_value)
        )
        bias = torch.empty(4, 4).double()
        for i in range(4):
            for j in range(4):
                rows, columns = i // 2 - j // 2 + 1, i % 2 - j % 2 + 1
                bias[i, j] = layer.bias[3 * rows + columns, h]
        heads.append((q @ k.T / 4 + bias) @ v)
    torch.testing.assert_close(layer(x)[0], layer.to_output(torch.cat(heads, -1)))


def test_a_block_stays_in_its_windows_and_the_hierarchy_does_not(uniform: Any) -> None:
    torch.manual_seed(0)
    x = uniform(1, 8, 8, 4)
    moved = x.clone()
    moved[0, 0, 0] += 1
    block = WindowBlock(2, 4, 1, 2).double()
    seen = (block(moved) - block(x)).abs().amax(-1)[0] > 0
    assert seen[:2, :2].all()
    assert seen.sum() == 4
    network = HTNet(2, 1, 1, width=4, levels=3, window=2, modes=2).double()
    assert ((network.hierarchy(moved) - network.hierarchy(x)).abs().amax(-1) > 0).all()
