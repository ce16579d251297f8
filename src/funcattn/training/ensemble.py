"""Ensembles: networks of one run that differ in their seed alone, and whose mean is the prediction.

The first network is that of the run itself, the others are runs in its folder `members`, so that
whatever takes a run takes an ensemble too.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from funcattn.data import Sample, collate
from funcattn.settings import RunSettings
from funcattn.tasks import Task
from funcattn.training.evaluation import predicted
from funcattn.training.run import Run
from funcattn.training.setup import read_json
from funcattn.training.signed import write_signed

RECORD = "ensemble.json"


def train_members(
    run: Run, count: int, train: Callable[[RunSettings, Path, bool], Run]
) -> list[Run]:
    """The other members of an ensemble of `count`, trained one after another with the next seeds.

    train: called with the settings of a member, its folder, and whether to go on with what is
        there; it trains the member.
    """
    if count < 2:
        raise ValueError(f"ensemble: expected at least 2 networks, got {count}")
    for number in range(1, count):
        folder = run.member_folder(number)
        settings = replace(run.settings, seed=run.settings.seed + number)
        train(settings, folder, (folder / "settings.json").exists())
    return Run(run.folder, accept_edited=run.accept_edited).members


@torch.no_grad()
def metrics_of_mean(
    task: Task, networks: Sequence[nn.Module], samples: Sequence[Sample]
) -> dict[str, list[float]]:
    """Metrics of each sample, by the mean of the networks."""
    found: dict[str, list[float]] = {}
    members = nn.ModuleList(networks)
    dtype = next(members.parameters()).dtype
    for place in range(len(samples)):
        batch = collate([samples[place]]).to("cpu", dtype)
        for name, values in task.metrics(predicted(task, members, batch), batch).items():
            found.setdefault(name, []).extend(values.double().tolist())
    return found


def write_test(run: Run, task: Task, values: dict[str, list[float]]) -> dict[str, float]:
    """Keep the test of the mean, from the metrics of each sample; the metrics of the set."""
    test = task.summary(values)
    document = {"members": len(run.networks), "test": test, "test_values": values}
    write_signed(run.folder / RECORD, json.dumps(document, indent=1) + "\n")
    return test


def read_test(run: Run) -> dict[str, float]:
    """The test of the mean; empty where none was made."""
    if not (run.folder / RECORD).exists():
        return {}
    document = read_json(run.file(RECORD), {"members": int, "test": {...: float}})
    test: dict[str, float] = document["test"]
    return test
