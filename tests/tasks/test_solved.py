"""What all tasks with solvers have in common: one test each, over all of them."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric

from funcattn.data import Store, collate
from funcattn.settings import Preset, Profile, changed
from funcattn.tasks import TASKS, Solved
from funcattn.tasks.solved import GridData
from funcattn.training.loop import Trainer
from funcattn.training.setup import build_network

SOLVED = {name: task for name, task in TASKS.items() if issubclass(task, Solved)}
names = pytest.mark.parametrize("name", SOLVED)


def smoke(name: str, **data: Any) -> Solved:
    settings = SOLVED[name].defaults("smoke", "modern")
    return SOLVED[name](changed(settings, {"data": data}))


@names
def test_sizes_and_shapes_are_those_that_the_task_says(name: str, store: Store) -> None:
    task = smoke(name)
    splits = task.splits(store)
    how = task.settings.data
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [
        how.train,
        how.validation,
        how.test,
    ]
    for part in (splits.train, splits.test):
        sample = part[0]
        n = len(sample.positions)
        assert sample.positions.shape == (n, task.problem.space)
        assert sample.target.shape == (n, *task.target_axes)
        assert sample.target.dtype == sample.positions.dtype == torch.float32
        assert (sample.values is None) == (task.problem.input_channels == 0)
        if sample.values is not None:
            assert sample.values.shape == (n, task.problem.input_channels)
            assert sample.values.dtype == torch.float32
        assert (sample.grid is None) == (task.cells("train") is None)
        if part is splits.train:
            assert sample.grid == task.grid
        assert task.points in (n, None)
        if sample.grid is not None:
            assert sample.weights is not None
            assert sample.weights.sum() == pytest.approx(1)
        if isinstance(how, GridData):
            assert sample.positions.min() == 0
            last = 1 - 1 / sample.grid[0] if task.problem.periodic else 1
            assert sample.positions.max() == pytest.approx(last)


@names
def test_its_arrays_are_those_of_its_public_files(name: str) -> None:
    task = SOLVED[name]
    theirs = {a: task.layout.arrays[a].axes for a in task.layout.needed}
    assert theirs == {a: ("samples", *axes) for a, axes in task.arrays.items()}
    assert task.layout.periodic == task.problem.periodic


@names
def test_no_sample_is_in_two_parts(name: str, store: Store) -> None:
    splits = smoke(name).splits(store)
    # On the coarsest grid of them all, so that a sample looks the same in every part.
    parts = [splits.train, splits.validation, splits.test]
    points = min(len(part[0].target) for part in parts)
    seen = [
        part[i].target[:: len(part[i].target) // points].numpy().tobytes()
        for part in parts
        for i in range(len(part))
    ]
    assert len(set(seen)) == len(seen)


@names
def test_public_files_of_ours_give_the_same(name: str, store: Store, tmp_path: Path) -> None:
    task = smoke(name)
    ours = task.splits(store)
    made = store.made(task.recipe(), task.settings.data.seed, task.count)
    for format in ("5", "7.3"):  # noqa: A001
        folder = tmp_path / format
        files = task.write_public(made, folder, format)
        assert {path.name for path in files} >= set(task.layout.files.values())
        assert sorted(folder.iterdir()) == sorted(files)
        theirs = smoke(name, path=str(folder)).splits(store)
        assert theirs.fingerprint == ours.fingerprint
        for part in ("train", "validation", "test"):
            a, b = getattr(ours, part), getattr(theirs, part)
            assert len(a) == len(b)
            for what in ("positions", "values", "target"):
                torch.testing.assert_close(getattr(a[0], what), getattr(b[0], what), rtol=0, atol=0)


@names
def test_without_samples_to_spare_the_last_ones_that_would_train_validate(
    name: str, store: Store, tmp_path: Path
) -> None:
    task = smoke(name)
    how = task.settings.data
    made = store.made(task.recipe(), how.seed, task.count)
    task.write_public(made, tmp_path, "7.3")
    ours = task.splits(store)
    # The public split trains with all that are not for the test.
    wanted = smoke(name, path=str(tmp_path), train=how.train + how.validation)
    theirs = wanted.splits(store)
    assert len(theirs.train) == how.train
    torch.testing.assert_close(theirs.validation[0].target, ours.validation[0].target)
    few = smoke(name, path=str(tmp_path), test=task.count)
    with pytest.raises(ValueError, match=r"expected samples for training, .* ask for fewer"):
        few.splits(store)


def test_samples_that_a_benchmark_leaves_out_validate(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = smoke("elasticity")
    how = task.settings.data
    made = store.made(task.recipe(), 0, task.count)
    task.write_public(made, tmp_path, "5")
    stress = made.read("stress", range(task.count))

    def rows(**data: int) -> list[list[int]]:
        splits = smoke("elasticity", path=str(tmp_path), **data).splits(store)
        return [
            [int((stress == case.target[:, 0].numpy()).all(1).nonzero()[0][0]) for case in part]
            for part in (splits.train, splits.validation, splits.test)
        ]

    assert (how.train, how.validation, how.test, task.count) == (12, 4, 4, 20)
    monkeypatch.setattr(SOLVED["elasticity"], "public_samples", 16)
    assert rows() == [[*range(12)], [*range(16, 20)], [*range(12, 16)]]
    # Where it leaves out too few, the last of those that would train validate.
    assert rows(validation=5) == [[*range(7)], [*range(7, 12)], [*range(12, 16)]]


@pytest.mark.parametrize(
    "name", [n for n in SOLVED if isinstance(SOLVED[n].defaults("smoke", "modern").data, GridData)]
)
def test_public_positions_are_those_of_public_loaders(name: str, store: Store) -> None:
    ours, theirs = (
        smoke(name, public_positions=switch).splits(store).train[0] for switch in (False, True)
    )
    axes = [np.linspace(0, 1, n) for n in ours.grid]
    if len(axes) == 1:
        np.testing.assert_allclose(theirs.positions[:, 0], axes[0], atol=1e-6)
        return
    # As the loaders do it, word for word: numpy's default order.
    x, y = np.meshgrid(*axes)
    np.testing.assert_allclose(theirs.positions, np.c_[x.ravel(), y.ravel()], atol=1e-6)
    assert not torch.equal(ours.positions, theirs.positions)


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        # Ten frames through a network of width 256 take their time.
        pytest.param(name, profile, marks=[pytest.mark.full] * (name == "navier_stokes"))
        if profile == "paper"
        else (name, profile)
        for name in SOLVED
        for profile in ("paper", "cpu", "smoke")
    ],
)
@pytest.mark.parametrize("preset", ["paper", "modern"])
def test_the_settings_of_every_profile_train_on_small_grids(
    tmp_path: Path, store: Store, name: str, profile: Profile, preset: Preset
) -> None:
    settings = SOLVED[name].defaults(profile, preset)
    assert changed(settings, json.loads(json.dumps(asdict(settings)))) == settings
    task = SOLVED[name](changed(settings, {"optimisation": {"epochs": 10}}))
    small = smoke(name).splits(store)
    surrogate = build_network(task)
    trainer = Trainer(task, small, surrogate, tmp_path, fabric=Fabric(accelerator="cpu", devices=1))
    before = {name: p.detach().clone() for name, p in surrogate.named_parameters()}
    for step in range(2):  # the first is too short for gradients that are next to nothing
        trainer._train(0, step, torch.arange(1))
    still = [n for n, p in surrogate.named_parameters() if torch.equal(p, before[n])]
    # At the start, gradients of temperatures may be too small to move them.
    assert [n for n in still if not n.endswith("temperature")] == []
    assert np.isfinite(trainer.state.losses)


@names
def test_modern_is_another_optimisation_and_nothing_else(name: str) -> None:
    paper, modern = (SOLVED[name].defaults("paper", preset) for preset in ("paper", "modern"))
    assert modern.optimisation.optimiser == "muon"
    assert replace(modern, optimisation=paper.optimisation) == paper


@names
def test_perfect_predictions_have_no_error_and_others_have_one(name: str, store: Store) -> None:
    task = smoke(name)
    splits = task.splits(store)
    batch = collate([splits.test[i] for i in range(2)])
    for values in (task.loss(batch.target, batch), *task.metrics(batch.target, batch).values()):
        assert values.shape == (2,)
        assert (values == 0).all()
    worse = task.metrics(1.5 * batch.target, batch)
    assert task.headline in worse
    for values in worse.values():
        torch.testing.assert_close(values, torch.full((2,), 0.5))
