import numpy as np
import pytest
import torch

from funcattn.data import Store
from funcattn.tasks.airfoil import Airfoil, AirfoilData

SMOKE = Airfoil.defaults("smoke", "modern")


def test_points_of_the_grid_go_in_and_the_mach_number_comes_out(store: Store) -> None:
    task = Airfoil(SMOKE)
    made = store.made(task.recipe(), 0, task.count)
    sample = task.splits(store).train[1]
    assert sample.grid == (23, 6)
    assert sample.values is None
    x, y = (made.read(name, range(1, 2))[0] for name in ("x", "y"))
    np.testing.assert_array_equal(sample.positions[:, 0].reshape(23, 6), x)
    np.testing.assert_array_equal(sample.positions[:, 1].reshape(23, 6), y)
    density, u, v, pressure, mach = made.read("flow", range(1, 2))[0]
    np.testing.assert_array_equal(sample.target[:, 0].reshape(23, 6), mach)
    # Mach number is speed over that of sound.
    sound = np.sqrt(1.4 * pressure / density)
    np.testing.assert_allclose(mach, np.hypot(u, v) / sound, rtol=1e-5)


def test_stencils_reach_one_cell_along_both_axes() -> None:
    for profile in ("paper", "cpu", "smoke"):
        settings = Airfoil.defaults(profile, "modern")
        step = settings.data.use_every * settings.data.coarsening
        assert settings.network.reach == (step / 220, step / 50)


def test_both_sides_of_the_wake_are_at_one_place(store: Store) -> None:
    positions = Airfoil(SMOKE).splits(store).train[0].positions.reshape(23, 6, 2)
    torch.testing.assert_close(positions[0, 0], positions[-1, 0])


@pytest.mark.parametrize(("every", "coarsening"), [(3, 1), (0, 1), (2, 2), (1, 10), (-1, -1)])
def test_grids_that_are_not_nested_are_refused(every: int, coarsening: int) -> None:
    with pytest.raises(ValueError, match=r"use_every times coarsening: expected 1, 2, 5 or 10"):
        AirfoilData(use_every=every, coarsening=coarsening)
