"""Saved, killed and continued, started from another run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.surrogate.conftest import quick, waves

import funcattn
from funcattn.fitting.sizing import seconds_per_epoch
from funcattn.models import NormalisedNetwork
from funcattn.tasks import Task
from funcattn.tasks.own import Own
from funcattn.training.checkpoint import CheckpointError
from funcattn.training.setup import build_network

# Of a dozen cases, some lie outside of what the others show.
pytestmark = pytest.mark.filterwarnings("ignore::funcattn.surrogate.OutsideTrainingWarning")


def test_a_saved_surrogate_predicts_without_its_data(
    random: np.random.Generator, tmp_path: Path
) -> None:
    inputs, outputs = waves(random, 12, 6, 5)
    fitted = quick().fit(inputs, outputs)
    expected = fitted.predict(inputs[:2])
    fitted.save(tmp_path / "mine")
    del fitted
    loaded = funcattn.load(tmp_path / "mine")
    np.testing.assert_array_equal(loaded.predict(inputs[:2]), expected)
    assert "test error" in repr(loaded)
    assert not list((tmp_path / "mine" / "checkpoints").glob("step-*"))
    with pytest.raises(ValueError, match="expected a folder that is not there yet"):
        loaded.save(tmp_path / "mine")
    with pytest.raises(ValueError, match="fitted to arrays"):
        loaded.report(tmp_path / "report.html")


class Killed(Exception):  # noqa: N818
    """In the place of a kill."""


def test_a_killed_fit_goes_on_as_if_nothing_had_happened(
    random: np.random.Generator, tmp_path: Path
) -> None:
    inputs, outputs = waves(random, 12, 6, 5)
    whole = quick(epochs=4, folder=tmp_path / "whole").fit(inputs, outputs)

    def kill(state: Any, steps: int) -> None:  # noqa: ARG001
        if state.epoch == 2 and state.step == 1:
            raise Killed

    with pytest.raises(Killed):
        quick(epochs=4, folder=tmp_path / "cut").fit(inputs, outputs, on_step=kill)
    resumed = quick(epochs=4, folder=tmp_path / "cut").fit(inputs, outputs)
    assert resumed.run.record["test"] == whole.run.record["test"]
    np.testing.assert_array_equal(resumed.predict(inputs), whole.predict(inputs))
    done = tmp_path / "cut" / "record.json"
    done.unlink()
    with pytest.raises(CheckpointError, match="the data changed since the run began"):
        quick(epochs=4, folder=tmp_path / "cut").fit(inputs, outputs[::-1].copy())


def test_other_cases_are_refused_in_the_folder_of_a_run(
    random: np.random.Generator, tmp_path: Path
) -> None:
    inputs, outputs = waves(random, 12, 6, 5)
    quick(folder=tmp_path / "run").fit(inputs, outputs)
    with pytest.raises(ValueError, match="expected the cases and fields of the run"):
        quick(folder=tmp_path / "run").fit(inputs[:10], outputs[:10])


def test_a_warm_start_begins_with_the_weights_of_another_run(
    random: np.random.Generator, tmp_path: Path
) -> None:
    inputs, outputs = waves(random, 12, 6, 5)
    first = quick(epochs=20, folder=tmp_path / "first").fit(inputs, outputs)
    cold = quick(epochs=1).fit(inputs, outputs)
    warm = quick(epochs=1, warm_start=tmp_path / "first").fit(inputs, outputs)
    assert warm.run.record["validation"] < cold.run.record["validation"]
    assert warm.run.record["validation"] < 1.5 * first.run.record["validation"]
    other = quick(model="funcattn", warm_start=tmp_path / "first")
    with pytest.raises(ValueError, match="expected a run of funcattn, got one of functional_op"):
        other.fit(inputs, outputs)


def test_training_ends_when_patience_does(random: np.random.Generator) -> None:
    inputs, _ = waves(random, 12, 6, 5)
    noise = random.normal(size=inputs.shape)  # nothing to learn
    fitted = quick(epochs=60, patience=3, batch=1).fit(inputs, noise)
    record = fitted.run.record
    assert record["epochs"] < 60
    assert record["epochs"] == record["best_epoch"] + 3


def test_measuring_a_step_trains_nothing(
    random: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Full rates at once could drive the network that is measured beyond all numbers."""
    inputs, outputs = waves(random, 12, 6, 5)
    fitted = quick(epochs=1).fit(inputs, outputs)
    built: list[torch.nn.Module] = []

    def kept(task: Task) -> NormalisedNetwork:
        built.append(build_network(task))
        return built[-1]

    monkeypatch.setattr("funcattn.fitting.sizing.build_network", kept)
    settings = fitted.run.settings
    assert seconds_per_epoch(settings, fitted.splits()) > 0
    (measured,) = built
    again = build_network(Own(settings, fitted.splits()))
    for one, other in zip(measured.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
