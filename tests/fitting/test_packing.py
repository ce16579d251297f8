import zipfile
from pathlib import Path

import pytest

from funcattn.fitting.packing import copy_run, pack, temporary_folder, unpack


def run_folder(folder: Path) -> Path:
    """What a run with two kept checkpoints leaves."""
    for name in ("step-000000008", "best-000001", "best-000002"):
        (folder / "checkpoints" / name).mkdir(parents=True)
        (folder / "checkpoints" / name / "model.safetensors").write_bytes(name.encode())
    (folder / "settings.json").write_text("{}")
    (folder / ".lock").touch()
    (folder / "no_attention").mkdir()
    return folder


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


NEEDED = {"settings.json", "checkpoints/best-000002/model.safetensors"}


def test_what_prediction_needs_is_packed_and_comes_back(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run")
    pack(run, tmp_path / "run.zip")
    (tmp_path / "again").mkdir()
    unpack(tmp_path / "run.zip", tmp_path / "again")
    assert files(tmp_path / "again") == NEEDED
    copy_run(run, tmp_path / "copy")
    assert files(tmp_path / "copy") == NEEDED


def test_what_is_no_run_is_not_packed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"got one without settings\.json"):
        pack(tmp_path, tmp_path / "run.zip")
    (tmp_path / "settings.json").write_text("{}")
    with pytest.raises(ValueError, match="expected a run with trained weights"):
        pack(tmp_path, tmp_path / "run.zip")
    with pytest.raises(ValueError, match=r"expected a name that ends in \.zip"):
        pack(run_folder(tmp_path / "run"), tmp_path / "run.tar")
    assert not (tmp_path / "run.zip").exists()


@pytest.mark.parametrize("name", ["../outside", "/absolute", "a/../../b", "c:evil", "a\\b"])
def test_an_archive_cannot_write_elsewhere(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr(name, "x")
    (tmp_path / "inside").mkdir()
    with pytest.raises(ValueError, match="expected files of a run, got"):
        unpack(tmp_path / "bad.zip", tmp_path / "inside")
    assert not files(tmp_path / "inside")


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.zip").write_text("no archive")
    with pytest.raises(ValueError, match=r"bad\.zip: expected a run of `funcattn pack`"):
        unpack(tmp_path / "bad.zip", tmp_path)


def test_a_temporary_folder_goes_with_its_owner() -> None:
    class Owner:
        pass

    owner = Owner()
    folder = temporary_folder(owner)
    assert folder.is_dir()
    del owner
    assert not folder.exists()
