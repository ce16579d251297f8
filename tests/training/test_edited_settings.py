"""A run whose settings.json was damaged or edited predicts as before, or says what changed."""

import json
import os
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import funcattn
from funcattn.data import Store, trapezoid_weights
from funcattn.errors import FuncattnError
from funcattn.serve import load
from funcattn.settings import changed
from funcattn.tasks import TASKS
from funcattn.tasks.darcy import Darcy
from funcattn.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from funcattn.training.run import Run, train
from funcattn.training.settings import default_settings
from funcattn.training.setup import RunError, check_box, read_settings

Numbers = torch.Tensor
Edit = Callable[[dict[str, Any]], None]
SPACE = torch.linspace(0, 1, 4)
POSITIONS = torch.cartesian_prod(SPACE, SPACE)
VALUES = POSITIONS[:, :1].cos() * 4 + 6


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Path:
    settings = changed(
        Darcy.defaults("smoke", "modern"),
        {"optimisation": {"epochs": 1}, "network": {"width": 8, "bases": 3}},
    )
    folder = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        train(settings, folder, store=store)
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def predicted(run: Path, **options: Any) -> Numbers:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return load(run, **options).predict(POSITIONS, VALUES, grid=(4, 4))


def edit(run: Path, change: Edit) -> None:
    path = run / "settings.json"
    saved = json.loads(path.read_text())
    change(saved)
    path.write_text(json.dumps(saved))


def values(path: str, value: object) -> Edit:
    def change(saved: dict[str, Any]) -> None:
        *parts, name = path.split(".")
        for part in parts:
            saved = saved[part]
        saved[name] = value

    return change


