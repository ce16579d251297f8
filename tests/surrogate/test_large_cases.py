"""Steps that see a part of the points, and predictions in chunks."""

from typing import Literal

import numpy as np
import pytest
import torch
from tests.surrogate.conftest import clouds, quick, triangles

from funcattn.fitting import fitted as module

# Of a dozen cases, some lie outside of what the others show.
pytestmark = pytest.mark.filterwarnings("ignore::funcattn.surrogate.OutsideTrainingWarning")


@pytest.mark.parametrize("by", ["random", "farthest"])
def test_steps_see_some_points_and_predictions_all(
    random: np.random.Generator, by: Literal["random", "farthest"]
) -> None:
    positions = clouds(random, 12)
    outputs = [p[:, 0] for p in positions]
    fitted = quick(points=7, points_by=by).fit(None, outputs, positions=positions)
    sample = fitted.splits().train[0]
    seen = fitted.task.augmented(sample, torch.Generator().manual_seed(0))
    assert len(seen.positions) == 7
    assert len(fitted.predict(positions=positions[:1])[0]) == len(positions[0])


@pytest.mark.parametrize(("by", "looks"), [("random", "auto"), ("farthest", None)])
def test_the_density_of_points_that_keep_apart_is_not_looked_at(
    random: np.random.Generator, by: Literal["random", "farthest"], looks: str | None
) -> None:
    positions = clouds(random, 12)
    asked = quick(model="functional_operator", points=7, points_by=by)
    fitted = asked.fit(None, [p[:, 0] for p in positions], positions=positions)
    assert fitted.run.settings.network.surroundings == looks  # type: ignore[attr-defined]


@pytest.mark.parametrize("model", ["funcattn", "functional_operator"])
@pytest.mark.parametrize("shape", [(12,), (6, 5), (4, 3, 5)], ids=str)
def test_both_networks_take_grids_of_which_steps_see_a_part(
    random: np.random.Generator, model: str, shape: tuple[int, ...]
) -> None:
    fields = random.normal(size=(12, *shape))
    fitted = quick(model=model, points=15).fit(fields, fields, grid=shape)
    sample = fitted.splits().train[0]
    seen = fitted.task.augmented(sample, torch.Generator().manual_seed(0))
    assert seen.grid is not None
    assert len(seen.positions) == np.prod(seen.grid) <= 15
    assert fitted.predict(fields[:2], grid=shape).shape == (2, *shape)


@pytest.mark.parametrize("time", ["steps", "times"])
def test_the_other_network_takes_clouds_and_series(
    random: np.random.Generator, time: Literal["steps", "times"]
) -> None:
    positions = clouds(random, 12)
    series = [random.normal(size=(len(p), 4)) for p in positions]
    fitted = quick(model="functional_operator", time=time)
    fitted.fit(None, series, positions=positions, times=np.arange(4.0))
    assert fitted.run.finished


def test_streamed_predictions_are_the_same(
    random: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = triangles(random, 12)
    fitted = quick().fit(cases, "stress", inputs=["load", "rim"])
    expected = fitted.predict(cases[0])["stress"]
    monkeypatch.setattr(module, "STREAMED", 10)
    np.testing.assert_allclose(fitted.predict(cases[0])["stress"], expected, rtol=1e-3)
