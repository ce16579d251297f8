"""MATLAB files: both formats give the same arrays, and nothing but whole numeric arrays passes."""

import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from scipy.io import loadmat, savemat
from scipy.sparse import csc_array

from funcattn.data import matlab
from funcattn.data.matlab import Format, MatlabVariable, list_matlab, read_matlab, write_matlab

FORMATS: tuple[Format, ...] = ("5", "7.3")
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
TYPES = ["float64", "float32", *INTEGERS]
in_both = pytest.mark.parametrize("fmt", FORMATS)


def numbers(*shape: int, dtype: str = "float64") -> np.ndarray:
    """Values that tell every place from every other, as far as the type can."""
    array = np.arange(-3, np.prod(shape) - 3).reshape(shape).astype(dtype)
    return array + 0.5 if array.dtype.kind == "f" else array


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


def format_5_bytes(
    name: str, shape: tuple[int, ...], kind: int, stored: np.ndarray, order: str, packed: bool
) -> bytes:
    """A file with one variable, byte by byte: class `kind`, values in the type of `stored`."""

    def element(code: int, content: bytes) -> bytes:
        return struct.pack(order + "II", code, len(content)) + content + bytes(-len(content) % 8)

    code = {"uint8": 2, "int16": 3, "float32": 7, "float64": 9}[stored.dtype.name]
    values = stored.astype(stored.dtype.newbyteorder(order)).tobytes(order="F")
    matrix = element(6, struct.pack(order + "II", kind, 0))
    matrix += element(5, struct.pack(order + f"{len(shape)}i", *shape))
    matrix += element(1, name.encode()) + element(code, values)
    variable = struct.pack(order + "II", 14, len(matrix)) + matrix
    if packed:
        variable = zlib.compress(variable)
        variable = struct.pack(order + "II", 15, len(variable)) + variable
    version = b"\x00\x01IM" if order == "<" else b"\x01\x00MI"
    return b"MATLAB 5.0 MAT-file".ljust(116) + bytes(8) + version + variable


@in_both
@pytest.mark.parametrize("dtype", TYPES)
def test_arrays_come_back_as_they_were(tmp_path: Path, fmt: Format, dtype: str) -> None:
    kept = {"u": numbers(2, 3, 4, 5, dtype=dtype), "second_1": numbers(3, 7, dtype=dtype)}
    write_matlab(tmp_path / "a.mat", kept, format=fmt)
    read = read_matlab(tmp_path / "a.mat", ["second_1", "u"])
    assert list(read) == ["second_1", "u"]
    for name, array in kept.items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].dtype == dtype
        assert read[name].dtype.isnative
        assert read[name].flags.c_contiguous


@in_both
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(np.asfortranarray, id="fortran"),
        pytest.param(lambda a: a[::-1, ::2, 1:], id="view"),
        pytest.param(lambda a: a.astype(">f8"), id="big_endian"),
        pytest.param(lambda a: np.broadcast_to(a[:1], (6, 4, 5)), id="broadcast"),
    ],
)
def test_order_in_memory_does_not_matter(tmp_path: Path, fmt: Format, change: Any) -> None:
    array = change(numbers(3, 4, 5))
    write_matlab(tmp_path / "a.mat", {"u": array}, format=fmt)
    np.testing.assert_array_equal(read_matlab(tmp_path / "a.mat", ["u"])["u"], array)


@in_both
def test_vectors_and_scalars_are_rows_as_in_matlab(tmp_path: Path, fmt: Format) -> None:
    write_matlab(tmp_path / "a.mat", {"t": numbers(5), "s": np.array(2.5)}, format=fmt)
    read = read_matlab(tmp_path / "a.mat", ["t", "s"])
    np.testing.assert_array_equal(read["t"], numbers(1, 5))
    np.testing.assert_array_equal(read["s"], [[2.5]])


@in_both
@pytest.mark.parametrize(
    ("rows", "stride"),
    [
        pytest.param(slice(2, 5), 1, id="rows"),
        pytest.param(slice(-3, None), 1, id="last"),
        pytest.param(slice(None, -2), 2, id="all_but_last"),
        pytest.param(slice(1, 8, 3), 2, id="every_third"),
        pytest.param(slice(0, 8), 3, id="stride"),
        pytest.param(slice(None), (1, 4, 2), id="stride_of_each_axis"),
        pytest.param(slice(7, 8), [5, 1, 1], id="last_row"),
    ],
)
def test_selection_is_that_of_numpy(tmp_path: Path, fmt: Format, rows: slice, stride: Any) -> None:
    array = numbers(8, 5, 7, 4)
    write_matlab(tmp_path / "a.mat", {"u": array}, format=fmt)
    i, j, k = (stride,) * 3 if isinstance(stride, int) else stride
    read = read_matlab(tmp_path / "a.mat", ["u"], rows=rows, stride=stride)["u"]
    np.testing.assert_array_equal(read, array[rows, ::i, ::j, ::k])
    assert read.flags.c_contiguous


