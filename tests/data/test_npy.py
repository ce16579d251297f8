"""The .npy files: opened without being read, written whole, and nothing but numbers passes."""

import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from funcattn.data.npy import open_npy, write_npy

TYPES = ["f8", "f4", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]


def numbers(*shape: int, dtype: str = "f8") -> np.ndarray:
    """Values that tell every place from every other."""
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_arrays_come_back_as_they_were(tmp_path: Path, dtype: str) -> None:
    arrays = {
        tmp_path / "a.npy": numbers(3, 4, 5, dtype=dtype),
        tmp_path / "b": numbers(7, dtype=dtype),
    }
    write_npy(arrays)
    assert set(tmp_path.iterdir()) == set(arrays)
    for path, array in arrays.items():
        for read in (open_npy(path), open_npy(str(path)), np.load(path)):
            np.testing.assert_array_equal(read, array)
            assert read.dtype == array.dtype


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(np.asfortranarray, id="fortran"),
        pytest.param(lambda array: array[::-1, ::2, 1:], id="view"),
        pytest.param(lambda array: array.transpose(1, 2, 0), id="transposed"),
        pytest.param(lambda array: array.astype(">f8"), id="big_endian"),
        pytest.param(lambda array: np.broadcast_to(array[:1], (6, 4, 5)), id="broadcast"),
    ],
)
def test_order_in_memory_does_not_matter(tmp_path: Path, change: Any) -> None:
    array = change(numbers(3, 4, 5))
    write_npy({tmp_path / "ours.npy": array})
    np.save(tmp_path / "numpy.npy", array)
    for name in ("ours.npy", "numpy.npy"):
        np.testing.assert_array_equal(open_npy(tmp_path / name), array)
    # What others read has the simplest form.
    ours = open_npy(tmp_path / "ours.npy")
    assert ours.flags.c_contiguous
    assert ours.dtype.isnative


def test_opening_reads_nothing_and_changes_nothing(tmp_path: Path) -> None:
    write_npy({tmp_path / "a.npy": np.ones((1000, 1000))})
    tracemalloc.start()
    try:
        array = open_npy(tmp_path / "a.npy")
        part = np.array(array[500:510])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert part.sum() == 10_000
    assert peak < array.nbytes / 50
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 2.0


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"a\.npy"):
        open_npy(tmp_path / "a.npy")


@pytest.mark.parametrize("order", ["C", "F"])
def test_every_cut_and_every_byte_too_many_is_noticed(tmp_path: Path, order: Any) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.asarray(numbers(3, 2), order=order))
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"a\.npy: expected a "):
            open_npy(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(ValueError, match=r"a\.npy: expected 176 bytes, .* got 177: .* damaged"):
        open_npy(path)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        pytest.param(b"", "an empty one", id="empty"),
        pytest.param(b"<!doctype html><title>Too many", "b'<!doctype html>", id="html"),
        pytest.param(b"version https://git-lfs.github.com", "b'version https://git", id="git_lfs"),
        pytest.param(b"PK\3\4" + bytes(100), r"b'PK\\x03", id="archive"),
        pytest.param(pickle.dumps([1.0, 2.0]), r"b'\\x80", id="pickle"),
    ],
)
def test_what_is_no_npy_file_is_named(tmp_path: Path, content: bytes, found: str) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(ValueError, match=rf"a\.npy: expected a \.npy file, got .*{found}"):
        open_npy(tmp_path / "a.npy")


@pytest.mark.parametrize(
    ("array", "found"),
    [
        pytest.param(np.array([True, False]), "type bool", id="logical"),
        pytest.param(np.array([1j, 2.0]), "type complex128", id="complex"),
        pytest.param(np.array(["a", "b"]), "type <U1", id="text"),
        pytest.param(np.array(["2024-01-01"], "M8[D]"), "type datetime64", id="dates"),
        pytest.param(np.zeros(2, [("u", "f8"), ("v", "f8")]), "type ", id="records"),
        pytest.param(np.zeros((0, 4)), r"shape \(0, 4\)", id="no_numbers"),
    ],
)
def test_other_arrays_are_neither_read_nor_written(
    tmp_path: Path, array: np.ndarray, found: str
) -> None:
    np.save(tmp_path / "a.npy", array)
    message = rf"\.npy: expected an array of real numbers that is not empty, got .*{found}"
    with pytest.raises(ValueError, match=message):
        open_npy(tmp_path / "a.npy")
    with pytest.raises(ValueError, match=message):
        write_npy({tmp_path / "good.npy": numbers(3), tmp_path / "b.npy": array})
    assert [file.name for file in tmp_path.iterdir()] == ["a.npy"]


class Trap:
    """Whoever unpickles it leaves a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return Path.touch, (self.trace,)


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([Trap(tmp_path / "trace"), None]), allow_pickle=True)
    with pytest.raises(ValueError, match=r"a\.npy: expected .* plain numbers, got .*objects"):
        open_npy(tmp_path / "a.npy")
    assert not (tmp_path / "trace").exists()
    np.load(tmp_path / "a.npy", allow_pickle=True)
    assert (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-3, 2)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (3000000000, 3000000000)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': 'many'}",
        "{'descr': '<x9', 'fortran_order': False, 'shape': (3, 2)}",
        "{'descr': '<f8', 'shape': (3, 2)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2)",
        "__import__('os').getcwd()",
    ],
    ids=["negative", "huge", "word", "unknown_type", "no_order", "open_bracket", "code"],
)
def test_headers_that_make_no_sense_are_refused(tmp_path: Path, header: str) -> None:
    line = header.encode().ljust(117) + b"\n"
    start = b"\x93NUMPY\1\0" + len(line).to_bytes(2, "little") + line
    (tmp_path / "a.npy").write_bytes(start + numbers(3, 2).tobytes())
    with pytest.raises(ValueError, match=r"a\.npy: expected a whole \.npy file of plain numbers"):
        open_npy(tmp_path / "a.npy")


def test_files_stay_as_they_were_if_one_of_them_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / "a.npy", tmp_path / "b.npy"]
    write_npy({path: numbers(3) for path in paths})
    save = np.save

    def full(stream: Any, array: np.ndarray, **options: Any) -> None:
        save(stream, array, **options)
        if "b.npy" in stream.name:
            raise OSError("no space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="no space left"):
        write_npy({path: numbers(5) for path in paths})
    assert sorted(tmp_path.iterdir()) == paths
    for path in paths:
        np.testing.assert_array_equal(open_npy(path), numbers(3))


def test_what_was_opened_before_stays_what_it_was(tmp_path: Path) -> None:
    write_npy({tmp_path / "a.npy": numbers(3)})
    opened = open_npy(tmp_path / "a.npy")
    write_npy({tmp_path / "a.npy": numbers(3) + 10})
    np.testing.assert_array_equal(opened, numbers(3))
    np.testing.assert_array_equal(open_npy(tmp_path / "a.npy"), numbers(3) + 10)
