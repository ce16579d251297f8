"""A trained run as one file: what it needs to predict, and nothing else."""

import re
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Iterator
from pathlib import Path

from funcattn.data.foreign import FileError, check_file, reading
from funcattn.files import whole_file
from funcattn.training.run import Run

MOST_BYTES = 16 * 2**30
MOST_FILES = 1000


def needed(folder: Path) -> list[Path]:
    """The files of a run that predicting, comparing and reading about it need."""
    if not (folder / "settings.json").exists():
        raise ValueError(f"{folder}: expected the folder of a run, got one without settings.json")
    if not list((folder / "checkpoints").glob("best-*")):
        raise ValueError(f"{folder}: expected a run with trained weights, got one without")
    files = [path for path in folder.iterdir() if path.is_file()]
    newest = sorted((folder / "checkpoints").glob("best-*"))[-1]
    files += [path for path in newest.iterdir() if path.is_file()]
    files = [path for path in files if not path.name.startswith(".")]
    for member in Run(folder).members:
        files += needed(member.folder)
    return sorted(files)


def copy_run(folder: Path, target: Path) -> None:
    """Copy what a run needs to predict into another folder."""
    for path in needed(folder):
        place = target / path.relative_to(folder)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place)


def pack(folder: Path, path: Path) -> None:
    """Write a run as a .zip file, whole or not at all."""
    if path.suffix != ".zip":
        raise ValueError(f"{path}: expected a name that ends in .zip")
    files = needed(folder)
    with whole_file(path) as aside, zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in files:
            archive.write(each, each.relative_to(folder).as_posix())


def temporary_folder(owner: object) -> Path:
    """A folder that goes when its owner does."""
    folder = tempfile.mkdtemp(prefix="funcattn-")
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def unpack(path: Path, folder: Path) -> None:
    """Write the run in a .zip file into a folder."""
    check_file(path)
    for name, chunk in _contents(path):
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("ab") as target:
            target.write(chunk)


def _contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """The files in an archive, piece by piece."""
    with reading(path, "a run of `funcattn pack`"), zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        _check(path, members)
        for member in members:
            with archive.open(member) as source:
                yield member.filename, b""
                while chunk := source.read(2**20):
                    yield member.filename, chunk


def _check(path: Path, members: list[zipfile.ZipInfo]) -> None:
    """Refuse what would be written outside of the folder, or would fill the disk."""
    for member in members:
        if not re.fullmatch(
            r"(members/\d{1,3}/)?(checkpoints/best-\d{1,18}/)?\w[\w.-]{0,99}", member.filename
        ):
            raise FileError(
                path, "files of a run", repr(member.filename), "take one of `funcattn pack`"
            )
    size = sum(member.file_size for member in members)
    if size > MOST_BYTES or len(members) > MOST_FILES:
        raise FileError(
            path,
            f"a run of at most {MOST_FILES} files and {MOST_BYTES:,} bytes",
            f"{len(members)} files of {size:,} bytes",
            "take one of `funcattn pack`",
        )
