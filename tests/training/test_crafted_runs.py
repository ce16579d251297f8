"""Runs that somebody crafted, with all checksums right, are refused by words."""

# ruff: noqa: ARG005

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from funcattn.data import Store
from funcattn.errors import FuncattnError
from funcattn.serve import load
from funcattn.settings import changed
from funcattn.tasks.darcy import Darcy
from funcattn.training.checkpoint import (
    Checkpoint,
    CheckpointError,
    load_checkpoint,
    save_checkpoint,
)
from funcattn.training.run import Run, train
from funcattn.training.settings import saved_settings
from funcattn.training.setup import RunError, build_network

pytestmark = pytest.mark.usefixtures("as_a_user")

Document = dict[str, Any]
SETTINGS = changed(
    Darcy.defaults("smoke", "modern"),
    {"optimisation": {"epochs": 2}, "network": {"width": 8, "bases": 3}},
)
PLAIN: Document = json.loads(json.dumps(asdict(SETTINGS)))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        train(SETTINGS, folder, store=store)
    (folder / "record.json").unlink()  # so that it can be resumed
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def craft(folder: Path, change: Callable[[Document, dict[str, dict[str, Tensor]]], None]) -> None:
    """A checkpoint with other contents, and their right sums."""
    saved = load_checkpoint(folder)
    document = json.loads(json.dumps(saved.document))
    tensors = {name: dict(group) for name, group in saved.tensors.items()}
    change(document, tensors)
    shutil.rmtree(folder)
    save_checkpoint(folder, Checkpoint(tensors, document))


def with_value(path: str, value: object) -> Document:
    made: Document = json.loads(json.dumps(PLAIN))
    *parts, name = path.split(".")
    inner = made
    for part in parts:
        inner = inner[part]
    inner[name] = value
    return made


ABSURD = [-1, 0, 10**9, 10**30, 1.5, True, "a", [], {}, float("inf"), float("nan"), [[[[]]]]]


@pytest.mark.parametrize("value", ABSURD, ids=str)
@pytest.mark.parametrize("name", ["width", "layers", "heads", "bases"])
def test_absurd_sizes_are_refused_before_anything_is_built(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"{name}: expected .* got"):
        saved_settings(with_value(f"network.{name}", value))


@pytest.mark.parametrize("value", [-1, 2**63, 1.5, "a", None])
def test_absurd_seeds_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="seed: expected"):
        saved_settings(with_value("seed", value))


@pytest.mark.parametrize("value", [10**400, -(10**400), float("inf")])
def test_numbers_without_end_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="expected a finite number"):
        saved_settings(with_value("optimisation.rate", value))


@pytest.mark.parametrize("name", ["task", "model"])
@pytest.mark.parametrize("value", [[], {}, 3, None, "", "darci"])
def test_names_that_are_none_are_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"{name}: expected"):
        saved_settings(with_value(name, value))


def test_a_network_that_memory_cannot_hold_is_refused_with_the_figure() -> None:
    settings = saved_settings(with_value("network.width", 2**20))
    with pytest.raises(ValueError, match=r"fit into .* GB, .* got 4?.* GB of them .* smaller"):
        build_network(Darcy(settings))


@pytest.mark.parametrize(
    "content",
    [b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe", b"null", b"3", b'"darcy"', b'{"task": []}',
     b'{"task": {"darcy": 1}}', b"9" * 5000],
    ids=lambda content: content[:12].decode(errors="replace"),
)  # fmt: skip
def test_settings_that_are_no_settings_are_refused(run: Path, content: bytes) -> None:
    (run / "settings.json").write_bytes(content)
    with pytest.raises(RunError, match=r"settings\.json: expected .* got"):
        load(run)


def best(run: Path) -> Path:
    return sorted((run / "checkpoints").glob("best-*"))[-1]


def newest(run: Path) -> Path:
    return sorted((run / "checkpoints").glob("step-*"))[-1]


@pytest.mark.parametrize("number", [torch.inf, -torch.inf, torch.nan])
def test_weights_that_are_not_finite_are_refused_by_name(run: Path, number: float) -> None:
    def change(_: Document, tensors: dict[str, dict[str, Tensor]]) -> None:
        tensors["model"]["network.head.bias"] = torch.full((1,), number)

    craft(best(run), change)
    with pytest.raises(CheckpointError, match=r"network\.head\.bias: expected finite weights"):
        load(run)


def test_weights_of_another_kind_are_refused_by_name(run: Path) -> None:
    def change(_: Document, tensors: dict[str, dict[str, Tensor]]) -> None:
        tensors["model"]["network.head.bias"] = torch.ones(1, dtype=torch.long)

    craft(best(run), change)
    with pytest.raises(CheckpointError, match=r"network\.head\.bias: expected .*float32, got .*64"):
        load(run)


def test_a_checkpoint_without_a_model_is_refused(run: Path) -> None:
    craft(best(run), lambda _, tensors: tensors.update(other=tensors.pop("model")))
    with pytest.raises(CheckpointError, match=r"expected a file model\.safetensors, got other"):
        load(run)


