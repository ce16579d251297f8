"""Whether results are still those of today's code, judged by their numbers.

For every network on every task of the tables the package keeps the numbers of a run that takes a
second or two: training losses, condition numbers, and the test. They were made in float64, so that
rounding, another order of sums, or another machine changes them far less than `TOLERANCE`; another
seed, another formula or other data change them far more. A clean-up of the code therefore leaves
all results valid, and a change of the numbers is noticed whatever caused it.

The name of such a fingerprint is a digest of its numbers. Each result carries the name that was
valid when it was made. If code changes numbers on purpose, `benchmarks/record_fingerprints.py`
stores the new ones, and results under an old name are then marked as made by older code.

Results that are older than the fingerprints carry digests of the source. Which of those had today's
numbers was established by comparing short runs before and after each change of the source; the
record is results/experiments/same_numbers.json.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from funcattn.data import Store
from funcattn.experiments.engine.trial import Trial
from funcattn.models import MODELS, matrices_for_muon
from funcattn.settings import changed
from funcattn.tasks import TASKS
from funcattn.training.run import train
from funcattn.training.setup import build_network

TOLERANCE = 5e-5
"""The largest relative difference of numbers that count as the same. Without vector instructions,
which is to sum in another order, the numbers changed by 4e-6 or less."""
MUON = Trial("darcy", changes={"optimisation": {"optimiser": "muon"}})
"""Trains with Muon, as tier cpu does. The other short runs train with AdamW, as tier smoke does:
Muon works in bfloat16, and some networks enlarge its rounding too much."""
FILE = "fingerprints.json"
_DIGITS = 12


@dataclass(frozen=True)
class Fingerprint:
    """The stored numbers of one short run."""

    numbers: Mapping[str, Any]
    earlier: tuple[str, ...] = ()
    """What results of the same numbers carry that are older than the fingerprints."""

    @property
    def name(self) -> str:
        """A digest of the numbers."""
        text = json.dumps(self.numbers, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def names(self) -> set[str]:
        """All names under which results have these numbers."""
        return {self.name, *self.earlier}


@cache
def stored() -> dict[str, Fingerprint]:
    """The fingerprints of the package, by the keys of trials."""
    text = files("funcattn.experiments").joinpath(FILE).read_text(encoding="utf-8")
    return {
        key: Fingerprint(entry["numbers"], tuple(entry.get("earlier", ())))
        for key, entry in json.loads(text)["runs"].items()
    }


def fingerprint_of(trial: Trial) -> Fingerprint:
    """The stored fingerprint of a trial.

    Raises:
        ValueError: there is none.
    """
    key = fingerprint_key(trial)
    if key not in stored():
        raise ValueError(
            f"{key}: expected a network and task with stored numbers, got none; record them with "
            "benchmarks/record_fingerprints.py"
        )
    return stored()[key]


def fingerprint_key(trial: Trial) -> str:
    """What trials share whose numbers are made by the same code: all but sizes.

    >>> fingerprint_key(Trial("darcy", changes={"network": {"projection": "pinv", "bases": 16}}))
    'darcy funcattn projection=pinv'
    """
    chosen = _only_words(trial.changes).values()
    words = [f"{name}={value}" for part in chosen for name, value in part.items()]
    return " ".join([trial.task, trial.model, *words])


def by_key(trials: Iterable[Trial]) -> dict[str, Trial]:
    """What to run for each fingerprint that the trials need, and for that of Muon."""
    able = (trial for trial in (*trials, MUON) if trial.refusal("smoke") is None)
    return {
        fingerprint_key(trial): Trial(trial.task, trial.model, _only_words(trial.changes))
        for trial in able
    }


def computed(trial: Trial, store: Store) -> dict[str, Any]:
    """The numbers of a trial's short run by the code as it is, with 12 digits."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        settings = replace(trial.settings("smoke"), precision="64-true")
        if trial.task == "rna":
            settings = changed(settings, {"data": {"path": str(_made_surfaces(folder))}})
        train(settings, folder / "run", store=store)
        record = json.loads((folder / "run/record.json").read_text())
        lines = (folder / "run/metrics.jsonl").read_text().splitlines()
        history = [json.loads(line) for line in lines]
    numbers: dict[str, Any] = {
        name: [epoch[name] for epoch in history]
        for name in history[0]
        if name == "train_loss" or name.startswith("condition_")
    }
    numbers |= {f"test_{name}": [value] for name, value in record["test"].items()}
    if moved := _moved_by_muon(trial):
        numbers["moved_by_muon"] = [moved]
    return {name: [_rounded(value) for value in values] for name, values in numbers.items()}


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """The largest relative difference, infinite where one has numbers that the other lacks.

    >>> difference({"loss": [1.0, 2.0]}, {"loss": [1.0, 1.0]})
    0.5
    >>> difference({"loss": [1.0, 2.0]}, {"loss": [1.0]})
    inf
    """
    if {name: len(values) for name, values in one.items()} != {
        name: len(values) for name, values in other.items()
    }:
        return math.inf
    pairs = ((a, b) for name in one for a, b in zip(one[name], other[name], strict=True))
    return max((_apart(a, b) for a, b in pairs), default=0.0)


def _apart(a: float, b: float) -> float:
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    apart = abs(a - b) / max(abs(a), abs(b))
    return math.inf if math.isnan(apart) else apart


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _moved_by_muon(trial: Trial) -> float:
    """How many parameters Muon moves: a part of the recipe that short runs by AdamW do not see."""
    if not MODELS[trial.model].muon:
        return 0.0
    network = build_network(TASKS[trial.task](trial.settings("smoke")))
    return float(sum(matrix.numel() for matrix in matrices_for_muon(network)))


def _only_words(changes: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The changes that choose among methods: those that are words, not sizes."""
    return {
        part: {name: value for name, value in values.items() if isinstance(value, str)}
        for part, values in changes.items()
    }


def _made_surfaces(folder: Path) -> Path:
    """A small file in the place of the RNA surfaces, which cannot be made."""
    random = np.random.default_rng(0)
    clouds, each = 27, 64
    points = random.normal(size=(clouds * each, 3)).astype(np.float32)
    path = folder / "clouds.npz"
    np.savez(
        path,
        points=points,
        labels=((points > 0) @ [1, 2, 4]).astype(np.int16),
        count=np.full(clouds, each, dtype=np.int32),
        name=np.array([f"cloud{number}" for number in range(clouds)]),
        split=np.array(["train"] * 23 + ["test"] * 4),
        mesh_vertices=np.full(clouds, each, dtype=np.int32),
    )
    return path
