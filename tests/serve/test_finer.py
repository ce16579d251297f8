"""Predictions on grids finer than that of training."""

import shutil
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from funcattn import load
from funcattn.serve.bands import BANDS, SPREAD
from funcattn.serve.drawn import EDITORS
from funcattn.serve.drawn.base import Drawing
from funcattn.serve.familiar import FILE, Score, looked_at
from funcattn.serve.finer import CoarserGridWarning, judged, raised_to, said_alike
from funcattn.serve.model import BenchmarkModel
from funcattn.serve.predictor import Predictor, Told


def drawn(predictor: Predictor, refine: int, seed: int = 5) -> Drawing:
    """One input as in training, on a grid so many times as fine."""
    editor = EDITORS[predictor.task.name](asdict(predictor.task.settings.data))
    return editor.draw(editor.random(np.random.default_rng(seed)), refine)


def said(predictor: Predictor, drawing: Drawing) -> Any:
    return predictor.predict(drawing.positions, drawing.values, grid=drawing.grid)


@pytest.fixture(scope="module")
def airfoil() -> Predictor:
    """Whose network says Mach numbers on a finer grid that are off by more than they are large."""
    return load("airfoil")


def test_a_network_that_fails_on_a_finer_grid_is_found_out(airfoil: Predictor) -> None:
    drawing = drawn(airfoil, 2)
    batch, _ = airfoil.prepared(drawing.positions, drawing.values, grid=drawing.grid)
    assert airfoil.familiar is not None
    with torch.no_grad():
        look = looked_at(airfoil.task, airfoil.surrogate, batch)
    (fine,), (coarse,) = (airfoil.familiar.scores(seen) for seen in (look.seen, look.known_seen))
    assert coarse.worst < 1 < fine.worst


def test_then_the_prediction_is_that_on_the_grid_of_training(airfoil: Predictor) -> None:
    coarse, fine = drawn(airfoil, 1), drawn(airfoil, 2)
    wanted = said(airfoil, coarse).reshape(111, 26)
    with pytest.warns(CoarserGridWarning, match="111 x 26 points.*to 221 x 51; .*linear between"):
        found = said(airfoil, fine).reshape(221, 51)
    assert np.allclose(found[::2, ::2], wanted, atol=1e-5)
    assert np.allclose(found[1::2, ::2], (wanted[1:] + wanted[:-1]) / 2, atol=1e-5)
    told = airfoil.told(airfoil.prepared(fine.positions, fine.values, grid=fine.grid)[0])
    assert told.raised == (True,)
    assert told.scores is not None
    assert told.scores[0].worst < 1
    assert told.lower is not None
    assert bool((told.lower.reshape(221, 51) <= torch.from_numpy(found) + 1e-5).all())


def test_so_it_is_for_runs_that_were_not_calibrated(airfoil: Predictor, tmp_path: Path) -> None:
    assert airfoil.run is not None
    shutil.copytree(airfoil.run.folder, tmp_path / "run")
    for name in (FILE, BANDS, SPREAD):
        (tmp_path / "run" / name).unlink()
    plain, drawing = load(tmp_path / "run"), drawn(airfoil, 2)
    assert plain.familiar is None
    assert plain.calibrated is None
    with pytest.warns(CoarserGridWarning, match="does not carry over"):
        found = said(plain, drawing)
    with pytest.warns(CoarserGridWarning):
        assert np.array_equal(found, said(airfoil, drawing))
    assert np.array_equal(said(plain, drawn(airfoil, 1)), said(airfoil, drawn(airfoil, 1)))


def test_how_much_a_network_may_differ_from_itself(airfoil: Predictor) -> None:
    drawing = drawn(airfoil, 2)
    batch, _ = airfoil.prepared(drawing.positions, drawing.values, grid=drawing.grid)
    with torch.no_grad():
        look = looked_at(airfoil.task, airfoil.surrogate, batch)
        differs = float((look.met - look.known_said).norm() / look.known_said.norm())
        for usual, fails in ((differs / 3.9, False), (differs / 4.1, True), (None, False)):
            found = judged(airfoil.task, airfoil.surrogate, batch, usual, None)
            assert found.raised == [fails]
            assert torch.equal(found.said, look.said) is not fails
            assert found.scores is None


