import json
from dataclasses import asdict, replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor

from funcattn.data import Store, collate
from funcattn.pde import darcy as equation
from funcattn.settings import changed
from funcattn.tasks import TASKS, Splits
from funcattn.tasks.darcy import Darcy, DarcyData
from funcattn.tasks.losses import relative_gradient, relative_l2
from funcattn.training.loop import Trainer
from funcattn.training.setup import build_network

SMOKE = Darcy.defaults("smoke", "modern")


@pytest.fixture
def splits(store: Store) -> Splits:
    return Darcy(SMOKE).splits(store)


def all_of(splits: Splits) -> list[Tensor]:
    parts = (splits.train, splits.validation, splits.test)
    samples = [part[i] for part in parts for i in range(len(part))]
    return [sample.target for sample in samples]


def test_the_splits_are_disjoint_and_in_the_order_of_the_samples(splits: Splits) -> None:
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (12, 4, 4)
    targets = all_of(splits)
    assert len({target.numpy().tobytes() for target in targets}) == 20
    for i in (0, 11, 12, 15, 16, 19):
        fields = equation.sample(nodes=17, keep=2, rng=np.random.default_rng([0, i]))
        expected = fields["pressure"].astype(np.float32).reshape(-1, 1)
        np.testing.assert_allclose(targets[i], expected, rtol=1e-6, atol=1e-9)


def test_the_samples_are_pinned(splits: Splits) -> None:
    # The number of points with the larger permeability, and the pressure in the middle.
    pinned = [(39, 0.01088), (47, 0.01003), (48, 0.00919)]
    seen = [
        (int((sample.values == 12).sum()), round(float(sample.target[40]), 5))
        for sample in (splits.train[0], splits.validation[0], splits.test[0])
        if sample.values is not None
    ]
    assert seen == pinned


def test_a_sample_is_a_field_on_its_grid(splits: Splits) -> None:
    sample = splits.train[3]
    assert sample.grid == (9, 9)
    assert sample.values is not None
    assert sample.values.shape == sample.target.shape == (81, 1)
    assert set(sample.values.flatten().tolist()) <= {3.0, 12.0}
    edge = ((sample.positions == 0) | (sample.positions == 1)).any(-1)
    assert edge.sum() == 32
    assert (sample.target[edge] == 0).all()
    assert (sample.target[~edge] > 0).all()
    assert sample.weights is not None
    assert sample.weights.sum() == pytest.approx(1)


def test_a_set_serves_every_stride_that_it_holds(store: Store, splits: Splits) -> None:
    how = replace(SMOKE.data, use_every=8)
    coarse = Darcy(replace(SMOKE, data=how)).splits(store)
    assert coarse.train[0].grid == (3, 3)
    np.testing.assert_array_equal(
        coarse.train[0].target.reshape(3, 3), splits.train[0].target.reshape(9, 9)[::4, ::4]
    )
    kept = Darcy(replace(SMOKE, data=replace(SMOKE.data, store_every=2)))
    assert kept.recipe() != Darcy(SMOKE).recipe()
    assert kept.splits(store).fingerprint == splits.fingerprint


def test_the_fingerprint_is_of_the_content(store: Store, splits: Splits, tmp_path: Path) -> None:
    assert Darcy(SMOKE).splits(store).fingerprint == splits.fingerprint
    path = store.path(Darcy(SMOKE).recipe(), 0)
    (tmp_path / path.name).write_bytes(path.read_bytes())
    with h5py.File(tmp_path / path.name, "r+") as file:
        file["pressure"][3, 4, 4] *= 1.0001
    assert Darcy(SMOKE).splits(Store(tmp_path)).fingerprint != splits.fingerprint


@pytest.mark.parametrize("stored", [3, 0, -2])
def test_a_grid_of_which_not_all_is_stored_is_refused(stored: int) -> None:
    with pytest.raises(ValueError, match=f"store_every: .* divisor of use_every = 4.*{stored}"):
        DarcyData(nodes=17, use_every=4, store_every=stored)


@pytest.mark.parametrize("every", [3, 5, 0, -2])
def test_a_grid_that_is_not_nested_is_refused(every: int) -> None:
    with pytest.raises(ValueError, match=f"use_every: .* divisor of nodes - 1 = 16.*{every}"):
        DarcyData(nodes=17, use_every=every)


def test_old_names_are_read() -> None:
    old = {"nodes": 17, "stride": 4, "keep": 2}
    assert changed(DarcyData(), old) == DarcyData(nodes=17, use_every=4, store_every=2)


def test_loss_and_metric_are_those_of_the_paper(splits: Splits, generator: torch.Generator) -> None:
    batch = collate([splits.train[i] for i in range(3)])
    prediction = batch.target + 0.01 * torch.randn(batch.target.shape, generator=generator)
    task = Darcy(SMOKE)
    expected = relative_l2(prediction, batch.target) + 0.1 * relative_gradient(
        prediction, batch.target, (9, 9)
    )
    torch.testing.assert_close(task.loss(prediction, batch), expected)
    # By hand, too.
    error, truth = (f.reshape(3, 9, 9) for f in (prediction - batch.target, batch.target))

    def slopes(u: Tensor) -> Tensor:
        across, along = u[:, 2:, 1:-1] - u[:, :-2, 1:-1], u[:, 1:-1, 2:] - u[:, 1:-1, :-2]
        return torch.stack([across, along], 1).flatten(1).norm(dim=1)

    by_hand = error.flatten(1).norm(dim=1) / truth.flatten(1).norm(dim=1)
    torch.testing.assert_close(task.metrics(prediction, batch), {"relative_l2": by_hand})
    torch.testing.assert_close(expected, by_hand + 0.1 * slopes(error) / slopes(truth))
    assert (task.loss(batch.target, batch) == 0).all()


@pytest.mark.parametrize("preset", ["paper", "modern"])
@pytest.mark.parametrize("profile", ["paper", "cpu", "smoke"])
def test_the_settings_of_every_profile_train_on_a_small_grid(
    tmp_path: Path, splits: Splits, profile, preset
) -> None:
    settings = Darcy.defaults(profile, preset)
    assert changed(settings, json.loads(json.dumps(asdict(settings)))) == settings
    task = Darcy(changed(settings, {"optimisation": {"epochs": 10}}))
    surrogate = build_network(task)
    few = Splits(splits.train[:4], splits.validation[:1], splits.test[:1], splits.fingerprint)
    fabric = Fabric(accelerator="cpu", devices=1)
    trainer = Trainer(task, few, surrogate, tmp_path, fabric=fabric)
    before = {name: p.detach().clone() for name, p in surrogate.named_parameters()}
    trainer._train(0, 0, torch.arange(1))
    still = [n for n, p in surrogate.named_parameters() if torch.equal(p, before[n])]
    assert still == []
    assert np.isfinite(trainer.state.losses)


def test_the_presets_are_what_they_are_called() -> None:
    paper, modern = (Darcy.defaults("paper", preset) for preset in ("paper", "modern"))
    how = paper.optimisation
    assert (how.optimiser, how.clip, how.reduction, how.epochs) == ("adamw", 0.1, "sum", 500)
    assert (how.batch, how.rate, how.weight_decay, how.schedule) == (4, 1e-3, 1e-5, "one_cycle")
    assert (paper.network.width, paper.network.layers, paper.network.bases) == (128, 8, 64)
    assert (paper.data.nodes, paper.data.use_every, paper.data.test) == (421, 5, 200)
    assert modern.optimisation.optimiser == "muon"
    assert replace(modern, optimisation=how) == paper
    assert TASKS["darcy"] is Darcy
