"""What is gained if Muon moves a matrix that AdamW could move: errors of short trainings.

    python benchmarks/muon_shares.py darcy_notch deeponet --steps 600
        --left "" "branch.0|trunk.0" "."
    python benchmarks/muon_shares.py darcy funcattn --steps 200 --recipe shared --left "" features
        --changes '{"network": {"width": 32, "layers": 3, "heads": 4, "bases": 16},
                    "data": {"use_every": 10}}'

Each expression of --left names parameters that are taken from Muon and left to AdamW: "" none of
those that the network declares, "." all. Adds the errors on validation data to
results/muon_shares.jsonl.
"""

import argparse
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from funcattn.data import Store
from funcattn.files import write_text
from funcattn.provenance import facts
from funcattn.settings import OptimisationSettings, changed
from funcattn.tasks import TASKS
from funcattn.training import lap, optimisation
from funcattn.training.muon import BatchedMuon, matrices_of
from funcattn.training.recipe import SHARED, network_of
from funcattn.training.settings import default_settings

FILE = Path("results/muon_shares.jsonl")


def main() -> None:
    """Train with each share, for each seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task")
    parser.add_argument("model")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--recipe", choices=("shared", "task"), default="task")
    parser.add_argument("--left", nargs="+", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--changes", type=json.loads, default={})
    parser.add_argument("--cache", type=Path, default=Path("data"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    for left in given.left:
        for seed in given.seeds:
            error = trained(given, left, seed)
            line = {"task": given.task, "model": given.model, "recipe": given.recipe}
            line |= {"steps": given.steps, "changes": given.changes, "left_to_adamw": left}
            line |= {"seed": seed, "validation": error, "command": " ".join(sys.argv), **facts()}
            old = FILE.read_text() if FILE.exists() else ""
            write_text(FILE, f"{old}{json.dumps(line)}\n")
            print(given.task, given.model, repr(left), seed, round(error, 4), flush=True)


def trained(given: argparse.Namespace, left: str, seed: int) -> float:
    """The validation error of one training."""
    settings = default_settings(given.task, "cpu", "modern", given.model)
    if given.recipe == "shared":
        settings = replace(settings, optimisation=SHARED)
    settings = changed(replace(settings, seed=seed), given.changes)
    task = TASKS[given.task](settings)
    model = network_of(task, given.recipe)

    def build(model: nn.Module, how: OptimisationSettings) -> list[torch.optim.Optimizer]:
        taken = {
            p: way
            for name, p in model.named_parameters()
            if (way := matrices_of(model).get(p)) and not (left and re.search(left, name))
        }
        rest = [p for p in model.parameters() if p not in taken]
        adamw = optimisation.build_optimisers(
            nn.ParameterList(rest), replace(how, optimiser="adamw")
        )
        return [*([BatchedMuon(taken, how.muon_rate)] if taken else []), *adamw]

    lap.build_optimisers = build
    splits = task.splits(Store(given.cache))
    return lap.Lap(task, splits, model, steps=given.steps, seed=seed).run(watch=False).chosen()[0]


if __name__ == "__main__":
    main()