def test_where_nothing_is_to_be_compared_a_network_is_asked_once_and_not_watched(
    airfoil: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is watched stays in memory, which large meshes would feel."""
    monkeypatch.setattr("funcattn.serve.finer.looked_at", None)
    drawing = drawn(airfoil, 1)
    batch, _ = airfoil.prepared(drawing.positions, drawing.values, grid=drawing.grid)
    with torch.no_grad():
        found = judged(airfoil.task, airfoil.surrogate, batch, 0.0134, None)
    assert found.raised == [False]


def test_a_sample_says_the_same_in_a_batch_of_others(airfoil: Predictor) -> None:
    first, second = drawn(airfoil, 2), drawn(airfoil, 2, seed=6)
    together = np.stack([first.positions, second.positions])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = airfoil.predict(together, grid=first.grid)
        alone = said(airfoil, second)
    assert np.allclose(found[1], alone, atol=1e-5)
    assert sum(issubclass(each.category, CoarserGridWarning) for each in caught) == 2


def test_the_service_says_so_once(airfoil: Predictor) -> None:
    assert airfoil.run is not None
    model = BenchmarkModel("airfoil", airfoil.run)
    scores = (Score(0.5, 0.5),) * 2
    fields = torch.zeros(2, 1, 1)
    (words,) = model.warned(Told(fields, scores=scores, raised=(True, True)), (221, 51))
    assert "on the grid of training, linear between its points" in words
    assert model.warned(Told(fields, scores=scores, raised=(False, False)), (221, 51)) == []
    assert model.warned(Told(fields), (221, 51)) == []
    (_, second) = Told(fields, scores=scores, raised=(True, False)).split([1, 1])
    assert second.raised == (False,)


@pytest.mark.parametrize("task", ["darcy", "burgers", "pipe"])
def test_a_network_that_carries_over_is_asked_on_the_finer_grid(task: str) -> None:
    predictor = load(task)
    drawing = drawn(predictor, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CoarserGridWarning)
        found = said(predictor, drawing)
    batch, _ = predictor.prepared(drawing.positions, drawing.values, grid=drawing.grid)
    with torch.no_grad():
        direct = predictor.task.predict(predictor.surrogate, batch)
    assert np.array_equal(found, direct[0].numpy())


def test_other_networks_of_an_ensemble_are_asked_on_the_same_grid(airfoil: Predictor) -> None:
    drawing = drawn(airfoil, 2)
    batch, _ = airfoil.prepared(drawing.positions, drawing.values, grid=drawing.grid)
    assert airfoil.familiar is not None
    with torch.no_grad():
        first = judged(airfoil.task, airfoil.surrogate, batch, 0.0134, airfoil.familiar)
        again = said_alike(airfoil.task, airfoil.surrogate, batch, first.raised)
        direct = said_alike(airfoil.task, airfoil.surrogate, batch, [False])
    assert first.raised == [True]
    assert torch.equal(first.said, again)
    assert (direct - again).norm() > again.norm()


@pytest.mark.parametrize(
    ("coarse", "fine"), [((4, 5), (7, 9)), ((4, 5), (4, 12)), ((3,), (8,))], ids=str
)
def test_between_points_it_is_linear(coarse: tuple[int, ...], fine: tuple[int, ...]) -> None:
    lines = torch.stack(torch.meshgrid(*(torch.arange(n) for n in fine), indexing="ij"), -1)
    places = [
        torch.linspace(0, n - 1, m).add(0.5).floor().long()
        for n, m in zip(fine, coarse, strict=True)
    ]
    known = lines
    for axis, at in enumerate(places):
        known = known.index_select(axis, at)
    found = raised_to(known.float().flatten(0, -2)[None], coarse, fine, periodic=False)
    assert torch.allclose(found.view(lines.shape), lines.float(), atol=1e-5)


def test_on_a_circle_the_last_points_lie_before_the_first() -> None:
    found = raised_to(torch.tensor([[[0.0], [4.0], [2.0]]]), (3,), (6,), periodic=True)
    assert found.flatten().tolist() == [0.0, 2.0, 4.0, 3.0, 2.0, 1.0]
