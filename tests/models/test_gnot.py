from typing import Any

import torch

from funcattn.models.gnot import GNOT, Experts, NormalisedAttention
from funcattn.nn.points import Points


def test_sizes_are_those_of_the_public_network() -> None:
    with torch.device("meta"):
        network = GNOT(2, 1, 1, width=128, layers=3, heads=1, experts=3)
    c, hidden = 128, 512
    square = c * c + c
    expert = c * hidden + hidden + hidden * c + c
    gate = 2 * hidden + hidden + hidden * hidden + hidden + hidden * 3 + 3
    block = 8 * square + 6 * expert + gate + 10 * c
    trunk, branch, head = 3 * c + 4 * square, 4 * c + 4 * square, 4 * square + c + 1
    total = sum(p.numel() for p in network.parameters())
    assert total == 3 * block + trunk + branch + head == 3_767_306


def test_attention_adds_a_mean_of_the_values_to_the_query(uniform: Any) -> None:
    torch.manual_seed(0)
    layer = NormalisedAttention(6, 2).double()
    x, y, weights = uniform(2, 9, 6), uniform(2, 9, 6), uniform(2, 9) + 0.1
    mask = torch.tensor([[True] * 9, [True] * 5 + [False] * 4])
    out = layer(x, y, Points(mask=mask, weights=weights))
    for b in range(2):
        parts = []
        for h in range(2):
            of = slice(3 * h, 3 * h + 3)
            q, k = layer.to_query(x[b])[:, of].softmax(-1), layer.to_key(y[b])[:, of].softmax(-1)
            shares = (q @ k.T) * (weights[b] * mask[b])
            shares = shares / shares.sum(1, keepdim=True)
            parts.append(q + shares @ layer.to_value(y[b])[:, of])
        expected = layer.to_output(torch.cat(parts, dim=-1))
        torch.testing.assert_close(out[b], expected, rtol=0, atol=1e-12)


def test_experts_are_mixed_by_the_gate(uniform: Any) -> None:
    torch.manual_seed(0)
    experts, x = Experts(4, 8, 3).double(), uniform(1, 5, 4)
    for e, network in enumerate(experts.networks):
        alone = torch.zeros(1, 5, 3, dtype=torch.float64)
        alone[..., e] = 1
        torch.testing.assert_close(experts(x, alone), network(x))


def test_the_gates_depend_on_positions_alone(uniform: Any) -> None:
    torch.manual_seed(0)
    network = GNOT(2, 1, 1, width=8, layers=1, heads=2, experts=3).double()
    seen = []
    network.blocks[0].gate.register_forward_hook(lambda *given: seen.append(given[-1]))
    positions = uniform(1, 7, 2)
    network(positions, uniform(1, 7, 1))
    network(positions, uniform(1, 7, 1))
    assert torch.equal(*seen)
