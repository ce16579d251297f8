import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric

from funcattn.data import Batch, Sample, Store, collate
from funcattn.data.airfrans import read_manifest
from funcattn.settings import Preset, Profile, changed
from funcattn.tasks.airfrans import VISCOSITY, Airfrans, AirfransData, wall_shear
from funcattn.tasks.losses import rank_correlation
from funcattn.training.loop import Trainer
from funcattn.training.setup import build_network


def smoke(**data: Any) -> Airfrans:
    return Airfrans(changed(Airfrans.defaults("smoke", "modern"), {"data": data}))


@pytest.fixture(scope="module")
def task(store: Store) -> Airfrans:
    task = smoke()
    task.splits(store)  # losses are relative to the deviations in training
    return task


def parts(task: Airfrans, store: Store) -> list[list[bytes]]:
    splits = task.splits(store)
    return [
        [case.target.numpy().tobytes() for case in part]
        for part in (splits.train, splits.validation, splits.test)
    ]


def test_cases_have_the_features_and_targets_of_the_set(task: Airfrans, store: Store) -> None:
    made = store.made(task.recipe(), 0, task.count)
    case = task.splits(store).train[2]
    assert case.grid is None
    np.testing.assert_array_equal(case.values, made.read_ragged("features", 2))
    np.testing.assert_array_equal(case.positions, made.read_ragged("features", 2)[:, :2])
    np.testing.assert_array_equal(case.target, made.read_ragged("target", 2))
    on = made.read_ragged("surface", 2).astype(bool)
    np.testing.assert_array_equal(case.surface[on], made.read_ragged("length", 2))
    assert not case.surface[~torch.from_numpy(on)].any()


def test_full_and_scarce_have_the_same_test(store: Store) -> None:
    train, validation, test = parts(smoke(), store)
    assert [len(train), len(validation), len(test)] == [6, 2, 4]
    few, chosen, same = parts(smoke(split="scarce"), store)
    assert same == test
    assert few + chosen == train[:2]
    every = train + validation + test
    assert len(set(every)) == len(every) == 12


@pytest.mark.parametrize(
    ("split", "name", "low", "high"),
    [("reynolds", "reynolds", 3e6, 5e6), ("aoa", "incidence", -2.5, 12.5)],
)
def test_shifted_splits_train_in_the_middle_and_test_at_the_ends(
    store: Store, split: str, name: str, low: float, high: float
) -> None:
    task = smoke(split=split)
    made = store.made(task.recipe(), 0, task.count)
    row = {made.read_ragged("target", i).tobytes(): i for i in range(12)}
    train, validation, test = parts(task, store)
    numbers = made.read(name, range(12))
    inside = numbers[[row[case] for case in train + validation]]
    outside = numbers[[row[case] for case in test]]
    assert ((inside > low) & (inside < high)).all()
    assert ((outside <= low) | (outside >= high)).all()
    assert len(inside) + len(outside) == 12
    assert validation


@pytest.mark.parametrize("split", ["full", "scarce", "reynolds", "aoa"])
def test_public_folders_of_ours_give_the_same(store: Store, tmp_path: Path, split: str) -> None:
    ours = smoke(split=split)
    made = store.made(ours.recipe(), 0, ours.count)
    [manifest] = ours.write_public(made, tmp_path, "7.3")
    assert manifest == tmp_path / "manifest.json"
    assert set(read_manifest(tmp_path)) == {
        "full_train",
        "full_test",
        "scarce_train",
        "reynolds_train",
        "reynolds_test",
        "aoa_train",
        "aoa_test",
    }
    theirs = smoke(split=split, path=str(tmp_path), train=600, validation=200)
    # As many validate as in the settings of ours: a quarter of those that are not for the test.
    assert theirs.splits(store).fingerprint == ours.splits(store).fingerprint


def test_fewer_cases_of_a_public_folder_are_the_first_ones(store: Store, tmp_path: Path) -> None:
    ours = smoke()
    ours.write_public(store.made(ours.recipe(), 0, ours.count), tmp_path, "7.3")
    train, _, test = parts(ours, store)
    some = parts(smoke(path=str(tmp_path), train=3, validation=1, test=2), store)
    assert some == [train[:3], train[3:4], test[:2]]


def test_a_manifest_without_the_split_is_refused(store: Store, tmp_path: Path) -> None:
    ours = smoke()
    [manifest] = ours.write_public(store.made(ours.recipe(), 0, ours.count), tmp_path, "7.3")
    lists = json.loads(manifest.read_text())
    del lists["aoa_test"]
    manifest.write_text(json.dumps(lists))
    with pytest.raises(ValueError, match=r"aoa_train and aoa_test for the split 'aoa', got full_"):
        smoke(split="aoa", path=str(tmp_path)).splits(store)


