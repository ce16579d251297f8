"""Every network on every task that it can take: one step of training, one evaluation."""

from pathlib import Path

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric

from funcattn.data import Store
from funcattn.models import MODELS
from funcattn.settings import changed
from funcattn.tasks import TASKS, Generated
from funcattn.training.evaluation import evaluate
from funcattn.training.loop import Trainer
from funcattn.training.run import _fit
from funcattn.training.settings import with_model
from funcattn.training.setup import build_network

PAIRS = [
    (task, model)
    for task, kind in TASKS.items()
    for model, entry in MODELS.items()
    if (issubclass(kind, Generated) or task == "few_shot")
    and entry.refusal(kind(kind.defaults("smoke", "modern")).problem) is None
]


def test_most_networks_take_most_tasks() -> None:
    assert len(PAIRS) > 160
    for task in ("darcy", "pipe", "navier_stokes"):
        assert {model for t, model in PAIRS if t == task} == set(MODELS)


@pytest.mark.full
@pytest.mark.parametrize(("task", "model"), PAIRS)
def test_it_trains(tmp_path: Path, store: Store, task: str, model: str) -> None:
    settings = with_model(TASKS[task].defaults("smoke", "modern"), model, "smoke")
    this = TASKS[task](changed(settings, {"optimisation": {"epochs": 10}}))
    splits = this.splits(store)
    surrogate = build_network(this)
    _fit(surrogate, splits, this.problem.output_channels)
    fabric = Fabric(accelerator="cpu", devices=1)
    trainer = Trainer(this, splits, surrogate, tmp_path, fabric=fabric)
    before = {name: p.detach().clone() for name, p in surrogate.named_parameters()}
    trainer._train(0, 0, torch.arange(2))
    assert np.isfinite(trainer.state.losses)
    moved = [name for name, p in surrogate.named_parameters() if not torch.equal(p, before[name])]
    assert len(moved) > 0.5 * len(before)
    values, _ = evaluate(this, trainer.evaluated, [splits.validation[0]], fabric)
    assert all(np.isfinite(numbers).all() for numbers in values.values())
