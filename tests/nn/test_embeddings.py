import itertools
import math

import pytest
import torch
from torch import nn

from funcattn.nn import LatticeDistances, RawPositions, TimeEmbedding


def lattice_nodes(
    per_axis: int, lower: tuple[float, ...], upper: tuple[float, ...]
) -> list[tuple[float, ...]]:
    """The nodes one by one, the first axis slowest."""
    axes = [
        [a + (b - a) * i / (per_axis - 1) for i in range(per_axis)]
        for a, b in zip(lower, upper, strict=True)
    ]
    return list(itertools.product(*axes))


def lively(module: TimeEmbedding) -> TimeEmbedding:
    """In float64, with parameters of order one, so that nothing hides in small numbers."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for parameter in module.double().parameters():
            nn.init.normal_(parameter)
    return module


def test_raw_positions_are_the_coordinates(generator: torch.Generator) -> None:
    encoding, positions = RawPositions(3), torch.rand(2, 5, 3, generator=generator)
    assert encoding.channels == 3
    assert torch.equal(encoding(positions), positions)


@pytest.mark.parametrize(
    ("per_axis", "lower", "upper"),
    [
        (5, (0.0,), (1.0,)),
        (8, (0.0, 0.0), (1.0, 1.0)),
        (4, (-1.0, 0.1), (2.0, 0.7)),
        (3, (0.0, -2.0, 0.3), (1.0, 2.0, 0.9)),
    ],
    ids=["line", "unit square", "rectangle", "box"],
)
def test_lattice_distances_are_the_distances_to_the_nodes_of_the_box(
    per_axis: int,
    lower: tuple[float, ...],
    upper: tuple[float, ...],
    generator: torch.Generator,
) -> None:
    encoding = LatticeDistances(len(lower), per_axis=per_axis, lower=lower, upper=upper).double()
    positions = torch.rand(2, 6, len(lower), dtype=torch.float64, generator=generator)
    nodes = lattice_nodes(per_axis, lower, upper)
    expected = torch.tensor(
        [[[math.dist(p, node) for node in nodes] for p in sample] for sample in positions.tolist()],
        dtype=torch.float64,
    )
    assert encoding.channels == per_axis ** len(lower)
    torch.testing.assert_close(encoding(positions), expected, rtol=0, atol=1e-14)


def test_the_lattice_is_on_the_unit_box_by_default(generator: torch.Generator) -> None:
    positions = torch.rand(1, 9, 2, dtype=torch.float64, generator=generator)
    told = LatticeDistances(2, per_axis=8, lower=0.0, upper=(1.0, 1.0))
    assert torch.equal(LatticeDistances(2)(positions), told(positions))


def test_a_small_distance_keeps_its_digits() -> None:
    close = torch.tensor([[[1 - 2.0**-30]]], dtype=torch.float64)
    assert LatticeDistances(1, per_axis=2)(close)[0, 0, 1].item() == 2.0**-30


def test_distances_of_bfloat16_positions_are_as_good_as_their_digits(
    generator: torch.Generator,
) -> None:
    positions = torch.rand(2, 9, 2, generator=generator).bfloat16()
    distances = LatticeDistances(2)(positions)
    assert distances.dtype == torch.bfloat16
    exact = LatticeDistances(2)(positions.double())
    torch.testing.assert_close(distances.double(), exact, rtol=0.01, atol=0.01)


def test_gradients_of_the_distances_are_unit_vectors_and_finite_on_a_node() -> None:
    positions = torch.tensor([[[0.0, 1.0], [0.75, 0.5]]], dtype=torch.float64, requires_grad=True)
    distances = LatticeDistances(2, per_axis=2)(positions)  # nodes 00, 01, 10, 11
    on_a_node = torch.autograd.grad(distances[0, 0, 1], positions, retain_graph=True)[0]
    elsewhere = torch.autograd.grad(distances[0, 1, 2], positions)[0]
    assert torch.equal(on_a_node, torch.zeros_like(positions))
    unit = torch.tensor([-0.25, 0.5], dtype=torch.float64) / math.hypot(0.25, 0.5)
    torch.testing.assert_close(elsewhere[0, 1], unit)


@pytest.mark.parametrize("width", [6, 7])
def test_time_embedding_is_a_small_network_of_cosines_and_sines(width: int) -> None:
    embedding = lively(TimeEmbedding(width, longest_period=100.0))
    times = [0.0, 0.3, 17.0]
    rates = [100.0 ** (-i / 3) for i in range(3)]
    waves = torch.tensor(
        [
            [math.cos(t * r) for r in rates]
            + [math.sin(t * r) for r in rates]
            + [0.0] * (width - 6)  # an odd width has a channel left
            for t in times
        ],
        dtype=torch.float64,
    )
    hidden = waves @ embedding.expand.weight.T + embedding.expand.bias
    hidden = hidden / (1 + torch.exp(-hidden))
    expected = hidden @ embedding.contract.weight.T + embedding.contract.bias
    torch.testing.assert_close(embedding(torch.tensor(times, dtype=torch.float64)), expected)


def test_time_embedding_can_be_differentiated_in_time() -> None:
    embedding = lively(TimeEmbedding(5))
    time = torch.tensor([0.2, 3.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(embedding, (time,))
