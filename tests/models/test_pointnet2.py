import itertools
import math
from typing import Any

import torch

from funcattn.models.clouds import Cloud, furthest, nearest_in, thinned
from funcattn.models.pointnet2 import PointNet2, Propagation, SetAbstraction


def test_sizes_are_those_of_the_public_network_for_scenes() -> None:
    """9 features, three of them positions, and 13 classes; the norms have two numbers a channel."""
    chains = [
        *((12, 32, 32, 64), (67, 64, 64, 128), (131, 128, 128, 256), (259, 256, 256, 512)),
        *((768, 256, 256), (384, 256, 256), (320, 256, 128), (128, 128, 128, 128), (128, 128)),
    ]
    pairs = [pair for chain in chains for pair in itertools.pairwise(chain)]
    public = sum(a * b + b + 2 * b for a, b in pairs) + 128 * 13 + 13
    without_idle_biases = public - sum(b for _, b in pairs)
    ours = sum(p.numel() for p in PointNet2(3, 6, 13).parameters())
    assert ours == without_idle_biases == 964_429
    assert public - ours == 3840


def test_centres_lie_as_far_from_each_other_as_can_be() -> None:
    line = torch.arange(9.0)[:, None].double()
    assert furthest(line, 4).tolist() == [0, 8, 4, 2]
    both = Cloud(torch.cat([line, line[:5]]), torch.tensor([0] * 9 + [1] * 5))
    kept = thinned(both, 4)
    assert kept.positions[:, 0].tolist() == [0, 8, 4, 0, 4]
    assert kept.sample.tolist() == [0, 0, 0, 1, 1]
    distance, near = nearest_in(both, kept, 7)
    assert near[1].tolist() == [8, 7, 6, 5, 4, 3, 2]
    assert near[3].tolist() == [9, 10, 11, 12, 13, 9, 9]
    assert distance[3].tolist() == [0, 1, 2, 3, 4, math.inf, math.inf]


def test_only_points_within_the_radius_are_seen(uniform: Any) -> None:
    torch.manual_seed(0)
    layer = SetAbstraction(1, 0.2, 1, 6).double()
    x, values = torch.linspace(0, 1, 11).double()[:, None], uniform(11, 1)
    cloud = Cloud(x, torch.zeros(11).long())
    centres = Cloud(x[5:6], torch.zeros(1).long())
    layer.network.norms = torch.nn.ModuleList([_Nothing()])

    def change(place: int) -> float:
        moved = values.clone()
        moved[place] += 100
        with torch.no_grad():
            seen = layer(moved, cloud, centres) - layer(values, cloud, centres)
        return float(seen.abs().max())

    assert [place for place in range(11) if change(place) > 0] == [3, 4, 5, 6, 7]


def test_interpolation_is_exact_at_coarse_points_and_keeps_constants(uniform: Any) -> None:
    layer = Propagation(2, 2).double()
    layer.network = _Identity()
    x = uniform(12, 2)
    fine, coarse = (Cloud(part, torch.zeros(len(part)).long()) for part in (x, x[:5]))
    z = uniform(5, 2)
    torch.testing.assert_close(layer(None, z, fine, coarse)[:5], z, rtol=0, atol=1e-5)
    ones = torch.ones(5, 2).double()
    torch.testing.assert_close(layer(None, ones, fine, coarse), torch.ones(12, 2).double())
    assert layer(z[[0] * 12], z, fine, coarse).shape == (12, 4)
    alone = Cloud(x[:1], torch.zeros(1).long())
    torch.testing.assert_close(layer(None, z[:1], fine, alone), z[:1].expand(12, -1))


def test_permuting_points_permutes_results(uniform: Any) -> None:
    torch.manual_seed(0)
    network = PointNet2(3, 1, 2, width=4, radius=0.3).double().eval()
    positions, values = uniform(2, 90, 3), uniform(2, 90, 1)
    order = uniform(90).argsort()
    torch.testing.assert_close(
        network(positions[:, order], values[:, order]), network(positions, values)[:, order]
    )


class _Nothing(torch.nn.Module):
    def forward(self, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return x


class _Identity(_Nothing):
    pass
