"""Results that no run made, for tests of what is said of them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from funcattn.experiments import Experiment
    from funcattn.experiments.engine.experiment import Outcome
    from funcattn.experiments.engine.trial import NotYet, Trial
    from funcattn.experiments.tiers import Tier

# funcattn is imported in functions: not before the shape checks are in place.


class Made:
    """A folder of results, filled by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(
        self,
        trial: "Trial | NotYet",
        values: Mapping[str, Any],
        *,
        tier: "Tier" = "cpu",
        seed: int = 0,
        code: str = "",
    ) -> None:
        """A line with these values, by the code as it is or by other code."""
        from funcattn.experiments.engine.fingerprints import fingerprint_of
        from funcattn.experiments.engine.results import append_line
        from funcattn.experiments.engine.trial import Trial, identity

        assert isinstance(trial, Trial)
        settings = trial.settings(tier, seed)
        line = {
            "identity": identity(settings),
            "code": code or fingerprint_of(trial).name,
            "task": trial.task,
            "model": trial.model,
            "seed": seed,
            "settings": asdict(settings),
            "commit": "abc",
            "machine": "a machine",
            "cpu_seconds": 1800.0,
            "parameters": 1000 + seed,
            **values,
        }
        append_line(self.folder / f"{trial.task}.jsonl", line)

    def outcome(self, experiment: "Experiment", tier: "Tier" = "cpu") -> "Outcome":
        """What there is of an experiment."""
        from funcattn.experiments.engine.experiment import Outcome
        from funcattn.experiments.engine.results import Results

        here = self.folder
        results = Results(here)
        return Outcome(
            experiment, tier, results, here / "queue", here / "data", here / "bench.json"
        )

    def with_errors(
        self, experiment: "Experiment", errors: Mapping[tuple[str, str], Sequence[float]]
    ) -> "Outcome":
        """An outcome with these relative errors at tier cpu, one per seed."""
        for entry, values in errors.items():
            for seed, value in enumerate(values):
                self.add(experiment.trials[entry], {"test": {"relative_l2": value}}, seed=seed)
        return self.outcome(experiment)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """An empty folder of results."""
    return Made(tmp_path)
