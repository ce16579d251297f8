from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from funcattn import FunctionalAttention, OperatorTransformer
from funcattn.data import Sample, Store, collate
from funcattn.settings import Preset, Profile
from funcattn.tasks.base import Splits
from funcattn.tasks.rna import Rna, RnaData, random_rotation

NOWHERE = Store(Path("not used"))
TRAIN = [f"train{i:02d}" for i in range(23)]
TEST = [f"test{i}" for i in range(4)]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ready file of small clouds; the labels are the octants, the first point tells the cloud."""
    random = np.random.default_rng(0)
    count = np.array([20 + i % 3 for i in range(len(TRAIN) + len(TEST))])
    points = random.normal(size=(count.sum(), 3)).astype(np.float32)
    path = tmp_path_factory.mktemp("rna") / "clouds.npz"
    np.savez(
        path,
        points=points,
        labels=((points > 0) @ [1, 2, 4]).astype(np.int16),
        count=count.astype(np.int32),
        name=np.array(TRAIN + TEST),
        split=np.array(["train"] * len(TRAIN) + ["test"] * len(TEST)),
        mesh_vertices=count.astype(np.int32),
    )
    return path


def task(path: Path | str | None, **data: int) -> Rna:
    settings = Rna.defaults("paper", "paper")
    where = None if path is None else str(path)
    return Rna(replace(settings, data=replace(settings.data, path=where, **data)))


def splits(path: Path | str | None, **data: int) -> Splits:
    return task(path, **data).splits(NOWHERE)


def first_points(file: Path) -> dict[tuple[float, ...], str]:
    """The name of the cloud with that first point."""
    with np.load(file) as archive:
        starts = np.cumsum(archive["count"]) - archive["count"]
        points, names = archive["points"][starts], archive["name"]
    return {tuple(point.tolist()): str(name) for point, name in zip(points, names, strict=True)}


def test_the_last_tenth_of_the_training_list_validates_and_the_test_list_tests(file: Path) -> None:
    names, parts = first_points(file), splits(file)
    got = [
        [names[tuple(sample.positions[0].tolist())] for sample in part]
        for part in (parts.train, parts.validation, parts.test)
    ]
    assert got == [TRAIN[:21], TRAIN[21:], TEST]


def test_fewer_samples_and_points_are_the_first_ones(file: Path) -> None:
    whole, some = splits(file), splits(file, train=5, validation=1, test=2, points=9)
    for name, length in (("train", 5), ("validation", 1), ("test", 2)):
        long, short = getattr(whole, name), getattr(some, name)
        assert len(short) == length
        for one, other in zip(short, long[:length], strict=True):
            assert torch.equal(one.positions, other.positions[:9])
            assert torch.equal(one.target, other.target[:9])


def test_samples_are_points_with_labels(file: Path) -> None:
    sample = splits(file).train[1]
    assert sample.positions.shape == (21, 3)
    assert sample.values is None
    assert sample.target.dtype == torch.int64
    assert torch.equal(sample.target, (sample.positions > 0).long() @ torch.tensor([1, 2, 4]))


def test_the_fingerprint_is_of_the_content(file: Path, tmp_path: Path) -> None:
    one = splits(file).fingerprint
    assert splits(file).fingerprint == one
    copied = tmp_path / "copy.npz"
    copied.write_bytes(file.read_bytes())
    assert splits(copied).fingerprint == one
    with np.load(file) as archive:
        arrays = dict(archive)
    for key in ("points", "labels"):
        changed = dict(arrays) | {key: arrays[key][::-1]}
        np.savez(tmp_path / "changed.npz", **changed)
        assert splits(tmp_path / "changed.npz").fingerprint != one
    assert splits(file, points=10).fingerprint != one


def test_progress_is_reported(file: Path) -> None:
    told: list[tuple[int, int]] = []
    task(file).splits(replace(NOWHERE, advance=lambda done, total: told.append((done, total))))
    assert told[-1] == (27, 27)


def test_a_folder_in_the_public_layout_is_read_too(tmp_path: Path) -> None:
    for part in ("off", "labels"):
        (tmp_path / part).mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "off" / f"{name}.off").write_text("OFF\n3 0 0\n0 0 0\n1 0 0\n0 5 0\n")
        (tmp_path / "labels" / f"{name}.txt").write_text("7\n-1\n258\n")
    (tmp_path / "train.txt").write_text("a.off\nb.off\n")
    (tmp_path / "test.txt").write_text("c.off\n")
    parts = splits(tmp_path, points=2)
    assert [len(part) for part in (parts.train, parts.validation, parts.test)] == [1, 1, 1]
    assert parts.test[0].target.tolist() == [8, 259]


@pytest.mark.parametrize("path", [None, "nowhere/to/be/found"])
def test_without_data_the_error_says_what_to_get_and_how_to_give_it(path: str | None) -> None:
    with pytest.raises(FileNotFoundError) as error:
        splits(path)
    for part in (
        "data.path",
        "RNA Surface Segmentation Dataset (Poulenard et al. 2019, MIT licence)",
        path or "no path",
        "off/NAME.off, labels/NAME.txt, train.txt and test.txt",
        "rna_points_fps4096.npz",
        "funcattn train rna --data.path PATH",
    ):
        assert part in str(error.value)


def test_rotations_are_rotations(generator: torch.Generator) -> None:
    identity = torch.eye(3, dtype=torch.float64)
    for _ in range(50):
        rotation = random_rotation(generator)
        torch.testing.assert_close(rotation @ rotation.T, identity)
        assert torch.linalg.det(rotation).item() == pytest.approx(1)


def test_rotations_are_uniform(generator: torch.Generator) -> None:
    """Moments of the matrices, and of the angle, whose density is (1 - cos t) / pi."""
    rotations = torch.stack([random_rotation(generator) for _ in range(4000)])
    flat = rotations.flatten(1)
    assert flat.mean(0).abs().max() < 4 / np.sqrt(3 * 4000)
    # Entries are uncorrelated with variance 1/3.
    second = flat.T @ flat / 4000
    torch.testing.assert_close(second, torch.eye(9, dtype=torch.float64) / 3, rtol=0, atol=0.03)
    # An entry, a coordinate of the image of a unit vector, is uniform in [-1, 1] (Archimedes).
    for entries in flat.T:
        uniform = (torch.sort(entries).values + 1) / 2
        distance = (uniform - (torch.arange(4000) + 0.5) / 4000).abs().max()
        assert distance < 2 / np.sqrt(4000)
    angle = torch.arccos((rotations.diagonal(dim1=1, dim2=2).sum(1).clamp(-1, 3) - 1) / 2)
    assert angle.mean().item() == pytest.approx(np.pi / 2 + 2 / np.pi, abs=0.04)


def test_augmentation_turns_the_points_and_leaves_the_labels(
    file: Path, generator: torch.Generator
) -> None:
    rna, sample = task(file), splits(file).train[0]
    turned = rna.augmented(sample, generator)
    assert torch.equal(turned.target, sample.target)
    assert turned.positions.dtype == sample.positions.dtype
    assert not torch.allclose(turned.positions, sample.positions, atol=0.1)
    torch.testing.assert_close(
        torch.cdist(turned.positions, turned.positions),
        torch.cdist(sample.positions, sample.positions),
        rtol=0,
        atol=1e-3,
    )
    again = rna.augmented(sample, generator.manual_seed(0))
    assert torch.equal(again.positions, turned.positions)
    assert not torch.equal(rna.augmented(sample, generator).positions, turned.positions)


def test_loss_and_accuracy_are_over_the_real_points(file: Path, generator: torch.Generator) -> None:
    rna, samples = task(file), splits(file).train[:3]
    batch = collate(samples)
    assert batch.mask is not None
    logits = torch.randn(*batch.target.shape, 260, generator=generator)
    logits[..., 0] += 5 * (~batch.mask)  # would be right where padding is
    loss, accuracy = rna.loss(logits, batch), rna.metrics(logits, batch)["accuracy"]
    for i, sample in enumerate(samples):
        real = logits[i, : len(sample.target)]
        expected = -real.log_softmax(-1).gather(1, sample.target[:, None]).mean()
        torch.testing.assert_close(loss[i], expected)
        hits = (real.argmax(-1) == sample.target).float().mean()
        torch.testing.assert_close(accuracy[i], hits)


def network(rna: Rna) -> OperatorTransformer:
    how = rna.settings.network
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return OperatorTransformer(
            rna.problem.space,
            rna.problem.input_channels,
            rna.problem.output_channels,
            width=how.width,
            layers=how.layers,
            attention=partial(FunctionalAttention, heads=how.heads, bases=how.bases),
            mlp_ratio=how.mlp_ratio,
        )


@pytest.mark.parametrize("preset", get_args(Preset))
@pytest.mark.parametrize("profile", get_args(Profile))
def test_a_network_of_the_default_settings_takes_a_batch(
    file: Path, profile: Profile, preset: Preset
) -> None:
    settings = Rna.defaults(profile, preset)
    rna = Rna(replace(settings, data=replace(settings.data, path=str(file))))
    assert isinstance(settings.data, RnaData)
    parts = rna.splits(NOWHERE)
    batch = collate(parts.train[:2])
    prediction = rna.predict(network(rna), batch)
    assert prediction.shape == (*batch.target.shape, 260)
    assert rna.loss(prediction, batch).isfinite().all()
    assert list(rna.metrics(prediction, batch)) == [rna.headline]


def test_a_small_network_learns_the_octants(file: Path) -> None:
    rna = Rna(Rna.defaults("smoke", "paper"))
    model = network(rna)
    batch = collate(splits(file).train)
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    losses: list[Tensor] = []
    for _ in range(40):
        loss = rna.loss(rna.predict(model, batch), batch).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.detach())
    assert losses[0] > 5
    assert losses[-1] < 0.5 * losses[0]
    assert rna.metrics(rna.predict(model, batch), batch)["accuracy"].mean() > 0.4


def test_clouds_have_points() -> None:
    with pytest.raises(ValueError, match="points: expected at least 1, got 0"):
        RnaData(points=0)


def test_larger_accuracy_is_better() -> None:
    assert Rna.larger_is_better
    perfect = torch.nn.functional.one_hot(torch.tensor([[3, 5]]), 260).float()
    batch = collate([Sample(torch.zeros(2, 3), None, torch.tensor([3, 5]))])
    rna = task(None)
    assert rna.metrics(perfect, batch)["accuracy"].item() == 1
    assert rna.metrics(-perfect, batch)["accuracy"].item() == 0
