"""What is kept of training samples, and what inputs on finer grids are compared with it."""

import math
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests.serve.conftest import untrained_run

from funcattn import load
from funcattn.data import Batch, grid_positions, trapezoid_weights
from funcattn.serve.drawn import EDITORS
from funcattn.serve.familiar import FILE, Familiarity, read_familiarity, thinned
from funcattn.training.run import Run


def test_the_order_of_layers_in_a_file_changes_nothing(tmp_path: Path) -> None:
    folder = untrained_run("darcy", tmp_path / "darcy")
    torch.manual_seed(0)
    names = ("input", "blocks.0.branches.0", "blocks.0", "output")  # a file has them sorted
    found = {name: torch.randn(7, 3) for name in names}
    made = Familiarity(
        {name: torch.randn(3).double() for name in names},
        {name: torch.randn(3, 3).double() for name in names},
        torch.zeros(1, 1),
        torch.ones(2).double(),
        7,
    )
    made = Familiarity(made.means, made.whitenings, made.placed(found), made.limits, made.held)
    save_file(made.tensors(), folder / FILE)
    again = read_familiarity(Run(folder))
    assert again is not None
    for before, after in zip(made.scores(found), again.scores(found), strict=True):
        assert after.nearest == pytest.approx(0.0, abs=1e-4)  # each is one of those that were seen
        assert after == pytest.approx(before, abs=1e-4)


@pytest.mark.parametrize("task", ["darcy", "burgers", "pipe"])
@pytest.mark.parametrize("refine", [2, 4])
def test_a_finer_grid_makes_no_input_unlike_training(task: str, refine: int) -> None:
    coarse, fine = _scores(task, 1), _scores(task, refine)
    assert coarse < 1
    assert fine == pytest.approx(coarse, rel=0.05)


def _scores(task: str, refine: int) -> float:
    """Of one input as in training, on a grid so many times as fine."""
    predictor = load(task)
    editor = EDITORS[task](asdict(predictor.task.settings.data))
    drawing = editor.draw(editor.random(np.random.default_rng(5)), refine)
    (score,) = predictor.familiarity(drawing.positions, drawing.values, grid=drawing.grid)
    return score.worst


def _batch(grid: tuple[int, ...], *, periodic: bool = False) -> Batch:
    places = grid_positions(grid, periodic=periodic)[None]
    weights = trapezoid_weights(grid, periodic=periodic)[None]
    return Batch(places, places.square(), torch.zeros(1, math.prod(grid), 1), grid, weights)


@pytest.mark.parametrize("periodic", [False, True], ids=["interval", "circle"])
def test_points_of_a_nested_grid_are_met(periodic: bool) -> None:
    fine, coarse = ((12, 8), (4, 4)) if periodic else ((13, 7), (4, 3))
    found, wanted = (
        thinned(_batch(fine, periodic=periodic), coarse, periodic=periodic),
        _batch(coarse, periodic=periodic),
    )
    assert found.grid == coarse
    for name in ("positions", "values", "target", "weights"):
        torch.testing.assert_close(getattr(found, name), getattr(wanted, name))


def test_points_of_other_grids_are_nearest_and_keep_their_ends() -> None:
    found = thinned(_batch((10, 3)), (4, 5), periodic=False)
    assert found.grid == (4, 3)  # an axis that is not finer stays
    np.testing.assert_allclose(found.positions[0, ::3, 0], np.array([0, 3, 6, 9]) / 9, rtol=1e-6)
    found = thinned(_batch((9,)), (4,), periodic=False)
    np.testing.assert_allclose(found.positions[0, :, 0], np.array([0, 3, 5, 8]) / 8, rtol=1e-6)


@pytest.mark.parametrize("grid", [None, (5, 4), (6, 9)], ids=["none", "the same", "finer"])
def test_other_batches_stay(grid: tuple[int, ...] | None) -> None:
    batch = _batch((5, 4))
    assert thinned(batch, grid, periodic=False) is batch


def test_what_is_masked_does_not_count_and_something_real_is_left() -> None:
    batch = _batch((7, 7))
    mask = torch.ones(1, 49, dtype=torch.bool)
    mask[0, 40:] = False
    assert batch.weights is not None
    weights = batch.weights.masked_fill(~mask, torch.nan)
    found = thinned(replace(batch, mask=mask, weights=weights), (4, 4), periodic=False)
    assert found.mask is not None
    assert found.weights is not None
    total = batch.weights[mask].sum()
    torch.testing.assert_close(found.weights[found.mask].sum(), total)
    lonely = replace(batch, mask=torch.arange(49)[None] == 1)  # between points of the coarse grid
    assert thinned(lonely, (4, 4), periodic=False) is lonely
