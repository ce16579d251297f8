import itertools
from typing import Any

import pytest
import torch

from funcattn.models.gaot import _REACH, GAOT, GraphAttention, edges_of, neighbourhoods


def perceptron(*widths: int) -> int:
    return sum(a * b + b for a, b in itertools.pairwise(widths))


def test_size_is_that_of_the_public_network() -> None:
    """Channels 64, hidden 64, width 256, 3 layers: one first, one in the middle, one that joins."""
    graph = perceptron(4, 64, 64, 64, 64) + perceptron(7, 64, 64) + perceptron(128, 64)
    block = 4 * 256 * 256 + 3 * 256 * 1024 + 2 * 256
    transformer = 3 * block + perceptron(512, 256)
    ends = perceptron(3, 64) + perceptron(64, 1) + perceptron(256, 256)
    ours = sum(p.numel() for p in GAOT(2, 1, 1).parameters())
    assert ours == 2 * graph + transformer + ends == 3_396_161


@pytest.mark.parametrize("space", [1, 2, 3])
def test_edges_are_all_pairs_within_reach(space: int, uniform: Any) -> None:
    latent, b, n = 5, 2, 30
    where = uniform(b, n, space) * (latent + 1) - 1  # some outside of the grid
    mask = uniform(b, n) < 0.8
    edges = edges_of(where, latent, mask)
    axis = torch.arange(latent).double()
    nodes = torch.cartesian_prod(*(axis for _ in range(space))).view(-1, space)
    near = (where[:, :, None] - nodes).norm(dim=-1) <= _REACH
    near &= mask[..., None]
    sample, point, node = near.nonzero().T
    wanted = set(
        zip((sample * n + point).tolist(), (sample * len(nodes) + node).tolist(), strict=True)
    )
    assert set(zip(edges.point.tolist(), edges.node.tolist(), strict=True)) == wanted
    assert len(edges.point) == len(wanted) > n


def test_every_point_of_the_box_has_a_node_and_every_node_of_a_fine_cloud_a_point(
    uniform: Any,
) -> None:
    edges = edges_of(uniform(1, 4000, 3) * 7, 8, None)
    assert len(edges.point.unique()) == 4000
    assert len(edges.node.unique()) == 8**3


def test_attention_is_the_equation(uniform: Any) -> None:
    torch.manual_seed(0)
    layer = GraphAttention(2, 3, 5).double()
    f, y, x = uniform(6, 3), uniform(6, 2) - 0.5, uniform(1, 4, 2) - 0.5
    weights = uniform(6) + 0.1
    start, to = torch.tensor([0, 1, 2, 4, 5, 5]), torch.tensor([0, 0, 0, 1, 1, 2])
    out = layer(f, y, x, start, to, weights=weights)
    rows = []
    for i in range(4):
        near = start[to == i]
        z = torch.zeros(3).double()
        if len(near):
            cosines = torch.stack([x[0, i] @ y[j] / x[0, i].norm() / y[j].norm() for j in near])
            shares = weights[near] * cosines.exp()
            kernels = [layer.kernel(torch.cat([y[j], x[0, i]])) * f[j] for j in near]
            z = (shares[:, None] / shares.sum() * torch.stack(kernels)).sum(0)
        rows.append(z)
    features = neighbourhoods(y[start], x[0], to)
    shape = layer.shape((features - features.mean(0)) / features.std(0))
    expected = layer.mix(torch.cat([torch.stack(rows), shape], -1))
    torch.testing.assert_close(out[0], expected, rtol=1e-9, atol=1e-10)


def test_statistics_are_those_of_the_neighbours(uniform: Any) -> None:
    y, x = uniform(7, 2), uniform(3, 2)
    to = torch.tensor([0, 0, 0, 0, 1, 1, 1])
    found = neighbourhoods(y, x, to)
    for i, near in ((0, y[:4]), (1, y[4:])):
        distance = (near - x[i]).norm(dim=-1)
        covariance = torch.cov(near.T, correction=0)
        axes = torch.linalg.eigvalsh(covariance).flip(0)
        first = torch.stack(
            [torch.tensor(len(near)).double(), distance.mean(), distance.var(correction=0)]
        )
        wanted = torch.cat([first, near.mean(0) - x[i], axes])
        torch.testing.assert_close(found[i], wanted, rtol=1e-9, atol=1e-12)
    assert not found[2].any()


def test_patches_go_to_rows_and_back() -> None:
    """With a transformer that does nothing, every node gets what it had."""
    for space in (1, 2, 3):
        network = GAOT(space, 1, 1, width=2 * 2**space, channels=2, heads=1, latent=4, layers=1)
        network.mix = torch.nn.Identity()  # type: ignore[assignment]
        places = network._places(2, torch.zeros(1))
        network._through = lambda x, p=places: x - p  # type: ignore[method-assign]
        v = torch.randn(3, 4**space, 2)
        torch.testing.assert_close(network._between_patches(v), v)


def test_permuting_points_permutes_results_and_weight_two_is_two_copies(uniform: Any) -> None:
    torch.manual_seed(0)
    network = GAOT(2, 1, 2, width=16, channels=4, heads=2, latent=4).double()
    x, values, weights = uniform(2, 40, 2), uniform(2, 40, 1), uniform(2, 40) + 0.1
    order = uniform(40).argsort()
    out = network(x, values, weights=weights)
    turned = network(x[:, order], values[:, order], weights=weights[:, order])
    torch.testing.assert_close(turned, out[:, order])
    assert (out - network(x, values)).abs().max() > 1e-6


def test_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="latent: expected a multiple of patch=2, got 5"):
        GAOT(2, 1, 1, latent=5)
    with pytest.raises(ValueError, match="width: expected a multiple of heads=8, got 20"):
        GAOT(2, 1, 1, width=20)
