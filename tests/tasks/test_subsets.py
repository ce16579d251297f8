import pytest
import torch

from funcattn.tasks.subsets import coarser_grid, farthest_points, random_points


@pytest.mark.parametrize("grid", [(50,), (31, 20), (9, 8, 7), (3, 400)], ids=str)
def test_a_coarser_grid_is_evenly_spaced_and_starts_anywhere(grid: tuple[int, ...]) -> None:
    random = torch.Generator().manual_seed(0)
    starts = set()
    for _ in range(20):
        places, coarse = coarser_grid(grid, 40, random)
        assert len(places) == len(set(places.tolist())) == torch.tensor(coarse).prod() <= 40
        along = torch.stack(torch.unravel_index(places, grid)).reshape(len(grid), *coarse)
        for axis, indices in enumerate(along):
            line = indices.movedim(axis, 0).reshape(coarse[axis], -1)
            assert (line == line[:, :1]).all()  # the same along the other axes
            assert len(line[:, 0].diff().unique()) <= 1
        starts.add(int(places[0]))
    assert len(starts) > 1


def test_random_points_are_some_of_all_and_each_once() -> None:
    places = random_points(50, 20, torch.Generator().manual_seed(0))
    assert len(set(places.tolist())) == 20
    assert 0 <= int(places.min()) <= int(places.max()) < 50


def test_farthest_points_reach_thin_regions_and_keep_apart() -> None:
    random = torch.Generator().manual_seed(0)
    dense = 0.01 * torch.rand(990, 2, generator=random)
    thin = torch.rand(10, 2, generator=random) + 1
    positions = torch.cat([dense, thin])
    places, weights = farthest_points(positions, 250, random)
    assert set(range(990, 1000)) <= set(places.tolist())
    assert len(set(places.tolist())) == 250
    # What stands in the thin region stands for itself, and nothing is lost.
    assert weights[places >= 990].tolist() == [1.0] * 10
    assert float(weights.sum()) == 1000


def test_sums_with_the_weights_approximate_integrals() -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.rand(4000, 1, generator=random) ** 3  # dense near 0
    weights = 3 * x[:, 0] ** (2 / 3)  # the density's inverse, so that sums are integrals over 0..1
    places, mass = farthest_points(x, 1000, random, weights)
    mean = float((mass * x[places, 0]).sum() / mass.sum())
    assert abs(mean - 0.5) < 0.01
    unweighted = float(x[places, 0].mean())
    assert abs(unweighted - 0.5) > 0.02
