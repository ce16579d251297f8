import numpy as np
import pytest
import torch

from funcattn.data import Store, collate
from funcattn.tasks.darcy_notch import DarcyNotch, DarcyNotchData

SMOKE = DarcyNotch.defaults("smoke", "modern")


def test_the_first_axis_is_x(store: Store) -> None:
    task = DarcyNotch(SMOKE)
    sample = task.splits(store).train[0]
    boundary = sample.values.reshape(sample.grid)
    assert (boundary == boundary[:, :1]).all()
    assert boundary[:, 0].std() > 0.05
    # On the bottom edge, which is part of the triangle, the pressure is the boundary value.
    x, bottom = sample.positions.reshape(*sample.grid, 2)[:, 0].T
    assert (bottom == 0).all()
    away = (x - 0.5).abs() > 0.06
    torch.testing.assert_close(
        sample.target.reshape(sample.grid)[away, 0], boundary[away, 0], rtol=0, atol=1e-5
    )


def test_the_error_inside_leaves_out_what_is_beyond_the_triangle(store: Store) -> None:
    task = DarcyNotch(SMOKE)
    splits = task.splits(store)
    batch = collate([splits.test[0]])
    x, y = batch.positions[0].T
    outside = y > np.sqrt(3) * torch.minimum(x, 1 - x) + 1e-3
    changed = batch.target + outside[None, :, None].float()
    found = task.metrics(changed, batch)
    assert found["relative_l2"] > 0.1
    assert found["relative_l2_inside"] == 0
    centre = ((x - 0.5).abs() < 1e-3) & ((y - 0.7).abs() < 1e-3)
    assert centre.sum() == 1
    changed = batch.target + centre[None, :, None].float()
    found = task.metrics(changed, batch)
    assert found["relative_l2_inside"] > found["relative_l2"] > 0


def test_the_papers_settings() -> None:
    settings = DarcyNotch.defaults("paper", "paper")
    how, data = settings.optimisation, settings.data
    assert (how.optimiser, how.rate, how.epochs, how.batch) == ("adamw", 1e-3, 500, 25)
    assert (data.train + data.validation, data.test, data.nodes, data.use_every) == (
        1900,
        100,
        101,
        2,
    )


@pytest.mark.parametrize("every", [0, 3, -1])
def test_a_grid_that_is_not_nested_is_refused(every: int) -> None:
    with pytest.raises(ValueError, match=f"use_every: expected a divisor .* = 100.*{every}"):
        DarcyNotchData(use_every=every)