@in_both
def test_only_the_selection_stays_in_memory(tmp_path: Path, fmt: Format) -> None:
    array = np.ones((512, 64, 64))
    write_matlab(tmp_path / "a.mat", {"u": array}, format=fmt)
    tracemalloc.start()
    try:
        part = read_matlab(tmp_path / "a.mat", ["u"], rows=slice(10, 20), stride=8)["u"]
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert part.shape == (10, 8, 8)
    assert kept < array.nbytes / 50
    # Format 5 is read whole first, which also shows that the measure notices.
    assert (peak < array.nbytes / 50) == (fmt == "7.3")


@in_both
def test_a_part_of_a_column_does_not_keep_the_column(tmp_path: Path, fmt: Format) -> None:
    # It is contiguous in either order, so that a view of it would pass for a copy.
    write_matlab(tmp_path / "a.mat", {"u": numbers(1000, 1)}, format=fmt)
    part = read_matlab(tmp_path / "a.mat", ["u"], rows=slice(2, 4))["u"]
    np.testing.assert_array_equal(part, numbers(1000, 1)[2:4])
    assert part.base is None


@in_both
def test_the_first_bytes_decide_not_the_name(tmp_path: Path, fmt: Format) -> None:
    for name in ("a", "a.txt"):
        write_matlab(tmp_path / name, {"u": numbers(2, 3)}, format=fmt)
    write_matlab(tmp_path / "a.mat", {"other": numbers(2, 2)})
    for name in ("a", "a.txt"):
        np.testing.assert_array_equal(read_matlab(tmp_path / name, ["u"])["u"], numbers(2, 3))


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "compressed"])
@pytest.mark.parametrize("order", ["<", ">"], ids=["little_endian", "big_endian"])
@pytest.mark.parametrize("stored", ["uint8", "int16", "float64"])
def test_doubles_packed_into_smaller_types_are_doubles(
    tmp_path: Path, stored: str, order: str, packed: bool
) -> None:
    # MATLAB stores whole doubles, like a permeability of 3 or 12, in one byte each.
    array = np.where(numbers(2, 3, 4) % 5 < 2, 12, 3).astype(stored)
    path = tmp_path / "a.mat"
    path.write_bytes(format_5_bytes("coeff", array.shape, 6, array, order, packed))
    assert list_matlab(path) == {"coeff": MatlabVariable((2, 3, 4), "double")}
    read = read_matlab(path, ["coeff"])["coeff"]
    assert read.dtype == np.float64
    assert read.dtype.isnative
    np.testing.assert_array_equal(read, array)


def test_of_two_variables_with_one_name_the_first_is_listed_and_read(tmp_path: Path) -> None:
    first, second = (
        format_5_bytes("u", array.shape, 6, array, "<", False)
        for array in (numbers(3, 4), numbers(2, 5))
    )
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


def test_format_5_is_read_by_scipy(tmp_path: Path) -> None:
    write_matlab(tmp_path / "a.mat", {"u": numbers(2, 3, 4), "t": numbers(5)}, format="5")
    read = loadmat(tmp_path / "a.mat")
    np.testing.assert_array_equal(read["u"], numbers(2, 3, 4))
    assert read["t"].shape == (1, 5)
    assert read["__version__"] == "1.0"