@pytest.mark.parametrize("kept", [[], {}, 3, {"task": "x"}, {"task": "darcy", "sed": 1}])
def test_settings_in_a_checkpoint_that_are_none_are_refused(run: Path, kept: object) -> None:
    craft(best(run), lambda document, _: document.update(settings=kept))
    with pytest.raises(CheckpointError, match="expected the settings of the run"):
        load(run)


WRONG = [None, [], {}, "a", -1, True, 1.5, 10**30]


@pytest.mark.parametrize(
    "path",
    ["state", "settings", "optimisers", "fingerprint", "state.epoch", "state.step", "state.losses",
     "state.history", "state.best_epoch", "state.best_value", "state.seconds", "state.more"],
)  # fmt: skip
def test_a_state_with_a_wrong_or_missing_value_is_refused(
    run: Path, store: Store, path: str
) -> None:
    *parts, name = path.split(".")
    sound, refused = load_checkpoint(newest(run)).document, 0
    for number, value in enumerate([*WRONG, ...]):

        def change(document: Document, _: object, value: object = value) -> None:
            inner = document
            for part in parts:
                inner = inner[part]
            inner.pop(name, None)
            if value is not ...:
                inner[name] = value

        folder = Path(shutil.copytree(run, run.with_name(f"copy{number}")))
        craft(newest(folder), change)
        if load_checkpoint(newest(folder)).document == sound:
            continue
        try:
            train(SETTINGS, folder, store=store, resume=True)
        except FuncattnError as error:
            assert "expected" in str(error) or "changed since" in str(error), error  # noqa: PT017
            refused += 1
        assert Run(folder).state
    assert refused > 3


@pytest.mark.parametrize(
    "change",
    [
        lambda d, t: d["optimisers"].pop(),
        lambda d, t: d["optimisers"][0].pop("groups"),
        lambda d, t: d["optimisers"][0].pop("numbers"),
        lambda d, t: d["optimisers"][0].update(groups=[]),
        lambda d, t: d["optimisers"][0].update(groups=3),
        lambda d, t: d["optimisers"][0].update(numbers=[1]),
        lambda d, t: d["optimisers"][0].update(numbers={"a": 1}),
        lambda d, t: d["optimisers"][0].update(numbers={"99.step": 1}),
        lambda d, t: d["optimisers"][0]["groups"][0].update(lr="fast"),
        lambda d, t: d["optimisers"][0]["groups"][0].pop("lr"),
        lambda d, t: d["optimisers"][0]["groups"][0].update(params=[0]),
        lambda d, t: d["optimisers"].__setitem__(0, None),
        lambda d, t: t.pop("optimiser0"),
        lambda d, t: t.update(optimiser0={"a": torch.ones(1)}),
        lambda d, t: t["optimiser0"].update({k: torch.ones(7, 7, 7) for k in t["optimiser0"]}),
    ],
)  # fmt: skip
def test_an_optimiser_that_is_none_is_refused(
    run: Path, store: Store, change: Callable[[Any, Any], None]
) -> None:
    craft(newest(run), change)
    with pytest.raises(CheckpointError, match=r"expected .* got"):
        train(SETTINGS, run, store=store, resume=True)


@pytest.mark.parametrize(
    "sums", [b"[]", b"3", b"null", b'["state.json"]', b'{"state.json": 3}', b"[" * 100_000,
             b'{"../../../settings.json": "0"}', b'{"/etc/hostname": "0"}'],
)  # fmt: skip
def test_sums_that_are_none_are_refused(run: Path, sums: bytes) -> None:
    (best(run) / "checksums.json").write_bytes(sums)
    with pytest.raises(CheckpointError, match=r"not a whole checkpoint|altered"):
        load(run)


def test_deep_documents_are_refused(run: Path) -> None:
    import hashlib

    deep = b"[" * 100_000
    sums = json.loads((best(run) / "checksums.json").read_text())
    (best(run) / "state.json").write_bytes(deep)
    sums["state.json"] = hashlib.sha256(deep).hexdigest()
    (best(run) / "checksums.json").write_text(json.dumps(sums))
    with pytest.raises(CheckpointError, match="not a checkpoint of this kind"):
        load(run)


def test_folders_with_other_names_are_no_checkpoints(run: Path, store: Store) -> None:
    for name in ("best-last", "step-", "best-000002-copy"):
        (run / "checkpoints" / name).mkdir()
    assert load(run)
    assert train(SETTINGS, run, store=store, resume=True).finished


@pytest.mark.parametrize("content", ["[" * 100_000, "nonsense", "[]"])
def test_records_and_histories_that_are_none_are_refused(run: Path, content: str) -> None:
    (run / "record.json").write_text(content)
    (run / "metrics.jsonl").write_text(content)
    crafted, damaged = Run(run, accept_edited=True), r"expected the file as it was written, got"
    with pytest.raises(RunError, match=r"record\.json: expected JSON|names with values"):
        _ = crafted.record
    with pytest.raises(RunError, match=r"metrics\.jsonl, line 1: expected .* got"):
        _ = crafted.history
    with pytest.raises(RunError, match=rf"record\.json: {damaged}"):
        _ = Run(run).record
    with pytest.raises(RunError, match=rf"metrics\.jsonl: {damaged}"):
        _ = Run(run).history
