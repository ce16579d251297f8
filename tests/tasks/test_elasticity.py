import numpy as np
import pytest
import torch

from funcattn.data import Store
from funcattn.tasks.elasticity import Elasticity

SMOKE = Elasticity.defaults("smoke", "modern")


def test_points_go_in_and_their_stress_comes_out(store: Store) -> None:
    task = Elasticity(SMOKE)
    made = store.made(task.recipe(), 0, task.count)
    sample = task.splits(store).validation[1]
    row = range(SMOKE.data.train + 1, SMOKE.data.train + 2)
    np.testing.assert_array_equal(sample.positions, made.read("points", row)[0])
    np.testing.assert_array_equal(sample.target[:, 0], made.read("stress", row)[0])
    assert sample.positions.shape == (972, 2)
    assert sample.values is None
    assert sample.grid is None
    assert (sample.target > 0).all()


def test_every_sample_has_points_of_its_own(store: Store) -> None:
    train = Elasticity(SMOKE).splits(store).train
    assert not torch.equal(train[0].positions, train[1].positions)
    # No point lies in the void, which is at least 0.2 wide all round.
    for sample in train:
        assert ((sample.positions - 0.5).norm(dim=1) > 0.2).all()


def test_the_paper_starts_its_ridge_where_its_code_does() -> None:
    ridge = Elasticity.defaults("paper", "paper").network.ridge
    assert np.log(ridge / (1 - ridge)) == pytest.approx(1e-3, abs=1e-6)