def test_format_73_is_what_matlab_wants(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    arrays = {"u": numbers(2, 3, 4), "n": numbers(2, 2, dtype="int16"), "s": np.ones((1, 1), "f4")}
    write_matlab(path, arrays, format="7.3")
    content = path.read_bytes()
    assert content.startswith(b"MATLAB 7.3 MAT-file, ")
    assert b"\0" not in content[:116]
    assert content[116:128] == bytes(8) + b"\x00\x02IM"
    assert content[128:512] == bytes(384)
    # The superblock of version 0 is known to every version of HDF5.
    assert content[512:521] == b"\x89HDF\r\n\x1a\n\0"
    with h5py.File(path) as file:
        assert file.userblock_size == 512
        assert file["u"].shape == (4, 3, 2)
        np.testing.assert_array_equal(file["u"][()].T, arrays["u"])
        for name, kind in (("u", b"double"), ("n", b"int16"), ("s", b"single")):
            assert file[name].attrs["MATLAB_class"] == kind
            label = file[name].attrs.get_id("MATLAB_class")
            assert not label.get_type().is_variable_str()
            assert label.shape == ()


def test_format_73_of_the_same_arrays_is_the_same_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_matlab(tmp_path / name, {"u": numbers(2, 3, 4)}, format="7.3")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


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


@in_both
def test_missing_variables_are_named_with_those_found(tmp_path: Path, fmt: Format) -> None:
    write_matlab(tmp_path / "a.mat", {"u": numbers(2, 3), "v": numbers(1, 1)}, format=fmt)
    with pytest.raises(
        ValueError,
        match=r"a\.mat: expected the variables a, u, u/x, got u: double \(2, 3\), v: double "
        r"\(1, 1\): a, u/x missing",
    ):
        read_matlab(tmp_path / "a.mat", ["a", "u", "u/x"])


@in_both
@pytest.mark.parametrize(
    "rows",
    [slice(0, 9), slice(-9, None), slice(8, None), slice(5, 5), slice(None, None, -1)],
    ids=["beyond", "before", "after", "none", "backwards"],
)
def test_rows_that_are_not_there_are_refused(tmp_path: Path, fmt: Format, rows: slice) -> None:
    write_matlab(tmp_path / "a.mat", {"u": numbers(8, 5)}, format=fmt)
    with pytest.raises(ValueError, match=r"expected rows among the 8 of u, .* got slice\("):
        read_matlab(tmp_path / "a.mat", ["u"], rows=rows)


@in_both
@pytest.mark.parametrize("stride", [0, -1, (1,), (1, 2, 3), (2, 0)], ids=str)
def test_strides_that_do_not_fit_are_refused(tmp_path: Path, fmt: Format, stride: Any) -> None:
    write_matlab(tmp_path / "a.mat", {"u": numbers(3, 4, 5)}, format=fmt)
    with pytest.raises(ValueError, match=r"stride: expected a number .* or 2 of them, .* got"):
        read_matlab(tmp_path / "a.mat", ["u"], stride=stride)


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


@pytest.mark.parametrize("kind", ["5", "5_compressed", "7.3"])
@pytest.mark.parametrize("left", [0.02, 0.15, 0.3, 0.5, 0.7, 0.9, 0.999])
def test_file_cut_short_is_refused(tmp_path: Path, kind: str, left: float) -> None:
    path = tmp_path / "a.mat"
    arrays = {name: np.random.default_rng(0).normal(size=(40, 30)) for name in ("a", "u")}
    if kind == "5_compressed":
        savemat(path, arrays, do_compression=True)
    else:
        write_matlab(path, arrays, format="5" if kind == "5" else "7.3")
    assert read_matlab(path, ["a", "u"])
    content = path.read_bytes()
    path.write_bytes(content[: int(left * len(content))])
    with pytest.raises(ValueError, match=r"a\.mat: expected .* got .*(cut short|u missing)"):
        read_matlab(path, ["a", "u"])


@in_both
def test_every_cut_is_noticed(tmp_path: Path, fmt: Format) -> None:
    write_matlab(tmp_path / "a.mat", {"a": numbers(2, 2), "u": numbers(3, 2)}, format=fmt)
    content = (tmp_path / "a.mat").read_bytes()
    for length in range(0, len(content), 9):
        (tmp_path / "a.mat").write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"a\.mat: expected"):
            read_matlab(tmp_path / "a.mat", ["a", "u"])


@pytest.mark.parametrize(
    ("fmt", "place", "found"),
    [
        ("5", 125, "a file of another kind"),
        ("5", 126, "a file of another kind"),
        ("7.3", 125, "a file of another kind"),
        ("7.3", 512, "cut short or damaged"),
        ("7.3", 515, "cut short or damaged"),
        ("5", 128, "cut short or damaged"),
    ],
)
def test_flipped_signature_is_noticed(tmp_path: Path, fmt: Format, place: int, found: str) -> None:
    write_matlab(tmp_path / "a.mat", {"u": numbers(2, 3)}, format=fmt)
    content = bytearray((tmp_path / "a.mat").read_bytes())
    content[place] ^= 0x10
    (tmp_path / "a.mat").write_bytes(content)
    with pytest.raises(ValueError, match=rf"a\.mat: expected .* got .*{found}"):
        read_matlab(tmp_path / "a.mat", ["u"])


