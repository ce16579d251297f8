"""A training that diverges begins again, slower."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from funcattn.data import Batch
from funcattn.fitting.steadying import TRIES, DivergedWarning, trained_steadily
from funcattn.settings import RunSettings
from funcattn.surrogate import Surrogate
from funcattn.tasks.own import Own
from funcattn.training.loop import NonFiniteLossError
from funcattn.training.run import Run
from funcattn.training.settings import default_settings


def rates(settings: RunSettings) -> tuple[float, float]:
    return settings.optimisation.rate, settings.optimisation.muon_rate


def test_each_attempt_has_half_the_rates_and_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    first = default_settings("darcy", "smoke", "modern", "functional_operator")
    tried: list[tuple[float, float]] = []

    def attempt(settings: RunSettings, resume: bool) -> Run:
        assert resume is (not tried)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt"]
        tried.append(rates(settings))
        for name in ("settings.json", "metrics.jsonl", "metrics.csv"):
            (tmp_path / name).write_text("")
        (tmp_path / "checkpoints" / "step-1").mkdir(parents=True)
        if len(tried) < TRIES:
            raise NonFiniteLossError("too fast")
        return Run(tmp_path)

    with pytest.warns(DivergedWarning, match=r"diverged \(too fast\); it begins again with half"):
        run = trained_steadily(attempt, first, tmp_path, True)
    assert run.folder == tmp_path
    rate, muon_rate = rates(first)
    assert tried == [(rate, muon_rate), (rate / 2, muon_rate / 2), (rate / 4, muon_rate / 4)]


def test_what_diverges_at_all_rates_fails(tmp_path: Path) -> None:
    tried = []

    def attempt(settings: RunSettings, resume: bool) -> Run:  # noqa: ARG001
        tried.append(settings)
        raise NonFiniteLossError("always")

    settings = default_settings("darcy", "smoke", "modern", "functional_operator")
    with pytest.warns(DivergedWarning), pytest.raises(NonFiniteLossError, match="always"):
        trained_steadily(attempt, settings, tmp_path, False)
    assert len(tried) == TRIES


@pytest.fixture
def steep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses that are no numbers at the default rate."""
    loss = Own.loss

    def at_low_rates(self: Own, prediction: Tensor, batch: Batch) -> Tensor:
        fast = self.settings.optimisation.muon_rate > 0.015
        return loss(self, prediction, batch) * (torch.nan if fast else 1.0)

    monkeypatch.setattr(Own, "loss", at_low_rates)


def surrogate(folder: Path, **more: Any) -> Surrogate:
    network = {"width": 8, "layers": 1, "bases": 4}
    return Surrogate(epochs=2, network=network, yardsticks=False, folder=folder, **more)


@pytest.mark.usefixtures("steep")
def test_a_fit_that_diverges_is_fitted_at_half_the_rate_and_says_so(tmp_path: Path) -> None:
    fields = np.random.default_rng(0).normal(size=(12, 8, 8))
    with pytest.warns(DivergedWarning, match="begins again with half its rates"):
        fitted = surrogate(tmp_path / "run").fit(fields, 2 * fields)
    assert fitted.run.settings.optimisation.muon_rate == 0.01
    assert fitted.predict(fields[:2]).shape == (2, 8, 8)
    # The same call takes the finished run.
    again = surrogate(tmp_path / "run").fit(fields, 2 * fields)
    assert again.run.settings == fitted.run.settings


@pytest.mark.usefixtures("steep")
def test_a_rate_that_the_user_chose_stays(tmp_path: Path) -> None:
    fields = np.random.default_rng(0).normal(size=(12, 8, 8))
    with pytest.raises(NonFiniteLossError, match="lower the learning rate"):
        surrogate(tmp_path / "a", rate=0.002).fit(fields, 2 * fields)
    fitted = surrogate(tmp_path / "b", rate=0.0005).fit(fields, 2 * fields)
    assert rates(fitted.run.settings) == (0.0005, 0.005)  # that of Muon goes with it
