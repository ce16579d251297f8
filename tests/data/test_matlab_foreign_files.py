"""MATLAB files by others: nothing but whole numeric arrays passes, and damage is called so."""

import struct
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from scipy.io import savemat
from scipy.sparse import csc_array

from funcattn.data import sandbox
from funcattn.data.matlab import MatlabVariable, list_matlab, read_matlab, write_matlab


def numbers(*shape: int) -> np.ndarray:
    """Values that tell every place from every other, with halves."""
    return np.arange(-3, np.prod(shape) - 3).reshape(shape) + 0.5


def hdf5_as_matlab(path: Path) -> h5py.File:
    """An open HDF5 file with MATLAB's header in its user block, to be filled by plain h5py."""
    with h5py.File(path, "w", userblock_size=512):
        pass
    with path.open("r+b") as stream:
        text = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: Mon Jan  1 00:00:00 2024"
        stream.write(text.ljust(116) + bytes(8) + b"\x00\x02IM")
    return h5py.File(path, "r+")


def labelled(file: h5py.File, name: str, kind: str, **dataset: Any) -> h5py.Dataset:
    item = file.create_dataset(name, **dataset)
    item.attrs["MATLAB_class"] = np.bytes_(kind)
    return item


def format_5_bytes(stored: np.ndarray, order: str = "<", packed: bool = False) -> bytes:
    """A file with one variable u, byte by byte: doubles, but their values in the type given."""

    def element(code: int, content: bytes) -> bytes:
        return struct.pack(order + "II", code, len(content)) + content + bytes(-len(content) % 8)

    code = {"uint8": 2, "int16": 3, "float64": 9}[stored.dtype.name]
    values = stored.astype(stored.dtype.newbyteorder(order)).tobytes(order="F")
    matrix = element(6, struct.pack(order + "II", 6, 0))
    matrix += element(5, struct.pack(order + f"{stored.ndim}i", *stored.shape))
    matrix += element(1, b"u") + element(code, values)
    variable = struct.pack(order + "II", 14, len(matrix)) + matrix
    if packed:
        variable = zlib.compress(variable)
        variable = struct.pack(order + "II", 15, len(variable)) + variable
    version = b"\x00\x01IM" if order == "<" else b"\x01\x00MI"
    return b"MATLAB 5.0 MAT-file".ljust(116) + bytes(8) + version + variable


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "compressed"])
@pytest.mark.parametrize("order", ["<", ">"], ids=["little_endian", "big_endian"])
@pytest.mark.parametrize("stored", ["uint8", "int16", "float64"])
def test_doubles_packed_into_smaller_types_are_doubles(
    tmp_path: Path, stored: str, order: str, packed: bool
) -> None:
    # MATLAB stores whole doubles, like a permeability of 3 or 12, in one byte each.
    array = np.where(numbers(2, 3, 4) % 5 < 2, 12, 3).astype(stored)
    path = tmp_path / "a.mat"
    path.write_bytes(format_5_bytes(array, order, packed))
    assert list_matlab(path) == {"u": MatlabVariable((2, 3, 4), "double")}
    read = read_matlab(path, ["u"])["u"]
    assert read.dtype == np.float64
    assert read.dtype.isnative
    np.testing.assert_array_equal(read, array)


def test_of_two_variables_with_one_name_the_first_is_listed_and_read(tmp_path: Path) -> None:
    first, second = (format_5_bytes(array) for array in (numbers(3, 4), numbers(2, 5)))
    (tmp_path / "a.mat").write_bytes(first + second[128:])
    assert list_matlab(tmp_path / "a.mat") == {"u": MatlabVariable((3, 4), "double")}
    np.testing.assert_array_equal(read_matlab(tmp_path / "a.mat", ["u"])["u"], numbers(3, 4))


