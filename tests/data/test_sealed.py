"""Digests of whole files, and HDF5 files of others that are tried before they are read."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from funcattn.data import sandbox
from funcattn.data.foreign import FileError, read_hdf5, write_hdf5
from funcattn.data.sealed import check_seal, seal


def test_a_sealed_file_is_right_until_any_byte_changes(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"content")
    assert not check_seal(path)
    seal(path)
    assert check_seal(path)
    for place in range(len(b"content")):
        raw = bytearray(path.read_bytes())
        raw[place] ^= 1
        other = tmp_path / f"{place}.bin"
        other.write_bytes(raw)
        with pytest.raises(ValueError, match="its checksum is another"):
            check_seal(other)


def test_a_file_of_ours_is_refused_before_hdf5_looks_at_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.h5"
    write_hdf5(path, {"u": np.arange(5.0)})
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)

    def opened(*_: object, **__: object) -> None:
        raise AssertionError("HDF5 looked at it")

    monkeypatch.setattr(h5py, "File", opened)
    with pytest.raises(FileError, match="its checksum is another"):
        read_hdf5(path)


def test_a_file_of_others_is_tried_in_another_process_first_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("u", data=np.arange(6.0), chunks=(2,), compression="gzip")
    asked: list[Any] = []

    def died(path: Path, *words: Any, **_: Any) -> None:
        asked.append(words[0])
        raise FileError(path, "an HDF5 file", "one at which the reader ended", "look at it")

    with monkeypatch.context() as patch:
        patch.setattr(sandbox, "read_apart", died)
        with pytest.raises(FileError, match="the reader ended"):
            read_hdf5(path)
    assert asked == ["hdf5_try"]
    np.testing.assert_array_equal(read_hdf5(path)["u"], np.arange(6.0))
    with monkeypatch.context() as patch:
        patch.setattr(sandbox, "read_apart", died)
        assert len(read_hdf5(path)["u"]) == 6
