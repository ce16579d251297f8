from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from funcattn.models.oformer import OFormer, RotaryGalerkin, rotated
from funcattn.nn.points import Points


def test_sizes_are_those_of_the_public_network() -> None:
    with torch.device("meta"):
        network = OFormer(2, 1, 1)
    block = 4 * 96 + 3 * 96 * 384 + 384 * 96 + 96 + 96 * 192 + 192 + 96 * 96 + 96
    encoder = 3 * 96 + 6 * block + 96 * 256
    cross = 3 * 256 * 1024 + 1024 * 256 + 256 + 256 * 512 + 512 + 256 * 256 + 256
    decoder = 2 * 256 * 256 + cross + 258 * 256 + 256 * 128 + 128 + 1
    assert sum(p.numel() for p in network.parameters()) == encoder + decoder == 2_556_321


@pytest.mark.parametrize("space", [1, 2, 3])
def test_products_of_rotated_fields_depend_on_differences_of_positions(
    space: int, uniform: Any
) -> None:
    query, key = uniform(1, 2, 5, 14), uniform(1, 2, 5, 14)
    here, there, shift = uniform(1, 5, space), uniform(1, 5, space), uniform(space)
    products = [
        rotated(query, here + s, 0.3) @ rotated(key, there + s, 0.3).mT for s in (0.0, shift)
    ]
    torch.testing.assert_close(*products, rtol=0, atol=1e-9)
    assert (products[0] - query @ key.mT).abs().max() > 0.01


def test_attention_is_its_equation(uniform: Any) -> None:
    torch.manual_seed(0)
    layer = RotaryGalerkin(6, 2, 0.1).double()
    x, y, positions = uniform(1, 9, 6), uniform(1, 9, 6), uniform(1, 9, 2)
    weights = uniform(1, 9) + 0.1
    parts = []
    for h in range(2):
        q, k, v = (
            of(field[0])[:, 6 * h : 6 * h + 6]
            for of, field in ((layer.to_query, x), (layer.to_key, y), (layer.to_value, y))
        )
        q = rotated(q[None, None], positions, 0.1)[0, 0]
        k = rotated(F.layer_norm(k, (6,))[None, None], positions, 0.1)[0, 0]
        w = weights[0] / weights[0].sum()
        parts.append(q @ k.T @ (w[:, None] * F.layer_norm(v, (6,))))
    expected = layer.to_output(torch.cat(parts, dim=-1))
    points = Points(positions, weights=weights)
    torch.testing.assert_close(layer(x, y, points)[0], expected, rtol=0, atol=1e-12)


def test_queries_start_near_a_small_multiple_of_the_features() -> None:
    torch.manual_seed(0)
    layer = RotaryGalerkin(8, 2, 1.0)
    for head in layer.to_query.weight.split(8):
        noise = 8 * head - torch.eye(8)
        torch.testing.assert_close(noise @ noise.T, torch.eye(8), rtol=0, atol=1e-5)