def test_training_sees_some_points_and_they_stay_together(task: Airfrans, store: Store) -> None:
    case = task.splits(store).train[0]
    seen = [task.augmented(case, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert len(seen[0].positions) == 200 < len(case.positions) == 500
    assert torch.equal(seen[0].values, seen[1].values)
    assert not torch.equal(seen[0].values, seen[2].values)
    rows = {tuple(row) for row in torch.cat([case.values, case.target], 1).tolist()}
    for some in seen:
        found = [tuple(row) for row in torch.cat([some.values, some.target], 1).tolist()]
        assert set(found) <= rows
        assert len(set(found)) == 200
        torch.testing.assert_close(some.positions, some.values[:, :2])
        # On the surface the distance is zero.
        assert torch.equal(some.surface > 0, some.values[:, 4] == 0)
    few = Sample(case.positions[:9], case.values[:9], case.target[:9], surface=case.surface[:9])
    assert task.augmented(few, torch.Generator()) is few


def test_the_loss_counts_surface_and_volume_alike_in_deviations(
    task: Airfrans, store: Store
) -> None:
    splits = task.splits(store)
    batch = collate([splits.test[0]])
    deviation = torch.cat([case.target for case in splits.train]).double().std(0, correction=0)
    on = batch.surface > 0
    wrong = batch.target.clone()
    wrong[on] += 0.5 * deviation.float()
    assert task.loss(wrong, batch).item() == pytest.approx(0.25 * 3 / 4, rel=1e-4)  # no nu_t
    wrong[~on] -= deviation.float()
    assert task.loss(wrong, batch).item() == pytest.approx(1.25 * 3 / 4, rel=1e-4)
    found = task.metrics(wrong, batch)
    assert found["surface_error"].item() == pytest.approx(0.25 * 3 / 4, rel=1e-4)
    assert found["volume_error"].item() == pytest.approx(3 / 4, rel=1e-4)
    assert found["mean_squared_error"].item() == pytest.approx(task.loss(wrong, batch).item())


def test_lift_of_the_true_fields_is_that_of_the_solver(task: Airfrans, store: Store) -> None:
    made = store.made(task.recipe(), 0, task.count)
    splits = task.splits(store)
    batch = collate([splits.train[i] for i in range(6)])
    found = task.metrics(batch.target, batch)
    # The solver's lift is by circulation, this one by pressure on 200 panels.
    np.testing.assert_allclose(found["true_lift"], made.read("lift", range(6)), rtol=2e-3)
    for name in ("mean_squared_error", "lift_error"):
        assert found[name].abs().max() == 0
    assert "drag" not in found  # the flow slips: its friction is not in the field


def test_pressure_errors_are_lift_errors(task: Airfrans, store: Store) -> None:
    batch = collate([task.splits(store).test[1]])
    wrong = batch.target.clone()
    wrong[..., 2] *= 1.1
    found = task.metrics(wrong, batch)
    assert found["lift_error"].item() == pytest.approx(0.1, rel=1e-4)
    assert found["lift"].item() == pytest.approx(1.1 * found["true_lift"].item(), rel=1e-4)


def test_padding_changes_no_metric(task: Airfrans, store: Store) -> None:
    cases = task.splits(store).test
    short = Sample(
        cases[1].positions[:400],
        cases[1].values[:400],
        cases[1].target[:400],
        surface=cases[1].surface[:400],
    )
    batch = collate([cases[0], short])
    assert batch.mask is not None
    noisy = batch.target + torch.randn_like(batch.target)
    together = task.metrics(noisy, batch)
    for b, case in enumerate((cases[0], short)):
        alone = task.metrics(noisy[b : b + 1, : len(case.positions)], collate([case]))
        for name, values in alone.items():
            torch.testing.assert_close(together[name][b : b + 1], values)


def test_the_summary_ranks_forces_and_leaves_their_means_out() -> None:
    values = {
        "mean_squared_error": [1.0, 3.0, 5.0],
        "lift_error": [0.1, 0.2, 0.3],
        "lift": [0.1, 0.5, 0.3],
        "true_lift": [0.2, 0.4, 0.6],
    }
    found = smoke().summary(values)
    ranks = rank_correlation(torch.tensor(values["lift"]), torch.tensor(values["true_lift"]))
    assert found == {
        "mean_squared_error": 3.0,
        "lift_error": pytest.approx(0.2),
        "lift_rank_correlation": pytest.approx(ranks),
    }
    assert ranks == pytest.approx(0.5)
    one = smoke().summary({name: numbers[:1] for name, numbers in values.items()})
    assert "lift_rank_correlation" not in one


def test_wall_shear_is_that_of_a_plane_shear_flow() -> None:
    # A wall along (0.8, 0.6); u = 3 h along it at height h, and an eddy viscosity at the wall.
    along, normal = torch.tensor([0.8, 0.6]).double(), torch.tensor([-0.6, 0.8]).double()
    s = torch.linspace(0, 1, 11).double()
    heights = torch.tensor([0.0, 1e-3, 5e-3]).double()
    positions = (s[:, None, None] * along + heights[:, None] * normal).reshape(-1, 2)
    # Points lean along the wall, as those of skewed cells do; and there is flow through it.
    positions = positions + 0.3 * heights.repeat(11)[:, None] * along
    height = (positions * normal).sum(1)
    velocity = 3 * height[:, None] * along + 0.7 * height[:, None] * normal
    on = height.abs() < 1e-9
    eddy = torch.where(on, 2e-4, 5.0)
    order = torch.randperm(33, generator=torch.Generator().manual_seed(0))
    found = wall_shear(
        positions[order], velocity[order], eddy[order], on[order], normal.expand(11, 2)
    )
    expected = 3 * (VISCOSITY + 2e-4) * along
    torch.testing.assert_close(found, expected.expand(11, 2))


def test_drag_is_read_off_fields_that_stick_to_the_wall() -> None:
    task = smoke(path="somewhere")
    task._deviation = torch.ones(4).double()
    # A plate of length 1 along x in a stream along x: the friction is all there is.
    x = torch.linspace(0.05, 0.95, 10)
    points = torch.cat([torch.stack([x, 0 * x], 1), torch.stack([x, 0 * x + 1e-4], 1)])
    values = torch.zeros(20, 7)
    values[:, :2], values[:, 2] = points, 50.0
    values[:10, 6] = 1.0
    target = torch.zeros(20, 4)
    target[10:, 0] = 2.0
    surface = torch.cat([torch.full((10,), 0.1), torch.zeros(10)])
    batch = collate([Sample(points, values, target, surface=surface)])
    found = task.metrics(batch.target, batch)
    assert found["true_drag"].item() == pytest.approx(VISCOSITY * 2e4 * 2 / 50**2, rel=1e-4)
    assert found["true_lift"].item() == pytest.approx(0, abs=1e-12)


def test_a_loss_before_the_data_is_refused() -> None:
    batch = Batch(torch.zeros(1, 2, 2), None, torch.zeros(1, 2, 4), surface=torch.ones(1, 2))
    with pytest.raises(AssertionError, match="splits come before losses"):
        smoke().loss(batch.target, batch)


@pytest.mark.parametrize("profile", ["paper", "cpu", "smoke"])
@pytest.mark.parametrize("preset", ["paper", "modern"])
def test_the_settings_of_every_profile_train(
    tmp_path: Path, store: Store, profile: Profile, preset: Preset
) -> None:
    settings = Airfrans.defaults(profile, preset)
    assert changed(settings, json.loads(json.dumps(asdict(settings)))) == settings
    task = Airfrans(changed(settings, {"optimisation": {"epochs": 10}}))
    small = smoke()
    splits = small.splits(store)
    task._deviation = small._deviation
    surrogate = build_network(task)
    trainer = Trainer(
        task, splits, surrogate, tmp_path, fabric=Fabric(accelerator="cpu", devices=1)
    )
    before = {name: p.detach().clone() for name, p in surrogate.named_parameters()}
    trainer._train(0, 0, torch.arange(1))
    still = [n for n, p in surrogate.named_parameters() if torch.equal(p, before[n])]
    assert [n for n in still if not n.endswith("temperature")] == []


def test_too_few_cases_for_a_split_are_refused(store: Store) -> None:
    with pytest.raises(ValueError, match=r"data\.split: expected cases for training.*'scarce'"):
        smoke(split="scarce", train=2, validation=2, test=4).splits(store)
    with pytest.raises(ValueError, match="points: expected at least 1, got 0"):
        AirfransData(points=0)


def test_the_lattice_covers_the_box_of_the_benchmark() -> None:
    encoding = build_network(smoke()).network.encoding
    assert encoding.lower == (-2.0, -1.5)
    assert encoding.upper == (4.0, 1.5)
