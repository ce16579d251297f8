import numpy as np
import pytest
import torch

from funcattn.data import Store, collate
from funcattn.serve import Predictor
from funcattn.tasks.plasticity import Plasticity, PlasticityData
from funcattn.training.setup import build_network

SMOKE = Plasticity.defaults("smoke", "modern")
GRID = (11, 4)


def test_the_die_goes_in_above_its_column_and_the_motion_comes_out(store: Store) -> None:
    task = Plasticity(SMOKE)
    made = store.made(task.recipe(), 0, task.count)
    sample = task.splits(store).train[1]
    assert sample.grid == GRID
    die = made.read("die", range(1, 2))[0]
    np.testing.assert_array_equal(sample.values.reshape(GRID), np.repeat(die[:, None], 4, axis=1))
    motion = made.read("motion", range(1, 2))[0]
    np.testing.assert_array_equal(sample.target.reshape(*GRID, 20, 4), motion)
    # The first frame is the material grid: the first axis along the block, the second downwards.
    first = sample.target.reshape(*GRID, 20, 4)[:, :, 0]
    torch.testing.assert_close(first[:, 0, 0], torch.linspace(0, 50, 11))
    torch.testing.assert_close(first[0, :, 1], torch.linspace(15, 0, 4), atol=1e-5, rtol=0)
    # Nothing is above the die, which has sunk by 5.7 mm at the last frame.
    last = sample.target.reshape(*GRID, 20, 4)[:, 0, -1, 1]
    assert (last <= die.max() - 5.7 + 1e-3).all()


def test_training_sees_one_time_of_a_sample_and_evaluation_sees_all(store: Store) -> None:
    task = Plasticity(SMOKE)
    sample = task.splits(store).train[0]
    seen = set()
    for seed in range(200):
        one = task.augmented(sample, torch.Generator().manual_seed(seed))
        frame = round(float(one.times) * 19)
        seen.add(frame)
        torch.testing.assert_close(one.target, sample.target[:, frame : frame + 1])
        torch.testing.assert_close(one.values, sample.values)
    assert seen == set(range(20))
    assert sample.times is None
    assert task.visits == 2
    assert Plasticity.defaults("paper", "paper").data.visits == 20


def test_a_predictor_gives_the_motion_at_all_times(store: Store) -> None:
    task = Plasticity(SMOKE)
    splits = task.splits(store)
    surrogate = build_network(task)
    surrogate.fit(
        [s.positions for s in splits.train[:]],
        [s.values for s in splits.train[:]],
        [s.target for s in splits.train[:]],
    )
    sample = splits.test[0]
    predicted = Predictor(task, surrogate).predict(
        sample.positions, sample.values, grid=GRID, weights=sample.weights
    )
    assert predicted.shape == (44, 20, 4)
    one = task.augmented(sample, torch.Generator().manual_seed(3))
    with torch.no_grad():
        alone = task.predict(surrogate.eval(), collate([one]))[0]
    torch.testing.assert_close(predicted[:, round(float(one.times) * 19)], alone[:, 0])


def test_places_hide_errors_that_displacements_show(store: Store) -> None:
    task = Plasticity(SMOKE)
    batch = collate([task.splits(store).test[0]])
    still = batch.target.clone()
    still[..., :2] -= still[..., 2:]
    still[..., 2:] = 0
    found = task.metrics(still, batch)
    assert found["relative_l2_displacement"].item() == pytest.approx(1)
    assert found["relative_l2"].item() < 0.2


@pytest.mark.parametrize(("name", "value"), [("coarsening", 3), ("coarsening", 0), ("visits", 0)])
def test_impossible_settings_are_refused(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        PlasticityData(**{name: value})