def test_damage_in_compressed_values_is_noticed(tmp_path: Path) -> None:
    savemat(tmp_path / "a.mat", {"u": numbers(50, 40)}, do_compression=True)
    content = bytearray((tmp_path / "a.mat").read_bytes())
    content[-3] ^= 1
    (tmp_path / "a.mat").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.mat: expected a whole MATLAB file, got .* damaged"):
        read_matlab(tmp_path / "a.mat", ["u"])


def test_running_out_of_memory_is_not_called_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise MemoryError

    write_matlab(tmp_path / "a.mat", {"u": numbers(2, 3)})
    monkeypatch.setattr(matlab, "loadmat", full)
    with pytest.raises(MemoryError):
        read_matlab(tmp_path / "a.mat", ["u"])


@in_both
@pytest.mark.parametrize(
    "array",
    [
        np.ones((2, 2), bool),
        np.ones((2, 2), complex),
        np.ones((2, 2), np.float16),
        np.ones((2, 2), np.longdouble),
        np.array([["a"]]),
        np.array([[None]]),
        np.ones((0, 3)),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_arrays_that_are_not_numeric_are_not_written(
    tmp_path: Path, fmt: Format, array: np.ndarray
) -> None:
    with pytest.raises(ValueError, match=r"expected real numeric arrays .* got u of type"):
        write_matlab(tmp_path / "a.mat", {"u": array}, format=fmt)
    assert not list(tmp_path.iterdir())


@in_both
@pytest.mark.parametrize("name", ["", "1a", "_a", "a b", "a/b", "#refs#", "ä", "a" * 64, "a\n"])
def test_names_that_matlab_cannot_have_are_refused(tmp_path: Path, fmt: Format, name: str) -> None:
    with pytest.raises(ValueError, match=r"expected variable names of letters, .* got "):
        write_matlab(tmp_path / "a.mat", {name: numbers(2, 2)}, format=fmt)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("as_a_user")
def test_nothing_to_write_and_unknown_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.mat: expected at least one array to write, got none"):
        write_matlab(tmp_path / "a.mat", {})
    with pytest.raises(ValueError, match=r'format: expected "5" or "7.3", got \'4\''):
        write_matlab(tmp_path / "a.mat", {"u": numbers(2, 2)}, format="4")  # type: ignore[arg-type]


def test_format_5_beyond_its_limit_names_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A view of one number that takes 2 GiB when it is written.
    large = np.broadcast_to(0.0, (2**14, 2**14))
    with pytest.raises(ValueError, match=r'less than 2 GiB .* got u with 2\.0 GiB: .*"7\.3"'):
        write_matlab(tmp_path / "a.mat", {"u": large})
    monkeypatch.setattr(matlab, "_LARGEST", 32)
    write_matlab(tmp_path / "a.mat", {"u": numbers(1, 3)})
    write_matlab(tmp_path / "b.mat", {"u": numbers(2, 2)}, format="7.3")
    with pytest.raises(ValueError, match="less than 2 GiB"):
        write_matlab(tmp_path / "a.mat", {"u": numbers(2, 2)})


@in_both
def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, fmt: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, *_: Any, **__: Any) -> None:
        path.write_bytes(b"half")
        raise OSError("disk full")

    path = tmp_path / "a.mat"
    write_matlab(path, {"u": numbers(2, 3)}, format=fmt)
    for writer in ("savemat", "_write_73"):
        monkeypatch.setattr(matlab, writer, fail)
    with pytest.raises(OSError, match="disk full"):
        write_matlab(path, {"u": numbers(4, 3)}, format=fmt)
    assert list(tmp_path.iterdir()) == [path]
    np.testing.assert_array_equal(read_matlab(path, ["u"])["u"], numbers(2, 3))


@in_both
def test_a_write_replaces_the_file_at_once(
    tmp_path: Path, fmt: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.mat"
    write_matlab(path, {"u": numbers(2, 3)}, format=fmt)
    replace = matlab.os.replace

    def watched(aside: Path, target: Path) -> None:
        # What is renamed is whole, and the old file is there until then.
        np.testing.assert_array_equal(read_matlab(aside, ["u"])["u"], numbers(4, 3))
        np.testing.assert_array_equal(read_matlab(target, ["u"])["u"], numbers(2, 3))
        replace(aside, target)

    monkeypatch.setattr(matlab.os, "replace", watched)
    write_matlab(path, {"u": numbers(4, 3)}, format=fmt)
    assert list(tmp_path.iterdir()) == [path]
    np.testing.assert_array_equal(read_matlab(path, ["u"])["u"], numbers(4, 3))
