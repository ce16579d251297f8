import numpy as np
import pytest
import torch

from funcattn.data import Store
from funcattn.tasks.pipe import Pipe, PipeData

SMOKE = Pipe.defaults("smoke", "modern")


def test_places_go_in_and_the_velocity_along_x_comes_out(store: Store) -> None:
    task = Pipe(SMOKE)
    made = store.made(task.recipe(), 0, task.count)
    sample = task.splits(store).train[2]
    assert sample.grid == (9, 9)
    for channel, name in enumerate("xy"):
        np.testing.assert_array_equal(
            sample.values[:, channel].reshape(9, 9), made.read(name, range(2, 3))[0]
        )
    flow = made.read("flow", range(2, 3))[0]
    np.testing.assert_array_equal(sample.target[:, 0].reshape(9, 9), flow[0])
    # At the inlet t (1 - t), at rest along the walls.
    t = torch.linspace(0, 1, 9)
    torch.testing.assert_close(sample.target.reshape(9, 9)[0], t * (1 - t))
    assert sample.target.reshape(9, 9)[:, [0, -1]].abs().max() == 0


def test_pictures_show_the_channel_and_not_the_unit_square(store: Store) -> None:
    task = Pipe(SMOKE)
    sample = task.splits(store).train[0]
    place = task.drawn_at(sample)
    assert place[:, 0].max() == 10
    assert sample.positions.max() == 1
    width = place[:, 1].reshape(9, 9)[:, -1] - place[:, 1].reshape(9, 9)[:, 0]
    torch.testing.assert_close(width, torch.ones(9))


def test_a_stride_that_misses_a_wall_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"use_every: expected a divisor of nodes - 1 = 128.*got 3"
    ):
        PipeData(use_every=3)
