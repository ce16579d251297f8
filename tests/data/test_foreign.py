import io
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from funcattn.data import foreign
from funcattn.data.foreign import FileError, read_hdf5, read_npz, write_hdf5, write_npz

ARRAYS = {
    "floats": np.linspace(0, 1, 6).reshape(2, 3),
    "whole": np.arange(4, dtype=np.int32),
    "flags": np.array([True, False]),
    "number": np.array(2.5),
    "turned": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "none": np.zeros((0, 3)),
}


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_arrays_come_back_to_the_bit(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    (write_npz if suffix == ".npz" else write_hdf5)(path, ARRAYS)
    again = (read_npz if suffix == ".npz" else read_hdf5)(path)
    assert again.keys() == ARRAYS.keys()
    for name, each in ARRAYS.items():
        assert again[name].dtype == each.dtype
        np.testing.assert_array_equal(again[name], each)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_packed_archives_are_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", u=np.zeros(100_000))
    assert read_npz(tmp_path / "a.npz")["u"].shape == (100_000,)


def npz_with(path: Path, content: bytes, **options: Any) -> Path:
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr("u.npy", content)
    return path


def header(shape: str, kind: str = "<f8") -> bytes:
    words = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(words).to_bytes(2, "little") + words.encode()


@pytest.mark.parametrize(
    "content",
    [
        header("(1000000000000,)") + bytes(80),
        header("(-1,)") + bytes(80),
        header("(3,)") + bytes(80),
        header("(10,)", "|O") + bytes(80),
        header("(10,)", "<c16") + bytes(160),
        header("('a',)") + bytes(80),
        header("(10,)", "<U2") + bytes(80),
        b"\x93NUMPY\x09\x00" + bytes(80),
        b"",
        b"text",
    ],
    ids=["huge", "negative", "too much", "objects", "complex", "strange", "words", "version",
         "empty", "text"],
)  # fmt: skip
def test_arrays_that_are_not_what_they_declare_are_refused(content: bytes, tmp_path: Path) -> None:
    path = npz_with(tmp_path / "a.npz", content)
    with pytest.raises(FileError, match=r"a\.npz: expected") as caught:
        read_npz(path)
    assert "pickle" not in str(caught.value)


def test_a_bomb_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign, "memory_budget", lambda: 10**6)
    content = header("(10000000,)", "|u1") + bytes(10**7)
    path = npz_with(tmp_path / "a.npz", content, compression=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 20_000
    with pytest.raises(FileError, match=r"arrays that fit into its .* bytes"):
        read_npz(path)


def test_an_unusual_packer_is_refused(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.save(stream, np.zeros(3))
    path = npz_with(tmp_path / "a.npz", stream.getvalue(), compression=zipfile.ZIP_LZMA)
    with pytest.raises(FileError, match="packed by an unusual method"):
        read_npz(path)


def test_damage_that_hides_an_array_is_noticed(tmp_path: Path) -> None:
    write_npz(tmp_path / "a.npz", {"u": np.zeros(3), "v": np.ones(3)})
    content = bytearray((tmp_path / "a.npz").read_bytes())
    # The length of the first member's comment in the list of members, which then swallows the next.
    content[content.index(b"PK\1\2") + 32] = 200
    (tmp_path / "a.npz").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert len(archive.infolist()) == 1
    with pytest.raises(FileError, match="not as long as it says"):
        read_npz(tmp_path / "a.npz")


def test_arrays_that_are_missing_are_named(tmp_path: Path) -> None:
    write_npz(tmp_path / "a.npz", {"u": np.zeros(3)})
    with pytest.raises(FileError, match=r"expected the arrays u, v, got u: add v"):
        read_npz(tmp_path / "a.npz", ["u", "v"])


class TestHdf5:
    def test_a_shape_that_the_file_cannot_hold_is_refused(self, tmp_path: Path) -> None:
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.create_dataset("u", (10**12,), "f4", chunks=(1000,))
        with pytest.raises(FileError, match=r"u of shape \(1000000000000,\)"):
            read_hdf5(tmp_path / "a.h5")

    def test_a_huge_chunk_is_refused(self, tmp_path: Path) -> None:
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.create_dataset("u", (1,), "f4", maxshape=(None,), chunks=(5 * 10**8,))
        with pytest.raises(FileError, match=r"u of shape \(500000000,\)"):
            read_hdf5(tmp_path / "a.h5")

    def test_other_files_are_not_read(self, tmp_path: Path) -> None:
        np.zeros(10).tofile(tmp_path / "secret")
        write_hdf5(tmp_path / "b.h5", {"v": np.zeros(3)})
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.create_dataset("u", (10,), "f8", external=[(str(tmp_path / "secret"), 0, 80)])
            file["v"] = h5py.ExternalLink(str(tmp_path / "b.h5"), "v")
            layout = h5py.VirtualLayout((3,), "f8")
            layout[:] = h5py.VirtualSource(str(tmp_path / "b.h5"), "v", (3,))
            file.create_virtual_dataset("w", layout)
            file["x"] = np.ones(2)
        assert list(read_hdf5(tmp_path / "a.h5")) == ["x"]

    def test_a_number_that_was_changed_is_noticed(self, tmp_path: Path) -> None:
        write_hdf5(tmp_path / "a.h5", {"u": np.arange(5.0), "v": np.array(3.0)})
        for name in ("u", "v"):
            write_hdf5(tmp_path / "b.h5", {"u": np.arange(5.0), "v": np.array(3.0)})
            with h5py.File(tmp_path / "b.h5", "r+") as file:
                file[name][...] = 7.0
            with pytest.raises(FileError, match="its checksum is another"):
                read_hdf5(tmp_path / "b.h5")

    def test_an_array_that_was_taken_out_is_noticed(self, tmp_path: Path) -> None:
        write_hdf5(tmp_path / "a.h5", {"u": np.arange(5.0), "v": np.array(3.0)})
        with h5py.File(tmp_path / "a.h5", "r+") as file:
            del file["v"]
        with pytest.raises(FileError, match="not those that were written"):
            read_hdf5(tmp_path / "a.h5")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="expected a file, got a folder"):
        read_npz(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_npz(tmp_path / "none.npz")
