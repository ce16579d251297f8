import itertools
from typing import Any

import pytest
import torch

from funcattn.models.graph_unet import GraphUNet, Pooling, nearest_of
from funcattn.models.graphs import (
    GNO,
    Graph,
    GraphSAGE,
    MeshGraphNet,
    SageLayer,
    graph_of,
    nearest,
)
from funcattn.models.pointnet import PointNet


def count(network: torch.nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def perceptron(*widths: int) -> int:
    return sum(a * b + b for a, b in itertools.pairwise(widths))


def test_sizes_are_those_of_the_public_networks() -> None:
    """AirfRANS has 7 features, two of them positions, and 4 fields."""
    ends = perceptron(7, 64, 64, 8) + perceptron(8, 64, 64, 4)
    sage = 2 * 8 * 64 + 2 * (2 * 64 * 64) + 2 * 64 * 8 + 8 + 3 * 2 * 64
    assert count(GraphSAGE(2, 5, 4)) == ends - 8 + sage == 29_004
    inner = perceptron(8, 8, 16) + perceptron(16, 32, 64, 256) + perceptron(272, 128, 64, 32, 8)
    assert count(PointNet(2, 5, 4)) == ends + inner == 75_244
    c = 128
    steps = 15 * (perceptron(3 * c, c, c, c) + perceptron(2 * c, c, c, c) + 4 * c)
    rest = 2 * perceptron(3, c, c, c) + 4 * c + perceptron(c, c, c, 1)
    assert count(MeshGraphNet(2, 1, 1)) == steps + rest == 2_331_777
    kernel = perceptron(6, 512, 1024, 64 * 64)
    assert count(GNO(2, 1, 1)) == kernel + 4 * 64 + 64 * 65 + 65 == 4_731_777


def test_nearest_points_come_in_order_with_the_point_itself_first(uniform: Any) -> None:
    x = uniform(40, 2)
    found = nearest(x, 6)
    distances = (x[:, None] - x[None]).norm(dim=-1)
    assert torch.equal(found, distances.argsort(dim=-1)[:, :6])
    assert torch.equal(found[:, 0], torch.arange(40))
    assert nearest(x[:3], 6).shape == (3, 3)


def test_a_sage_layer_averages_over_the_edges_to_a_node(uniform: Any) -> None:
    layer, x = SageLayer(3, 2).double(), uniform(4, 3)
    graph = Graph(
        torch.tensor([0, 1, 3, 2]), torch.tensor([0, 0, 0, 1]), torch.zeros(4).long(), uniform(4, 2)
    )
    first = layer.near(x[[0, 1, 3]].mean(0)) + layer.own(x[0])
    second = layer.near(x[2]) + layer.own(x[1])
    torch.testing.assert_close(layer(x, graph)[:2], torch.stack([first, second]))


@pytest.mark.parametrize("kind", [GraphSAGE, MeshGraphNet, GNO])
def test_what_is_further_than_the_layers_reach_is_not_seen(kind: Any, uniform: Any) -> None:
    """On a line, with two neighbours a step: the point itself, and one on each side."""
    torch.manual_seed(0)
    network = kind(1, 1, 1, width=8, layers=2, neighbours=3).double().eval()
    if kind is GraphSAGE:  # whose norms see the whole sample
        network.norms = torch.nn.ModuleList(_Nothing() for _ in range(2))
    positions = torch.linspace(0, 1, 20).double()[None, :, None]
    values = uniform(1, 20, 1)
    moved = values.clone()
    moved[0, 10] += 1
    change = (network(positions, moved) - network(positions, values))[0, :, 0].abs()
    steps = 3 if kind is GraphSAGE else 2
    assert (change[10 - steps : 11 + steps] > 1e-9).all()
    assert not change[: 10 - steps].any()
    assert not change[11 + steps :].any()


class _Nothing(torch.nn.Module):
    def forward(self, x: torch.Tensor, graph: Graph) -> torch.Tensor:
        del graph
        return x


def test_messages_depend_on_differences_of_positions(uniform: Any) -> None:
    torch.manual_seed(0)
    network = MeshGraphNet(2, 1, 1, width=8, layers=2).double()
    with torch.no_grad():
        network.nodes.network[0].weight[:, :2] = 0  # the node's own position
    x, u = uniform(1, 30, 2), uniform(1, 30, 1)
    torch.testing.assert_close(network(x + 5, u), network(x, u), rtol=0, atol=1e-10)


def test_pointnet_sees_others_through_the_largest_alone(uniform: Any) -> None:
    """A copy of a point changes nothing."""
    torch.manual_seed(0)
    network = PointNet(2, 1, 1).double()
    x, u = uniform(1, 9, 2), uniform(1, 9, 1)
    twice = [torch.cat([field, field[:, :4]], dim=1) for field in (x, u)]
    torch.testing.assert_close(network(*twice)[:, :9], network(x, u))


def test_pooling_keeps_the_half_with_the_largest_scores_of_each_sample(uniform: Any) -> None:
    pool = Pooling(3).double()
    z, sample = uniform(9, 3) - 0.5, torch.tensor([0] * 5 + [1] * 4)
    graph = graph_of(uniform(9, 2), sample, 2)
    kept, where = pool(z, graph)
    scores = z @ pool.direction / pool.direction.norm()
    best = [scores[:5].argsort(descending=True)[:3], 5 + scores[5:].argsort(descending=True)[:2]]
    assert set(where.tolist()) == set(torch.cat(best).tolist())
    torch.testing.assert_close(kept, z[where] * scores[where].sigmoid()[:, None])


def test_graphs_have_no_edges_between_samples(uniform: Any) -> None:
    sample = torch.tensor([0] * 5 + [1] * 4)
    graph = graph_of(uniform(9, 2), sample, 3)
    assert torch.equal(sample[graph.source], sample[graph.target])
    coarse = graph_of(graph.positions[[1, 2, 7]], sample[[1, 2, 7]], 2)
    found = nearest_of(graph, coarse)
    assert found[[1, 2]].tolist() == [0, 1]
    assert set(found[5:].tolist()) == {2}


def test_the_size_of_graph_u_net_is_that_of_the_public_one() -> None:
    ends = perceptron(7, 64, 64, 8) - 8 + perceptron(8, 64, 64, 4)
    down = 2 * (8 * 8 + 8 * 16 + 16 * 32 + 32 * 64 + 64 * 128) + 2 * (8 + 16 + 32 + 64 + 128)
    up = 2 * (24 * 8 + 48 * 16 + 96 * 32 + 192 * 64) + 2 * (8 + 16 + 32 + 64)
    pools = 8 + 16 + 32 + 64
    assert count(GraphUNet(2, 5, 4)) == ends + down + up + pools == 65_564


def test_there_is_a_neighbour() -> None:
    with pytest.raises(ValueError, match="neighbours: expected at least 1, got 0"):
        GraphSAGE(2, 1, 1, neighbours=0)
