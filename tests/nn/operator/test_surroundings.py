"""The density around each point, beside its formula written out."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from funcattn.nn import Points
from funcattn.nn.operator import Surroundings
from funcattn.nn.operator.surroundings import interpolated

LOWER, UPPER = (-1.0, 2.0, 0.0), (1.0, 3.0, 1.5)
every_dimension = pytest.mark.parametrize("dims", [1, 2, 3])


def in_box(uniform: Any, dims: int, *shape: int) -> Tensor:
    lower, upper = (torch.tensor(corner[:dims]).double() for corner in (LOWER, UPPER))
    return lower + uniform(*shape, dims) * (upper - lower)


def layer_of(dims: int, *reaches: float) -> Surroundings:
    return Surroundings(dims, reaches=reaches, lower=LOWER[:dims], upper=UPPER[:dims])


def written_out(positions: Tensor, weights: Tensor, dims: int, reach: float) -> Tensor:
    """Of one cloud: every point with every node, and with every neighbour of that node."""
    spacing = 2.0 * reach
    sides = [UPPER[axis] - LOWER[axis] for axis in range(dims)]
    counts = [math.ceil(side / spacing - 1e-9) + 1 for side in sides]

    def hat(node: tuple[int, ...]) -> Tensor:
        value = torch.ones(len(positions)).double()
        for axis, place in enumerate(node):
            at = LOWER[axis] + spacing * place
            value = value * (1 - (positions[:, axis] - at).abs() / spacing).clamp(min=0)
        return value

    nodes = list(itertools.product(*(range(count) for count in counts)))
    mass = {node: (weights * hat(node)).sum() / weights.sum() for node in nodes}
    taps = {"mean": (0.25, 0.5, 0.25), "slope": (-0.5, 0.0, 0.5), "curve": (0.5, -1.0, 0.5)}
    kinds = [
        ["mean"] * dims,
        *(
            [change if axis == other else "mean" for other in range(dims)]
            for change in ("slope", "curve")
            for axis in range(dims)
        ),
        *(
            ["slope" if axis in pair else "mean" for axis in range(dims)]
            for pair in itertools.combinations(range(dims), 2)
        ),
    ]
    columns = []
    for kind in kinds:
        column = torch.zeros(len(positions)).double()
        for node in nodes:
            for step in itertools.product((-1, 0, 1), repeat=dims):
                other = tuple(a + b for a, b in zip(node, step, strict=True))
                tap = math.prod(taps[name][o + 1] for name, o in zip(kind, step, strict=True))
                column = column + tap * mass.get(other, 0.0) * hat(node)
        columns.append(column)
    even = math.prod(spacing / side for side in sides)
    density, *changes = columns
    return torch.stack([(density / even).log(), *(2 * c / density for c in changes)], dim=-1)


@every_dimension
def test_they_are_those_of_the_formula(
    dims: int, uniform: Any, assert_equal_to_rounding: Any
) -> None:
    positions, weights = in_box(uniform, dims, 2, 9), uniform(2, 9) + 0.1
    mask = uniform(2, 9) < 0.7
    reaches = (0.3, 0.25)
    features = layer_of(dims, *reaches)(Points(positions, None, mask, weights))
    for sample in range(2):
        real = mask[sample]
        wanted = [
            written_out(positions[sample, real], weights[sample, real], dims, reach)
            for reach in reaches
        ]
        assert_equal_to_rounding(features[sample, real], torch.cat(wanted, dim=-1))


@every_dimension
def test_gradients_are_those_of_differences(dims: int, uniform: Any) -> None:
    positions = in_box(uniform, dims, 2, 7).requires_grad_()
    weights = (uniform(2, 7) + 0.1).requires_grad_()
    layer = layer_of(dims, 0.3)

    def call(positions: Tensor, weights: Tensor) -> Tensor:
        return layer(Points(positions, weights=weights))

    assert torch.autograd.gradcheck(call, (positions, weights))


@pytest.mark.parametrize("points", [0, 7])
def test_without_gradients_the_nodes_are_read_in_one_pass(
    points: int, uniform: Any, assert_equal_to_rounding: Any
) -> None:
    at_nodes, hats = uniform(3, 11, 4), uniform(3, points, 8)
    index = (11 * uniform(3, points, 8)).long()
    picked = torch.stack([each[at] for each, at in zip(at_nodes, index, strict=True)])
    wanted = (hats.unsqueeze(-1) * picked).sum(2)  # of (b, n, corner, k)
    assert_equal_to_rounding(interpolated(at_nodes, index, hats), wanted)
    assert_equal_to_rounding(interpolated(at_nodes.requires_grad_(), index, hats), wanted)


def test_second_derivatives_are_those_of_differences(uniform: Any) -> None:
    positions = in_box(uniform, 2, 1, 4).requires_grad_()
    weights = (uniform(1, 4) + 0.1).requires_grad_()
    layer = layer_of(2, 0.3)
    assert torch.autograd.gradgradcheck(
        lambda x, w: layer(Points(x, weights=w)), (positions, weights)
    )


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_directions_can_be_carried_forward(uniform: Any, assert_equal_to_rounding: Any) -> None:
    positions, along = in_box(uniform, 2, 1, 6), uniform(1, 6, 2)
    layer = layer_of(2, 0.3)

    def call(positions: Tensor) -> Tensor:
        return layer(Points(positions))

    _, forward = torch.func.jvp(call, (positions,), (along,))
    _, backward = torch.autograd.functional.jvp(call, positions, along)
    assert_equal_to_rounding(forward, backward)


def test_of_a_cloud_in_parts_the_sums_are_added_and_any_points_read_them(
    uniform: Any, assert_equal_to_rounding: Any
) -> None:
    positions, weights = in_box(uniform, 2, 2, 40), uniform(2, 40)
    cloud = Points(positions, None, uniform(2, 40) < 0.7, weights)
    layer = layer_of(2, 0.1, 0.2)
    parts = [layer.moments(cloud.at(rows)) for rows in (slice(0, 13), slice(13, 40))]
    masses = layer.carried(parts[0] + parts[1])
    assert masses.shape == (2, layer.nodes)
    assert_equal_to_rounding(masses, layer.encode(cloud))
    assert_equal_to_rounding(layer(cloud.at(slice(5, 9)), masses), layer(cloud)[:, 5:9])
    # Further points read what points of no weight would in the cloud.
    more = in_box(uniform, 2, 2, 7)
    together = Points(
        torch.cat([positions, more], 1),
        None,
        torch.cat([cloud.mask, torch.ones(2, 7).bool()], 1),
        torch.cat([weights, torch.zeros(2, 7)], 1),
    )
    assert_equal_to_rounding(layer(Points(more), masses), layer(together)[:, 40:])


def test_many_points_at_one_node_are_counted_in_short_precision() -> None:
    place = torch.tensor([0.25, 0.5], dtype=torch.bfloat16)
    positions = torch.cat([place.expand(1, 3000, 2), place.flip(0).expand(1, 1000, 2)], dim=1)
    layer = Surroundings(2, reaches=(1 / 4,))
    found = layer.encode(Points(positions)).unflatten(1, (5, 5))
    assert (found[0, 1, 2], found[0, 2, 1]) == (0.75, 0.25)


def test_a_cloud_without_a_point_that_counts_is_refused(uniform: Any) -> None:
    positions, layer = in_box(uniform, 2, 2, 5), layer_of(2, 0.2)
    mask = torch.tensor([[True], [False]]).expand(2, 5)
    with pytest.raises(ValueError, match=r"mask: every point is masked in row \[1\]"):
        layer(Points(positions, None, mask))
    with pytest.raises(ValueError, match="weights: expected a positive one in every row"):
        layer.encode(Points(positions, weights=torch.zeros(2, 5).double()))


def test_permuting_the_points_permutes_them(uniform: Any, assert_equal_to_rounding: Any) -> None:
    positions, order = in_box(uniform, 2, 1, 50), torch.randperm(50)
    layer = layer_of(2, 0.1, 0.2)
    assert_equal_to_rounding(layer(Points(positions[:, order])), layer(Points(positions))[:, order])


def test_samples_of_different_sizes_share_a_batch(
    uniform: Any, assert_equal_to_rounding: Any
) -> None:
    positions, weights = in_box(uniform, 2, 2, 40), uniform(2, 40)
    mask = torch.arange(40) < torch.tensor([[40], [25]])
    layer = layer_of(2, 0.1, 0.2)
    together = layer(Points(positions, None, mask, weights))
    assert together.isfinite().all()
    alone = layer(Points(positions[1:, :25], weights=weights[1:, :25]))
    assert_equal_to_rounding(together[1:, :25], alone)


def test_weights_count_as_so_many_points(uniform: Any, assert_equal_to_rounding: Any) -> None:
    positions = in_box(uniform, 2, 1, 12)
    twice = torch.cat([positions, positions[:, :5]], dim=1)
    weights = torch.cat([torch.full((5,), 2.0), torch.ones(7)])[None].double()
    layer = layer_of(2, 0.2)
    assert_equal_to_rounding(
        layer(Points(positions, weights=weights)), layer(Points(twice))[:, :12]
    )


def test_they_converge_when_the_points_are_refined() -> None:
    layer = Surroundings(2, reaches=(1 / 8,))
    probes = torch.tensor([[0.03, 0.5], [0.31, 0.52], [0.5, 0.98]]).double()

    def at_probes(n: int) -> Tensor:
        axis = (torch.arange(n).double() + 0.5) / n
        positions = torch.cat([probes, torch.cartesian_prod(axis, axis)])
        weights = torch.cat([torch.zeros(3), torch.ones(n * n)]).double()
        return layer(Points(positions[None], weights=weights[None]))[0, :3]

    exact = at_probes(800)

    def worst(n: int) -> float:
        # Where points and lattice happen to fit together the sums are exact.
        return max((at_probes(n + i) - exact).abs().max().item() for i in range(4))

    errors = [worst(n) for n in (25, 50, 100)]
    assert errors[1] < errors[0] / 3
    assert errors[2] < errors[1] / 3


def test_a_point_knows_whether_it_is_at_a_boundary_and_which_way_it_faces() -> None:
    axis = (torch.arange(80).double() + 0.5) / 80
    cloud = torch.cartesian_prod(axis, axis)
    hole = (cloud - 0.5).norm(dim=1)
    cloud = cloud[hole > 0.2]
    features = Surroundings(2, reaches=(1 / 32,))(Points(cloud[None]))[0]
    away = cloud - 0.5
    distance = away.norm(dim=1)
    rim = distance < 0.21
    inside = (distance > 0.3) & (away.abs().amax(1) < 0.38)
    slopes = features[:, 1:3]
    normal = away / distance[:, None]
    assert ((slopes * normal).sum(1) / slopes.norm(dim=1))[rim].min() > 0.9
    assert slopes[rim].norm(dim=1).min() > 5 * slopes[inside].norm(dim=1).max()
    assert features[rim, 0].max() < features[inside, 0].min()


def test_points_that_fill_the_box_evenly_have_density_one() -> None:
    axis = (torch.arange(64).double() + 0.5) / 64
    cloud = torch.cartesian_prod(axis, axis)
    features = Surroundings(2, reaches=(1 / 16,))(Points(cloud[None]))[0]
    inside = ((cloud - 0.5).abs() < 0.3).all(1)
    torch.testing.assert_close(
        features[inside], torch.zeros_like(features[inside]), rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_they_are_finite_and_keep_the_precision(dtype: torch.dtype) -> None:
    # One point alone, several at one place, and some outside the box, one of weight 0.
    layer = Surroundings(2, reaches=(1 / 32, 1 / 4))
    positions = torch.tensor([[[0.5, 0.5]] * 3 + [[9.0, -9.0], [0.0, 1.0]]], dtype=dtype)
    weights = torch.tensor([[1.0, 1.0, 1.0, 0.0, 1.0]], dtype=dtype)
    for points in (Points(positions[:, :1]), Points(positions, weights=weights)):
        features = layer(points)
        assert features.dtype == dtype
        assert features.isfinite().all()
        assert features.abs().max() < 20


@pytest.mark.parametrize("reaches", [(), (0.0,), (0.5, 1.5), (-0.1,)], ids=str)
def test_reaches_are_fractions_of_the_box(reaches: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="reaches: expected fractions of the longest side"):
        Surroundings(2, reaches=reaches)


def test_positions_are_needed() -> None:
    with pytest.raises(ValueError, match="positions: expected those of the points, got none"):
        Surroundings(2, reaches=(0.1,))(Points())
