"""The signed list of a run: damage to whatever it reads again is noticed, edits are accepted."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import funcattn
from funcattn.fitting.packing import pack
from funcattn.surrogate import Surrogate
from funcattn.training import signed
from funcattn.training.setup import RunError
from funcattn.training.signed import check_signed, signed_file, write_signed

NAMES = (
    "record.json",
    "metrics.jsonl",
    "surrogate.json",
    "positions.npy",
    "yardsticks.json",
    "learning_curve.json",
)
RANDOM = np.random.default_rng(0)
POSITIONS = RANDOM.random((15, 2))
NUMBERS = RANDOM.random(12)
FIELDS = NUMBERS[:, None] * np.sin(POSITIONS[:, 0])


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    small = {"width": 8, "layers": 1, "heads": 2, "bases": 3}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        surrogate = Surrogate(epochs=2, network=small, folder=folder)
        surrogate.fit(NUMBERS, FIELDS, positions=POSITIONS).learning_curve((0.5,))
    return folder


@pytest.fixture
def run(fitted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(fitted, tmp_path / "run"))


def asked(run: Path, *, accept_edited: bool = False) -> list[object]:
    """Everything that a surrogate tells from its folder."""
    surrogate = funcattn.load(run, accept_edited=accept_edited)
    assert isinstance(surrogate, Surrogate)
    fields = surrogate.predict(NUMBERS[:2])
    names = json.loads(surrogate.run.file("surrogate.json").read_bytes())
    return [fields.tolist(), surrogate.summary(), surrogate.remarks(), surrogate.run.history, names]


def test_every_file_that_is_read_again_is_on_the_list(run: Path) -> None:
    assert sorted(json.loads((run / "checksums.json").read_text())) == sorted(NAMES)
    others = {"settings.json", "checksums.json", "metrics.csv"}  # compared by value; not read again
    there = {path.name for path in run.iterdir() if path.is_file() and path.name[0] != "."}
    assert there == {*NAMES, *others}


@pytest.mark.parametrize("name", NAMES)
def test_a_bit_that_flipped_is_noticed(run: Path, name: str) -> None:
    path = run / name
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(RunError, match=rf"{name}: expected the file as it was .*--accept-edited"):
        asked(run)


def test_what_was_edited_on_purpose_is_accepted_when_it_is_said(run: Path) -> None:
    before = asked(run)
    moved = POSITIONS + 0.01
    np.save(run / "positions.npy", moved)
    with pytest.raises(RunError, match="positions"):
        asked(run)
    after = asked(run, accept_edited=True)
    assert after[0] != before[0]
    assert after[1:] == before[1:]


def test_a_packed_run_is_checked_too(run: Path, tmp_path: Path) -> None:
    before = asked(run)
    pack(run, tmp_path / "run.zip")
    assert asked(tmp_path / "run.zip") == before
    np.save(run / "positions.npy", POSITIONS + 0.01)
    pack(run, tmp_path / "edited.zip")
    with pytest.raises(RunError, match="positions"):
        asked(tmp_path / "edited.zip")
    assert asked(tmp_path / "edited.zip", accept_edited=True)[0] != before[0]


def test_a_run_of_an_earlier_version_has_no_list_and_is_read(run: Path) -> None:
    before = asked(run)
    (run / "checksums.json").unlink()
    assert asked(run) == before


@pytest.mark.parametrize("content", ["[]", "3", '{"a": 1}', "[" * 100_000, "nonsense", "\xff"])
def test_a_list_that_is_none_is_refused(run: Path, content: str) -> None:
    (run / "checksums.json").write_text(content, encoding="latin-1")
    with pytest.raises(RunError, match=r"checksums\.json: expected .* got .*; bring the original"):
        asked(run)


CRAFTED = [
    ("record.json", '{"test": 3}'),
    ("record.json", '{"test": {"error": "a"}}'),
    ("yardsticks.json", '{"mean": {}}'),
    ("yardsticks.json", '{"mean": {"error": null}}'),
    ("learning_curve.json", '{"four": 0.1}'),
    ("learning_curve.json", '{"4": "a"}'),
    ("positions.npy", "none"),
]


@pytest.mark.parametrize(("name", "content"), CRAFTED)
def test_crafted_files_are_refused_by_words(run: Path, name: str, content: str) -> None:
    (run / name).write_text(content)
    with pytest.raises((RunError, ValueError), match=rf"{name}: expected .* got"):
        asked(run, accept_edited=True)


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("moment", [0, 1, 2])
def test_a_kill_leaves_the_old_file_or_the_new_one_and_no_false_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    path = tmp_path / "a.json"
    write_signed(path, "old")
    writes: list[Callable[..., None]] = [signed._write] * moment + [_killed] * 3

    def killed_then(*arguments: object) -> None:
        writes.pop(0)(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(signed, "_write", killed_then)
        if moment < 2:
            with pytest.raises(KeyboardInterrupt):
                write_signed(path, "new")
        else:
            write_signed(path, "new")
    assert path.read_text() == ("old" if moment == 0 else "new")
    check_signed(path)
    write_signed(path, "new")
    path.write_text("edited")
    with pytest.raises(RunError, match="expected the file as it was written"):
        check_signed(path)


def test_an_error_while_writing_leaves_file_and_list_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_signed(path, "old")
    with pytest.raises(UnicodeEncodeError), signed_file(path) as aside:
        aside.write_text("half of the n\udc00", encoding="utf-8")
    assert path.read_text() == "old"
    check_signed(path)
