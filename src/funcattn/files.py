"""Files and folders that are written whole or not at all.

Everything is written beside its place under another name, flushed to the disk, and renamed. So a
crash at any moment leaves the old content or the new, never a part of it, and what was there before
is not lost when the disk is full.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Where to write what is to become the file `path`; it takes its place at the end.

    Left by an exception, nothing is changed. Errors of the file system name `path`.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with whole_file(folder / "numbers.txt") as aside:
    ...     _ = aside.write_text("1 2 3")
    >>> [each.name for each in folder.iterdir()]
    ['numbers.txt']
    """
    # The ending stays the last, as some libraries choose the format by it.
    aside = path.with_name(f".{os.getpid()}.part.{path.name}")
    try:
        with _errors_about(path, aside):
            if not path.parent.is_dir():
                raise FileNotFoundError(2, "expected a folder that exists", str(path.parent))
            yield aside
            _flush(aside)
            os.replace(aside, path)
            _flush(path.parent)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Where to make what is to become the folder `path`, which must not exist at the end.

    Left by an exception, there is nothing at `path`. Errors of the file system name `path`.
    """
    aside = path.with_name(f".{path.name}.part")
    try:
        with _errors_about(path, aside):
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir(parents=True)
            yield aside
            for content in aside.rglob("*"):
                _flush(content)
            _flush(aside)
            os.rename(aside, path)
            _flush(path.parent)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file, in UTF-8, whole or not at all."""
    with whole_file(path) as aside:
        aside.write_text(text, encoding="utf-8")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all."""
    with whole_file(path) as aside:
        aside.write_bytes(content)


@contextmanager
def _errors_about(path: Path, aside: Path) -> Iterator[None]:
    """Errors of the file system that name the path a person asked for, not the one beside it."""
    try:
        yield
    except OSError as error:
        named = Path(str(error.filename)) if error.filename else aside
        if error.errno is None or (aside != named and aside not in named.parents):
            raise
        words = error.strerror or ""
        if "\n" in words:  # HDF5 tells of addresses in memory, which are of no use to a person
            words = os.strerror(error.errno)
        raise type(error)(error.errno, words, str(path)) from error


def _flush(path: Path) -> None:
    """Make the content of a file, or the names in a folder, last through a power cut."""
    if path.is_dir() and os.name == "nt":
        return  # where folders cannot be opened
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
