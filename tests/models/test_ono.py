from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from funcattn.models.ono import ONO, EfficientAttention, ONOBlock
from funcattn.nn.points import Points


def test_sizes_are_those_of_the_public_network() -> None:
    with torch.device("meta"):
        network = ONO(2, 1, 1, width=64, layers=3, heads=4, bases=64)
    c = g = 64
    square = c * c + c
    block = 6 * c + 4 * c * c + c + 2 * square + c * g + g + g
    lift = 3 * 2 * c + 2 * c + 2 * c * 2 * c + 2 * c
    total = sum(p.numel() for p in network.parameters())
    assert total == lift + 3 * block + 2 * 2 * square + c + 1 == 121_857


def test_a_block_moves_its_stream_by_a_diagonal_map_in_an_orthonormal_basis(uniform: Any) -> None:
    torch.manual_seed(0)
    block = ONOBlock(6, 2, 4, 6, nn.Identity()).double()
    block.basis.tikhonov = 1e-13
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.normal_()
    block.after_norm = nn.Identity()
    weights = uniform(2, 30) + 0.1
    points = Points(mask=torch.arange(30) < torch.tensor([[30], [20]]), weights=weights)
    x, y = uniform(2, 30, 6), uniform(2, 30, 6)
    after, moved = block(x, y, points)
    basis = block.basis(after, points)[:, 0]
    for b, n in enumerate((30, 20)):
        psi, w = basis[b, :n], weights[b, :n] / weights[b, :n].sum()
        inner = psi.T @ (w[:, None] * psi)
        torch.testing.assert_close(inner, torch.eye(4).double(), rtol=0, atol=1e-6)
        step = psi @ torch.diag(F.softplus(block.eigenvalues)) @ psi.T @ (w[:, None] * y[b, :n])
        torch.testing.assert_close(moved[b, :n], y[b, :n] + step, rtol=0, atol=1e-10)


def test_attention_is_its_equation(uniform: Any) -> None:
    torch.manual_seed(0)
    layer, x = EfficientAttention(6, 2).double(), uniform(1, 9, 6)
    weights = uniform(1, 9) + 0.1
    parts = []
    for h in range(2):
        q, k, v = (
            of(x[0])[:, 3 * h : 3 * h + 3] for of in (layer.to_query, layer.to_key, layer.to_value)
        )
        shares = k.exp() * weights[0][:, None]
        shares = shares / shares.sum(0)
        parts.append(q.softmax(-1) @ shares.T @ v / 3**0.5)
    expected = layer.to_output(torch.cat(parts, dim=-1))
    torch.testing.assert_close(layer(x, Points(weights=weights))[0], expected, rtol=0, atol=1e-12)


def test_errors() -> None:
    with pytest.raises(ValueError, match="width: expected a multiple of heads=4, got 6"):
        ONO(2, 1, 1, width=6)
    with pytest.raises(ValueError, match="layers: expected at least 1, got 0"):
        ONO(2, 1, 1, layers=0)
