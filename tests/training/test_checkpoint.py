"""Checkpoints are whole or not there, and loading them runs no code."""

import errno
import io
import json
import os
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

import funcattn
from funcattn.models import build_model
from funcattn.problem import Field, Problem
from funcattn.settings import FunctionalSettings
from funcattn.training.checkpoint import (
    Checkpoint,
    CheckpointError,
    load_checkpoint,
    model_tensors,
    optimiser_document,
    optimiser_tensors,
    restore_model,
    restore_optimiser,
    save_checkpoint,
)


def example(number: float = 1.0) -> Checkpoint:
    tensors = {
        "model": {"weight": torch.full((3, 4), number).T, "count": torch.tensor(7)},
        "optimiser0": {"0.step": torch.tensor(2.0), "half": torch.ones(2, dtype=torch.bfloat16)},
    }
    return Checkpoint(tensors, {"epoch": 3, "history": [{"loss": 0.1 + 0.2}]})


def same(a: Checkpoint, b: Checkpoint) -> bool:
    return a.document == b.document and all(
        torch.equal(tensor, b.tensors[group][name]) and tensor.dtype == b.tensors[group][name].dtype
        for group, tensors in a.tensors.items()
        for name, tensor in tensors.items()
    )


def transformer(*, share_basis: bool, seed: int = 0) -> nn.Module:
    settings = FunctionalSettings(width=8, layers=3, heads=2, bases=3, share_basis=share_basis)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build_model("funcattn", settings, Problem(2, (Field("a"),), (Field("u"),)))


def test_what_is_saved_is_loaded_to_the_bit(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "deep" / "one", example())
    assert same(example(), load_checkpoint(tmp_path / "deep" / "one"))


def test_a_checkpoint_is_safetensors_and_json_only(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "one", example())
    files = {path.name for path in (tmp_path / "one").iterdir()}
    assert files == {
        "model.safetensors",
        "optimiser0.safetensors",
        "state.json",
        "checksums.json",
    }


def test_loading_unpickles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path / "one", example())

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError(f"unpickled {arguments} {options}")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(torch, "load", refuse)
    assert same(example(), load_checkpoint(tmp_path / "one"))


def test_no_pickle_is_read_in_training_or_prediction() -> None:
    source = Path(funcattn.__file__).parent
    for part in ("training", "serve", "tasks"):
        for path in (source / part).rglob("*.py"):
            text = path.read_text()
            for forbidden in ("torch.load", "pickle.load", "allow_pickle=True", "import pickle"):
                assert forbidden not in text, path


def no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullDisk(io.FileIO):
    """A file on a disk with room for so many bytes."""

    room = 0

    def write(self, content: object) -> int:  # type: ignore[override]
        assert isinstance(content, bytes | memoryview)
        if len(content) > FullDisk.room:
            no_space()
        FullDisk.room -= len(content)
        return super().write(content)


@pytest.mark.parametrize("room", [0, 100, 700])
def test_a_full_disk_is_reported_and_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    save_checkpoint(tmp_path / "one", example(1))
    monkeypatch.setattr(FullDisk, "room", room)
    monkeypatch.setattr(
        Path,
        "open",
        lambda path, mode: FullDisk(path, mode.replace("b", "")),
    )
    with pytest.raises(CheckpointError, match=r"two could not be written \(No space left") as error:
        save_checkpoint(tmp_path / "two", example(2))
    assert "what was saved before is untouched" in str(error.value)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    assert same(example(1), load_checkpoint(tmp_path / "one"))


@pytest.mark.parametrize("call", ["mkdir", "fsync", "rename"])
def test_a_disk_that_fails_at_any_call_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(Path if call == "mkdir" else os, call, no_space)
    with pytest.raises(CheckpointError, match="No space left"):
        save_checkpoint(tmp_path / "one", example())
    assert list(tmp_path.iterdir()) == []


def test_the_remains_of_a_killed_save_are_in_nobodys_way(tmp_path: Path) -> None:
    remains = tmp_path / ".one.part"
    remains.mkdir()
    (remains / "model.safetensors").write_bytes(b"half of")
    save_checkpoint(tmp_path / "one", example())
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


