import numpy as np
import pytest
import torch

from funcattn.data import Sample, grid_positions
from funcattn.fitting.yardsticks import Yardsticks


def on_grid(count: int, seed: int) -> list[Sample]:
    """Samples whose output is a linear map of three random numbers in the input."""
    random = np.random.default_rng(seed)
    positions = grid_positions((6, 5))
    waves = torch.stack([torch.ones(30), positions[:, 0], positions.prod(1)], dim=1)
    mixing = torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.7, 4.0], [-1.0, 0.2, 0.1]])
    samples = []
    for _ in range(count):
        numbers = torch.from_numpy(random.normal(size=3)).float()
        values = (waves @ numbers)[:, None] * 1e3
        samples.append(Sample(positions, values, (waves @ mixing @ numbers)[:, None] * 1e-6))
    return samples


def on_clouds(count: int, seed: int) -> list[Sample]:
    """Points of different number, whose output is a parameter times a coordinate."""
    random = np.random.default_rng(seed)
    samples = []
    for _ in range(count):
        n = int(random.integers(300, 500))
        positions = torch.from_numpy(random.random((n, 2))).float() * 1000
        parameter = float(random.uniform(1, 2))
        target = parameter * positions[:, :1]
        samples.append(Sample(positions, torch.full((n, 1), parameter), target))
    return samples


def error(yardsticks: Yardsticks, samples: list[Sample], name: str) -> float:
    lost, all_of_it = 0.0, 0.0
    for sample in samples:
        lost += float((yardsticks.predictions(sample)[name] - sample.target).square().mean())
        all_of_it += float(sample.target.square().mean())
    return (lost / all_of_it) ** 0.5


def test_ridge_regression_finds_a_linear_map_between_fields() -> None:
    made = Yardsticks(on_grid(20, 0), on_grid(5, 1))
    assert error(made, on_grid(8, 2), "ridge regression") < 1e-4
    assert error(made, on_grid(8, 2), "nearest training sample") > 0.05


def test_the_mean_is_that_of_each_point() -> None:
    train = on_grid(20, 0)
    made = Yardsticks(train, on_grid(5, 1))
    expected = torch.stack([sample.target for sample in train]).mean(0)
    got = made.predictions(on_grid(1, 3)[0])["mean of training"]
    torch.testing.assert_close(got, expected)


def test_a_training_sample_is_its_own_nearest() -> None:
    train = on_grid(20, 0)
    made = Yardsticks(train, on_grid(5, 1))
    got = made.predictions(train[7])["nearest training sample"]
    torch.testing.assert_close(got, train[7].target)
    assert made.distance(train[7]) == 0


def test_point_sets_of_different_sizes_are_compared_too() -> None:
    made = Yardsticks(on_clouds(30, 0), on_clouds(5, 1))
    tests = on_clouds(6, 2)
    # The parameter varies by a third: all of the rest is interpolation.
    assert error(made, tests, "mean of training") > 0.1
    assert error(made, tests, "nearest training sample") < 0.1
    assert error(made, tests, "ridge regression") < 0.1


def test_missing_outputs_and_labels_are_taken() -> None:
    train = on_grid(12, 0)
    for sample in train:
        sample.target[3] = torch.nan
    made = Yardsticks(train, on_grid(4, 1))
    assert all(bool(p.isfinite().all()) for p in made.predictions(on_grid(1, 2)[0]).values())
    labelled = [Sample(s.positions, s.values, (s.target[:, 0] > 0).long()) for s in on_grid(25, 0)]
    made = Yardsticks(labelled[:20], labelled[20:], classes=2)
    scores = made.predictions(labelled[3])
    assert {name: p.shape for name, p in scores.items()} == dict.fromkeys(scores, (30, 2))
    assert torch.equal(scores["nearest training sample"].argmax(-1), labelled[3].target)


def test_geometry_alone_is_an_input() -> None:
    clouds = [Sample(s.positions, None, s.target) for s in on_clouds(12, 0)]
    made = Yardsticks(clouds[:8], clouds[8:])
    assert made.predictions(clouds[9])["ridge regression"].shape == clouds[9].target.shape


@pytest.mark.parametrize("far", [1.0, 40.0])
def test_an_input_unlike_all_of_training_is_far_away(far: float) -> None:
    made = Yardsticks(on_grid(40, 0), on_grid(5, 1))
    (other,) = on_grid(1, 9)
    assert other.values is not None
    other = Sample(other.positions, other.values * far, other.target)
    assert (made.distance(other) > made.typical_distance) == (far > 1)
