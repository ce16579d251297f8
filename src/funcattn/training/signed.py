"""The signed list of a run: checksums of the files beside its checkpoints that are read again.

Checkpoints have lists of their own, which also cover the settings that the weights were trained
with. Whatever else a run reads again (its record, its history, the points and names of a fit) is
written here, and compared with its checksum before it is read. Files of earlier versions are not
listed, and are read as they are.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from funcattn.files import whole_file, write_text
from funcattn.training.setup import RunError, read_json

LIST = "checksums.json"


@contextmanager
def signed_file(path: Path) -> Iterator[Path]:
    """Where to write what is to become the file `path` of a run, as `whole_file`, and list it.

    A kill at any moment leaves the old file, or the new one without its checksum.
    """
    listed = _listed(path.parent)
    with whole_file(path) as aside:
        yield aside
        found = _digest(aside)
        if listed.get(path.name, found) != found:
            del listed[path.name]
            _write(path.parent, listed)
    if path.name not in listed:
        _write(path.parent, listed | {path.name: found})


def write_signed(path: Path, text: str) -> None:
    """Write a text file of a run, in UTF-8, and list it."""
    with signed_file(path) as aside:
        aside.write_text(text, encoding="utf-8")


def check_signed(path: Path) -> None:
    """Refuse a file of a run that is not as it was written.

    Raises:
        RunError: its checksum is another one than the list has.
    """
    expected = _listed(path.parent).get(path.name)
    if expected is not None and _digest(path) != expected:
        raise RunError(
            f"{path}: expected the file as it was written, got one that was changed: its checksum "
            f"is not that of {LIST}. Bring the old one back; if it was changed on purpose, say "
            "--accept-edited (in Python: accept_edited=True)"
        )


def check_list(folder: Path) -> None:
    """Refuse a folder in which a file of the list is missing, or not as it was written."""
    for name in _listed(folder):
        if not (folder / name).is_file():
            raise RunError(
                f"{folder}: expected {name}, as its {LIST} says, got no such file; bring it back"
            )
        check_signed(folder / name)


def _listed(folder: Path) -> dict[str, str]:
    path = folder / LIST
    listed: dict[str, str] = read_json(path, {...: str}) if path.exists() else {}
    return listed


def _write(folder: Path, listed: dict[str, str]) -> None:
    write_text(folder / LIST, json.dumps(dict(sorted(listed.items())), indent=1) + "\n")


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