@pytest.mark.parametrize(
    "file", ["model.safetensors", "optimiser0.safetensors", "state.json", "checksums.json"]
)
@pytest.mark.parametrize("damage", ["cut", "empty", "bit", "missing"])
def test_damage_to_any_file_is_noticed(tmp_path: Path, file: str, damage: str) -> None:
    save_checkpoint(tmp_path / "one", example())
    path = tmp_path / "one" / file
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "bit":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    else:
        path.write_bytes(content[: len(content) // 2 if damage == "cut" else 0])
    with pytest.raises(CheckpointError, match="one"):
        load_checkpoint(tmp_path / "one")


@pytest.mark.parametrize("content", ["null", "7", "[]", "{}", '{"state.json": 0}', '["../x"]'])
def test_checksums_of_another_kind_are_refused(tmp_path: Path, content: str) -> None:
    save_checkpoint(tmp_path / "one", example())
    (tmp_path / "one" / "checksums.json").write_text(content)
    with pytest.raises(CheckpointError, match="one"):
        load_checkpoint(tmp_path / "one")


@pytest.mark.parametrize("share_basis", [False, True])
def test_a_model_is_saved_without_duplicates_and_restored(
    tmp_path: Path, share_basis: bool
) -> None:
    model = transformer(share_basis=share_basis)
    tensors = model_tensors(model)
    assert len({tensor.data_ptr() for tensor in tensors.values()}) == len(tensors)
    if share_basis:
        assert len(tensors) < len(model.state_dict())
    save_checkpoint(tmp_path / "one", Checkpoint({"model": tensors}, {}))
    other = transformer(share_basis=share_basis, seed=1)
    restore_model(other, load_checkpoint(tmp_path / "one").tensors["model"])
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name


def test_weights_of_another_network_are_refused_by_name() -> None:
    tensors = dict(model_tensors(transformer(share_basis=False)))
    model = transformer(share_basis=False, seed=1)
    before = {name: tensor.clone() for name, tensor in model_tensors(model).items()}
    with pytest.raises(
        CheckpointError, match=r"in 1 tensors, .* head.bias: expected \(1,\), got \(2,\)"
    ):
        restore_model(model, tensors | {"head.bias": torch.zeros(2)})
    with pytest.raises(CheckpointError, match=r"extra: expected None, got \(\)"):
        restore_model(model, tensors | {"extra": torch.tensor(0)})
    del tensors["head.bias"]
    with pytest.raises(CheckpointError, match=r"head.bias: expected \(1,\), got None"):
        restore_model(model, tensors)
    # Refused before anything was copied.
    assert all(torch.equal(before[name], t) for name, t in model_tensors(model).items())


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.Muon])
def test_an_optimiser_goes_on_from_files_as_if_nothing_had_happened(tmp_path: Path, kind) -> None:
    def stepped(weight: nn.Parameter, optimiser: torch.optim.Optimizer, steps: int) -> None:
        for _ in range(steps):
            optimiser.zero_grad()
            weight.sin().sum().backward()
            optimiser.step()

    start = torch.linspace(0, 1, 12).reshape(3, 4)
    weight = nn.Parameter(start.clone())
    optimiser = kind([weight], lr=0.1)
    stepped(weight, optimiser, 3)
    saved = Checkpoint({"o": optimiser_tensors(optimiser)}, optimiser_document(optimiser))
    save_checkpoint(tmp_path / "one", saved)

    again = nn.Parameter(weight.detach().clone())
    other = kind([again], lr=0.5)
    loaded = load_checkpoint(tmp_path / "one")
    restore_optimiser(other, loaded.tensors["o"], loaded.document)
    stepped(weight, optimiser, 3)
    stepped(again, other, 3)
    assert torch.equal(weight, again)


def test_numbers_survive_json(tmp_path: Path) -> None:
    document = {"a": 0.1 + 0.2, "b": 1e-310, "c": float("inf"), "d": [1, None, True, "é"]}
    save_checkpoint(tmp_path / "one", Checkpoint({}, document))
    assert load_checkpoint(tmp_path / "one").document == document
    assert json.loads((tmp_path / "one" / "state.json").read_text()) == document
