import json
from dataclasses import asdict, replace
from multiprocessing.pool import ThreadPool
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor

from funcattn.data import collate
from funcattn.pde import darcy as equation
from funcattn.settings import changed
from funcattn.tasks import TASKS, Splits
from funcattn.tasks import darcy as module
from funcattn.tasks.darcy import Darcy, DarcyData, darcy_fields
from funcattn.tasks.losses import relative_gradient, relative_l2
from funcattn.training.loop import Trainer
from funcattn.training.setup import build_surrogate

SMOKE = Darcy.defaults("smoke", "modern")
FEW = DarcyData(nodes=17, stride=2, train=2, validation=1, test=1)


def silent(done: int, total: int) -> None:
    pass


def nobody(*_: object) -> None:
    raise AssertionError("made data that was there already")


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all tests of a session keep the same few Darcy samples."""
    return tmp_path_factory.getbasetemp() / "data"


@pytest.fixture
def splits(cache: Path) -> Splits:
    return Darcy(SMOKE).splits(cache, silent)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solved in threads of this process, which start at once."""
    monkeypatch.setattr(module, "worker_pool", ThreadPool)


def all_of(splits: Splits) -> list[Tensor]:
    parts = (splits.train, splits.validation, splits.test)
    samples = [part[i] for part in parts for i in range(len(part))]
    return [sample.target for sample in samples]


def test_the_splits_are_disjoint_and_in_the_order_of_the_samples(splits: Splits) -> None:
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (12, 4, 4)
    targets = all_of(splits)
    assert len({target.numpy().tobytes() for target in targets}) == 20
    for i in (0, 11, 12, 15, 16, 19):
        _, u = equation.sample(17, seed=0, index=i)
        expected = u[::2, ::2].astype(np.float32).reshape(-1, 1)
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


@pytest.mark.usefixtures("here")
def test_a_sample_depends_on_neither_counts_nor_workers(tmp_path: Path, splits: Splits) -> None:
    told: list[tuple[int, int]] = []
    how = replace(FEW, workers=1)
    inputs, targets = darcy_fields(how, tmp_path, lambda *progress: told.append(progress))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    for i in range(4):
        sample = splits.train[i]
        assert sample.values is not None
        np.testing.assert_array_equal(inputs[i].reshape(-1, 1), sample.values)
        np.testing.assert_allclose(targets[i].reshape(-1, 1), sample.target, rtol=1e-6)
    assert [path.name for path in tmp_path.iterdir()] == ["darcy-17-2-seed0-4.npz"]


@pytest.mark.usefixtures("here")
def test_another_seed_makes_other_samples(tmp_path: Path) -> None:
    first, second = (darcy_fields(replace(FEW, seed=s), tmp_path, silent)[1] for s in (0, 1))
    assert not np.isclose(first, second, rtol=1e-3).all(axis=(1, 2)).any()


@pytest.mark.usefixtures("here")
def test_made_data_is_used_again_also_on_a_coarser_grid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = darcy_fields(FEW, tmp_path, silent)
    monkeypatch.setattr(module, "worker_pool", nobody)
    again = darcy_fields(FEW, tmp_path, silent)
    coarse = darcy_fields(replace(FEW, stride=8), tmp_path, silent)
    for old, new, few in zip(made, again, coarse, strict=True):
        np.testing.assert_array_equal(old, new)
        np.testing.assert_array_equal(old[:, ::4, ::4], few)
    other = replace(FEW, train=1, validation=2)  # another split of the same samples
    assert Darcy(replace(SMOKE, data=other)).splits(tmp_path, silent).train[0] is not None
    with pytest.raises(AssertionError, match="made data"):
        darcy_fields(replace(FEW, stride=1), tmp_path, silent)


def test_the_fingerprint_is_of_the_content(cache: Path, splits: Splits, tmp_path: Path) -> None:
    assert Darcy(SMOKE).splits(cache, silent).fingerprint == splits.fingerprint
    (path,) = cache.glob("darcy-17-2-seed0-20.npz")
    fields = dict(np.load(path))
    fields["pressure"][3, 4, 4] *= 1.0001
    np.savez(tmp_path / path.name, **fields)
    assert Darcy(SMOKE).splits(tmp_path, silent).fingerprint != splits.fingerprint


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more", b"something else"])
def test_a_damaged_file_is_said(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "darcy-17-2-seed0-4.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"npz is damaged .* delete it, to make it again"):
        darcy_fields(FEW, tmp_path, silent)


@pytest.mark.usefixtures("here")
def test_a_full_disk_leaves_no_half_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        darcy_fields(FEW, tmp_path, silent)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stride", [3, 5, 0, -2])
def test_a_grid_that_is_not_nested_is_refused(stride: int) -> None:
    with pytest.raises(ValueError, match=f"stride: expected a divisor of nodes - 1 = 16.*{stride}"):
        DarcyData(nodes=17, stride=stride)


def test_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Darcy flow is made, not read"):
        darcy_fields(replace(FEW, path="x"), tmp_path, silent)


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
    surrogate = build_surrogate(task)
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
    assert (paper.data.nodes, paper.data.stride, paper.data.test) == (421, 5, 200)
    assert modern.optimisation.optimiser == "muon"
    assert replace(modern, optimisation=how) == paper
    assert TASKS["darcy"] is Darcy