def test_hdf5_as_matlab_writes_it(tmp_path: Path) -> None:
    # MATLAB's own files are in compressed chunks, with axes reversed.
    array = numbers(9, 5, 6)
    with hdf5_as_matlab(tmp_path / "a.mat") as file:
        labelled(file, "u", "double", data=array.T, chunks=(2, 2, 4), compression=3, shuffle=True)
        file.create_group("#refs#")
    assert list_matlab(tmp_path / "a.mat") == {"u": MatlabVariable((9, 5, 6), "double")}
    read = read_matlab(tmp_path / "a.mat", ["u"], rows=slice(3, None), stride=2)["u"]
    np.testing.assert_array_equal(read, array[3:, ::2, ::2])


def test_other_kinds_of_variables_are_refused_in_format_5(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    others: dict[str, Any] = {
        "cell": np.array([[1, "a"]], dtype=object),
        "struct": {"field": 1.0},
        "char": "text",
        "logical": np.array([[True, False]]),
        "sparse": csc_array(np.eye(3)),
        "empty": np.zeros((0, 4)),
    }
    savemat(path, {**others, "u": numbers(2, 3)})
    np.testing.assert_array_equal(read_matlab(path, ["u"])["u"], numbers(2, 3))
    for name in others:
        with pytest.raises(ValueError, match=rf"a\.mat: expected a full numeric array in {name}"):
            read_matlab(path, ["u", name])
    assert {name: variable.kind for name, variable in list_matlab(path).items()} == {
        **{name: name for name in others},
        "empty": "double",
        "u": "double",
    }


def test_other_kinds_of_variables_are_refused_in_format_73(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    with hdf5_as_matlab(path) as file:
        labelled(file, "u", "double", data=numbers(3, 2))
        labelled(file, "char", "char", data=np.ones((1, 4), "u2"))
        labelled(file, "logical", "logical", data=np.ones((1, 4), "u1"))
        labelled(file, "cell", "cell", data=np.array([[file.ref]], h5py.ref_dtype))
        labelled(file, "empty", "double", data=np.array([0, 4], "u8")).attrs["MATLAB_empty"] = 1
        labelled(file, "vector", "double", data=numbers(4))
        labelled(file, "number", "double", data=1.0)
        file.create_dataset("plain", data=numbers(2, 2))
        file.create_group("struct").attrs["MATLAB_class"] = np.bytes_("struct")
        # A sparse array is a group with the class of its values.
        file.create_group("sparse").attrs["MATLAB_class"] = np.bytes_("double")
    np.testing.assert_array_equal(read_matlab(path, ["u"])["u"], numbers(3, 2).T)
    for name in set(list_matlab(path)) - {"u"}:
        with pytest.raises(ValueError, match=rf"a\.mat: expected a full numeric array in {name}"):
            read_matlab(path, ["u", name])
    assert len(list_matlab(path)) == 10
    with pytest.raises(ValueError, match=r"in sparse, .* got group of double \(\): convert it"):
        read_matlab(path, ["sparse"])


def test_numbers_that_the_class_cannot_hold_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    pairs = np.zeros((2, 2), dtype=[("real", "f8"), ("imag", "f8")])
    with hdf5_as_matlab(path) as file:
        labelled(file, "complex", "double", data=pairs)
        labelled(file, "cut", "int8", data=numbers(2, 2))
    savemat(tmp_path / "b.mat", {"complex": numbers(2, 2) + 1j})
    for file_name, name in (("a.mat", "complex"), ("a.mat", "cut"), ("b.mat", "complex")):
        with pytest.raises(ValueError, match=rf"{file_name}: expected real numbers .* in {name}"):
            read_matlab(tmp_path / file_name, [name])


@pytest.mark.parametrize(
    ("content", "found"),
    [
        pytest.param(b"", "an empty file: download", id="empty"),
        pytest.param(b"<!DOCTYPE html><html>" + b" " * 600, "a web page", id="html"),
        pytest.param(b"\xef\xbb\xbf\r\n <html>", "a web page", id="html_with_mark"),
        pytest.param(
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
            "a git-lfs pointer in its place: fetch it by `git lfs pull`",
            id="git_lfs",
        ),
        pytest.param(b"PK\x03\x04" + bytes(600), "a zip archive: unpack", id="zip"),
        pytest.param(b"MATLAB 5.0 MAT-file", "19 bytes: download it again", id="cut_in_header"),
        pytest.param(bytes(range(256)) * 4, "a file of another kind: save it again", id="other"),
    ],
)
def test_what_is_no_matlab_file_is_named(tmp_path: Path, content: bytes, found: str) -> None:
    (tmp_path / "a.mat").write_bytes(content)
    for act in (list_matlab, lambda path: read_matlab(path, ["u"])):
        with pytest.raises(ValueError, match=rf"a\.mat: expected a MATLAB file .* got {found}"):
            act(tmp_path / "a.mat")


def test_matlab_4_and_plain_hdf5_are_refused(tmp_path: Path) -> None:
    savemat(tmp_path / "old.mat", {"u": numbers(20, 30)}, format="4")
    with pytest.raises(ValueError, match=r"old\.mat: .* got a file of another kind: save it again"):
        list_matlab(tmp_path / "old.mat")
    with h5py.File(tmp_path / "plain.mat", "w") as file:
        labelled(file, "u", "double", data=numbers(2, 3))
    with pytest.raises(ValueError, match=r"plain\.mat: .* got plain HDF5 without MATLAB's header"):
        list_matlab(tmp_path / "plain.mat")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"a\.mat"):
        read_matlab(tmp_path / "a.mat", ["u"])


def write_kind(kind: str, path: Path, arrays: dict[str, np.ndarray]) -> bytearray:
    """Write a file in one of both formats, or as MATLAB does by default; returns its bytes."""
    if kind == "5_compressed":
        savemat(path, arrays, do_compression=True)
    else:
        write_matlab(path, arrays, format=kind)  # type: ignore[arg-type]
    assert list(read_matlab(path, list(arrays))) == list(arrays)
    return bytearray(path.read_bytes())


@pytest.mark.parametrize("kind", ["5", "5_compressed", "7.3"])
@pytest.mark.parametrize(("shape", "step"), [((3, 2), 9), ((40, 30), 400)], ids=["small", "large"])
def test_file_cut_short_is_refused(
    tmp_path: Path, kind: str, shape: tuple[int, int], step: int
) -> None:
    path, rng = tmp_path / "a.mat", np.random.default_rng(0)
    content = write_kind(kind, path, {name: rng.normal(size=shape) for name in ("a", "u")})
    for length in (*range(0, len(content), step), len(content) - 9):
        path.write_bytes(content[:length])
        found = r"(an empty file|\d+ bytes)" if length < 128 else ".*(cut short|u missing)"
        with pytest.raises(ValueError, match=rf"a\.mat: expected .* got {found}"):
            read_matlab(path, ["a", "u"])


@pytest.mark.parametrize(
    ("kind", "place", "found"),
    [
        ("5", 125, "a file of another kind"),
        ("5", 126, "a file of another kind"),
        ("7.3", 125, "a file of another kind"),
        ("7.3", 512, "cut short or damaged"),
        ("7.3", 515, "cut short or damaged"),
        ("5", 128, "cut short or damaged"),
        # The sum that tells whether the values are right.
        ("5_compressed", -3, "cut short or damaged"),
    ],
)
def test_a_flipped_bit_is_noticed(tmp_path: Path, kind: str, place: int, found: str) -> None:
    content = write_kind(kind, tmp_path / "a.mat", {"u": numbers(50, 40)})
    content[place] ^= 0x10
    (tmp_path / "a.mat").write_bytes(content)
    with pytest.raises(ValueError, match=rf"a\.mat: expected .* got .*{found}"):
        read_matlab(tmp_path / "a.mat", ["u"])


def test_running_out_of_memory_is_not_called_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_matlab(tmp_path / "a.mat", {"u": np.zeros((4000, 1000))})
    read_matlab(tmp_path / "a.mat", ["u"], rows=slice(1))
    monkeypatch.setattr(sandbox, "memory_budget", lambda: 10**6)
    with pytest.raises(ValueError, match="more than 1000000 bytes of memory") as caught:
        read_matlab(tmp_path / "a.mat", ["u"])
    assert "damaged" not in str(caught.value)