def mutations(content: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Damaged copies: bits, bytes, digits, cuts, splices, and lines that are lost or doubled."""
    rng = np.random.default_rng(seed)
    digits = [i for i, byte in enumerate(content) if chr(byte).isdigit()]
    for number in range(count):
        data = bytearray(content)
        place, length = int(rng.integers(len(data))), int(rng.integers(1, 64))
        match number % 7:
            case 0:
                data[place] ^= 1 << int(rng.integers(8))
            case 1:
                data[place] = int(rng.integers(256))
            case 2:
                del data[place:]
            case 3:
                other = int(rng.integers(len(data)))
                data[place : place + length] = data[other : other + length]
            case 4:
                data[digits[int(rng.integers(len(digits)))]] = int(rng.choice(list(b"0123456789-")))
            case 5:
                lines = bytes(data).splitlines(keepends=True)
                line = int(rng.integers(len(lines)))
                lines[line : line + 1] = [] if rng.integers(2) else [lines[line]] * 2
                data = bytearray(b"".join(lines))
            case 6:
                words = [b"true", b"false", b"null", b"1e9", b"-1", b"NaN", b"[]", b'"a"', b"0"]
                lines = bytes(data).splitlines(keepends=True)
                line = int(rng.integers(len(lines)))
                name, colon, _ = lines[line].partition(b": ")
                if colon:
                    lines[line] = name + colon + words[int(rng.integers(len(words)))] + b",\n"
                data = bytearray(b"".join(lines))
        yield bytes(data)


def attack(run: Path, count: int, seed: int) -> Counter[str]:
    """What comes of so many mutations; anything but the two good ends is an error of the test."""
    right, path = predicted(run), run / "settings.json"
    sound, ends = path.read_bytes(), Counter[str]()
    for number, content in enumerate(mutations(sound, count, seed)):
        path.write_bytes(content)
        try:
            end = "same" if torch.equal(predicted(run), right) else "other numbers"
        except (FuncattnError, ValueError) as error:
            end = "refused" if str(path) in str(error) else f"no file in {error}"
        assert end in ("same", "refused"), (number, end, content)
        ends[end] += 1
    return ends


@pytest.mark.usefixtures("as_a_user")
def test_damaged_settings_predict_the_same_or_are_refused(run: Path) -> None:
    ends = attack(run, 250, seed=1)
    assert ends["refused"] > 100
    assert ends["same"] > 5


@pytest.mark.full
@pytest.mark.usefixtures("as_a_user")
def test_so_do_thousands_of_them(run: Path) -> None:
    attack(run, 7000, seed=2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (values("network.projection", "transpose"), "network.projection was average and is tran"),
        (values("network.share_basis", True), "network.share_basis was False and is True"),
        (values("network.reach", 0.25), "network.reach was 0.125 and is 0.25"),
        (values("precision", "64-true"), "precision was 32-true and is 64-true"),
        (lambda saved: saved.pop("network"), "network.width was 8 and is 128"),
    ],
)
def test_an_edit_is_named_and_the_way_out_with_it(run: Path, change: Edit, said: str) -> None:
    edit(run, change)
    with pytest.raises((RunError, ValueError), match=said) as refusal:
        load(run)
    assert "--accept-edited" in str(refusal.value)


def test_a_deliberate_edit_is_accepted_when_asked_for(run: Path, store: Store) -> None:
    right = predicted(run)
    edit(run, values("network.projection", "transpose"))
    other = predicted(run, accept_edited=True)
    assert not torch.equal(other, right)
    assert torch.equal(
        Run(run, accept_edited=True).network(
            POSITIONS[None], VALUES[None], grid=(4, 4), weights=trapezoid_weights((4, 4))[None]
        )[0],
        other,
    )
    assert Run(run, accept_edited=True).evaluate("test", store)
    with pytest.raises(RunError, match="projection was average"):
        Run(run).evaluate("test", store)


def test_what_decides_no_number_may_be_edited(run: Path) -> None:
    right = predicted(run)
    edit(run, values("checkpoint_seconds", 1.0))
    assert torch.equal(predicted(run), right)


def test_a_run_of_an_earlier_version_is_loaded_as_ever(run: Path) -> None:
    right = predicted(run)
    (best,) = (run / "checkpoints").glob("best-*")
    saved = load_checkpoint(best)
    document = {name: value for name, value in saved.document.items() if name != "settings"}
    shutil.rmtree(best)
    save_checkpoint(best, Checkpoint(saved.tensors, document))
    assert torch.equal(predicted(run), right)


def test_the_package_itself_accepts_edits_too_when_asked(run: Path) -> None:
    edit(run, values("seed", 5))
    with pytest.raises(RunError, match="seed was 0 and is 5"):
        funcattn.load(run)
    assert funcattn.load(run, accept_edited=True)


def rewrite(checkpoint: Path, change: Edit) -> None:
    """Change the document of a checkpoint, sums included."""
    saved = load_checkpoint(checkpoint)
    change(saved.document)
    shutil.rmtree(checkpoint)
    save_checkpoint(checkpoint, saved)


def test_weights_for_points_in_another_box_are_refused(run: Path, store: Store) -> None:
    def moved(document: dict[str, Any]) -> None:
        document["box"] = [[-1.0, -1.0], [1.0, 1.0]]

    (best,) = (run / "checkpoints").glob("best-*")
    rewrite(best, moved)
    with pytest.raises(RunError, match=r"in the box .*1\.0.* of the task darcy, got those of .*-1"):
        load(run)
    for step in (run / "checkpoints").glob("step-*"):
        rewrite(step, moved)
    (run / "record.json").unlink()  # as if it were not finished
    with pytest.raises(RunError, match="train it again"):
        train(read_settings(run), run, store=store, resume=True)


@pytest.mark.parametrize(
    ("model", "changes", "told"),
    [
        ("lno", {}, True),
        ("functional_operator", {}, True),
        ("gino", {}, True),
        ("geo_fno", {}, True),
        ("funcattn", {"basis": "fourier"}, True),
        ("funcattn", {}, False),
        ("transolver", {}, False),
        ("pointnet2", {}, False),
    ],
)
def test_rna_runs_of_before_the_box_changed_are_refused(
    model: str, changes: dict[str, Any], told: bool, tmp_path: Path
) -> None:
    settings = changed(default_settings("rna", "smoke", "modern", model), {"network": changes})
    task = TASKS["rna"](settings)
    check_box({"box": [[-1.0] * 3, [1.0] * 3]}, task, tmp_path)
    if not told:
        check_box({}, task, tmp_path)
        return
    with pytest.raises(RunError, match=f"got none, for {model}, which depends on it; train it"):
        check_box({}, task, tmp_path)
